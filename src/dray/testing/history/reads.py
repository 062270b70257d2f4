"""Did consumers get what was there? poll-skip, stale-read."""

from dray.testing.history.anomalies import Anomaly, Findings
from dray.testing.history.consumers import EmptyPoll, Reading
from dray.testing.history.events import Partition, Process
from dray.testing.history.evidence import Evidence, LogEvidence, ids
from dray.testing.history.limits import SECOND_NS, Limits


def check_reads(evidence: Evidence, reading: Reading, findings: Findings, limits: Limits) -> None:
    for log in evidence.logs.values():
        _check_skips(log, findings, limits)
    told: set[tuple[Process, Partition, int]] = set()
    for empty in reading.empty_polls:
        if empty.op.end_ns - empty.since_ns > limits.stale_read_ns:
            _check_wait(evidence, empty, told, findings, limits)


def _check_skips(log: LogEvidence, findings: Findings, limits: Limits) -> None:
    floor = log.floor(retention=limits.retention)
    for gap in log.gaps:
        known = [at for at in log.known_in(max(gap.start, floor), gap.end) if at in log.value_at]
        if not known:
            continue
        shown = log.shown_by[known[0]]
        findings.add(
            Anomaly.POLL_SKIP,
            log.tp,
            f"{gap.op.process} was at {gap.start} and got {gap.end}, past {log.value_at[known[0]]} at {known[0]}",
            ops=ids(shown, gap.op),
            t_ns=gap.op.end_ns,
            span_ns=abs(gap.op.end_ns - shown.end_ns),
        )


def _check_wait(
    evidence: Evidence,
    empty: EmptyPoll,
    told: set[tuple[Process, Partition, int]],
    findings: Findings,
    limits: Limits,
) -> None:
    op = empty.op
    quiet_ns = evidence.history.quiet_since(op.end_ns)
    if quiet_ns is None:
        return
    for tp, position in empty.positions.items():
        log = evidence.find(tp, empty.since_ns, op.end_ns)
        name = (op.process, tp, position)
        if log is None or name in told or not log.life.survives:
            continue
        mark = log.first_mark_at(max(position, log.floor()))
        if mark is None:
            continue
        since_ns = max(mark.t_ns, empty.since_ns, quiet_ns)
        # Both polls began when the record was there: one alone may just have been too short.
        if op.end_ns - since_ns > limits.stale_read_ns and empty.before.start_ns >= since_ns:
            told.add(name)
            waited_s = (op.end_ns - since_ns) / SECOND_NS
            findings.add(
                Anomaly.STALE_READ,
                tp,
                f"{op.process} at {position} got nothing for {waited_s:.1f} s while {mark.top} exists",
                ops=ids(mark.op, op),
                t_ns=op.end_ns,
                span_ns=op.end_ns - mark.t_ns,
            )
