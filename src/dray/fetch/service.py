"""Fetch, as a service: what waits between a consumer and its records.

    look (the index) -> sync, if it would say "nothing" or "no" -> wait for more -> read -> answer

What is asked for is looked up from the machine at each turn and never kept
over a wait: the machine of a replica only moves forward, also when it jumps
to a checkpoint, so an answer is never older than any answer before it.

Invariants
    F8  "Nothing yet", "out of range" and "no such stream" are said only
         after a sync that began when the request was here (R-116, R-012).
    F9  A fetch that waits reads neither the engine nor the store: apply
         wakes it. A wake-up too many or too few costs time, never records.
    F10  An answer comes from a position at or above every position that was
         applied when its request came (R-127).
    F11  An object that cannot be read is looked up again after a sync, once;
         if it still cannot, the partition gets an error and no record behind
         the damage (R-125).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from dray.buffers import Buffer
from dray.clock import Clock
from dray.errors import Corrupt, DrayError, NotFound
from dray.fetch import telemetry
from dray.fetch.cache import ObjectCache
from dray.fetch.errors import DamagedObject
from dray.fetch.growth import Growth
from dray.fetch.line import Account
from dray.fetch.plan import MAX_BATCHES, AtEnd, Look, PartitionRead, Planner, Refusal, Rows
from dray.fetch.settings import FetchSettings
from dray.fetch.sources.by_kind import Sources
from dray.fetch.sources.parquet import ParquetSource
from dray.fetch.sources.source import RunRead
from dray.fetch.sources.wal import WalSource
from dray.machine.names import StreamId, domain_of
from dray.objects.paths import ObjectKind
from dray.objects.port import Objects
from dray.offload import Offload
from dray.pace import Pace
from dray.records.layout import LENGTH_FROM, PREFIX
from dray.replica.domains import Domains
from dray.replica.replica import Replica
from dray.replica.wakeups import Waiter
from dray.telemetry import logger

_READERS_MAX: Final = 4_096
"""So many consumers that catch up are remembered for reading ahead."""


class Fetched(NamedTuple):
    """Records of one stream, perhaps none."""

    stream: StreamId
    parts: list[Buffer]
    """For each batch 16 bytes with its real base offset, and the rest as it is stored: send them as they are."""
    size: int
    """Bytes of all parts."""
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """Why there is nothing to send: `OffsetOutOfRange`, `StreamGone`, or one of kind UNAVAILABLE or CORRUPT."""

    stream: StreamId
    error: DrayError


PartitionData: TypeAlias = Fetched | Failed


class FetchService:
    """What handlers ask for records."""

    def __init__(
        self,
        *,
        domains: Domains,
        objects: Objects,
        clock: Clock,
        settings: FetchSettings,
        cache: ObjectCache,
        offload: Offload,
    ) -> None:
        self.planner = Planner(domains)
        self.files = ParquetSource(objects, offload, settings)
        self.sources = Sources(
            {ObjectKind.WAL: WalSource(objects, cache, clock, settings), ObjectKind.PARQUET: self.files}
        )
        self._domains = domains
        self._settings = settings
        self._max_wait_s = settings.max_wait.total_seconds()
        self._readers: OrderedDict[tuple[StreamId, int], int] = OrderedDict()
        """By stream and the offset that comes next: up to where was read ahead."""

    async def close(self) -> None:
        """End the reads that are under way."""
        await self.sources.close()

    async def fetch(
        self,
        requests: Sequence[PartitionRead],
        *,
        min_bytes: int,
        max_bytes: int,
        max_wait_ms: int,
        account: Account | None = None,
    ) -> list[PartitionData]:
        """Records for each request, in order; waits until there are `min_bytes`, an error, or `max_wait_ms` passed.

        What they take in memory is planned on the account; whoever gave it ends the plan.
        """
        if not self._domains.is_whole:
            for domain in dict.fromkeys(domain_of(request.stream) for request in requests):
                await self._domains.ready(domain)
        question = _Question(self.planner, requests, min(max_bytes, self._settings.max_bytes))
        looks = await self._await_bytes(question, min(min_bytes, question.max_bytes), max_wait_ms)
        if account is not None:
            looks = await self._await_room(question, looks, account)
        return await self._answer(question, looks)

    def check_serving(self, replica: Replica) -> None:
        """Raise unless this process may answer from its memory: the broker's own session is in the catalog (Q5)."""
        self._domains.catalog.check_serving()
        if replica.failed.done():
            raise replica.failed.result()
        if replica.session is not None:
            replica.check_serving()

    # -- waiting -----------------------------------------------------------

    async def _await_bytes(self, question: "_Question", min_bytes: int, max_wait_ms: int) -> list[Look]:
        looks = await self._look(question)
        if max_wait_ms <= 0 or _is_enough(question, looks, min_bytes):
            return looks
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(max_wait_ms / 1000, self._max_wait_s)
        with ExitStack() as stack, telemetry.WAITING.track_inprogress():
            event = asyncio.Event()
            waiters = [
                stack.enter_context(replica.waiter(streams, event)) for replica, streams in question.streams().items()
            ]
            in_time = bool(waiters)
            while in_time:
                for waiter in waiters:
                    waiter.clear()  # before looking: what comes later wakes again (F9)
                looks = await self._look(question)
                if _is_enough(question, looks, min_bytes):
                    return looks
                growth = Growth(self.planner, question.requests, looks)
                in_time = await _await_growth(growth, waiters, min_bytes, deadline)
                if not in_time and growth.is_any:
                    looks = await self._look(question)
        return looks

    async def _await_room(self, question: "_Question", looks: list[Look], account: Account) -> list[Look]:
        """The plan, as far as there is memory for it (F14); what had to wait is looked up again."""
        wanted = _size(looks)
        granted = await account.reserve(wanted) if wanted else 0
        if granted >= wanted:
            return looks
        question.max_bytes, question.oversize = granted, granted > 0
        looks = await self._look(question)
        account.plan(max(0, _size(looks) - granted))  # a first batch that is larger than what was granted
        return looks

    async def _look(self, question: "_Question") -> list[Look]:
        """The plan; before it says "nothing" or "no" of a stream, its domain is synced (F8).

        A machine changes by what it applies alone: if a sync brought nothing, there is nothing to look at again.
        """
        while True:
            before = question.positions()
            looks = await self.planner.look(question.requests, question.max_bytes, oversize=question.oversize)
            stale = question.unsure(looks)
            if stale:
                for replica, failure in zip(stale, await asyncio.gather(*map(_sync, stale)), strict=True):
                    question.synced[replica] = failure
            if not stale or question.positions() == before:
                return self._checked(question, looks)

    def _checked(self, question: "_Question", looks: list[Look]) -> list[Look]:
        """The plan without what this process may not answer for."""
        serving: dict[Replica, DrayError | None] = {}
        for at, replica in enumerate(question.replicas):
            if replica is None:
                continue
            if replica not in serving:
                serving[replica] = self._not_serving(replica)
            error = serving[replica] or (question.synced.get(replica) if _is_negative(looks[at]) else None)
            if error is not None:
                looks[at] = Refusal(error=error)
        return looks

    def _not_serving(self, replica: Replica) -> DrayError | None:
        try:
            self.check_serving(replica)
        except DrayError as error:
            return error
        return None

    # -- reading -----------------------------------------------------------

    async def _answer(self, question: "_Question", looks: Sequence[Look]) -> list[PartitionData]:
        runs = [run for look in looks if isinstance(look, Rows) for run in look.runs]
        reads = iter(await self.sources.read(runs))
        answers: list[PartitionData] = []
        pace = Pace()
        for request, look in zip(question.requests, looks, strict=True):
            if pace.is_due():
                await asyncio.sleep(0)
            if isinstance(look, AtEnd):  # most partitions of most answers
                answers.append(Fetched(request.stream, [], 0, look.start, look.end))
                continue
            if isinstance(look, Rows):
                taken = [next(reads) for _ in look.runs]
                answer = await self._records(request, look, taken)
            else:
                answer = _without_records(request.stream, look)
            if isinstance(answer, Failed):
                telemetry.ERRORS.labels(type(answer.error).__name__).inc()
            answers.append(answer)
        return answers

    async def _records(self, request: PartitionRead, look: Rows, reads: list[RunRead]) -> PartitionData:
        """What was read; if the first batch was not, a second try after a sync (F11)."""
        if look.runs and not reads[0].views and _is_damage(reads[0].error):
            self.sources.forget(look.runs[0].place)
            again = await self._look_again(request, look)
            if not isinstance(again, Rows):
                return _without_records(request.stream, again)
            look, reads = again, await self.sources.read(again.runs)
        epoch = self._domains.of(request.stream).machine.head.generation
        parts, size, following = _patch(look, reads, epoch)
        if not parts and reads and reads[0].error is not None:
            return Failed(stream=request.stream, error=_report(look, reads[0].error))
        telemetry.BYTES.inc(size)
        if parts:
            self._remember(request, following, own=all(read.own for read in reads))
        return Fetched(stream=request.stream, parts=parts, size=size, start=look.start, end=look.end)

    async def _look_again(self, request: PartitionRead, before: Rows) -> Look:
        replica = self.planner.replica_of(request.stream)
        failure = await _sync(replica) or self._not_serving(replica)
        if failure is not None:
            return Refusal(error=failure)
        return self.planner.look_at(request.stream, request.offset, before.size, MAX_BATCHES, oversize=True)

    # -- reading ahead -----------------------------------------------------

    def _remember(self, request: PartitionRead, following: int, *, own: bool) -> None:
        """Read ahead of a consumer that goes on where it stopped, unless it is served from what was written here."""
        ahead = self._readers.pop((request.stream, request.offset), None)
        if ahead is None or own or not self.sources.readahead_limit:
            ahead = following
        else:
            ahead = self._read_ahead(request.stream, following, max(ahead, following))
        self._readers[request.stream, following] = ahead
        if len(self._readers) > _READERS_MAX:
            self._readers.popitem(last=False)

    def _read_ahead(self, stream: StreamId, following: int, ahead: int) -> int:
        """Begin reads behind `ahead`, so that they reach up to a window beyond `following`; returns how far."""
        window = int(self._settings.readahead_bytes)
        left = window - self.planner.bytes_between(stream, following, ahead)
        if left < window // 2:
            return ahead
        look = self.planner.look_at(stream, ahead, left, MAX_BATCHES, oversize=False)
        if not isinstance(look, Rows):
            return ahead
        self.sources.read_ahead(look.runs)
        return look.next_offset


