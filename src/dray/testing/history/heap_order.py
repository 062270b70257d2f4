"""Does the best message come first, and does it come at all? rank stuck

Both look only at messages that were surely ready all the while (HC6).
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import zip_longest

from dray.testing.history.anomalies import Anomaly, Findings
from dray.testing.history.evidence import ids
from dray.testing.history.heap_events import Popped
from dray.testing.history.heap_evidence import HeapEvidence, MessageEvidence
from dray.testing.history.limits import SECOND_NS
from dray.testing.history.timeline import Interval, Op, Status

_GAP_NS = SECOND_NS
"""A consumer that asks again within this time has never stopped waiting."""


def check_heap_order(heap: HeapEvidence, findings: Findings) -> None:
    _check_rank(heap, findings)
    _check_stuck(heap, findings)


class _Longest:
    """Of the messages up to a place in the order: the one that stays longest. A Fenwick tree of maxima."""

    def __init__(self, size: int) -> None:
        self._best: list[tuple[int, MessageEvidence | None]] = [(-1, None)] * (size + 1)

    def add(self, place: int, until_ns: int, message: MessageEvidence) -> None:
        place += 1
        while place < len(self._best):
            if until_ns > self._best[place][0]:
                self._best[place] = (until_ns, message)
            place += place & -place

    def before(self, place: int) -> tuple[int, MessageEvidence | None]:
        """Of those at places below this one."""
        found: tuple[int, MessageEvidence | None] = (-1, None)
        while place:
            if self._best[place][0] > found[0]:
                found = self._best[place]
            place -= place & -place
        return found


def _check_rank(heap: HeapEvidence, findings: Findings) -> None:
    """A message was given out while a better one was ready from before the pop until after it."""
    waits: list[tuple[int, int, int, MessageEvidence]] = []
    for message in heap.messages.values():
        ready = heap.surely_ready(message)
        if ready is not None:
            waits.append((ready.start, ready.end, _order(heap, message.enqueues[0][1].priority), message))
    waits.sort(key=lambda wait: wait[0])
    places = sorted({order for _, _, order, _ in waits})
    longest, added = _Longest(len(places)), 0
    for op in heap.pops:  # by their invokes
        if not isinstance(op.result, Popped):
            continue
        while added < len(waits) and waits[added][0] < op.start_ns:
            _, until_ns, order, message = waits[added]
            longest.add(bisect_left(places, order), until_ns, message)
            added += 1
        for held in op.result.jobs:
            until_ns, better = longest.before(bisect_left(places, _order(heap, held.priority)))
            if better is not None and until_ns > op.end_ns:
                text = f"{held.key} of priority {held.priority} came while {better.key} was ready, which is better"
                ops = ids(better.enqueues[0][0], op)
                findings.add(Anomaly.RANK, heap.name, text, ops=ops, t_ns=op.end_ns, span_ns=op.end_ns - op.start_ns)


def _order(heap: HeapEvidence, priority: int) -> int:
    return priority if heap.opened.least_first else -priority


def _check_stuck(heap: HeapEvidence, findings: Findings) -> None:
    waits = [wait for wait in _waits(heap) if wait[0].end - wait[0].start > heap.limits.stuck_ns]
    if not waits:
        return
    ready = [(one, m) for m in heap.messages.values() if (one := heap.surely_ready(m, taken_at_invoke=False))]
    for wait, op in waits:
        for one, message in ready:
            since_ns, until_ns = max(wait.start, one.start), min(wait.end, one.end)
            if until_ns - since_ns > heap.limits.stuck_ns:
                text = (
                    f"{op.process} waited {(until_ns - since_ns) / SECOND_NS:.1f} s while {message.key} was ready "
                    "and nothing was wrong"
                )
                ops = ids(message.enqueues[0][0], op)
                findings.add(Anomaly.STUCK, heap.name, text, ops=ops, t_ns=since_ns, span_ns=until_ns - since_ns)
                break


def _waits(heap: HeapEvidence) -> Iterator[tuple[Interval, Op]]:
    """When a consumer waited without break, cut by faults."""
    by_process: dict[str, list[Op]] = {}
    for op in heap.pops:
        if op.status is not Status.FAIL:
            by_process.setdefault(op.process, []).append(op)
    for ops in by_process.values():
        start_ns = ops[0].start_ns
        for op, following in zip_longest(ops, ops[1:]):
            end_ns = min(op.answered_ns, heap.history.end_ns)
            empty = isinstance(op.result, Popped) and not op.result.jobs
            if empty and following is not None and following.start_ns - end_ns <= _GAP_NS:
                continue
            for quiet in _quiet_parts(heap, start_ns, end_ns):
                yield quiet, op
            if following is not None:
                start_ns = following.start_ns


def _quiet_parts(heap: HeapEvidence, start_ns: int, end_ns: int) -> Iterator[Interval]:
    for fault in heap.other_faults:  # a wall clock that was moved is no excuse
        if fault.end <= start_ns or fault.start >= end_ns:
            continue
        if fault.start > start_ns:
            yield Interval(start=start_ns, end=fault.start)
        start_ns = max(start_ns, fault.end)
    if start_ns < end_ns:
        yield Interval(start=start_ns, end=end_ns)
