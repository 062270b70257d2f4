"""What the operations of a history say about each log.

A log is one partition of one life of a topic. From acknowledgements, reads,
tails and watermarks this module collects per log which value was seen at
which offset, by when an offset must have existed, and which ranges consumers
have passed over. It judges nothing; the families of anomalies do.

Invariants
    HC4  A range counts as passed over only if one consumer was at its start
         and then received a record at its end, with nothing between that may
         have moved it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from dray.testing.history.events import (
    At,
    Earliest,
    Latest,
    OpId,
    Partition,
    Send,
    Sent,
    ValueId,
)
from dray.testing.history.timeline import History, Interval, Life, Op, Status


@dataclass(frozen=True, slots=True)
class Gap:
    """A consumer at `start` received `end` next."""

    start: int
    end: int
    op: Op


@dataclass(frozen=True, slots=True)
class Mark:
    """By `t_ns` every offset up to and with `top` existed; `op` shows it."""

    t_ns: int
    top: int
    op: Op


@dataclass(slots=True, kw_only=True)
class LogEvidence:
    """All that is known about one log."""

    tp: Partition
    life: Life
    sends: list[Op] = field(default_factory=list)
    """Not failed, in the order of their invokes."""
    latest: list[Op] = field(default_factory=list)
    earliest: list[Op] = field(default_factory=list)
    value_at: dict[int, ValueId] = field(default_factory=dict)
    shown_by: dict[int, Op] = field(default_factory=dict)
    conflicts: dict[int, dict[ValueId, Op]] = field(default_factory=dict)
    """Offsets with a second value."""
    offset_of: dict[ValueId, int] = field(default_factory=dict)
    copies: dict[ValueId, dict[int, Op]] = field(default_factory=dict)
    """Values with a second offset."""
    first_read_ns: dict[ValueId, int] = field(default_factory=dict)
    damaged: set[int] = field(default_factory=set)
    drained: set[ValueId] = field(default_factory=set)
    """Values that the last reading returned."""
    marks: list[Mark] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    passed: list[Interval] = field(default_factory=list)
    drain_passed: list[Interval] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    """Sorted: where a value was seen, or something damaged."""
    _mark_times: list[int] = field(default_factory=list)
    _mark_tops: list[int] = field(default_factory=list)

    def see(self, offset: int, value: ValueId, op: Op) -> None:
        """Value and offset were reported together, by an ack or by a read."""
        there = self.value_at.get(offset)
        if there is None:
            self.value_at[offset] = value
            self.shown_by[offset] = op
        elif there != value:
            self.conflicts.setdefault(offset, {}).setdefault(value, op)
        known = self.offset_of.get(value)
        if known is None:
            self.offset_of[value] = offset
        elif known != offset:
            self.copies.setdefault(value, {}).setdefault(offset, op)

    def seal(self) -> None:
        """Sort what was collected; what follows here may be asked afterwards."""
        self.marks.sort(key=lambda mark: mark.t_ns)
        best = -1
        rising: list[Mark] = []
        for mark in self.marks:
            if mark.top > best:
                best = mark.top
                rising.append(mark)
        self.marks = rising
        self._mark_times = [mark.t_ns for mark in rising]
        self._mark_tops = [mark.top for mark in rising]
        self.offsets = sorted(self.value_at.keys() | self.damaged)
        self.passed = union(self.passed)
        self.drain_passed = union(self.drain_passed)

    def mark_before(self, t_ns: int) -> Mark | None:
        """The highest offset that surely existed before `t_ns`."""
        index = bisect_left(self._mark_times, t_ns)
        return self.marks[index - 1] if index else None

    def first_mark_at(self, offset: int) -> Mark | None:
        """When it first was certain that `offset` exists."""
        index = bisect_left(self._mark_tops, offset)
        return self.marks[index] if index < len(self.marks) else None

    def known_in(self, start: int, end: int) -> list[int]:
        """The offsets of a range that surely hold something."""
        return self.offsets[bisect_left(self.offsets, start) : bisect_left(self.offsets, end)]

    def top(self) -> int:
        """The highest offset that surely existed; -1 if none."""
        return self._mark_tops[-1] if self._mark_tops else -1

    def floor(self, *, retention: bool = True) -> int:
        """Retention may have removed what lies below: the highest EARLIEST that was seen.

        Of a topic that was deleted nobody can ask any more, so all of it may have been.
        """
        if not retention:
            return 0
        if not self.life.survives:
            return self.top() + 1
        return max((op.result.offset for op in self.earliest if isinstance(op.result, At)), default=0)


@dataclass(slots=True, kw_only=True)
class Evidence:
    """What is known about all logs, and about every value."""

    history: History
    logs: dict[tuple[Partition, int], LogEvidence] = field(default_factory=dict)
    sends: dict[ValueId, Op] = field(default_factory=dict)
    """By value; where one was sent twice, the one that proves most."""
    repeats: dict[ValueId, list[Op]] = field(default_factory=dict)
    homes: dict[ValueId, LogEvidence] = field(default_factory=dict)
    """The log that a value was sent to, where that is certain."""
    has_drain: bool = False

    def log(self, tp: Partition, life: Life) -> LogEvidence:
        key = (tp, life.number)
        found = self.logs.get(key)
        if found is None:
            found = self.logs[key] = LogEvidence(tp=tp, life=life)
        return found

    def find(self, tp: Partition, start_ns: int, end_ns: int) -> LogEvidence | None:
        life = self.history.life_of(tp, start_ns, end_ns)
        return None if life is None else self.log(tp, life)


def gather_writes(history: History) -> Evidence:
    """Collect what sends, LATEST and EARLIEST say. Reads are added by `dray.testing.history.reads`."""
    evidence = Evidence(history=history)
    for op in history.ops:
        call = op.call
        if isinstance(call, Send):
            _gather_send(evidence, op, call)
        elif isinstance(call, Latest | Earliest) and isinstance(op.result, At):
            log = evidence.find(call.tp, op.start_ns, op.end_ns)
            if log is None:
                continue
            (log.earliest if isinstance(call, Earliest) else log.latest).append(op)
            log.marks.append(Mark(op.end_ns, op.result.offset - 1, op))
    return evidence


def _gather_send(evidence: Evidence, op: Op, call: Send) -> None:
    before = evidence.sends.get(call.value)
    if before is not None:
        evidence.repeats.setdefault(call.value, [before]).append(op)
    if before is None or _proof(op) > _proof(before):
        evidence.sends[call.value] = op
    if op.status is Status.FAIL:
        return
    log = evidence.find(call.tp, op.start_ns, op.end_ns)
    if log is None:
        return
    log.sends.append(op)
    evidence.homes[call.value] = log
    if isinstance(op.result, Sent) and op.result.offset is not None and op.result.offset >= 0:
        log.see(op.result.offset, call.value, op)
        log.marks.append(Mark(op.end_ns, op.result.offset, op))


def _proof(op: Op) -> int:
    return {Status.FAIL: 0, Status.INFO: 1, Status.OK: 2}[op.status]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Disjoint and sorted, covering the same."""
    merged: list[Interval] = []
    for interval in sorted(intervals, key=lambda i: i.start):
        if merged and interval.start <= merged[-1].end:
            if interval.end > merged[-1].end:
                merged[-1] = Interval(start=merged[-1].start, end=interval.end)
        else:
            merged.append(interval)
    return merged


def size_within(merged: list[Interval], start: int, end: int) -> int:
    """How many offsets of [start, end) are covered."""
    return sum(max(0, min(end, i.end) - max(start, i.start)) for i in merged)


def covers(merged: list[Interval], offset: int) -> bool:
    if len(merged) == 1:  # nearly always
        return merged[0].start <= offset < merged[0].end
    index = bisect_right(merged, offset, key=lambda i: i.start) - 1
    return index >= 0 and offset < merged[index].end


def ids(*ops: Op) -> list[OpId]:
    return [op.id for op in ops]