class _Question:
    """One request on its way: what it asks for, of whom, and what is known to be fresh."""

    __slots__ = ("_asked", "max_bytes", "oversize", "replicas", "requests", "synced")

    def __init__(self, planner: Planner, requests: Sequence[PartitionRead], max_bytes: int) -> None:
        self.requests = requests
        self.max_bytes = max_bytes
        self.oversize = True
        self.replicas = [planner.find_replica(request.stream) for request in requests]
        self.synced: dict[Replica, DrayError | None] = {}
        """Domains that were asked for their tail since the request came; with the error if that failed."""
        self._asked = [replica for replica in dict.fromkeys(self.replicas) if replica is not None]

    def positions(self) -> list[int]:
        """What each domain has applied."""
        return [replica.machine.position for replica in self._asked]

    def streams(self) -> dict[Replica, list[StreamId]]:
        """What to wait for in each domain."""
        found: dict[Replica, list[StreamId]] = {}
        for request, replica in zip(self.requests, self.replicas, strict=True):
            if replica is not None:
                found.setdefault(replica, []).append(request.stream)
        return found

    def unsure(self, looks: Sequence[Look]) -> list[Replica]:
        """Domains that must be synced before these looks may be told (F8)."""
        unsure: dict[Replica, None] = {}
        for look, replica in zip(looks, self.replicas, strict=True):
            if replica is not None and _is_negative(look) and replica not in self.synced:
                unsure[replica] = None
        return list(unsure)


