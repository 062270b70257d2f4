"""Is what comes out of a heap what was put in?

lost-enqueue phantom-pop wrong-body dedup-two-ids dedup-false-hit credit-overrun
"""

from dray.testing.history.anomalies import Anomaly, Findings
from dray.testing.history.evidence import ids
from dray.testing.history.heap_events import Dead, Pop, Popped
from dray.testing.history.heap_evidence import HeapEvidence, MessageEvidence
from dray.testing.history.timeline import Op, Status


def check_messages(heap: HeapEvidence, findings: Findings) -> None:
    for op in heap.pops:
        _check_credits(heap, op, findings)
    for message in heap.messages.values():
        _check_bodies(heap, message, findings)
        if len(message.ids) > 1:
            text = f"{message.key} has the ids {', '.join(message.ids)}"
            findings.add(Anomaly.DEDUP_TWO_IDS, heap.name, text, ops=ids(*message.ids.values()))
    for identity, keys in heap.by_id.items():
        if len(keys) > 1:
            text = f"{identity} was told for {', '.join(keys)}"
            findings.add(Anomaly.DEDUP_FALSE_HIT, heap.name, text, ops=ids(*keys.values()))
    if heap.drained_ns is not None:
        _check_lost(heap, heap.drained_ns, findings)


def _check_credits(heap: HeapEvidence, op: Op, findings: Findings) -> None:
    if not isinstance(op.call, Pop) or not isinstance(op.result, Popped):
        return
    if len(op.result.jobs) > op.call.credits:
        text = f"{len(op.result.jobs)} messages for {op.call.credits} credits"
        findings.add(Anomaly.CREDIT_OVERRUN, heap.name, text, ops=ids(op), t_ns=op.start_ns)


def _check_bodies(heap: HeapEvidence, message: MessageEvidence, findings: Findings) -> None:
    crcs = {call.crc for _, call in message.enqueues}
    asked_ns = min((op.start_ns for op, _ in message.enqueues), default=None)
    for delivery in message.deliveries:
        op = delivery.op
        if asked_ns is None or op.end_ns < asked_ns:
            text = f"{message.key or 'a message that cannot be read'} came, and nobody had sent it"
            findings.add(Anomaly.PHANTOM_POP, heap.name, text, ops=ids(op), t_ns=op.end_ns)
        elif delivery.held.crc not in crcs:
            text = f"{message.key} has another body than was sent"
            findings.add(Anomaly.WRONG_BODY, heap.name, text, ops=ids(op), t_ns=op.end_ns)


def _check_lost(heap: HeapEvidence, drained_ns: int, findings: Findings) -> None:
    last = max(heap.listings, key=lambda op: op.start_ns, default=None)
    dead = set(last.result.ids) if last is not None and isinstance(last.result, Dead) else set()
    for message in heap.messages.values():
        taken = [op for op, _ in message.enqueues if op.status is Status.OK and op.end_ns < drained_ns]
        if not taken or not dead.isdisjoint(message.ids):
            continue
        if any(settle.kind == "ack" for _, _, settle in message.settles()):
            continue  # done, or perhaps done
        text = f"{message.key} was taken and is neither acked nor among the dead letters of a heap that is empty"
        ops = ids(*taken, *(delivery.op for delivery in message.deliveries))
        findings.add(Anomaly.LOST_ENQUEUE, heap.name, text, ops=ops, t_ns=taken[0].end_ns)
