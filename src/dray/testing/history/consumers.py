"""The walk along the polls of every consumer.

It adds what was read to the evidence, and reports on the way what no consumer
may ever receive: values that were not sent, not sent here, refused, damaged,
or of a deleted topic; and positions that run back.

A position is trusted from one poll to the next of the same process. An
assignment, a seek, a rebalance, the end of the client, overlapping polls or an
unknown outcome break that: the next record then only tells where the consumer
is (HC4).
"""

from dataclasses import dataclass, field

from dray.testing.history.anomalies import Anomaly, Findings
from dray.testing.history.events import (
    UNREADABLE,
    Assign,
    Crashed,
    Noted,
    Partition,
    Poll,
    Polled,
    Process,
    Rebalanced,
    Record,
    Seek,
    Send,
    Subscribe,
    ValueId,
)
from dray.testing.history.evidence import Evidence, Gap, LogEvidence, Mark, ids
from dray.testing.history.timeline import Interval, Op, Status


@dataclass(frozen=True, slots=True)
class EmptyPoll:
    """A poll that returned nothing, like the one `before` it; nothing came since `since_ns`."""

    op: Op
    before: Op
    since_ns: int
    positions: dict[Partition, int]


@dataclass(slots=True)
class Reading:
    """What the walk found beside the evidence."""

    empty_polls: list[EmptyPoll] = field(default_factory=list)
    records: int = 0
    worst_lag_ns: int = 0
    """From the ack of a value to its first arrival at a consumer that had its partition before the ack."""


@dataclass(slots=True)
class _Consumer:
    assigned_ns: int = -1
    """Since when this assignment counts: a client hands out nothing that it fetched before."""
    sought_ns: dict[Partition, int] = field(default_factory=dict)
    next: dict[Partition, int] = field(default_factory=dict)
    log: dict[Partition, LogEvidence] = field(default_factory=dict)
    drain: bool = False
    moved_ns: int = -1
    polled_ns: int = -1
    progress_ns: int = -1
    last_empty: Op | None = None

    def since(self, tp: Partition) -> int:
        return self.sought_ns.get(tp, self.assigned_ns)

    def reset(self, start_ns: int, end_ns: int, positions: dict[Partition, int], *, drain: bool = False) -> None:
        self.assigned_ns = start_ns
        self.sought_ns.clear()
        self.log.clear()
        self.next = positions
        self.drain = drain
        self.moved_ns = self.progress_ns = end_ns
        self.last_empty = None

    def seek(self, op: Op, call: Seek) -> None:
        self.log.pop(call.tp, None)
        self.next.pop(call.tp, None)
        if op.status is Status.OK:
            self.sought_ns[call.tp] = op.start_ns
            self.next[call.tp] = call.offset
        self.moved_ns = self.progress_ns = op.answered_ns
        self.last_empty = None


def gather_reads(evidence: Evidence, findings: Findings) -> Reading:
    """Add what every poll shows to the evidence."""
    walk = _Walk(evidence, findings)
    for steps in _steps_by_process(evidence).values():
        walk.consumer = _Consumer()
        for _, step in steps:
            walk.step(step)
    return walk.reading


def _steps_by_process(evidence: Evidence) -> dict[Process, list[tuple[int, Op | Noted]]]:
    steps: dict[Process, list[tuple[int, Op | Noted]]] = {}
    for op in evidence.history.ops:
        if isinstance(op.call, Poll | Assign | Subscribe | Seek) and op.status is not Status.FAIL:
            steps.setdefault(op.process, []).append((op.answered_ns, op))
    for noted in evidence.history.notes:
        if isinstance(noted.note, Rebalanced | Crashed) and noted.process in steps:
            steps[noted.process].append((noted.t_ns, noted))
    for listed in steps.values():
        listed.sort(key=lambda step: step[0])
    return steps


