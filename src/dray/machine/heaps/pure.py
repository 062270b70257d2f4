"""Messages in their order, and what is done to many rows at once: the kernel's twin, and its description.

`MessageOrder` holds the slots of messages by key, then by arrival, the least first.
No two entries are equal, so how they lie is never seen from outside, and one
that was loaded from rows goes on like the one that grew.

The other functions do to a run of packed rows what `dray.machine.heaps.shard`
does to each row that is not plain. A run ends before the first row that is.
"""

from array import array
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import ClassVar, Final

from dray.buffers import Buffer
from dray.machine.heaps.leases import LeaseHeld
from dray.machine.heaps.packets import ENQUEUE_ROW, MAX_SEQ, SETTLE_ROW, STAYS, Settlement
from dray.machine.heaps.rows import DEAD, FREE, LEASED, ORDER, PLACED, READY, ROW, SIZE, TOLD

BY_LEAST: Final = 0
BY_MOST: Final = 1
BY_DUE: Final = 2
_ARRIVAL_SHIFT: Final = 32
_KEY_SHIFT: Final = 96
_SLOT_MASK: Final = (1 << 32) - 1
_ARRIVAL_MASK: Final = (1 << 64) - 1
_BIAS: Final = 1 << 63
_HALF: Final = 2


def _entry(key: int, arrival: int, slot: int) -> int:
    return key << _KEY_SHIFT | arrival << _ARRIVAL_SHIFT | slot


class MessageOrder:
    """A binary heap of integers. What leaves by its name stays in it until it comes up, or half of it has left."""

    __slots__ = ("_entries", "_gone")
    arity: ClassVar[int] = 2

    def __init__(self) -> None:
        self._entries: list[int] = []
        self._gone: set[int] = set()

    def __len__(self) -> int:
        return len(self._entries) - len(self._gone)

    def push(self, key: int, arrival: int, slot: int, /) -> None:
        """A slot that is not in the order."""
        entry = _entry(key, arrival, slot)
        if entry in self._gone:
            self._gone.remove(entry)
        else:
            heappush(self._entries, entry)

    def take(self, worst: int, /) -> int:
        """The slot of the least entry, which leaves; -1: there is none, or its key is above `worst`."""
        slot = self.first(worst)
        if slot >= 0:
            heappop(self._entries)
            self._skip()
        return slot

    def first(self, worst: int, /) -> int:
        """The slot of the least entry, which stays."""
        if not self._entries or self._entries[0] >> _KEY_SHIFT > worst:
            return -1
        return self._entries[0] & _SLOT_MASK

    def first_key(self) -> int | None:
        return self._entries[0] >> _KEY_SHIFT if self._entries else None

    def remove(self, key: int, arrival: int, slot: int, /) -> None:
        """A slot that is in the order leaves by its name."""
        self._gone.add(_entry(key, arrival, slot))
        if len(self._gone) * _HALF > len(self._entries):
            self._entries = [entry for entry in self._entries if entry not in self._gone]
            self._gone.clear()
            heapify(self._entries)
        self._skip()

    def _skip(self) -> None:
        while self._gone and self._entries[0] in self._gone:
            self._gone.remove(heappop(self._entries))

    def entry(self, at: int, /) -> tuple[int, int, int]:
        """Key, arrival and slot where a walk from the root looks; it has gone where the slot is -1."""
        entry = self._entries[at]
        slot = -1 if entry in self._gone else entry & _SLOT_MASK
        return entry >> _KEY_SHIFT, entry >> _ARRIVAL_SHIFT & _ARRIVAL_MASK, slot

    def ends(self) -> int:
        """Behind the last place where a walk looks."""
        return len(self._entries)

    def load(self, rows: Buffer, start: int, end: int, state: int, by: int, /) -> None:
        """What is in some slots and in one state; `arrange` follows when all are there."""
        found = []
        view = memoryview(rows)[start * SIZE : end * SIZE]
        for slot, (found_state, priority, arrival, due_ms) in enumerate(ORDER.iter_unpack(view), start):
            if found_state == state:
                key = due_ms if by == BY_DUE else _rank(priority, by)
                found.append(_entry(key, arrival, slot))
        if self._entries:
            for entry in found:
                heappush(self._entries, entry)
        else:
            heapify(found)
            self._entries = found

    def arrange(self, end: int, count: int, /) -> int:
        """Put what was loaded in order, some of it; where the next call goes on, 0: it is done."""
        return 0

    def cut(self, count: int, /) -> None:
        """Let some go, whichever: of a state that nobody asks any more."""
        for entry in self._entries[-count:]:
            self._gone.discard(entry)
        del self._entries[-count:]

    def clear(self) -> None:
        self._entries.clear()
        self._gone.clear()


