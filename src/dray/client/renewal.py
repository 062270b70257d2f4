"""Leases are prolonged from a thread with connections of its own: a handler that blocks the loop keeps its leases.

Every third of a lease all that is due of one heap goes in one call. What is
refused is lost, and so is what could not be renewed before its end.

Invariants
    SR1  A lease is measured by this machine's own clock from its receipt.
    SR2  Nothing is renewed after it was settled or given up here.
"""

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from google.protobuf.duration_pb2 import Duration

from dray.api.v1 import heaps_pb2 as pb
from dray.client.errors import ClientError
from dray.client.retrying import now_s
from dray.client.transport import SETTLE, Transport

SOONEST_S: Final = 0.05
CALL_S: Final = 5.0
LIST: Final = 500


@dataclass(slots=True, eq=False)
class Renewing:
    """One lease that is kept."""

    heap: str
    token: str
    lease_s: float
    ends_s: float
    lost: Callable[[], None] | None
    """Called from the thread. It holds the job, which holds this: gone when nobody is to be told any more, or each job
    would wait for the collector."""
    due_s: float = 0.0


class LeaseRenewal:
    """Renews the leases of one client."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._kept: dict[str, Renewing] = {}
        self._lock = threading.RLock()
        """Taken again inside itself when a worker that nobody holds is collected there, and lets go of its job."""
        self._changed = threading.Condition(self._lock)
        self._wakes_s = math.inf
        """When the thread looks next by itself: who is due later need not wake it."""
        self._thread: threading.Thread | None = None
        self._closed = False

    def keep(self, renewing: Renewing) -> None:
        with self._lock:
            renewing.due_s = now_s() + renewing.lease_s / 3
            self._kept[renewing.token] = renewing
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="dray-renewal", daemon=True)
                self._thread.start()
            if renewing.due_s < self._wakes_s:
                self._changed.notify()

    def drop(self, token: str) -> None:
        """SR2"""
        with self._lock:
            dropped = self._kept.pop(token, None)
        if dropped is not None:
            dropped.lost = None

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._kept.clear()
            self._changed.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(CALL_S + 1)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed and not (due := self._due()):
                    self._wakes_s = min((one.due_s for one in self._kept.values()), default=math.inf)
                    left_s = max(SOONEST_S, self._wakes_s - now_s())
                    self._changed.wait(None if self._wakes_s == math.inf else left_s)
                if self._closed:
                    return
                self._wakes_s = -math.inf  # it looks again before it waits
            by_heap: dict[str, list[Renewing]] = {}
            for one in due:
                by_heap.setdefault(one.heap, []).append(one)
            for heap, units in by_heap.items():
                for start in range(0, len(units), LIST):
                    self._renew(heap, units[start : start + LIST])

    def _due(self) -> list[Renewing]:
        at_s = now_s()
        return [one for one in self._kept.values() if one.due_s <= at_s]

    def _renew(self, heap: str, units: list[Renewing]) -> None:
        began_s = now_s()
        items = [pb.SettleOne(lease_token=one.token, kind=pb.RENEW, duration=_duration(one.lease_s)) for one in units]
        limit_s = max(SOONEST_S, min(CALL_S, min(one.ends_s for one in units) - began_s))
        try:
            answer = self._transport.call_from_thread(SETTLE, pb.SettleReq(topic=heap, items=items), limit_s)
        except ClientError:
            for one in units:  # tried again soon, for as long as the lease may live
                one.due_s = now_s() + max(SOONEST_S, min(1.0, one.lease_s / 10))
                if now_s() >= one.ends_s:
                    self._lose(one)
            return
        for one, result in zip(units, answer.results, strict=True):
            if result.HasField("error") and not result.error.retryable:
                self._lose(one)
            elif not result.HasField("error"):
                left_s = result.lease_for.seconds + result.lease_for.nanos / 1e9
                one.ends_s = began_s + left_s  # SR1
                one.due_s = now_s() + min(one.lease_s, max(left_s, SOONEST_S)) / 3
            else:
                one.due_s = now_s() + SOONEST_S

    def _lose(self, one: Renewing) -> None:
        with self._changed:
            held = self._kept.pop(one.token, None)
        if held is not None and (lost := held.lost) is not None:
            held.lost = None
            lost()


def _duration(seconds: float) -> Duration:
    whole = int(seconds)
    return Duration(seconds=whole, nanos=int((seconds - whole) * 1e9))
