"""Judges what the clients of heaps saw, by what a client can know.

messages   lost-enqueue phantom-pop wrong-body dedup-two-ids dedup-false-hit credit-overrun
leases     double-lease delivered-after-ack stale-token-accepted ack-after-deadline early-expiry
           attempt-jump over-retry
times      early-delivery in-dlq-and-in-heap
order      rank stuck
batches    torn-batch
"""

from dray.testing.history.anomalies import Findings
from dray.testing.history.heap_batches import check_batches
from dray.testing.history.heap_evidence import gather_heaps
from dray.testing.history.heap_leases import check_leases
from dray.testing.history.heap_messages import check_messages
from dray.testing.history.heap_order import check_heap_order
from dray.testing.history.heap_times import check_times
from dray.testing.history.limits import Limits
from dray.testing.history.timeline import History


def check_heaps(history: History, findings: Findings, limits: Limits) -> None:
    heaps = list(gather_heaps(history, limits))
    check_batches(heaps, findings)
    for heap in heaps:
        check_messages(heap, findings)
        check_leases(heap, findings)
        check_times(heap, findings)
        check_heap_order(heap, findings)
