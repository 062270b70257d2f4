"""Consume, as a service: records handed out one by one, for a time, and settled one by one.

    consume -> again what failed, then what is ahead -> leased in memory -> ack | nack -> AckOffsets in the log

What is leased is known to this process alone; what is settled, and how often
what is not has failed, is in the log. After a restart whatever was not settled
is handed out again.

Invariants
    CO7  A record is handed out only from behind the log's answer: one that is
         settled by what a sync has brought is not handed out (W-37).
    CO8  A lease that passes counts as a failure, in the log, before the
         record is handed out again.
    CO9  "There is nothing" is said after a sync.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from dray.clock import Clock
from dray.consume import telemetry
from dray.consume.acks import AckService
from dray.consume.burial import Burial
from dray.consume.errors import BadAck
from dray.consume.flights import Flight
from dray.consume.settings import ConsumeSettings
from dray.errors import DrayError
from dray.fetch.errors import BelowStart
from dray.fetch.reading import RecordReads
from dray.machine.acks import Span
from dray.machine.topics import Topic
from dray.pace import Pace
from dray.records import Record
from dray.replica.domains import Domains
from dray.replica.freshness import Freshness
from dray.telemetry import logger

MAX_GROUPS: Final = 10_000
"""Groups and topics whose leases are remembered; beyond it the one that was used least recently is forgotten."""
NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    """A record that its consumer holds for a time."""

    partition: int
    record: Record
    attempts: int
    """How often it has failed before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerWants:
    """What a consumer asks for."""

    group: str
    most: int
    max_bytes: int
    wait_s: float
    lease_s: float | None = None


