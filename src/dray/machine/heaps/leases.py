"""Who holds which message, until when.

Deadlines are in running time (`dray.machine.timeline`), which no wall clock
can move. Running time is behind where nobody wrote for a while, and catches up
at once when a session that was silent writes again; so a lease lasts, besides,
until its giver's own clock, or that of who took over from it
(`dray.machine.heaps.heirs`), has seen its duration pass.

They lie in buckets of 512 ms, and a bucket ends when it is wholly past: an end
is at most that late, and never early. What a bucket ends in which order is its
own, which a checkpoint keeps.

A lease that ends leaves nothing behind, however far its deadline is; only the
number of an empty bucket waits until it comes up.

Invariants
    L1  At most one lease of a message is live.
    L2  Only the live token settles, and from its deadline on nobody's does.
"""

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import islice
from typing import Final, NamedTuple

from dray.machine.names import SessionId
from dray.machine.packing import Reader, Writer

BUCKET_BITS: Final = 9


class LeaseHeld(NamedTuple):
    """One lease. All messages of one grant share it."""

    nonce: bytes
    deadline_ms: int
    granted_ms: int
    holder: str
    session: SessionId
    """Who gave it."""
    clock_end_ms: int
    """When it is over on that session's own clock."""


class Leases:
    """The leases of a shard, by slot."""

    __slots__ = ("_buckets", "_numbers", "_queued", "by_slot", "holders")

    def __init__(self) -> None:
        self.by_slot: dict[int, LeaseHeld] = {}
        self.holders: dict[str, int] = {}
        """How many messages each consumer holds."""
        self._buckets: dict[int, dict[int, None]] = {}
        self._numbers: list[int] = []
        """A heap of the numbers of buckets; of some that are empty, too."""
        self._queued: set[int] = set()
        """What is in that heap: only asked whether something is there."""

    def __len__(self) -> int:
        return len(self.by_slot)

    def held_by(self, holder: str) -> int:
        return self.holders.get(holder, 0)

    def find(self, slot: int, nonce: bytes) -> LeaseHeld | None:
        """The lease of a slot, if the token is its own (L2)."""
        held = self.by_slot.get(slot)
        return held if held is not None and held.nonce == nonce else None

    def grant(self, slots: list[int], held: LeaseHeld) -> None:
        """None of the slots has a lease (L1)."""
        by_slot, bucket = self.by_slot, self._bucket(held.deadline_ms)
        for slot in slots:
            by_slot[slot] = held
            bucket[slot] = None
        self.holders[held.holder] = self.holders.get(held.holder, 0) + len(slots)

    def end(self, slot: int) -> None:
        held = self.by_slot.pop(slot)
        bucket = self._buckets[held.deadline_ms >> BUCKET_BITS]
        if len(bucket) > 1:
            del bucket[slot]
        else:
            self._leave(slot, held.deadline_ms)
        left = self.holders[held.holder] - 1
        if left:
            self.holders[held.holder] = left
        else:
            del self.holders[held.holder]

    def bucket_of(self, held: LeaseHeld) -> dict[int, None]:
        """The slots whose leases end about when this one does."""
        return self._buckets[held.deadline_ms >> BUCKET_BITS]

    def ended(self, held: LeaseHeld, bucket: dict[int, None], count: int) -> None:
        """So many leases of one grant have left `by_slot` and their bucket."""
        if not bucket:
            self._forget_bucket(held.deadline_ms >> BUCKET_BITS)
        left = self.holders[held.holder] - count
        if left:
            self.holders[held.holder] = left
        else:
            del self.holders[held.holder]

    def prolong(self, slot: int, held: LeaseHeld) -> None:
        """Another deadline, of the same token."""
        self._leave(slot, self.by_slot[slot].deadline_ms)
        self.by_slot[slot] = held
        self._bucket(held.deadline_ms)[slot] = None

    def over(self, running_ms: int, limit: int, is_over: Callable[[LeaseHeld], bool]) -> list[int]:
        """Slots whose lease is over, in the order in which they end (L8); no more than `limit` are looked at."""
        found: list[int] = []
        edge = running_ms >> BUCKET_BITS
        numbers, pending = self._numbers, []
        while numbers and numbers[0] < edge and limit > 0:
            number = heappop(numbers)
            bucket = self._buckets.get(number)
            if bucket is None:
                self._queued.discard(number)
                continue
            pending.append(number)
            looked = list(islice(bucket, limit))
            limit -= len(looked)
            found.extend(slot for slot in looked if is_over(self.by_slot[slot]))
        for number in pending:
            heappush(numbers, number)
        return found

    def next_end_ms(self) -> int | None:
        """When the next bucket ends."""
        return (self._numbers[0] + 1) << BUCKET_BITS if self._numbers else None

    def buckets_from(self, deadline_ms: int) -> Iterator[dict[int, None]]:
        """Slots by the ends of their leases, from one on: a look that changes nothing."""
        for number in sorted(number for number in self._buckets if number >= deadline_ms >> BUCKET_BITS):
            yield self._buckets[number]

    def cut(self, limit: int) -> None:
        """Forget leases of a shard that is closed."""
        for _ in range(min(limit, len(self.by_slot))):
            self.by_slot.popitem()

    def _bucket(self, deadline_ms: int) -> dict[int, None]:
        number = deadline_ms >> BUCKET_BITS
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = {}
            if number not in self._queued:
                self._queued.add(number)
                heappush(self._numbers, number)
        return bucket

    def _leave(self, slot: int, deadline_ms: int) -> None:
        number = deadline_ms >> BUCKET_BITS
        bucket = self._buckets[number]
        del bucket[slot]
        if not bucket:
            self._forget_bucket(number)

    def _forget_bucket(self, number: int) -> None:
        del self._buckets[number]
        while self._numbers and self._numbers[0] not in self._buckets:
            self._queued.discard(heappop(self._numbers))

    def _in_order(self) -> Iterator[int]:
        for _, bucket in sorted(self._buckets.items()):
            yield from bucket

    def dump(self, out: Writer, *, closed: bool) -> None:
        """Bucket by bucket: their order decides who is ready first. In a closed shard nobody holds anything."""
        out.values([0 if closed else len(self.by_slot)])
        for slot in () if closed else self._in_order():
            held = self.by_slot[slot]
            out.values([slot, *held])

    def load(self, source: Reader) -> None:
        (count,) = source.ints(1)
        for _ in range(count):
            row = source.row()
            slot = row.number()
            nonce, deadline_ms, granted_ms, holder = row.raw(), row.number(), row.number(), row.text()
            session, clock_end_ms = SessionId(row.number()), row.number()
            self.grant([slot], LeaseHeld(nonce, deadline_ms, granted_ms, holder, session, clock_end_ms))
