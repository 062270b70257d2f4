"""Does a message come when it may? early-delivery in-dlq-and-in-heap

A delay runs in the wall time of brokers, so it is judged only while nobody moved a clock.
"""

from dray.testing.history.anomalies import Anomaly, Findings
from dray.testing.history.evidence import ids
from dray.testing.history.heap_events import Dead
from dray.testing.history.heap_evidence import MS_NS, Delivery, HeapEvidence, MessageEvidence, dead_since
from dray.testing.history.limits import SECOND_NS
from dray.testing.history.timeline import Op, Status


def check_times(heap: HeapEvidence, findings: Findings) -> None:
    for message in heap.messages.values():
        for delivery in message.deliveries:
            _check_early(heap, message, delivery, findings)
        _check_dead(heap, message, findings)
    for listing in heap.listings:
        if isinstance(listing.result, Dead):
            for identity in listing.result.ids:
                for key in heap.by_id.get(identity, {}):
                    _check_listed(heap, heap.messages[key], listing, findings)


def _check_early(heap: HeapEvidence, message: MessageEvidence, delivery: Delivery, findings: Findings) -> None:
    op = delivery.op
    if not message.enqueues or heap.may_be_replayed(message, op.end_ns):
        return
    # One of the tries was taken, and nobody knows which: the earliest excuses the most.
    cause, call = min(message.enqueues, key=lambda pair: pair[0].start_ns + pair[1].delay_ms * MS_NS)
    earliest_ns = cause.start_ns + call.delay_ms * MS_NS
    for _, settled, settle in message.settles():
        if settle.kind not in ("nack", "release") or settled.status is not Status.OK or settled.end_ns >= op.start_ns:
            continue
        until_ns = settled.start_ns + settle.wait_ms * MS_NS
        if until_ns > earliest_ns:
            earliest_ns, cause = until_ns, settled
    if op.end_ns < earliest_ns - heap.limits.clock_skew_ns and heap.clocks_kept(cause.start_ns, op.end_ns):
        text = f"{message.key} came {(earliest_ns - op.end_ns) / SECOND_NS:.3f} s before its time"
        findings.add(Anomaly.EARLY_DELIVERY, heap.name, text, ops=ids(cause, op), t_ns=op.end_ns)


def _check_dead(heap: HeapEvidence, message: MessageEvidence, findings: Findings) -> None:
    died = dead_since(message)
    if died is None:
        return
    for delivery in message.deliveries:
        if delivery.op.start_ns > died[0] and not heap.may_be_replayed(message, delivery.op.end_ns):
            text = f"{message.key} came again, and was told to be a dead letter"
            ops = ids(died[1], delivery.op)
            findings.add(Anomaly.IN_DLQ_AND_IN_HEAP, heap.name, text, ops=ops, t_ns=delivery.op.end_ns)


def _check_listed(heap: HeapEvidence, message: MessageEvidence, listing: Op, findings: Findings) -> None:
    """A dead letter that was listed was neither acked before, nor held all the while, nor comes again unasked."""
    for delivery in message.deliveries:
        op = delivery.op
        held = op.end_ns < listing.start_ns and listing.end_ns < delivery.sure_until_ns()
        after = op.start_ns > listing.end_ns and not heap.may_be_replayed(message, op.end_ns)
        acked = any(
            settle.kind == "ack" and settled.status is Status.OK and settled.end_ns < listing.start_ns
            for settled, settle in delivery.settles
        )
        if held or after or acked:
            how = "held by a consumer" if held else "given out afterwards" if after else "acked"
            text = f"{message.key} is listed as a dead letter, and was {how}"
            findings.add(Anomaly.IN_DLQ_AND_IN_HEAP, heap.name, text, ops=ids(op, listing), t_ns=listing.end_ns)
            return
