"""What the operations of a history say about each message of each heap. It judges nothing.

Invariants
    HC5  A lease counts as held only from its receipt until its length after
         the pop was invoked, and not once its consumer has begun to end it:
         whatever the brokers' clocks say, it was live then.
    HC6  A message counts as surely ready only between the answer of its
         enqueue and the first pop that may have taken it, known or not. One
         that was answered while something was wrong may have taken it too,
         and let it go: its body could not be read.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from dray.testing.history.events import Nemesis
from dray.testing.history.heap_events import (
    ENDS,
    Dead,
    Enqueue,
    Enqueued,
    HeapDrained,
    HeapOpened,
    Held,
    ListDead,
    Pop,
    Popped,
    Replay,
    Settle,
    Settled,
)
from dray.testing.history.limits import Limits
from dray.testing.history.timeline import FOREVER, History, Interval, Op, Status

MS_NS: Final = 1_000_000


@dataclass(slots=True, kw_only=True)
class Delivery:
    """One message in the hands of one consumer, and what it did with it."""

    op: Op
    held: Held
    lease_ns: int
    settles: list[tuple[Op, Settle]] = field(default_factory=list)
    """Not surely failed, in the order of their invokes."""
    refused: list[tuple[Op, Settle]] = field(default_factory=list)

    def sure_until_ns(self) -> int:
        """The lease was live until here, from its receipt (HC5)."""
        until_ns = self.op.start_ns + self.lease_ns
        for op, settle in self.settles:
            if settle.kind in ENDS:
                return min(until_ns, op.start_ns)
            if settle.kind == "renew" and op.status is Status.OK:
                until_ns = max(until_ns, op.start_ns + settle.wait_ms * MS_NS)
        return until_ns

    def over_ns(self) -> int:
        """The lease has surely run its length by here, on the client's clock."""
        over_ns = self.op.end_ns + self.lease_ns
        for op, settle in self.settles:
            if settle.kind == "renew":
                over_ns = max(over_ns, op.end_ns + settle.wait_ms * MS_NS)
            elif settle.kind == "extend":
                over_ns = FOREVER if op.end_ns == FOREVER else over_ns + settle.wait_ms * MS_NS
        return over_ns

    def repeats(self, op: Op, settle: Settle) -> bool:
        """Whether the same was asked before: to repeat what was taken is harmless (L4)."""
        return any(s.kind == settle.kind and o.start_ns < op.start_ns for o, s in self.settles)


@dataclass(slots=True, kw_only=True)
class MessageEvidence:
    """All that is known about one key."""

    key: str
    enqueues: list[tuple[Op, Enqueue]] = field(default_factory=list)
    """Not surely failed, in the order of their invokes."""
    deliveries: list[Delivery] = field(default_factory=list)
    """In the order of their invokes."""
    ids: dict[str, Op] = field(default_factory=dict)

    def settles(self) -> Iterator[tuple[Delivery, Op, Settle]]:
        for delivery in self.deliveries:
            for op, settle in delivery.settles:
                yield delivery, op, settle


@dataclass(slots=True, kw_only=True)
class HeapEvidence:
    """All that is known about one heap."""

    history: History
    limits: Limits
    opened: HeapOpened
    messages: dict[str, MessageEvidence] = field(default_factory=dict)
    by_id: dict[str, dict[str, Op]] = field(default_factory=dict)
    """Which keys an id was told for."""
    by_token: dict[str, Delivery] = field(default_factory=dict)
    twice: list[tuple[Delivery, Delivery]] = field(default_factory=list)
    """Deliveries with one token."""
    pops: list[Op] = field(default_factory=list)
    unknown_pops: list[Interval] = field(default_factory=list)
    """From when to when a pop without answer may hold something; by start."""
    troubled_pops: list[Interval] = field(default_factory=list)
    """Those that were answered while something was wrong; by start."""
    listings: list[Op] = field(default_factory=list)
    replays: list[tuple[Op, Replay]] = field(default_factory=list)
    drained_ns: int | None = None
    clock_faults: list[Interval] = field(default_factory=list)
    other_faults: list[Interval] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.opened.heap

    def message(self, key: str) -> MessageEvidence:
        found = self.messages.get(key)
        if found is None:
            found = self.messages[key] = MessageEvidence(key=key)
        return found

    def see_id(self, key: str, identity: str, op: Op) -> None:
        self.message(key).ids.setdefault(identity, op)
        self.by_id.setdefault(identity, {}).setdefault(key, op)

    def quiet(self, start_ns: int, end_ns: int) -> bool:
        """No fault within but that a wall clock was moved: leases do not run in its time."""
        return not _meets(self.other_faults, start_ns, end_ns)

    def clocks_kept(self, start_ns: int, end_ns: int) -> bool:
        """No wall clock was moved within."""
        return not _meets(self.clock_faults, start_ns, end_ns)

    def unseen_pops_before(self, t_ns: int) -> int:
        """How many may have held a message that no history shows (HC6), and may have let its lease run out."""
        both = (self.unknown_pops, self.troubled_pops)
        return sum(bisect_left(pops, t_ns, key=lambda pop: pop.start) for pops in both)

    def may_be_replayed(self, message: MessageEvidence, before_ns: int) -> bool:
        return any(
            op.start_ns < before_ns and (not replay.ids or any(one in message.ids for one in replay.ids))
            for op, replay in self.replays
        )

    def surely_ready(self, message: MessageEvidence, *, taken_at_invoke: bool = True) -> Interval | None:
        """When its first wait in the heap surely was (HC6); until its first pop was invoked, or else answered."""
        taken = [(op, call) for op, call in message.enqueues if op.status is Status.OK]
        if not taken or any(call.delay_ms for _, call in message.enqueues):
            return None
        since_ns = min(op.end_ns for op, _ in taken)
        first = message.deliveries[0] if message.deliveries else None
        until_ns = FOREVER if first is None else first.op.start_ns if taken_at_invoke else first.op.end_ns
        fresh = first is not None and first.held.attempts == 0 and not self.opened.gives_back
        if not fresh and self.opened.resumes:
            return None  # any pop may have held it
        if not fresh:
            until_ns, since_ns = self._without_unknown(since_ns, until_ns)
        return Interval(start=since_ns, end=until_ns) if since_ns < until_ns else None

    def _without_unknown(self, since_ns: int, until_ns: int) -> tuple[int, int]:
        """The time before any pop that may have taken it, and nobody knows."""
        for pops in (self.unknown_pops, self.troubled_pops):
            for pop in pops:
                if pop.start >= until_ns:
                    break
                if pop.end > since_ns:
                    until_ns = pop.start
                    break
        return until_ns, since_ns


