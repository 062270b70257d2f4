"""A log in etcd: a key for each entry, and one that counts them.

    <prefix>/domain-00003/h                       the head: put beside every entry, its version counts them
    <prefix>/domain-00003/e/<bucket>/<who><n>     one entry, never overwritten

An append is one transaction of two puts. The head's version counts them, so
positions are dense: the version itself, or, where a cluster was moved here,
the version behind the base that the head carries (ADR-0200); an entry lies in the bucket of the count before it, which
the transaction compares. So a bucket that is not the last has exactly
`bucket_entries` of them, in the order of their revisions, and a page is one
bucket however long the log is.

History goes by whole buckets and by deleting alone, for a delete passes in an
etcd that is full; what is gone is told by its bucket, which is empty.

Invariants
    LG26  An append is sent once. Whatever ends it after it was sent, but a
          refusal, is `LostReply`.
    LG27  A follower delivers position after position: an event that etcd did
          not send is noticed by the head's count and read again; a log that
          is shorter than what was delivered, or is another one under the same
          name, or lacks an entry, is `Corrupt`.
    LG28  A bucket is deleted as a whole or not at all, the oldest first.
    LG60  The base of a log is written when its head is made, carried by every
          later one, and never changed: of an import and a first entry one wins.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Final

import grpc.aio

from dray.clock import Clock
from dray.errors import Conflict, Corrupt, Invalid, Unavailable
from dray.ids import Entropy, SystemEntropy
from dray.log.etcd import etcd_pb2 as pb
from dray.log.etcd.members import EtcdPeer, EtcdUnreachable, Members, is_refusal
from dray.log.etcd.room import CROWDED, EtcdRoom
from dray.log.limits import MAX_ENTRY_BYTES, check_entry, gone_back, trimmed
from dray.log.port import LostReply, NotAppended, Position
from dray.log.telemetry import EVENT_LOST, NOT_COMPACTED, RECONNECTING
from dray.log.urls import EtcdLogs
from dray.telemetry import logger

BUCKET_ENTRIES: Final = 256
"""Entries that are read at once; at most 256 MiB of the largest."""
CALL_SECONDS: Final = 5.0
RETRY_SECONDS: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Pauses between attempts to reach etcd; a follower keeps to the last one."""
LOOK_SECONDS: Final = 5.0
"""The last event may be one that is lost, so a follower that hears nothing looks by itself this often."""
TRIM_BUCKETS: Final = 16
MOST_KEPT_BYTES: Final = 256 << 20
"""etcd has a quota, 2 GiB if nobody says otherwise, and needs about twice the bytes of an entry."""

_LAYOUT: Final = b"1"
_GONE: Final = "the log is gone from etcd, or is another one: stop every broker, and restore it from a backup"


class _Again(Exception):
    """The watch is of no more use: read on."""


@dataclass(frozen=True, slots=True)
class _Page:
    """One consistent look at the log."""

    entries: list[tuple[Position, bytes]]
    tail: int
    revision: int


