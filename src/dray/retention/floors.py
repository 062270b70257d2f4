"""Log starts that rise by time and size, and streams that are closed: rows go, in slices.

Everything is looked up here first and judged by the machine afterwards, so
that nothing is proposed that could not do anything.

Invariants
    RT2  A command is proposed only if it would take a row away as far as this
         replica knows: a broker with nothing due writes nothing.
    RT3  Records of a topic that only compacts, or whose configs make no
         sense, are not taken away.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from dray.machine.machine import Machine
from dray.machine.names import StreamId, TopicId
from dray.machine.stream import Stream
from dray.machine.streams import CloseStream, FloorReason, RaiseFloor
from dray.machine.topics import Topic
from dray.replica.replica import Replica
from dray.retention import telemetry
from dray.retention.present import Bounds, Present, count_expired
from dray.telemetry import logger
from dray.topics.configs import TopicConfig, meaning

SLICE_ROWS: Final = 1_000
"""Rows that one command takes: producers do not wait long behind it (Q8)."""
TOGETHER: Final = 64
"""Streams whose commands share an entry."""
BREATH: Final = 512
"""Streams that are looked at before others get a turn on the loop."""

Slice: TypeAlias = RaiseFloor | CloseStream


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A command that takes rows away, and why."""

    command: Slice
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a topic's configs mean for its streams."""

    time: Bounds | None = None
    retention_bytes: int = -1
    """-1: no bound."""
    only_compacts: bool = False
    """Nothing is taken away until topics are compacted (ADR-0145)."""


KEEP: Final = Rules()
ONLY_COMPACTS: Final = Rules(only_compacts=True)


@dataclass(slots=True)
class RetentionRules:
    """The rules of every topic, read again only when a topic was altered."""

    _known: dict[TopicId, tuple[int, Rules]] = field(default_factory=dict)

    def of(self, topic: Topic | None) -> Rules:
        if topic is None:
            return KEEP
        known = self._known.get(topic.id)
        if known is None or known[0] != topic.revision:
            known = self._known[topic.id] = (topic.revision, read_rules(topic))
        return known[1]

    def forget(self, catalog: Machine) -> None:
        """Let go of topics that are no more."""
        self._known = {topic: known for topic, known in self._known.items() if catalog.topics.find(topic) is not None}


def read_rules(topic: Topic) -> Rules:
    """RT3"""
    try:
        config: TopicConfig = meaning(topic.configs)
    except ValueError as error:
        logger().error(telemetry.BAD_CONFIG, topic=topic.name, error=str(error))
        return KEEP  # RT3
    if not config.deletes:
        return ONLY_COMPACTS  # RT3
    time = Bounds(retention_ms=config.retention_ms, after_max_ms=config.after_max_ms)
    return Rules(time=time if config.retention_ms >= 0 else None, retention_bytes=config.retention_bytes)


def due(machine: Machine, stream: Stream, rules: Rules, present: Present | None) -> Due | None:
    """The next command that would take rows of a stream away, if there is one (RT2)."""
    if stream.closed:
        return Due(command=CloseStream(stream=stream.id, limit=SLICE_ROWS), reason="closed")
    index = stream.index
    if index.shed_rows:
        # Rows that files stand for, whose compactor went away before it had let go of them.
        return _raise_to(stream, stream.start, "swapped")
    if not len(index):
        return None
    if index.first_start < stream.start and index.count_below(stream.start):
        # A deletion of records, or a larger slice, whose proposer went away.
        return _raise_to(stream, stream.start, "delete_records")
    if rules.time is not None and present is not None and not machine.timeline.paused:
        expired = count_expired(machine, stream, rules.time, present, SLICE_ROWS)
        if expired:
            # The machine's own rule knows neither the clock nor arrival, so it is told the offset (RT20).
            return _raise_to(stream, index.end_of(expired), "time")
    if rules.retention_bytes >= 0 and index.count_within(index.size - rules.retention_bytes):
        command = RaiseFloor(
            stream=stream.id, reason=FloorReason.SIZE, bound=rules.retention_bytes, limit=SLICE_ROWS
        )  # fmt: skip
        return Due(command=command, reason="size")
    return None


def _raise_to(stream: Stream, offset: int, reason: str) -> Due:
    command = RaiseFloor(stream=stream.id, reason=FloorReason.DELETE_RECORDS, bound=offset, limit=SLICE_ROWS)
    return Due(command=command, reason=reason)


class Floors:
    """Raises the floors of one domain's streams after another's."""

    def __init__(self, catalog: Replica, look: Callable[[Replica], Present | None]) -> None:
        self._catalog = catalog
        self._look = look
        self._rules = RetentionRules()

    async def find(self, replica: Replica) -> list[StreamId]:
        """The streams of a domain that have rows due. What only compaction would take away is measured on the way."""
        found, uncompacted = [], 0
        for count, number in enumerate(list(replica.machine.streams.open), 1):
            stream = replica.machine.streams.find(number)
            if stream is None:
                continue
            rules = self._rules.of(self._catalog.machine.topics.find(stream.topic_id))
            if rules.only_compacts and not stream.closed:
                uncompacted += stream.index.size
            if due(replica.machine, stream, rules, self._look(replica)) is not None:
                found.append(number)
            if count % BREATH == 0:
                await asyncio.sleep(0)
        telemetry.UNCOMPACTED.labels(str(replica.machine.domain)).set(uncompacted)
        return found

    async def run(self, replica: Replica) -> None:
        """Take away what is due in a domain."""
        self._rules.forget(self._catalog.machine)
        found = await self.find(replica)
        for at in range(0, len(found), TOGETHER):
            await self._slice_by_slice(replica, found[at : at + TOGETHER])

    async def _slice_by_slice(self, replica: Replica, streams: Sequence[StreamId]) -> None:
        while slices := [found for number in streams if (found := self._due(replica, number)) is not None]:
            before = [_kept(replica.machine, one.command.stream) for one in slices]
            await replica.propose(*(one.command for one in slices))
            after = [_kept(replica.machine, one.command.stream) for one in slices]
            for one, (old, _), (new, _) in zip(slices, before, after, strict=True):
                telemetry.DROPPED.labels(one.reason).inc(max(0, new - old))
            if before == after:
                return  # refused, or others filled the entry: the next pass goes on

    def _due(self, replica: Replica, number: StreamId) -> Due | None:
        machine = replica.machine
        stream = machine.streams.find(number)
        if stream is None:
            return None
        rules = self._rules.of(self._catalog.machine.topics.find(stream.topic_id))
        return due(machine, stream, rules, self._look(replica))


def _kept(machine: Machine, number: StreamId) -> tuple[int, int]:
    """The first offset of a stream that is still there, and the replaced rows to be let go; -1: it is forgotten."""
    stream = machine.streams.find(number)
    return (-1, 0) if stream is None else (stream.index.first_start, stream.index.shed_rows)