def gather_heaps(history: History, limits: Limits) -> list[HeapEvidence]:
    """Collect what all operations say, heap by heap."""
    heaps: dict[str, HeapEvidence] = {}
    clocks, others = _faults_of(history, clocks=True), _faults_of(history, clocks=False)

    def heap(name: str) -> HeapEvidence:
        found = heaps.get(name)
        if found is None:
            opened = HeapOpened(heap=name, retries=1 << 30)
            found = heaps[name] = HeapEvidence(
                history=history, limits=limits, opened=opened, clock_faults=clocks, other_faults=others
            )
        return found

    for noted in history.notes:
        if isinstance(noted.note, HeapOpened):
            heap(noted.note.heap).opened = noted.note
        elif isinstance(noted.note, HeapDrained):
            heap(noted.note.heap).drained_ns = noted.t_ns
    for op in history.ops:
        if isinstance(op.call, Enqueue | Pop | ListDead | Replay):
            _gather(heap(op.call.heap), op)
    for op in history.ops:
        if isinstance(op.call, Settle):
            _gather_settle(heap(op.call.heap), op, op.call)
    return list(heaps.values())


def _gather(heap: HeapEvidence, op: Op) -> None:
    call = op.call
    if isinstance(call, Enqueue):
        if op.status is Status.FAIL:
            return
        heap.message(call.key).enqueues.append((op, call))
        if isinstance(op.result, Enqueued):
            heap.see_id(call.key, op.result.id, op)
    elif isinstance(call, Pop):
        _gather_pop(heap, op, call)
    elif isinstance(call, ListDead) and isinstance(op.result, Dead):
        heap.listings.append(op)
    elif isinstance(call, Replay) and op.status is not Status.FAIL:
        heap.replays.append((op, call))


def _gather_pop(heap: HeapEvidence, op: Op, call: Pop) -> None:
    heap.pops.append(op)
    lease_ns = call.lease_ms * MS_NS
    if isinstance(op.result, Popped):
        for held in op.result.jobs:
            delivery = Delivery(op=op, held=held, lease_ns=lease_ns)
            before = heap.by_token.setdefault(held.token, delivery)
            if before is not delivery:
                heap.twice.append((before, delivery))
            heap.message(held.key).deliveries.append(delivery)
            heap.see_id(held.key, held.id, op)
        if _meets(heap.other_faults, op.start_ns, op.end_ns):
            heap.troubled_pops.append(Interval(start=op.start_ns, end=op.end_ns))
    elif op.status is Status.INFO:
        ended = op.answered_ns
        end_ns = FOREVER if ended == FOREVER else ended + heap.limits.unknown_pop_ns + lease_ns
        heap.unknown_pops.append(Interval(start=op.start_ns, end=end_ns))


def _gather_settle(heap: HeapEvidence, op: Op, call: Settle) -> None:
    delivery = heap.by_token.get(call.token)
    if delivery is None:
        return
    (delivery.refused if op.status is Status.FAIL else delivery.settles).append((op, call))


def _meets(intervals: list[Interval], start_ns: int, end_ns: int) -> bool:
    index = bisect_left(intervals, start_ns, key=lambda one: one.end)
    return index < len(intervals) and intervals[index].start <= end_ns


def _faults_of(history: History, *, clocks: bool) -> list[Interval]:
    """Disjoint and sorted: when a wall clock stood elsewhere, or when anything else was wrong."""
    started: dict[str, int] = {}
    found: list[Interval] = []
    for noted in history.notes:
        note = noted.note
        if not isinstance(note, Nemesis) or ("clock" in note.fault) is not clocks:
            continue
        if note.start:
            started.setdefault(note.target, noted.t_ns)
        elif (since := started.pop(note.target, None)) is not None:
            found.append(Interval(start=since, end=noted.t_ns))
    found += [Interval(start=since, end=FOREVER) for since in started.values()]
    merged: list[Interval] = []
    for one in sorted(found, key=lambda one: one.start):
        if merged and one.start <= merged[-1].end:
            merged[-1] = Interval(start=merged[-1].start, end=max(one.end, merged[-1].end))
        else:
            merged.append(one)
    return merged


def dead_since(message: MessageEvidence) -> tuple[int, Op] | None:
    """From when a consumer knew that it is a dead letter."""
    told = [(op.end_ns, op) for _, op, s in message.settles() if isinstance(op.result, Settled) and _died(op, s)]
    return min(told, key=lambda pair: pair[0], default=None)


def _died(op: Op, settle: Settle) -> bool:
    return isinstance(op.result, Settled) and (op.result.dead or settle.kind == "reject")
