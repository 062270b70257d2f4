"""A log in Oxia: an entry is the next key of a sequence, which the leader of its shard makes.

An append is one put without a condition, so writers never refuse each other,
and positions are dense. How the keys lie is in `dray.log.oxia.layout`.

The log's id is part of its keys. So whoever still knows a log that was wiped
and begun anew adds nothing to the new one, and deletes nothing of it.

Oxia tells followers of the highest key, sometimes before it can be read, not
of every one, and sometimes of none after a put that failed. What it says is a
reason to look, and nothing else.

A leader that was deposed and does not know it still answers reads. So the
tail is read behind a put to a key of its own: only who leads can take that,
and it has everything that was acknowledged before. Reads of followers need no
such thing, until one of them shows less than was read.

Invariants
    LG52  Whatever ends an append after it was sent is `LostReply`, but for a
          refusal of the first one that was sent. Only one that a server says
          it did not take, as it does not lead, is sent to another one.
    LG53  A follower delivers position after position. A log that ends before
          what was delivered or acknowledged, is another one under the same
          name, or lacks an entry, is `Corrupt`; a leader that is merely
          behind is not.
    LG54  Where a log was cut is written before anything is deleted, and never
          goes back; who slept through a trim is told `Trimmed`.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Final, TypeVar

import grpc.aio

from dray.errors import Conflict, Corrupt, Invalid, Unavailable
from dray.ids import Entropy, SystemEntropy
from dray.log.bell import Bell
from dray.log.limits import MAX_ENTRY_BYTES, check_entry, gone_back, trimmed
from dray.log.oxia import oxia_pb2 as pb
from dray.log.oxia.ear import Ear
from dray.log.oxia.layout import ABSENT, LARGEST_PUT, Layout, LogHead
from dray.log.oxia.servers import (
    RETRY_SECONDS,
    LeaderRoute,
    OxiaServers,
    OxiaUnreachable,
    is_elsewhere,
    is_refusal,
    was_closed,
)  # fmt: skip
from dray.log.port import LostReply, NotAppended, Position
from dray.log.telemetry import RECONNECTING
from dray.log.urls import OxiaLogs
from dray.telemetry import logger

CALL_SECONDS: Final = 5.0
PAGE: Final = 64
"""Entries that are read at once; at most 64 MiB of the largest."""
LOOK_SECONDS: Final = 2.0
"""What Oxia tells may be lost, so a follower that hears nothing looks by itself this often."""
EARLY_SECONDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)
"""Pauses between looks for an entry that was told of and cannot be read yet."""
TRIM_ENTRIES: Final = 10_000
OWN_SECONDS: Final = 0.005
OWN_ENTRIES: Final = 64
OWN_ENTRY_BYTES: Final = 64 << 10
"""What is not asked for again after it was acknowledged: the last ones while somebody follows, the large ones not."""

_GONE: Final = "the log is gone from Oxia, or is another one: stop every broker, and restore it from a backup"
_FULL: Final = "no space left"
"""As the system of a server says it."""
_MISSING: Final = "entries are missing in Oxia: restore it from a backup"

Result = TypeVar("Result")


class _Again(Exception):
    """Somebody else leads, or the stream has ended: begin again where we are."""


class OxiaLog:
    """The log of one domain."""

    def __init__(
        self,
        url: OxiaLogs,
        domain: int,
        *,
        max_entry_bytes: int = MAX_ENTRY_BYTES,
        call_seconds: float = CALL_SECONDS,
        page: int = PAGE,
        entropy: Entropy | None = None,
    ) -> None:
        self._url = url
        self._layout = Layout(url.prefix, domain)
        self._key = self._layout.partition_key
        self._max_entry_bytes = min(max_entry_bytes, LARGEST_PUT)
        self._page = page
        self._servers = OxiaServers(url, call_seconds)
        self._entropy = entropy or SystemEntropy()
        self._log_id = ""
        """Empty until the log was met; from then on nothing else is this log."""
        self._known = 0
        """The highest position that was acknowledged, or shown by a leader, to this handle."""
        self._ears: set[Ear] = set()
        self._own: OrderedDict[int, bytes] = OrderedDict()
        """What was acknowledged to this handle just now, for who follows it here."""
        self._appending = 0
        self._answered = Bell()

    @classmethod
    async def open(
        cls,
        url: OxiaLogs,
        domain: int,
        *,
        max_entry_bytes: int = MAX_ENTRY_BYTES,
        call_seconds: float = CALL_SECONDS,
        page: int = PAGE,
    ) -> "OxiaLog":
        """The log, reached once; begun, if it is not there.

        Raises:
            Unavailable: nobody answers, or we may not come in.
        """
        log = cls(url, domain, max_entry_bytes=max_entry_bytes, call_seconds=call_seconds, page=page)
        try:
            await log.tail()
        except BaseException:
            await log.close()
            raise
        return log

    async def append(self, entry: bytes) -> Position:
        check_entry(entry, self._max_entry_bytes)
        if not self._log_id:
            try:
                await self.tail()
            except (Unavailable, Corrupt) as error:
                raise NotAppended(str(error)) from error
        floor = self._known
        self._appending += 1
        try:
            position = await self._append(entry)
        finally:
            self._appending -= 1
            self._answered.ring()
        if position <= floor:  # LG53: Oxia has forgotten what it acknowledged, and counts from there
            raise gone_back(floor, position - 1)
        if self._ears and len(entry) <= OWN_ENTRY_BYTES:
            self._own[position] = bytes(entry)
            if len(self._own) > OWN_ENTRIES:
                self._own.popitem(last=False)
        self._learn(position)
        return position

    async def tail(self) -> Position:
        floor = self._known

        async def look(route: LeaderRoute) -> tuple[LogHead, int]:
            fence = self._layout.put_fence(route.shard)
            self._took(await self._servers.write(route, fence))
            return await self._look(route)

        head, tail = await self._repeat(look)
        if tail < max(floor, head.cut):
            raise gone_back(max(floor, head.cut), tail)  # LG25, LG53
        self._learn(tail)
        return Position(tail)

    async def trim(self, upto: Position) -> None:
        tail = await self.tail()
        if upto > tail:
            raise Invalid("cannot trim above the tail", upto=upto, tail=tail)
        await self._repeat(lambda route: self._cut(route, upto))  # LG54
        end = min(upto, tail - 1) + 1  # LG51

        async def oldest(route: LeaderRoute) -> int:
            (found,) = await self._servers.read(route, self._layout.get_first(self._log_id))
            return self._position(found) or end

        start = await self._repeat(oldest)
        while start < end:
            stop = min(start + TRIM_ENTRIES, end)
            await self._repeat(self._deletion(start, stop))
            start = stop

    async def begin_behind(self, position: Position) -> None:
        """Let an empty log go on behind a position; to repeat it is harmless while nothing was appended."""
        await self.tail()
        known, fresh = self._log_id, self._entropy.random_bytes(8).hex()

        async def begin(route: LeaderRoute) -> str:
            (found,) = await self._servers.read(route, self._layout.get_head())
            if found.status == pb.OK and LogHead.decode(found.value).log_id == fresh:
                return fresh  # the answer to the last put was lost
            self._log_id = known
            head, tail = await self._look(route)
            if head.cut == tail == position:
                return known
            if tail:
                raise Conflict("the log is not empty", log=self._key)
            # Another id, so that nothing has to happen at once: nobody knows it before its first record is there.
            self._took(await self._servers.write(route, self._layout.put_first(route.shard, fresh, position)))
            begun = self._layout.put_head(route.shard, LogHead(log_id=fresh, cut=position), found.version.version)
            if not self._took(await self._servers.write(route, begun)):
                raise Conflict("somebody else writes to the log", log=self._key)
            return fresh

        self._log_id = await self._repeat(begin)
        self._learn(position)

    async def follow(self, after: Position) -> AsyncIterator[tuple[Position, bytes]]:
        failures = 0
        while not self._servers.closing.is_set():
            try:
                async with aclosing(self._follow(after)) as entries:
                    async for position, entry in entries:
                        after = position
                        failures = 0
                        yield position, entry
            except _Again:
                continue
            except (grpc.aio.AioRpcError, Unavailable, TimeoutError) as error:
                await self._pause(failures, error)
                failures += 1
            except asyncio.CancelledError:
                if not was_closed(self._servers.closing):
                    raise

    async def close(self) -> None:
        await self._servers.close()

    # -- writing ---------------------------------------------------------------

    async def _append(self, entry: bytes) -> Position:
        """One put; again only where a server says that it does not lead (LG52)."""
        until = asyncio.get_running_loop().time() + self._servers.call_seconds
        for attempt in range(1 << 30):
            try:
                route = await self._servers.route(self._key)
            except OxiaUnreachable as error:
                if attempt:
                    raise LostReply("Oxia has nobody who leads; the entry may be in the log") from error
                raise
            try:
                answer = await self._servers.write(route, self._layout.put_entry(route.shard, self._log_id, entry))
            except grpc.aio.AioRpcError as error:
                self._servers.mistrust(route, error)
                if is_refusal(error) and not attempt:
                    self._servers.forget_token()
                    raise NotAppended("Oxia refused the entry", reason=error.details()) from error
                if not is_elsewhere(error) or asyncio.get_running_loop().time() > until:
                    raise LostReply(f"{_what(error)}; the entry may be in the log", reason=_reason(error)) from error
                await self._wait(RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)])
            except asyncio.CancelledError:
                if not was_closed(self._servers.closing):
                    raise
                raise LostReply("the log was closed; the entry may be in it") from None
            else:
                return self._placed(answer)
        raise AssertionError("unreachable")

    def _placed(self, answer: pb.WriteResponse) -> Position:
        put = answer.puts[0] if len(answer.puts) == 1 else pb.PutResponse(status=pb.KEY_NOT_FOUND)
        position = self._layout.position_of(self._log_id, put.key)
        if put.status != pb.OK or not position:
            raise LostReply("Oxia did not say where the entry is; it may be in the log", status=put.status)
        return position

    async def _cut(self, route: LeaderRoute, upto: int) -> None:
        """Write down where the log is cut, unless it was cut further on meanwhile (LG54)."""
        head, version = await self._head(route)
        while head.cut < upto:
            written = LogHead(log_id=head.log_id, cut=upto)
            if self._took(await self._servers.write(route, self._layout.put_head(route.shard, written, version))):
                return
            head, version = await self._head(route)

    def _deletion(self, start: int, end: int) -> Callable[[LeaderRoute], Awaitable[None]]:
        async def delete(route: LeaderRoute) -> None:
            await self._servers.write(route, self._layout.delete(route.shard, self._log_id, start, end))

        return delete

    def _took(self, answer: pb.WriteResponse) -> bool:
        """Whether the one put of a batch was taken: a version that was expected may be another one."""
        if len(answer.puts) != 1 or answer.puts[0].status not in (pb.OK, pb.UNEXPECTED_VERSION):
            raise Unavailable("Oxia did not take a record", statuses=[put.status for put in answer.puts])
        return answer.puts[0].status == pb.OK

    # -- reading ---------------------------------------------------------------

    async def _head(self, route: LeaderRoute) -> tuple[LogHead, int]:
        """The head and its version; the log is begun if there is none, unless we know that there was one."""
        (found,) = await self._servers.read(route, self._layout.get_head())
        if found.status == pb.KEY_NOT_FOUND and not self._log_id:
            head = LogHead(log_id=self._entropy.random_bytes(8).hex(), cut=0)
            self._took(await self._servers.write(route, self._layout.put_head(route.shard, head, ABSENT)))
            (found,) = await self._servers.read(route, self._layout.get_head())  # somebody may have been faster
        return self._same(found), found.version.version

    async def _look(self, route: LeaderRoute) -> tuple[LogHead, int]:
        """The head, and the position of the last entry or the cut, as one server shows them."""
        if not self._log_id:
            head, _ = await self._head(route)
            self._log_id = head.log_id
        found, last = await self._servers.read(route, self._layout.get_head(), self._layout.get_last(self._log_id))
        return self._same(found), self._position(last)

    def _same(self, found: pb.Record) -> LogHead:
        """What a head says, if it is that of the log which was met (LG53)."""
        if found.status != pb.OK:
            raise Corrupt(_GONE, log=self._key)
        head = LogHead.decode(found.value)
        if self._log_id and head.log_id != self._log_id:
            raise Corrupt(_GONE, log=self._key)
        return head

    def _position(self, found: pb.Record) -> int:
        """Of an entry that was found by its place; 0: none was."""
        return (self._layout.position_of(self._log_id, found.key) or 0) if found.status == pb.OK else 0

    async def _follow(self, after: Position) -> AsyncGenerator[tuple[Position, bytes], None]:
        """What there is, and what comes, until there is a reason to begin again."""
        route = await self._servers.route(self._key)
        await self._examine(route, after)
        stream = route.peer.sequence(
            pb.SequenceRequest(shard=route.shard, key=self._layout.sequence(self._log_id)),
            metadata=self._servers.metadata(),
        )
        ear = Ear(stream, lambda key: self._layout.position_of(self._log_id, key) or 0)
        self._ears.add(ear)
        self._servers.listeners.add(ear.ring)
        early, unsure = 0, True
        try:
            while self._leads(route):
                if self._appending and self._known <= after < ear.heard:
                    await self._own_answer()
                page = await self._read(route, after) if unsure or max(self._known, ear.heard) > after else []
                for position, entry in page:
                    after = position
                    early = 0
                    yield position, entry
                if page:
                    continue
                unsure = False
                if ear.heard > after and early < len(EARLY_SECONDS):
                    await self._wait(EARLY_SECONDS[early])
                    early += 1
                    continue
                if ear.heard > after and await self.tail() <= after:
                    ear.heard = after  # a put that failed was told of, too
                if ear.heard <= after and await ear.hears_beyond(after, LOOK_SECONDS):
                    early = 0
                    continue
                await self._examine(route, after)
                unsure = True
            raise _Again
        except EOFError:  # as it ends where somebody leads no more
            await self._wait(RETRY_SECONDS[0])
            raise _Again from None
        except grpc.aio.AioRpcError as error:
            self._servers.mistrust(route, error)
            raise
        finally:
            self._servers.listeners.discard(ear.ring)
            self._ears.discard(ear)
            await ear.close()

    async def _own_answer(self) -> None:
        """What was told of is probably ours: its answer says where it is, and it need not be read."""
        with suppress(TimeoutError):
            async with asyncio.timeout(OWN_SECONDS):
                await self._answered.wait()

    async def _read(self, route: LeaderRoute, after: Position) -> list[tuple[Position, bytes]]:
        """The next entries, none at the end (LG53)."""
        own = self._own.pop(after + 1, None)
        if own is not None:  # acknowledged at this very position: Oxia need not be asked for it
            return [(Position(after + 1), own)]
        start, end = (self._layout.entry_key(self._log_id, after + 1 + more) for more in (0, self._page))
        found = await self._servers.scan(route, start, end)
        page = [(Position(self._position(one)), one.value) for one in found]
        if [position for position, _ in page] != list(range(after + 1, after + 1 + len(page))):
            await self._examine(route, after)
            raise Corrupt(_MISSING, log=self._key, after=after)
        if any(not entry for _, entry in page):
            raise trimmed(after, Position(page[-1][0] + 1))  # what a log goes on behind is no entry
        if page:
            self._known = max(self._known, page[-1][0])
        return page

    async def _examine(self, route: LeaderRoute, after: Position) -> None:
        """Whether the log that is there can be followed from here (LG53, LG54)."""
        try:
            head, tail = await self._look(route)
        except Corrupt:
            await self.tail()  # it is not the leader who says so, or it is Corrupt
            raise _Again from None
        if head.cut > after:
            raise trimmed(after, Position(head.cut + 1))
        if tail < after and (tail := await self.tail()) < after:
            raise gone_back(after, tail)  # LG25

    def _leads(self, route: LeaderRoute) -> bool:
        """Whether it still does, as far as we know."""
        if self._servers.closing.is_set():
            return False
        place = self._servers.place(self._key)
        return place is None or (place.shard, place.leader) == (route.shard, route.peer.endpoint)

    # -- the rest --------------------------------------------------------------

    def _learn(self, position: int) -> None:
        """There is an entry at this position; whoever follows here need not be told by Oxia."""
        self._known = max(self._known, position)
        for ear in self._ears:
            ear.hear(position)

    async def _repeat(self, call: Callable[[LeaderRoute], Awaitable[Result]]) -> Result:
        """What may be done any number of times, all of it by one leader."""
        cause: Exception | None = None
        until = asyncio.get_running_loop().time() + self._servers.call_seconds
        for attempt, pause in enumerate((0.0, *RETRY_SECONDS, *[RETRY_SECONDS[-1]] * 60)):
            # One that did not answer has used up the time; another one may lead by now.
            if self._servers.closing.is_set() or (attempt > 1 and asyncio.get_running_loop().time() > until):
                break
            await self._wait(pause)
            try:
                route = await self._servers.route(self._key)
            except OxiaUnreachable as error:
                cause = error
                continue
            try:
                return await call(route)
            except grpc.aio.AioRpcError as error:
                self._servers.mistrust(route, error)
                if is_refusal(error):
                    self._servers.forget_token()
                    raise Unavailable("Oxia refuses", reason=error.details()) from error
                cause = error
            except asyncio.CancelledError:
                if not was_closed(self._servers.closing):
                    raise
        raise Unavailable(_what(cause), log=str(self._url), reason=_reason(cause)) from cause

    async def _pause(self, failures: int, error: BaseException) -> None:
        """Wait a little, or until the log is closed."""
        if self._servers.closing.is_set():
            return
        pause = RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)]
        logger(log=self._key).info(RECONNECTING, address=str(self._url), pause_s=pause, reason=str(error))
        await self._wait(pause)

    async def _wait(self, seconds: float) -> None:
        if seconds:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._servers.closing.wait()


def _what(cause: Exception | None) -> str:
    """What an operator has to look at: deletions need room too, so an Oxia that is full does not heal by itself."""
    return "Oxia has no room left: give its servers more disk" if _FULL in _reason(cause) else "Oxia does not answer"


def _reason(cause: Exception | None) -> str:
    return str(cause.details() if isinstance(cause, grpc.aio.AioRpcError) else cause)