async def _sync(replica: Replica) -> DrayError | None:
    try:
        await replica.sync()
    except DrayError as error:
        return error
    return None


async def _await_growth(growth: Growth, waiters: Sequence[Waiter], min_bytes: int, deadline: float) -> bool:
    """Wait until there may be enough; False: the time has passed. The waiters share one event."""
    loop = asyncio.get_running_loop()
    while True:
        in_time = await waiters[0].wait(deadline - loop.time())
        touched = [key for waiter in waiters for key in waiter.touched()]
        if not in_time or growth.reaches(min_bytes, touched):
            return in_time


def _is_negative(look: Look) -> bool:
    """Does it say that something is not there?"""
    return not isinstance(look, Rows)


def _is_enough(question: "_Question", looks: Sequence[Look], min_bytes: int) -> bool:
    """Is there an error, nothing to wait for, enough to send, or no room for more?"""
    size = batches = 0
    for request, look in zip(question.requests, looks, strict=True):
        if isinstance(look, Refusal):
            return True
        if isinstance(look, Rows):
            if look.next_offset < look.end and question.max_bytes - size <= request.max_bytes:
                return True  # the next batch would not fit into the response, however long it waits
            size += look.size
            batches += look.batches
    return not looks or size >= min_bytes or batches >= MAX_BATCHES


def _size(looks: Sequence[Look]) -> int:
    return sum(look.size for look in looks if isinstance(look, Rows))


def _is_damage(error: DrayError | None) -> bool:
    return isinstance(error, Corrupt | NotFound)


def _patch(look: Rows, reads: Sequence[RunRead], epoch: int) -> tuple[list[Buffer], int, int]:
    """The parts to send, up to the first batch that could not be read; their size, and the offset behind them.

    Batches carry the leader epoch of now, like every other answer (RG1).
    """
    parts: list[Buffer] = []
    size, following = 0, look.next_offset
    pack, head = PREFIX.pack, PREFIX.size
    for read in reads:
        for row, view in zip(read.rows, read.views, strict=False):
            parts += (pack(row.start, row.size - LENGTH_FROM, epoch), view[head:])
            size += row.size
            following = row.end
        if read.error is not None:
            break
    return parts, size, following


def _without_records(stream: StreamId, look: Look) -> PartitionData:
    match look:
        case Refusal(error=error):
            return Failed(stream=stream, error=error)
        case AtEnd(start=start, end=end) | Rows(start=start, end=end):
            return Fetched(stream=stream, parts=[], size=0, start=start, end=end)


def _report(look: Rows, error: DrayError) -> DrayError:
    """The error of a batch that could not be read twice."""
    row = look.runs[0].rows[0]
    if not _is_damage(error):
        return error
    path = look.runs[0].place.path
    logger().error(telemetry.DAMAGED, name=path, offset=row.start, position=row.position, error=str(error))
    damaged = DamagedObject("records cannot be read: their object is missing or damaged", name=path, offset=row.start)
    damaged.__cause__ = error
    return damaged
