"""What happened in heaps becomes records of topics.

Events wait in the machine (`dray.machine.heaps.history`); whoever tells some
writes them into an object as one batch and proposes a `Tell`, which the
machine takes if nobody was faster. The oldest broker that is alive does it
each second; any other once it is two seconds overdue.

The records of a heap's history lie in one partition of its topic: the first
one in the heap's domain. A topic that is not there is made so that its only
partition is; one that has none there gets more partitions.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Final

import msgspec

from dray.clock import Clock
from dray.errors import DrayError, Unavailable
from dray.heaps import telemetry
from dray.heaps.ids import MessageId, format_id
from dray.heaps.placing import BodyPlacer, PlacedBodies
from dray.heaps.policy import HeapPolicy
from dray.heaps.present import is_oldest, present
from dray.machine.append import Append, Appended, pack_rows
from dray.machine.append_if import AppendIf
from dray.machine.heaps.history import EventKind, HistoryEvent, ShardHistory, Tell
from dray.machine.names import StreamId, domain_for, domain_of
from dray.machine.topics import Topic
from dray.machine.verdict import Refused, Why
from dray.records import Codec, NewRecord, build_batch
from dray.replica.domains import Domains
from dray.replica.replica import Replica
from dray.telemetry import logger
from dray.topics.errors import BadPartitions, TopicExists, UnknownTopic
from dray.topics.service import NewTopic, TopicService
from dray.wal.codec import Batch

SLICE: Final = 1_000
"""Events of one object: what is packed without holding the loop for long."""
_NEVER_RECORDED: Final = (Why.STALE, Why.NOT_FOUND, Why.FOREIGN)


class HistoryRow(msgspec.Struct, frozen=True, kw_only=True):
    """The value of a record of a history, as JSON."""

    heap: str
    number: int
    """Of the event, in its heap: from 0 on, without a gap."""
    event: str
    message: str | None
    time: str
    """Machine time."""
    position: int
    """Of the log's entry that did it."""
    who: str
    priority: int
    partition: int
    attempts: int
    span_ms: int
    error: str


def row_of(history: ShardHistory, domain: int, number: int, event: HistoryEvent) -> HistoryRow:
    """One event as people and Spark read it."""
    named = event.kind != EventKind.HEAP_DELETED
    identity = MessageId(event.begun_ms, domain, event.number, event.seq)
    return HistoryRow(
        heap=history.heap, number=number, event=EventKind(event.kind).name.lower(),
        message=format_id(identity) if named else None, time=_time(event.time_ms), position=event.position,
        who=event.who, priority=event.priority, partition=event.partition, attempts=event.attempts,
        span_ms=event.span_ms, error=event.note,
    )  # fmt: skip


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class HistoryTopics:
    """Where the histories of heaps go."""

    def __init__(self, domains: Domains, topics: TopicService) -> None:
        self._catalog = domains.catalog
        self._topics = topics

    async def stream_of(self, name: str, domain: int) -> StreamId:
        """The partition that histories of heaps of a domain are told to; it is made if there is none."""
        topic = await self._find_or_make(name, domain)
        for stream in topic.streams:
            if domain_of(stream) == domain:
                return stream
        domains = self._catalog.machine.head.domains
        first = len(topic.streams)
        wanted = next(at for at in range(first, first + domains) if domain_for(topic.id, at, domains) == domain)
        try:
            await self._topics.add_partitions(topic, wanted + 1)
        except BadPartitions as others:
            raise Unavailable("the partitions of a history changed: try again", topic=name) from others
        raise Unavailable("the history got another partition: try again", topic=name)

    async def _find_or_make(self, name: str, domain: int) -> Topic:
        try:
            return await self._topics.find(name)
        except UnknownTopic:
            pass
        try:
            wanted = NewTopic(name=name, partitions=1, replication_factor=1, configs={})
            return await self._topics.create(wanted, domain=domain)
        except TopicExists:
            return await self._topics.find(name)


class Historian:
    """Tells the histories of one domain's heaps."""

    def __init__(
        self, *, replica: Replica, domain: int, placer: BodyPlacer, topics: HistoryTopics, clock: Clock,
        policy: HeapPolicy,
    ) -> None:  # fmt: skip
        self._replica = replica
        self._domain = domain
        self._placer = placer
        self._topics = topics
        self._clock = clock
        self._policy = policy

    async def run(self) -> None:
        """For ever."""
        while True:
            await self._clock.sleep(self._policy.tick_ms / 1_000)
            await self.step()

    async def step(self) -> int:
        """Tell what is due; how many events that were. One history that cannot be told does not hold up others."""
        told = 0
        for shard, history in list(self._replica.machine.histories.all.items()):
            try:
                told += await self._tell_all(shard, history)
            except DrayError as error:
                logger().warning(telemetry.UPKEEP_FAILED, error=str(error))
        return told

    async def _tell_all(self, shard: StreamId, history: ShardHistory) -> int:
        told = 0
        while self._is_due(history):
            count = await self._tell(shard, history)
            if not count:
                break
            told += count
        return told

    def _is_due(self, history: ShardHistory) -> bool:
        if not history.events:
            return False
        late_ms = present(self._replica, self._clock).now_ms - history.events[0].time_ms
        return late_ms >= self._policy.overdue_ms or is_oldest(self._replica)

    async def _tell(self, shard: StreamId, history: ShardHistory) -> int:
        stream = await self._topics.stream_of(history.topic, self._domain)
        first, events = history.first, list(islice(history.events, SLICE))
        if not events:
            return 0
        batch = self._batch(history, first, events)
        placed = await self._placer.place_batches(stream, [batch])
        command = Tell(
            shard=shard, first=first, count=len(events), append=_append_of(stream, placed, batch, self._placer.zone)
        )
        (verdict,) = await self._replica.propose(command)
        if isinstance(verdict, Appended):
            telemetry.TOLD.inc(len(events))
            return len(events)
        if isinstance(verdict, Refused) and verdict.why in _NEVER_RECORDED:
            await self._placer.discard(placed)  # somebody was faster
        return 0

    def _batch(self, history: ShardHistory, first: int, events: Sequence[HistoryEvent]) -> Batch:
        records = []
        for number, event in enumerate(events, first):
            row = row_of(history, self._domain, number, event)
            key = None if row.message is None else row.message.encode()
            records.append(NewRecord(key, msgspec.json.encode(row), event.time_ms))
        times = [event.time_ms for event in events]
        return Batch(build_batch(records, codec=Codec.ZSTD), len(events), min(times), max(times))


def _append_of(stream: StreamId, placed: PlacedBodies, batch: Batch, zone: str) -> AppendIf:
    row = (
        stream, batch.max_timestamp_ms, batch.min_timestamp_ms, -1, -1, batch.records, len(batch.data),
        placed.positions[0], -1,
    )  # fmt: skip
    append = Append(
        wal_id=placed.wal_id, size=placed.size, created_ms=placed.created_ms, zone=zone, packed=pack_rows([row])
    )
    return AppendIf(append=append)
