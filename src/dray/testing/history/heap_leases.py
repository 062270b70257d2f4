"""Does one consumer hold a message at a time, for as long as it was told, and no longer?

double-lease delivered-after-ack stale-token-accepted ack-after-deadline early-expiry attempt-jump over-retry
"""

from dray.testing.history.anomalies import Anomaly, Findings
from dray.testing.history.evidence import ids
from dray.testing.history.heap_events import LEASE_LOST, Settle
from dray.testing.history.heap_evidence import Delivery, HeapEvidence, MessageEvidence
from dray.testing.history.limits import SECOND_NS
from dray.testing.history.timeline import Op, Status


def check_leases(heap: HeapEvidence, findings: Findings) -> None:
    for first, second in heap.twice:
        text = f"{second.held.key} was delivered twice with one token"
        findings.add(Anomaly.DOUBLE_LEASE, heap.name, text, ops=ids(first.op, second.op), t_ns=second.op.end_ns)
    for message in heap.messages.values():
        if len(message.deliveries) > 1:
            _check_pairs(heap, message, findings)
        _check_after_ack(heap, message, findings)
        _check_attempts(heap, message, findings)
        for delivery in message.deliveries:
            _check_settles(heap, message, delivery, findings)


def _check_pairs(heap: HeapEvidence, message: MessageEvidence, findings: Findings) -> None:
    for held in message.deliveries:
        sure_ns = held.sure_until_ns()
        for other in message.deliveries:
            if other is not held and held.op.end_ns < other.op.start_ns and other.op.end_ns < sure_ns:
                text = (
                    f"{message.key} was given out again {(sure_ns - other.op.end_ns) / SECOND_NS:.3f} s before its time"
                )
                findings.add(
                    Anomaly.DOUBLE_LEASE, heap.name, text, ops=ids(held.op, other.op), t_ns=other.op.end_ns,
                    span_ns=other.op.end_ns - held.op.start_ns,
                )  # fmt: skip


def _check_after_ack(heap: HeapEvidence, message: MessageEvidence, findings: Findings) -> None:
    acks = [op for _, op, settle in message.settles() if settle.kind == "ack" and op.status is Status.OK]
    if not acks:
        return
    ack = min(acks, key=lambda op: op.end_ns)
    for delivery in message.deliveries:
        if delivery.op.start_ns > ack.end_ns:
            text = f"{message.key} came again after its ack was answered"
            findings.add(
                Anomaly.DELIVERED_AFTER_ACK, heap.name, text, ops=ids(ack, delivery.op), t_ns=delivery.op.end_ns
            )


def _check_settles(heap: HeapEvidence, message: MessageEvidence, delivery: Delivery, findings: Findings) -> None:
    for op, settle in delivery.settles:
        if op.status is not Status.OK or delivery.repeats(op, settle):
            continue
        for other in message.deliveries:
            if other.op.start_ns > delivery.op.end_ns and other.op.end_ns < op.start_ns:
                text = f"{settle.kind} of {message.key} was taken with a token older than that of another consumer"
                ops = ids(delivery.op, other.op, op)
                findings.add(Anomaly.STALE_TOKEN_ACCEPTED, heap.name, text, ops=ops, t_ns=op.end_ns)
                break
        _check_late(heap, message, delivery, op, settle, findings)
    sure_ns = delivery.sure_until_ns()
    for op, settle in delivery.refused:
        if op.error.startswith(LEASE_LOST) and op.end_ns < sure_ns:
            text = (
                f"{settle.kind} of {message.key} was refused {(sure_ns - op.end_ns) / SECOND_NS:.3f} s before its time"
            )
            findings.add(Anomaly.EARLY_EXPIRY, heap.name, text, ops=ids(delivery.op, op), t_ns=op.end_ns)


def _check_late(
    heap: HeapEvidence, message: MessageEvidence, delivery: Delivery, op: Op, settle: Settle, findings: Findings
) -> None:
    before = Delivery(op=delivery.op, held=delivery.held, lease_ns=delivery.lease_ns)
    before.settles = [(o, s) for o, s in delivery.settles if o.start_ns < op.start_ns]
    late_ns = op.start_ns - before.over_ns()
    if late_ns > heap.limits.late_ack_ns and heap.quiet(delivery.op.start_ns, op.end_ns):
        text = f"{settle.kind} of {message.key} was taken {late_ns / SECOND_NS:.3f} s after its lease"
        findings.add(Anomaly.ACK_AFTER_DEADLINE, heap.name, text, ops=ids(delivery.op, op), t_ns=op.end_ns)


def _check_attempts(heap: HeapEvidence, message: MessageEvidence, findings: Findings) -> None:
    for delivery in message.deliveries:
        attempts, op = delivery.held.attempts, delivery.op
        if attempts > heap.opened.retries:
            text = f"{message.key} came with {attempts} failures, and {heap.opened.retries} are allowed"
            findings.add(Anomaly.OVER_RETRY, heap.name, text, ops=ids(op), t_ns=op.end_ns)
        if heap.may_be_replayed(message, op.end_ns):
            continue
        most = sum(other.op.start_ns < op.end_ns for other in message.deliveries) - 1
        most += heap.unseen_pops_before(op.end_ns)
        least = _failures_before(message, op.start_ns)
        if attempts < least or (attempts > most and not heap.opened.resumes):
            text = f"{message.key} came with {attempts} failures, between {least} and {most} are possible"
            findings.add(Anomaly.ATTEMPT_JUMP, heap.name, text, ops=ids(op), t_ns=op.end_ns)


def _failures_before(message: MessageEvidence, t_ns: int) -> int:
    least = 0
    for delivery in message.deliveries:
        if delivery.op.end_ns >= t_ns:
            continue
        least = max(least, delivery.held.attempts)
        if any(s.kind == "nack" and o.status is Status.OK and o.end_ns < t_ns for o, s in delivery.settles):
            least = max(least, delivery.held.attempts + 1)
    return least