class _Walk:
    def __init__(self, evidence: Evidence, findings: Findings) -> None:
        self._evidence = evidence
        self._findings = findings
        self.reading = Reading()
        self.consumer = _Consumer()

    def step(self, step: Op | Noted) -> None:
        if isinstance(step, Noted):
            self.consumer.reset(step.t_ns, step.t_ns, {})
            return
        call = step.call
        if isinstance(call, Poll):
            self._poll(step, call)
        elif isinstance(call, Seek):
            self.consumer.seek(step, call)
        elif isinstance(call, Assign):
            known = {tp: at for tp, at in call.positions.items() if at is not None}
            self.consumer.reset(
                step.start_ns, step.answered_ns, known if step.status is Status.OK else {}, drain=call.drain
            )
            self._evidence.has_drain |= call.drain
        else:
            self.consumer.reset(step.start_ns, step.answered_ns, {})

    def _poll(self, op: Op, call: Poll) -> None:
        consumer = self.consumer
        if not isinstance(op.result, Polled):
            consumer.next.clear()
            consumer.log.clear()
            return
        steady = consumer.moved_ns <= op.start_ns and consumer.polled_ns <= op.start_ns
        consumer.polled_ns = op.end_ns
        progress = False
        for tp, records in op.result.records.items():
            if records:
                progress = True
                expected = consumer.next.get(tp, call.positions.get(tp)) if steady else None
                self._receive(op, tp, records, expected, steady=steady)
        if steady:
            for tp, end in op.result.ends.items():
                log = self._evidence.find(tp, consumer.since(tp), op.end_ns)
                if log is not None:
                    log.marks.append(Mark(op.end_ns, end - 1, op))
        if progress:
            consumer.progress_ns = op.end_ns
            consumer.last_empty = None
            return
        if consumer.last_empty is not None and steady:
            positions = call.positions or dict(consumer.next)
            empty = EmptyPoll(op, consumer.last_empty, consumer.progress_ns, positions)
            self.reading.empty_polls.append(empty)
        consumer.last_empty = op

    def _receive(self, op: Op, tp: Partition, records: list[Record], expected: int | None, *, steady: bool) -> None:
        consumer = self.consumer
        here = self._evidence.find(tp, consumer.since(tp), op.end_ns)
        logs = [self._attribute(op, tp, record, here) for record in records]
        tops: dict[int, tuple[LogEvidence, int]] = {}
        for (offset, value, _), log in zip(records, logs, strict=True):
            if log is None:
                continue
            log.see(offset, value, op)
            if consumer.drain:
                log.drained.add(value)
            if value not in log.first_read_ns:
                log.first_read_ns[value] = op.end_ns
                self._measure_lag(op, value)
            number = log.life.number
            if number not in tops or tops[number][1] < offset:
                tops[number] = (log, offset)
        for log, top in tops.values():
            log.marks.append(Mark(op.end_ns, top, op))
        self.reading.records += len(records)
        if steady:
            self._follow(op, tp, list(zip(records, logs, strict=True)), expected, here)
            consumer.next[tp] = records[-1][0] + 1
        else:
            consumer.next.pop(tp, None)
            consumer.log.pop(tp, None)

    def _measure_lag(self, op: Op, value: ValueId) -> None:
        send = self._evidence.sends.get(value)
        if send is None or send.status is not Status.OK or self.consumer.drain:
            return
        if self.consumer.assigned_ns < send.end_ns:
            self.reading.worst_lag_ns = max(self.reading.worst_lag_ns, op.end_ns - send.end_ns)

    def _attribute(self, op: Op, tp: Partition, record: Record, here: LogEvidence | None) -> LogEvidence | None:
        """The log that a record came from; none if that is unknown or the record is no evidence."""
        offset, value, crc = record
        send = self._evidence.sends.get(value)
        if (
            send is None
            or not isinstance(send.call, Send)
            or send.call.crc != crc
            or send.call.tp != tp
            or send.status is Status.FAIL
            or send.start_ns > op.end_ns
        ):
            return self._accuse(op, tp, record, send, here)
        home = self._evidence.homes.get(value, here)
        if home is here or home is None or home.life.meets(self.consumer.since(tp), op.end_ns):
            return home
        self._report(
            Anomaly.RESURRECTED_TOPIC,
            tp,
            f"{value}, sent to life {home.life.number} {home.life.topic_id}, was read at {offset} after its deletion",
            send,
            op,
        )
        return None

    def _accuse(
        self, op: Op, tp: Partition, record: Record, send: Op | None, here: LogEvidence | None
    ) -> LogEvidence | None:
        offset, value, crc = record
        if value == UNREADABLE:
            self._report(Anomaly.CORRUPT_PAYLOAD, tp, f"the record at {offset} is unreadable", op)
        elif send is None or not isinstance(send.call, Send):
            self._report(Anomaly.PHANTOM, tp, f"{value} at {offset} was never sent", op)
            return here
        elif send.call.tp != tp:
            self._report(Anomaly.MISROUTED, tp, f"{value} at {offset} was sent to {send.call.tp}", send, op)
            return here
        elif send.call.crc != crc:
            text = f"{value} at {offset} has checksum {crc}, it was sent with {send.call.crc}"
            self._report(Anomaly.CORRUPT_PAYLOAD, tp, text, send, op)
        elif send.status is Status.FAIL:
            self._report(Anomaly.ABORTED_READ, tp, f"{value} at {offset} was refused: {send.error}", send, op)
            return here
        else:
            self._report(Anomaly.PHANTOM, tp, f"{value} at {offset} was read before it was sent", op, send)
            return here
        if here is not None:
            here.damaged.add(offset)
        return None

    def _follow(
        self,
        op: Op,
        tp: Partition,
        records: list[tuple[Record, LogEvidence | None]],
        expected: int | None,
        here: LogEvidence | None,
    ) -> None:
        """Compare each record with the position before it; note what was passed over (HC4)."""
        run: tuple[LogEvidence, int, int] | None = None
        before = self.consumer.log.get(tp)
        for (offset, value, _), log in records:
            start = offset
            if log is not None and expected is not None and (log is before or (before is None and log is here)):
                if offset < expected:
                    text = f"{value} at {offset} came when {expected} was next"
                    self._report(Anomaly.NONMONOTONIC_POLL, tp, text, op)
                else:
                    start = expected
                    if offset > expected:
                        log.gaps.append(Gap(expected, offset, op))
            if log is not None:
                if run is not None and run[0] is log and run[2] == start:
                    run = (log, run[1], offset + 1)
                else:
                    self._pass(run)
                    run = (log, start, offset + 1)
                before = log
            expected = offset + 1
        self._pass(run)
        if before is not None:
            self.consumer.log[tp] = before

    def _pass(self, run: tuple[LogEvidence, int, int] | None) -> None:
        if run is None:
            return
        log, start, end = run
        log.passed.append(Interval(start=start, end=end))
        if self.consumer.drain:
            log.drain_passed.append(Interval(start=start, end=end))

    def _report(self, anomaly: Anomaly, tp: Partition, text: str, *ops: Op) -> None:
        span_ns = max(op.start_ns for op in ops) - min(op.start_ns for op in ops)
        self._findings.add(anomaly, tp, text, ops=ids(*ops), t_ns=ops[-1].start_ns, span_ns=span_ns)