def _rank(priority: int, by: int) -> int:
    return _BIAS - 1 - priority if by == BY_MOST else priority + _BIAS


def plain_run(
    packed: bytes, at: int, most: int, partitions: int, longest: int, most_retries: int, size: int, room: int,
    cost: int, /,
) -> int:  # fmt: skip
    """How many messages of an `Enqueue`, from one on, can be written at once.

    They have no delay and nothing malformed, and are of one key, counted up
    without a hole, or of none. `size` is that of the object with their bodies;
    -1: those are here, and may take `room`, each `cost` besides its length.
    """
    count, first_key, first_seq = 0, 0, 0
    for _, wait, partition, retries, _, key, seq, position, length in ENQUEUE_ROW.iter_unpack(
        memoryview(packed)[at * ENQUEUE_ROW.size :]
    ):
        if not count:
            first_key, first_seq = key, seq
        if count == most or wait or partition >= partitions or not -1 <= retries <= most_retries:
            break
        if length > longest or key != first_key or seq > MAX_SEQ or (key and seq != first_seq + count):
            break
        room -= length + cost
        if room < 0 if size < 0 else position + length > size:
            break
        count += 1
    return count


def write_run(
    rows: bytearray, order: MessageOrder, by: int, slots: "array[int]", packed: bytes, at: int, arrival: int, seq: int,
    number: int, begun_ms: int, now_ms: int, place: int, retries: int, /,
) -> None:  # fmt: skip
    """Write the messages of a run into slots that are free: they are ready."""
    for index, slot in enumerate(slots):
        priority, _, partition, own, flags, _, _, position, length = ENQUEUE_ROW.unpack_from(
            packed, (at + index) * ENQUEUE_ROW.size
        )
        ROW.pack_into(
            rows, slot * SIZE, READY, flags & STAYS, partition, 0, retries if own < 0 else own, length, position,
            number, priority, arrival + index, place, now_ms, 0, seq + index, begun_ms,
        )  # fmt: skip
        order.push(_rank(priority, by), arrival + index, slot)


def lease_run(rows: bytearray, order: MessageOrder, worst: int, limit: int, /) -> list[int]:
    """The slots of the best messages, no worse than a key: they are leased from now on."""
    slots: list[int] = []
    while len(slots) < limit and (slot := order.take(worst)) >= 0:
        rows[slot * SIZE] = LEASED
        slots.append(slot)
    return slots


def ack_run(
    rows: bytearray, leases: dict[int, LeaseHeld], bucket: dict[int, None], held: LeaseHeld, nonce: bytes,
    packed: bytes, at: int, /,
) -> tuple[list[int], list[int], list[int]]:  # fmt: skip
    """Take the messages of acks, from one on, that are of one lease and its token: slots, arrivals and places.

    Their leases end, and their rows are free.
    """
    slots: list[int] = []
    arrivals: list[int] = []
    places: list[int] = []
    for kind, slot, arrival, token, _ in SETTLE_ROW.iter_unpack(memoryview(packed)[at * SETTLE_ROW.size :]):
        if kind != Settlement.ACK or token != nonce or leases.get(slot) is not held:
            break
        row_arrival, place = PLACED.unpack_from(rows, slot * SIZE)
        if row_arrival != arrival:
            break
        del leases[slot], bucket[slot]
        rows[slot * SIZE] = FREE
        slots.append(slot)
        arrivals.append(arrival)
        places.append(place)
    return slots, arrivals, places


def census(rows: Buffer, /) -> tuple[Sequence[tuple[int, int, int, int, int, int, int]], Sequence[tuple[int, int]]]:
    """Of messages, by partition: how many are ready, delayed, leased and dead, the bytes of their bodies, and when the
    oldest ready one came (0: there is none); then how many are ready, by priority. Each may be told more than once.
    """
    partitions: dict[int, list[int]] = {}
    priorities: dict[int, int] = {}
    for state, partition, length, priority, enqueued_ms in TOLD.iter_unpack(rows):
        if not READY <= state <= DEAD:
            continue
        told = partitions.setdefault(partition, [0] * 6)
        told[state - 1] += 1
        told[4] += length
        if state == READY:
            told[5] = min(told[5] or enqueued_ms, enqueued_ms)
            priorities[priority] = priorities.get(priority, 0) + 1
    found = [(number, *told) for number, told in partitions.items()]
    return found, list(priorities.items())  # type: ignore[return-value]


def forget(rows: bytearray, start: int, end: int, /) -> None:
    """Give the memory of some bytes back to the system, where that can be done; they mean nothing from now on."""