class EtcdLog:
    """The log of one domain."""

    def __init__(
        self,
        url: EtcdLogs,
        domain: int,
        *,
        clock: Clock,
        max_entry_bytes: int = MAX_ENTRY_BYTES,
        call_seconds: float = CALL_SECONDS,
        bucket_entries: int = BUCKET_ENTRIES,
        quota_bytes: int | None = None,
        entropy: Entropy | None = None,
    ) -> None:
        """`bucket_entries`: of a log that is still to be begun. `quota_bytes`: of an etcd that does not say its own."""
        self._name = f"domain-{domain:05d}"
        base = f"{url.prefix}/{self._name}/".encode()
        self._head, self._entries, self._entries_end = base + b"h", base + b"e/", base + b"e0"
        self._base, self._end = base, base[:-1] + b"0"
        self._url = url
        self._bucket_entries = bucket_entries
        self._max_entry_bytes = max_entry_bytes
        self._members = Members(url, call_seconds)
        self._room = EtcdRoom(self._members, clock, quota_bytes)
        self._who = (entropy or SystemEntropy()).random_bytes(8).hex().encode()
        self._made = 0
        self._count = 0
        self._born: int | None = None
        """The revision at which the head was made: another one is another log."""
        self._base_position: int | None = None
        """What to add to the head's version, where the log began behind another one (LG60)."""
        self._sizes: dict[int, int] = {}
        self._read_upto = 0

    @classmethod
    async def open(
        cls,
        url: EtcdLogs,
        domain: int,
        *,
        clock: Clock,
        max_entry_bytes: int = MAX_ENTRY_BYTES,
        call_seconds: float = CALL_SECONDS,
        bucket_entries: int = BUCKET_ENTRIES,
    ) -> "EtcdLog":
        """The log, reached once.

        Raises:
            Unavailable: no member answers, or we may not come in.
        """
        log = cls(
            url, domain, clock=clock, max_entry_bytes=max_entry_bytes, call_seconds=call_seconds,
            bucket_entries=bucket_entries,
        )  # fmt: skip
        try:
            await log.tail()
            log._room.look_soon()
        except BaseException:
            await log.close()
            raise
        return log

    async def append(self, entry: bytes) -> Position:
        check_entry(entry, self._max_entry_bytes)
        self._room.look_soon()
        if pause := self._room.pause_s:
            await self._wait(pause)  # LG29
        if self._born is None:
            await self._meet()
        while True:
            answer = await self._send(entry)
            if answer.succeeded:
                before = answer.responses[1].response_put.prev_kv
                position = self._position(before.version + 1)
                self._count = max(self._count, position)
                self._born = self._born or answer.header.revision
                return position
            found = answer.responses[0].response_range.kvs  # not in the log: the count was an old one
            try:
                self._count = self._checked(found[0] if found else None)
            except Corrupt as error:
                raise NotAppended(str(error)) from error

    async def tail(self) -> Position:
        answer = await self._repeat(_ranges(pb.RangeRequest(key=self._head)))
        found = answer.responses[0].response_range.kvs
        self._count = self._checked(found[0] if found else None)
        return Position(self._count)

    async def trim(self, upto: Position) -> None:
        if upto > (tail := await self.tail()):
            raise Invalid("cannot trim above the tail", upto=upto, tail=tail)
        keep = upto // self._bucket_entries
        oldest = pb.RangeRequest(key=self._entries, range_end=self._bucket(keep), limit=1, keys_only=True)
        revision = 0
        while kvs := (await self._repeat(_ranges(oldest))).responses[0].response_range.kvs:
            upto_bucket = min(keep, self._bucket_of(kvs[0].key) + TRIM_BUCKETS)
            delete = pb.DeleteRangeRequest(key=self._entries, range_end=self._bucket(upto_bucket))  # LG28
            answer = await self._repeat(pb.TxnRequest(success=[pb.RequestOp(request_delete_range=delete)]))
            revision = answer.header.revision
        self._sizes = {bucket: size for bucket, size in self._sizes.items() if bucket >= keep}
        if revision:
            await self._compact(revision)

    async def begin_behind(self, position: Position) -> None:
        """Let an empty log go on behind a position; to repeat it is harmless while nothing was appended."""
        if position < 1:
            raise Invalid("a log goes on behind the position of an entry", position=position)
        head = b"%s %d %d" % (_LAYOUT, self._bucket_entries, position - 1)  # its own put is counted too
        request = pb.TxnRequest(
            compare=[_made_at(self._head, 0)],  # LG60
            success=[pb.RequestOp(request_put=pb.PutRequest(key=self._head, value=head))],
            failure=[pb.RequestOp(request_range=pb.RangeRequest(key=self._head))],
        )
        await self._repeat(request)
        if await self.tail() != position or self._began != position:
            raise Conflict("the log is not empty", log=self._name)

    async def follow(self, after: Position) -> AsyncIterator[tuple[Position, bytes]]:
        failures = 0
        while not self._members.closing.is_set():
            try:
                page = await self._page(after)
                failures = 0
                for position, entry in page.entries:
                    after = position
                    yield position, entry
                if after < page.tail:
                    continue
                async with aclosing(self._watch(page.revision + 1, after)) as events:
                    async for position, entry in events:
                        after = position
                        yield position, entry
            except _Again:
                continue
            except (grpc.aio.AioRpcError, Unavailable, TimeoutError) as error:
                await self._pause(failures, error)
                failures += 1
            except asyncio.CancelledError:
                if not self._is_closed_under_us():
                    raise

    async def close(self) -> None:
        self._members.closing.set()
        await self._room.close()
        await self._members.close()

    @property
    def most_kept_bytes(self) -> int:
        return MOST_KEPT_BYTES

    @property
    def is_crowded(self) -> bool:
        return self._room.fill >= CROWDED or self._room.is_full

    def bytes_behind(self, position: int) -> int:
        """By whole buckets, of what was read here."""
        bucket = position // self._bucket_entries
        return sum(size for number, size in self._sizes.items() if number >= bucket)

    async def _meet(self) -> None:
        """How the log lies that is there, before something is added to it."""
        try:
            await self.tail()
        except (Unavailable, Corrupt) as error:
            raise NotAppended(str(error)) from error

    # -- one transaction -------------------------------------------------------

    async def _send(self, entry: bytes) -> pb.TxnResponse:
        bucket = self._count // self._bucket_entries
        self._made += 1
        key = self._bucket(bucket) + b"%s%010x" % (self._who, self._made)
        base = self._base_position or 0
        first = bucket * self._bucket_entries - base
        end = first + self._bucket_entries
        head = self._head
        compare = [
            pb.Compare(key=head, target=pb.Compare.VERSION, result=pb.Compare.GREATER, version=first - 1),
            pb.Compare(key=head, target=pb.Compare.VERSION, result=pb.Compare.LESS, version=end),
            _made_at(head, self._born or 0),  # LG60
        ]
        layout = b"%s %d" % (_LAYOUT, self._bucket_entries)
        if self._base_position is not None:
            layout += b" %d" % base
        request = pb.TxnRequest(
            compare=compare,
            success=[
                pb.RequestOp(request_put=pb.PutRequest(key=key, value=entry)),
                pb.RequestOp(request_put=pb.PutRequest(key=head, value=layout, prev_kv=True)),
            ],
            failure=[pb.RequestOp(request_range=pb.RangeRequest(key=head))],
        )
        try:
            return await self._members.call(lambda member: member.txn, request)
        except grpc.aio.AioRpcError as error:
            if is_refusal(error):
                self._room.is_full = self._room.is_full or "space exceeded" in str(error.details())
                raise NotAppended("etcd refused the entry", reason=error.details()) from error
            raise LostReply("etcd did not answer; the entry may be in the log") from error  # LG26
        except asyncio.CancelledError:
            if not self._is_closed_under_us():
                raise
            raise LostReply("the log was closed; the entry may be in it") from None

    def _checked(self, head: pb.KeyValue | None) -> int:
        """How many entries there are, if this is still the log that it was (LG27)."""
        if head is None:
            if self._born is not None:
                raise Corrupt(_GONE, log=self._name)
            return 0
        if self._born is not None and head.create_revision != self._born:
            raise Corrupt(_GONE, log=self._name)
        layout, *numbers = head.value.split(b" ")
        if layout != _LAYOUT or len(numbers) not in (1, 2) or not all(one.isdigit() for one in numbers):
            raise Invalid("this log in etcd has another layout", found=head.value.decode(errors="replace"))
        self._bucket_entries = int(numbers[0])  # as whoever began it had it
        self._base_position = int(numbers[1]) if len(numbers) == 2 else None
        self._born = head.create_revision
        return self._position(head.version)

    def _position(self, version: int) -> Position:
        return Position((self._base_position or 0) + version)

    @property
    def _began(self) -> int:
        """The position that the log began behind: the put that began it counts as one."""
        return 0 if self._base_position is None else self._base_position + 1

    # -- reading ---------------------------------------------------------------

    async def _page(self, after: Position) -> _Page:
        """The rest of the bucket behind `after`, none at the end (LG27)."""
        size = self._bucket_entries
        number = after // size
        bucket = pb.RangeRequest(key=self._bucket(number), range_end=self._bucket(number + 1))
        answer = await self._repeat(_ranges(bucket, pb.RangeRequest(key=self._head)))
        found, heads = (one.response_range.kvs for one in answer.responses)
        tail = self._count = self._checked(heads[0] if heads else None)
        if size != self._bucket_entries:
            return await self._page(after)
        if after > tail:
            raise gone_back(after, tail)  # LG25
        if after == tail:
            return _Page([], tail, answer.header.revision)
        first = max(number * size, self._began)
        if not found or after < self._began:
            raise await self._missing(after)
        if len(found) != min(tail, (number + 1) * size) - first:
            raise Corrupt("entries are missing in etcd: restore it from a backup", log=self._name, after=after)
        ordered = sorted(found, key=lambda kv: kv.mod_revision)
        entries = [(Position(position), kv.value) for position, kv in enumerate(ordered, first + 1)]
        self._sizes[number] = sum(len(entry) for _, entry in entries)
        self._read_upto = max(self._read_upto, entries[-1][0])
        return _Page([one for one in entries if one[0] > after], tail, answer.header.revision)

    async def _missing(self, after: Position) -> Exception:
        oldest = pb.RangeRequest(key=self._entries, range_end=self._entries_end, limit=1, keys_only=True)
        kvs = (await self._repeat(_ranges(oldest))).responses[0].response_range.kvs
        first = self._bucket_of(kvs[0].key) * self._bucket_entries + 1 if kvs else self._count + 1
        first = max(first, self._began + 1)
        if first <= after:
            return Corrupt("entries are missing in etcd: restore it from a backup", log=self._name, after=after)
        return trimmed(after, Position(first))

    async def _watch(self, revision: int, after: int) -> AsyncGenerator[tuple[Position, bytes], None]:
        """What is appended from a revision on, until there is a reason to look again."""
        member = await self._members.ready()
        create = pb.WatchCreateRequest(
            key=self._base, range_end=self._end, start_revision=revision, fragment=True,
            filters=[pb.WatchCreateRequest.NODELETE],
        )  # fmt: skip
        stream = member.watch(None, metadata=self._members.metadata())
        try:
            await stream.write(pb.WatchRequest(create_request=create))
            waiting: dict[int, bytes] = {}
            while True:
                answer = await self._event(stream, member)
                for event in answer.events:
                    if event.kv.key != self._head:
                        waiting[event.kv.mod_revision] = event.kv.value
                        continue
                    entry = waiting.pop(event.kv.mod_revision, None)  # it sorts before the head
                    seen = self._position(event.kv.version)
                    if event.kv.create_revision != self._born or seen != after + 1 or entry is None:
                        logger(log=self._name).warning(EVENT_LOST, position=after + 1, seen=seen)
                        raise _Again  # LG27
                    after = seen
                    self._note(after, entry)
                    yield Position(after), entry
        finally:
            stream.cancel()

    async def _event(
        self, stream: "grpc.aio.StreamStreamCall[pb.WatchRequest, pb.WatchResponse]", member: EtcdPeer
    ) -> pb.WatchResponse:
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                answer = await stream.read()
        except TimeoutError:
            raise _Again from None
        except grpc.aio.AioRpcError:
            self._members.pass_over(member)
            raise
        if not isinstance(answer, pb.WatchResponse) or answer.canceled or answer.compact_revision:
            if isinstance(answer, pb.WatchResponse) and "permission" in answer.cancel_reason:
                raise Unavailable("etcd does not let us watch", reason=answer.cancel_reason)
            if not isinstance(answer, pb.WatchResponse):
                self._members.pass_over(member)
                raise EtcdUnreachable("the member of etcd ended the watch")
            raise _Again
        return answer

    def _note(self, position: int, entry: bytes) -> None:
        if position > self._read_upto:
            self._read_upto = self._count = position
            bucket = (position - 1) // self._bucket_entries
            self._sizes[bucket] = self._sizes.get(bucket, 0) + len(entry)

    # -- the rest --------------------------------------------------------------

    async def _compact(self, revision: int) -> None:
        """Give back what was deleted; etcd keeps every version of a key until it is told so."""
        try:
            request = pb.CompactionRequest(revision=revision, physical=True)
            await self._members.call(lambda member: member.compact, request, slow=True)
        except (grpc.aio.AioRpcError, Unavailable) as error:
            if not isinstance(error, grpc.aio.AioRpcError) or error.code() is not grpc.StatusCode.OUT_OF_RANGE:
                logger(log=self._name).warning(NOT_COMPACTED, reason=str(error))
            return  # out of range: somebody was faster
        self._room.gave_back()
        with suppress(grpc.aio.AioRpcError, Unavailable):
            await self._room.look()

    async def _repeat(self, request: pb.TxnRequest) -> pb.TxnResponse:
        """A request that may be sent any number of times."""
        cause: Exception | None = None
        until = asyncio.get_running_loop().time() + self._members.call_seconds
        for pause in (0.0, *RETRY_SECONDS):
            if self._members.closing.is_set() or (pause and asyncio.get_running_loop().time() > until):
                break
            await self._wait(pause)
            try:
                return await self._members.call(lambda member: member.txn, request)
            except grpc.aio.AioRpcError as error:
                if is_refusal(error):
                    raise Unavailable("etcd refuses", reason=error.details()) from error
                cause = error
            except EtcdUnreachable as error:
                cause = error
                if "let us in" in error.message:
                    break
            except asyncio.CancelledError:
                if not self._is_closed_under_us():
                    raise
        raise Unavailable("etcd does not answer", log=str(self._url), reason=_reason(cause)) from cause

    def _bucket(self, number: int) -> bytes:
        return b"%s%012x/" % (self._entries, number)

    def _bucket_of(self, key: bytes) -> int:
        return int(key[len(self._entries) : len(self._entries) + 12], 16)

    def _is_closed_under_us(self) -> bool:
        """Whether a call ended because the log is closed, and not because our task is cancelled."""
        task = asyncio.current_task()
        return self._members.closing.is_set() and (task is None or not task.cancelling())

    async def _pause(self, failures: int, error: BaseException) -> None:
        """Wait a little, or until the log is closed."""
        if self._members.closing.is_set():
            return
        pause = RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)]
        logger(log=self._name).info(RECONNECTING, address=str(self._url), pause_s=pause, reason=str(error))
        await self._wait(pause)

    async def _wait(self, seconds: float) -> None:
        if seconds:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._members.closing.wait()


def _ranges(*requests: pb.RangeRequest) -> pb.TxnRequest:
    """A look at several ranges at one revision."""
    return pb.TxnRequest(success=[pb.RequestOp(request_range=request) for request in requests])


def _made_at(head: bytes, revision: int) -> pb.Compare:
    """That the head is the one that was made at a revision; 0: that there is none yet."""
    return pb.Compare(key=head, target=pb.Compare.CREATE, result=pb.Compare.EQUAL, create_revision=revision)


def _reason(cause: Exception | None) -> str:
    return str(cause.details() if isinstance(cause, grpc.aio.AioRpcError) else cause)
