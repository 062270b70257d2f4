"""Is a batch there whole or not at all?

torn-batch

The messages of a batch may lie in several heaps and become ready a moment
apart, so one that nobody saw is missing only if its heap was found empty a
good while after another of them was seen.
"""

from collections.abc import Sequence

from dray.testing.history.anomalies import Anomaly, Findings
from dray.testing.history.evidence import ids
from dray.testing.history.heap_events import Dead
from dray.testing.history.heap_evidence import HeapEvidence, MessageEvidence


def check_batches(heaps: Sequence[HeapEvidence], findings: Findings) -> None:
    batches: dict[str, list[tuple[HeapEvidence, MessageEvidence]]] = {}
    for heap in heaps:
        for message in heap.messages.values():
            for name in dict.fromkeys(call.batch for _, call in message.enqueues if call.batch):
                batches.setdefault(name, []).append((heap, message))
    for name, parts in batches.items():
        seen = [delivery.op for _, message in parts for delivery in message.deliveries]
        if not seen:
            continue
        first = min(seen, key=lambda op: op.end_ns)
        for heap, message in parts:
            if _is_missing(heap, message, first.end_ns):
                text = f"{message.key} of the batch {name} never came, and others of it did"
                ops = ids(*(op for op, _ in message.enqueues), first)
                findings.add(Anomaly.TORN_BATCH, heap.name, text, ops=ops, t_ns=first.end_ns)


def _is_missing(heap: HeapEvidence, message: MessageEvidence, seen_ns: int) -> bool:
    """Nobody saw it, its heap was empty long after, and it is not among the dead, as far as those are known."""
    if message.deliveries or heap.drained_ns is None or heap.drained_ns < seen_ns + heap.limits.undecided_ns:
        return False
    dead = {one for op in heap.listings if isinstance(op.result, Dead) for one in op.result.ids}
    return dead <= heap.by_id.keys() and dead.isdisjoint(message.ids)
