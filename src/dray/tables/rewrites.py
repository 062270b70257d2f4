"""Small files that should become fewer, told by the machine alone.

A trickle of records becomes a small file at each look. Neighbouring files of a
stream become one when there are enough of them, and none is larger than all
behind it together: so a byte is written again as often as its file doubles, not
at each new file. What is older than `settled_ms` becomes one without waiting
for more.

Invariants
    RW1  A rewrite takes whole neighbouring files of one stream that lie in the
         same tables, in the order of their offsets, and makes fewer of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dray.machine.machine import Machine
from dray.machine.names import StreamId, domain_of
from dray.machine.stream import Stream
from dray.tables.due import ROWS_VERSION, DueStream, cuts_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteRules:
    """From when on small files are due to become fewer."""

    files: int
    """Neighbouring ones that are worth it."""
    file_size: int
    """A file of less than half of it is small."""
    settled_ms: int
    """Files that are older are not waited with."""
    tables: bool
    """Files of tables, or those that are in none: the one kind never takes the place of the other."""


def rewrites(machines: dict[int, Machine], rules: RewriteRules, topic: str | None = None) -> Iterator[DueStream]:
    """Every stream that has small files to be put together, one range of each."""
    for found in list(machines[0].topics.visible()):
        if topic is None or found.name == topic:
            for number in found.streams[: found.visible]:
                machine = machines.get(domain_of(number))
                due = None if machine is None else _look(machine, number, rules, found.name)
                if due is not None:
                    yield due


def _look(machine: Machine, number: StreamId, rules: RewriteRules, topic: str) -> DueStream | None:
    stream = machine.streams.find(number)
    if (
        stream is None
        or stream.closed
        or machine.version < ROWS_VERSION
        or number in machine.tasks.by_stream
        or machine.streams.first_hot(stream) < 2
    ):
        return None
    for first, end in _runs(machine, stream, rules):
        begin = _begin(machine, stream, first, end, rules)
        if begin is not None:
            cuts = cuts_of(stream, begin, end, rules.file_size)
            taken = stream.index.count_below(cuts[-1]) - begin
            if len(cuts) < taken:  # RW1
                return _due(machine, stream, begin, cuts, topic)
    return None


def _due(machine: Machine, stream: Stream, begin: int, cuts: tuple[int, ...], topic: str) -> DueStream:
    index = stream.index
    first, last = index.row(begin), index.row(index.count_below(cuts[-1]) - 1)
    return DueStream(
        topic=topic, topic_id=stream.topic_id, partition=stream.partition, domain=machine.head.domain,
        stream=stream.id, start=first.start, end=last.end, floor=stream.start,
        size=last.cumulative_size - first.cumulative_size + first.size,
        age_ms=max(0, machine.timeline.time_ms - machine.objects.arrived_ms(last.object)), cuts=cuts, rewrite=True,
    )  # fmt: skip


def _runs(machine: Machine, stream: Stream, rules: RewriteRules) -> Iterator[tuple[int, int]]:
    """Neighbouring small files, as numbers of rows [first, end)."""
    first = None
    hot = machine.streams.first_hot(stream)
    for number in range(hot):
        if _is_small(machine, stream, number, rules):
            first = number if first is None else first
        elif first is not None:
            yield first, number
            first = None
    if first is not None:
        yield first, hot


def _is_small(machine: Machine, stream: Stream, number: int, rules: RewriteRules) -> bool:
    row = stream.index.row(number)
    file = machine.objects.files.get(row.object)
    # One that began before its row holds what the log has dropped, and a table may keep.
    return 2 * row.size < rules.file_size and file is not None and file.start == row.start and file.held is rules.tables


def _begin(machine: Machine, stream: Stream, first: int, end: int, rules: RewriteRules) -> int | None:
    """The row from which on a run is worth being written again; None: it is not."""
    index = stream.index
    arrived_ms = machine.objects.arrived_ms(index.row(end - 1).object)
    if end - first > 1 and machine.timeline.time_ms - arrived_ms >= rules.settled_ms:
        return first
    begin = worth([index.row(number).size for number in range(first, end)], rules.files)
    return None if begin is None else first + begin


def worth(sizes: Sequence[int], least: int) -> int | None:
    """The first of at least so many files, the last included, that is no larger than all behind it together."""
    found, behind = None, 0
    for at in range(len(sizes) - 1, -1, -1):
        if sizes[at] <= behind and len(sizes) - at >= least:
            found = at
        behind += sizes[at]
    return found
