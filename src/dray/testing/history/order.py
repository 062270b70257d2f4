"""Is the log linearizable? Offsets are the witness, so a sweep decides.

    realtime-order, stale-tail, nonmonotonic-send, earliest-regress

An offset that surely existed before an operation began lies below whatever
that operation appends, and below whatever LATEST it reads. This holds for
unknown sends too, once their value was read: they took effect after their
invoke.
"""

from dray.testing.history.anomalies import Anomaly, Findings
from dray.testing.history.events import At, Earliest, Send, Sent
from dray.testing.history.evidence import Evidence, LogEvidence, ids
from dray.testing.history.timeline import Op


def check_order(evidence: Evidence, findings: Findings) -> None:
    for log in evidence.logs.values():
        _check_appends(evidence, log, findings)
        _check_tails(log, findings)
        _check_producers(evidence, log, findings)
        _check_starts(log, findings)


def _check_appends(evidence: Evidence, log: LogEvidence, findings: Findings) -> None:
    for op in log.sends:
        offset = _lowest_offset(evidence, log, op)
        mark = log.mark_before(op.start_ns)
        if offset is not None and mark is not None and offset <= mark.top:
            assert isinstance(op.call, Send)
            findings.add(
                Anomaly.REALTIME_ORDER,
                log.tp,
                f"{op.call.value} got {offset}, but {mark.top} existed before it was sent",
                ops=ids(mark.op, op),
                t_ns=op.start_ns,
                span_ns=op.start_ns - mark.t_ns,
            )


def _lowest_offset(evidence: Evidence, log: LogEvidence, op: Op) -> int | None:
    """The lowest place that this send, and no other one, gave its value."""
    assert isinstance(op.call, Send)
    value = op.call.value
    if value in evidence.repeats:
        offset = op.result.offset if isinstance(op.result, Sent) else None
        return offset if offset is not None and offset >= 0 else None
    first = log.offset_of.get(value)
    return None if first is None else min((first, *log.copies.get(value, ())))


def _check_tails(log: LogEvidence, findings: Findings) -> None:
    for op in log.latest:
        mark = log.mark_before(op.start_ns)
        if mark is not None and isinstance(op.result, At) and op.result.offset <= mark.top:
            findings.add(
                Anomaly.STALE_TAIL,
                log.tp,
                f"LATEST was {op.result.offset}, but {mark.top} existed before it was asked",
                ops=ids(mark.op, op),
                t_ns=op.start_ns,
                span_ns=op.start_ns - mark.t_ns,
            )


def _check_producers(evidence: Evidence, log: LogEvidence, findings: Findings) -> None:
    """What one process sends through one producer keeps its order, where the producer promises that.

    An idempotent producer promises it of unknown sends as well: a late copy is
    refused by its sequence number. One that merely has one request in flight
    promises it of acknowledged ones.
    """
    highest: dict[tuple[str, str], tuple[int, Op]] = {}
    for op in log.sends:
        assert isinstance(op.call, Send)
        producer = evidence.history.producers.get(op.call.producer)
        if producer is None or not (producer.idempotent or producer.ordered):
            continue
        if isinstance(op.result, Sent):
            offset = op.result.offset
        else:
            offset = log.offset_of.get(op.call.value) if producer.idempotent else None
        if offset is None or offset < 0:
            continue
        name = (op.process, op.call.producer)
        before = highest.get(name)
        if before is None or offset > before[0]:
            highest[name] = (offset, op)
            continue
        findings.add(
            Anomaly.NONMONOTONIC_SEND,
            log.tp,
            f"{op.call.producer} sent {op.call.value} later and got {offset}, not above {before[0]}",
            ops=ids(before[1], op),
            t_ns=op.start_ns,
            span_ns=op.start_ns - before[1].start_ns,
        )


def _check_starts(log: LogEvidence, findings: Findings) -> None:
    answers = sorted((op.end_ns, op.result.offset, op.id) for op in log.earliest if isinstance(op.result, At))
    done, best = 0, (-1, -1)
    for op in log.earliest:
        assert isinstance(op.call, Earliest)
        while done < len(answers) and answers[done][0] < op.start_ns:
            best = max(best, (answers[done][1], done))
            done += 1
        if isinstance(op.result, At) and op.result.offset < best[0]:
            end_ns, offset, before = answers[best[1]]
            findings.add(
                Anomaly.EARLIEST_REGRESS,
                log.tp,
                f"EARLIEST was {op.result.offset} after it had been {offset}",
                ops=(before, op.id),
                t_ns=op.start_ns,
                span_ns=op.start_ns - end_ns,
            )
