"""Did the log keep what it took? What happened to each value and each offset.

inconsistent-offset, duplicate, lost-write, unseen, ack-without-offset, offset-hole
"""

from itertools import count, islice
from typing import Final

from dray.testing.history.anomalies import Anomaly, Findings
from dray.testing.history.events import Send, Sent, ValueId
from dray.testing.history.evidence import Evidence, LogEvidence, covers, ids, size_within
from dray.testing.history.limits import Limits
from dray.testing.history.timeline import Op

_SHOWN_HOLES: Final = 8


def check_writes(evidence: Evidence, findings: Findings, limits: Limits) -> None:
    for log in evidence.logs.values():
        floor = log.floor(retention=limits.retention)
        _check_acks(log, findings)
        _check_conflicts(log, findings)
        _check_copies(evidence, log, findings)
        _check_kept(evidence, log, floor, findings)
        _check_holes(log, floor, findings)
        _check_reached(evidence, log, floor, findings)


def _check_acks(log: LogEvidence, findings: Findings) -> None:
    for op in log.sends:
        if isinstance(op.result, Sent) and (op.result.offset is None or op.result.offset < 0):
            text = f"{_value(op)} was acknowledged with offset {op.result.offset}"
            findings.add(Anomaly.ACK_WITHOUT_OFFSET, log.tp, text, ops=ids(op), t_ns=op.end_ns)


def _check_conflicts(log: LogEvidence, findings: Findings) -> None:
    for offset, others in log.conflicts.items():
        first = log.shown_by[offset]
        ops = (first, *others.values())
        findings.add(
            Anomaly.INCONSISTENT_OFFSET,
            log.tp,
            f"offset {offset} holds {', '.join((log.value_at[offset], *others))}",
            ops=ids(*ops),
            t_ns=first.end_ns,
            span_ns=max(op.end_ns for op in ops) - min(op.end_ns for op in ops),
        )


def _check_copies(evidence: Evidence, log: LogEvidence, findings: Findings) -> None:
    for value, others in log.copies.items():
        first = log.offset_of[value]
        if not _copies_are_a_fault(evidence, value):
            findings.retried_duplicates += len(others)
            continue
        ops = (log.shown_by[first], *others.values())
        findings.add(
            Anomaly.DUPLICATE,
            log.tp,
            f"{value} lies at {', '.join(map(str, sorted((first, *others))))}",
            ops=ids(*ops),
            t_ns=ops[0].end_ns,
            span_ns=max(op.end_ns for op in ops) - min(op.end_ns for op in ops),
        )


def _copies_are_a_fault(evidence: Evidence, value: ValueId) -> bool:
    """A producer without idempotence may write a value again when an answer was lost; nobody else may."""
    send = evidence.sends.get(value)
    if send is None or not isinstance(send.call, Send):
        return True
    producer = evidence.history.producers.get(send.call.producer)
    if producer is not None and (producer.idempotent or not producer.retries):
        return True
    acks = {op.result.offset for op in evidence.repeats.get(value, [send]) if isinstance(op.result, Sent)}
    return len(acks) > 1


def _check_kept(evidence: Evidence, log: LogEvidence, floor: int, findings: Findings) -> None:
    """A value that was acknowledged or read once stays readable, at least until retention takes it."""
    for op in log.sends:
        if not isinstance(op.result, Sent) or op.result.offset is None or op.result.offset < floor:
            continue
        offset = op.result.offset
        if offset in log.damaged:
            continue  # it is there, but it is not what was written
        if _value(op) not in log.first_read_ns and covers(log.passed, offset):
            text = f"{_value(op)}, acknowledged at {offset}, was passed over and never read"
            findings.add(Anomaly.LOST_WRITE, log.tp, text, ops=ids(op), t_ns=op.end_ns)
    if not evidence.has_drain:
        return
    for value in sorted(log.first_read_ns.keys() - log.drained, key=log.offset_of.__getitem__):
        offset = log.offset_of[value]
        if offset >= floor and offset not in log.damaged and covers(log.drain_passed, offset):
            shown = log.conflicts.get(offset, {}).get(value, log.shown_by[offset])
            text = f"{value} was read at {offset} and is not in the last reading"
            findings.add(Anomaly.LOST_WRITE, log.tp, text, ops=ids(shown), t_ns=shown.end_ns)


def _check_holes(log: LogEvidence, floor: int, findings: Findings) -> None:
    for passed in log.passed:
        start = max(passed.start, floor)
        known = log.known_in(start, passed.end)
        missing = passed.end - start - len(known)
        if missing <= 0:
            continue
        present = set(known)
        holes = list(islice((offset for offset in count(start) if offset not in present), min(missing, _SHOWN_HOLES)))
        shown = next((gap.op for gap in log.gaps if gap.start <= holes[0] < gap.end), None)
        findings.add(
            Anomaly.OFFSET_HOLE,
            log.tp,
            f"{missing} offsets hold nothing: {', '.join(map(str, holes))}{' ...' if missing > len(holes) else ''}",
            ops=ids(shown) if shown is not None else (),
            t_ns=shown.end_ns if shown is not None else 0,
        )


def _check_reached(evidence: Evidence, log: LogEvidence, floor: int, findings: Findings) -> None:
    """The last reading gets to every offset that surely existed."""
    if not evidence.has_drain or not log.life.survives:
        return
    end = log.top() + 1
    missed = [at for at in log.known_in(floor, end) if not covers(log.drain_passed, at)]
    for offset in missed:
        if offset not in log.damaged:
            shown = log.shown_by[offset]
            text = f"{log.value_at[offset]} at {offset} was not reached by the last reading"
            findings.add(Anomaly.UNSEEN, log.tp, text, ops=ids(shown), t_ns=shown.end_ns)
    unnamed = end - floor - size_within(log.drain_passed, floor, end) - len(missed)
    if unnamed > 0:
        mark = log.marks[-1]
        text = f"{unnamed} more offsets up to {mark.top} were promised and not reached by the last reading"
        findings.add(Anomaly.UNSEEN, log.tp, text, ops=ids(mark.op), t_ns=mark.t_ns)


def _value(op: Op) -> ValueId:
    assert isinstance(op.call, Send)
    return op.call.value
