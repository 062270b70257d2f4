"""How much has come since a fetch looked: told from what was touched alone.

A fetch may ask for ten thousand streams, and is woken by every batch of any of
them. To look all of them up again each time would cost more than to send the
records. So a fetch that waits for more looks at what was touched, and only
asks the index for sums; the answer always comes from a whole plan.

Invariants
    F20  What is told here is never less than a plan made now would find, so
         nobody waits longer for it.
"""

from collections.abc import Iterable, Sequence

from dray.fetch.plan import MAX_BATCHES, Backlog, Look, PartitionRead, Planner, Rows
from dray.replica.wakeups import Key


class Growth:
    """What waits behind the offsets of one fetch."""

    def __init__(self, planner: Planner, requests: Sequence[PartitionRead], looks: Sequence[Look]) -> None:
        self._planner = planner
        self._asked: dict[Key, list[PartitionRead]] = {}
        self._waiting: dict[PartitionRead, Backlog] = {}
        for request, look in zip(requests, looks, strict=True):
            self._asked.setdefault(request.stream, []).append(request)
            if isinstance(look, Rows):
                self._waiting[request] = Backlog(look.size, look.batches)
        self.is_any = False
        """Whether anything was touched."""

    def reaches(self, min_bytes: int, touched: Iterable[Key]) -> bool:
        """Whether there may be enough to answer, now that these were touched (F20)."""
        for key in touched:
            self.is_any = True
            for request in self._asked.get(key, ()):
                backlog = self._planner.backlog(request.stream, request.offset)
                if backlog is None:
                    return True  # an error: only a plan can tell which
                self._waiting[request] = Backlog(min(backlog.bytes, request.max_bytes), backlog.batches)
        size = sum(backlog.bytes for backlog in self._waiting.values())
        return size >= min_bytes or sum(backlog.batches for backlog in self._waiting.values()) >= MAX_BATCHES