class ConsumeService:
    """Hands records of topics to groups."""

    def __init__(
        self, *, domains: Domains, reads: RecordReads, acks: AckService, burial: Burial, clock: Clock,
        settings: ConsumeSettings,
    ) -> None:  # fmt: skip
        self._domains = domains
        self._reads = reads
        self._acks = acks
        self._burial = burial
        self._clock = clock
        self._settings = settings
        self._flights: OrderedDict[tuple[str, bytes], _Flights] = OrderedDict()

    async def consume(self, topic: Topic, wanted: ConsumerWants) -> list[Handed]:
        """Records that are not settled, waiting for the first of them.

        Raises:
            BadGroupId, UnknownPartition: nothing was handed out.
            Unavailable: try again.
        """
        flights = await self._begin(topic, wanted.group)
        deadline_ns = self._clock.boot_ns() + int(wanted.wait_s * NS)
        synced = False
        with self._woken(topic, flights) as event:
            while True:
                event.clear()  # before looking: what comes later wakes again
                handed = await self._take(topic, flights, wanted)
                if handed:
                    return handed
                if not synced:  # CO9
                    await self._sync(topic, wanted.group)
                    synced = True
                    continue
                left_s = (deadline_ns - self._clock.boot_ns()) / NS
                if left_s <= 0:
                    return []
                await _wait(event, min(left_s, flights.due_in_s(self._clock.boot_ns())))

    async def ack(
        self, topic: Topic, group: str, partition: int, spans: Sequence[Span], fresh: Freshness | None = None
    ) -> int:
        """Settle offsets; the offset below which all are settled. Raises as `AckService.ack`."""
        floor = await self._acks.ack(group, topic, partition, spans, fresh)
        flight = self._flight(topic, group, partition)
        if flight is not None:
            for start, end in spans:
                flight.settle(start, end)  # W-23
        return floor

    async def nack(
        self, topic: Topic, group: str, partition: int, offsets: Sequence[int], *, delay_s: float | None, error: str
    ) -> list[int]:
        """Offsets failed: they come again after a pause, or go to the dead-letter topic; which of them went.

        Raises as `AckService.ack`.
        """
        flights = await self._begin(topic, group)
        flight = flights.of(partition)
        if any(offset >= flight.cursor for offset in offsets):
            raise BadAck("an offset was not handed out", partition=partition)
        attempts = await self._acks.fail(group, topic, partition, offsets)
        now_ns = self._clock.boot_ns()
        for offset, count in attempts.items():
            if count:
                pause_s = self._settings.backoff_s(count) if delay_s is None else delay_s
                flight.return_at(offset, now_ns + int(pause_s * NS))
        gone = [offset for offset, count in attempts.items() if count > self._settings.max_retries]
        for offset in gone:
            await self._bury(topic, group, partition, flight, offset, attempts[offset], error)
        flights.wake()
        return gone

    # -- handing out -------------------------------------------------------

    async def _take(self, topic: Topic, flights: "_Flights", wanted: ConsumerWants) -> list[Handed]:
        handed: list[Handed] = []
        size, pace = 0, Pace()
        for partition in flights.turn(topic.visible):
            if pace.is_due():
                await asyncio.sleep(0)
            flight = flights.of(partition)
            if flight.busy:
                flight.missed = True
                continue
            flight.busy = True
            try:
                some = await self._take_from(topic, flight, partition, wanted, wanted.most - len(handed), size)
            except BaseException:
                self._give_back(flights, handed)
                raise
            finally:
                flight.busy = False
                if flight.missed:
                    flight.missed = False
                    flights.wake()
            handed += some
            size += sum(len(one.record.value or b"") for one in some)
            if len(handed) >= wanted.most or size >= wanted.max_bytes:
                break
        telemetry.DELIVERED.inc(len(handed))
        return handed

    def _give_back(self, flights: "_Flights", handed: Sequence[Handed]) -> None:
        """Nobody gets these: they are due at once, and have not failed."""
        for one in handed:
            flights.of(one.partition).return_at(one.record.offset, self._clock.boot_ns())

    async def _take_from(
        self, topic: Topic, flight: Flight, partition: int, wanted: ConsumerWants, most: int, size: int
    ) -> list[Handed]:
        group = wanted.group
        flight.look(*self._acks.position(group, topic, partition))  # CO7
        now_ns = self._clock.boot_ns()
        await self._expire(topic, group, partition, flight, now_ns)
        lease_s = self._settings.lease.total_seconds() if wanted.lease_s is None else wanted.lease_s
        until_ns = now_ns + int(lease_s * NS)
        handed: list[Handed] = []
        for offset in flight.due(now_ns)[:most]:
            found = await self._again(topic, group, partition, flight, offset)
            if found is not None:
                flight.lease(offset, until_ns)
                handed.append(found)
                telemetry.REDELIVERED.inc()
        room = min(most - len(handed), self._settings.max_in_flight - len(flight.leased))
        if room > 0:
            left = max(1, wanted.max_bytes - size)
            handed += await self._ahead(topic, group, partition, flight, room, left, until_ns)
        return handed

    async def _ahead(
        self, topic: Topic, group: str, partition: int, flight: Flight, room: int, max_bytes: int, until_ns: int
    ) -> list[Handed]:
        """What was never handed out."""
        stream = self._acks.stream(topic, partition)
        if flight.cursor >= stream.end:
            return []
        try:
            read = await self._reads.read(stream.id, flight.cursor, max_records=room, max_bytes=max_bytes)
        except BelowStart:
            return []  # the log start has just risen: the next look begins there
        position, acks = self._acks.position(group, topic, partition)
        handed = []
        expected = flight.cursor
        for record in read.records:
            await self._skip(topic, group, partition, expected, record.offset)
            expected = record.offset + 1
            if record.offset < position or acks.covers(record.offset):
                continue
            flight.lease(record.offset, until_ns)  # CO4
            attempts = acks.failed.get(record.offset, 0)
            handed.append(Handed(partition=partition, record=record, attempts=attempts))
        await self._skip(topic, group, partition, expected, read.next_offset)
        flight.cursor = max(flight.cursor, read.next_offset)
        return handed

    async def _skip(self, topic: Topic, group: str, partition: int, start: int, end: int) -> None:
        """Offsets without a record hold nothing back (CO5)."""
        if start < end:
            await self._acks.ack(group, topic, partition, [(start, end)])

    async def _again(self, topic: Topic, group: str, partition: int, flight: Flight, offset: int) -> Handed | None:
        """A record that failed; None: it is gone, or dead."""
        _, acks = self._acks.position(group, topic, partition)
        attempts = acks.failed.get(offset, 0)
        if attempts > self._settings.max_retries:
            await self._bury(topic, group, partition, flight, offset, attempts, "")
            return None
        record = await self._read_one(topic, partition, offset)
        if record is None:
            await self._skip(topic, group, partition, offset, offset + 1)
            flight.settle(offset, offset + 1)
            return None
        return Handed(partition=partition, record=record, attempts=attempts)

    async def _read_one(self, topic: Topic, partition: int, offset: int) -> Record | None:
        try:
            read = await self._reads.read(topic.streams[partition], offset, max_records=1, max_bytes=1)
        except BelowStart:
            return None
        return read.records[0] if read.records and read.records[0].offset == offset else None

    async def _expire(self, topic: Topic, group: str, partition: int, flight: Flight, now_ns: int) -> None:
        """Leases that passed are failures, in the log first (CO8)."""
        expired = flight.expired(now_ns)
        if not expired:
            return
        attempts = await self._acks.fail(group, topic, partition, expired)
        for offset in expired:
            if attempts[offset]:
                flight.return_at(offset, now_ns)
            else:
                flight.settle(offset, offset + 1)

    async def _bury(
        self, topic: Topic, group: str, partition: int, flight: Flight, offset: int, attempts: int, error: str
    ) -> None:
        """To the dead-letter topic, then settled (CO6); what fails is tried when it comes again."""
        record = await self._read_one(topic, partition, offset)
        try:
            if record is not None:
                await self._burial.bury(group, topic, partition, record, attempts, error)
            await self._acks.ack(group, topic, partition, [(offset, offset + 1)])
        except DrayError as failure:
            logger().warning(telemetry.NOT_BURIED, topic=topic.name, offset=offset, error=str(failure))
            raise
        flight.settle(offset, offset + 1)

    # -- remembering -------------------------------------------------------

    async def _begin(self, topic: Topic, group: str) -> "_Flights":
        """What a group holds of a topic; the first look at each of its partitions comes behind a sync (CO7)."""
        key, count = (group, topic.id), topic.visible
        await self._acks.ready(group, topic.streams[:count])
        found = self._flights.get(key)
        if found is None or len(found.partitions) < count:
            await self._sync(topic, group)
            found = self._flights.setdefault(key, _Flights())
            if len(self._flights) > MAX_GROUPS:
                self._flights.popitem(last=False)
        self._flights.move_to_end(key)
        for partition in range(len(found.partitions), count):  # no more: others may have come meanwhile
            position, _ = self._acks.position(group, topic, partition)
            found.partitions.append(Flight(cursor=position))
        return found

    async def _sync(self, topic: Topic, group: str) -> None:
        replicas = {self._domains.of(stream) for stream in topic.streams[: topic.visible]}
        await asyncio.gather(*(replica.sync() for replica in (self._acks.replica(group), *replicas)))

    def _flight(self, topic: Topic, group: str, partition: int) -> Flight | None:
        found = self._flights.get((group, topic.id))
        return found.partitions[partition] if found is not None and partition < len(found.partitions) else None

    @contextmanager
    def _woken(self, topic: Topic, flights: "_Flights") -> Iterator[asyncio.Event]:
        """An event that is set when the topic grows, or something of the group changes here."""
        event = asyncio.Event()
        with ExitStack() as stack:
            for stream in topic.streams[: topic.visible]:
                stack.enter_context(self._domains.of(stream).waiter((stream,), event))
            flights.waiting.add(event)
            stack.callback(flights.waiting.discard, event)
            yield event


class _Flights:
    """The partitions of a topic as a group goes through them."""

    def __init__(self) -> None:
        self.partitions: list[Flight] = []
        self.waiting: set[asyncio.Event] = set()
        self._turn = 0

    def of(self, partition: int) -> Flight:
        if not 0 <= partition < len(self.partitions):
            raise BadAck("nothing of this partition was handed out", partition=partition)
        return self.partitions[partition]

    def turn(self, count: int) -> list[int]:
        """All partitions, from another one each time."""
        count = min(count, len(self.partitions))
        self._turn = (self._turn + 1) % max(1, count)
        return [(self._turn + number) % count for number in range(count)]

    def due_in_s(self, now_ns: int) -> float:
        """How long nothing becomes due; an hour at most."""
        times = [due for flight in self.partitions if (due := flight.next_ns()) is not None]
        return min(max(0.001, (min(times) - now_ns) / NS), 3_600.0) if times else 3_600.0

    def wake(self) -> None:
        for event in self.waiting:
            event.set()


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
