"""What is due for compaction, told by the machine alone: brokers may ask too, and load nothing for it.

A stream is due when what lies behind its files is old enough or large enough.
Its task begins with the first row that is no file, and ends with the row that
fills the last file which is worth its place.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from dray.machine.machine import Machine
from dray.machine.names import StreamId, domain_of
from dray.machine.stream import Stream
from dray.machine.tasks import MAX_FILES, MAX_TASK_ROWS
from dray.machine.topics import Topic

ROWS_VERSION: Final = 2
"""The version of the rules that knows tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DueRules:
    """From when on a stream is due."""

    age_ms: int
    size: int
    file_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DueStream:
    """A range of a stream that should become files."""

    topic: str
    topic_id: bytes
    partition: int
    domain: int
    stream: StreamId
    start: int
    end: int
    floor: int
    """Where the log of the stream starts."""
    size: int
    age_ms: int
    cuts: tuple[int, ...]
    """Where its files end, the last one at `end`."""
    rewrite: bool = False
    """It is one of small files, which are to become fewer."""


def due_streams(machines: dict[int, Machine], rules: DueRules, topic: str | None = None) -> Iterator[DueStream]:
    """Every stream that is due; of one topic alone, whatever it has."""
    for one in look_for_due(machines, rules, topic):
        if one is not None:
            yield one


def look_for_due(machines: dict[int, Machine], rules: DueRules, topic: str | None = None) -> Iterator[DueStream | None]:
    """The same with None for each stream that is not: between two of them a broker may do something else."""
    for found in list(machines[0].topics.visible()):
        if found.name != topic if topic is not None else machines[0].table_marks.find(found.id) is not None:
            continue  # another's, or its table stands still
        for number in found.streams[: found.visible]:
            machine = machines.get(domain_of(number))
            stream = None if machine is None else machine.streams.find(number)
            if (
                machine is None
                or stream is None
                or stream.closed
                or machine.version < ROWS_VERSION
                or number in machine.tasks.by_stream
            ):
                yield None
            else:
                yield _judge(machine, stream, rules, found.name, force=topic is not None)


def backlog(machine: Machine, stream: Stream) -> tuple[int, int, int]:
    """What is not in files yet: records, bytes, and the age of the oldest in milliseconds."""
    first, rows = machine.streams.first_hot(stream), len(stream.index)
    if first >= rows:
        return 0, 0, 0
    oldest = stream.index.row(first)
    size = stream.index.size - oldest.cumulative_size + oldest.size
    age_ms = max(0, machine.timeline.time_ms - machine.objects.arrived_ms(oldest.object))
    return stream.end - max(oldest.start, stream.start), size, age_ms


def table_ends(machines: Mapping[int, Machine], topic: Topic) -> dict[int, int]:
    """How far each partition of a topic is in files."""
    ends = {}
    for number in topic.streams[: topic.visible]:
        machine = machines[domain_of(number)]
        stream = machine.streams.find(number)
        if stream is not None:
            ends[stream.partition] = stream.index.end_of(machine.streams.first_hot(stream))
    return ends


def committed_until(machines: Mapping[int, Machine], topic: Topic, ends: Mapping[int, int]) -> int:
    """The time before which every acknowledged record lies below these ends, of the partitions that have one."""
    found = []
    for number in topic.streams[: topic.visible]:
        machine = machines[domain_of(number)]
        stream = machine.streams.find(number)
        if stream is not None:
            at = stream.index.find(max(stream.start, ends.get(stream.partition, 0)))
            row = None if at is None else stream.index.row(at)
            found.append(machine.time_ms if row is None else machine.objects.arrived_ms(row.object))
    return min(found, default=0)


def _judge(machine: Machine, stream: Stream, rules: DueRules, topic: str, *, force: bool) -> DueStream | None:
    records, size, age_ms = backlog(machine, stream)
    if not records or not (force or age_ms >= rules.age_ms or size >= rules.size):
        return None
    first = machine.streams.first_hot(stream)
    cuts = cuts_of(stream, first, len(stream.index), rules.file_size)
    start = stream.index.row(first).start
    return DueStream(
        topic=topic, topic_id=stream.topic_id, partition=stream.partition, domain=machine.head.domain,
        stream=stream.id, start=start, end=cuts[-1], floor=stream.start, size=size, age_ms=age_ms, cuts=cuts,
    )  # fmt: skip


def cuts_of(stream: Stream, first: int, end: int, file_size: int) -> tuple[int, ...]:
    """Where the files of the rows [first, end) end: each at the row that fills it, within what one task may have."""
    index = stream.index
    end = min(end, first + MAX_TASK_ROWS)
    cuts: list[int] = []
    at = first
    while at < end and len(cuts) < MAX_FILES:
        before = index.row(at).cumulative_size - index.row(at).size
        following = min(end, max(at + 1, index.count_within(before + file_size)))
        cuts.append(index.row(following - 1).end)
        at = following
    return tuple(cuts)
