"""The messages of a shard: one packed row of 76 bytes each, by slot.

    state u8 | flags u8 | partition u16 | attempts u16 | max retries i16 | length u32 | position u32 | number u32
    | priority i64 | arrival u64 | place u64 | enqueued ms i64 | due ms i64 | seq u64 | begun ms i64

`place` is the ordinal of the object that holds the body + 1, or 0 while it is
in memory. `due` is when a delayed or prepared message becomes ready, or when a
dead one died. What is read with the message alone (headers, keys, producer) is in the
body, which the machine does not look into.

A slot is used again; a message is known by slot and arrival, and the arrival
is never given twice.

Invariants
    L6  Each message is in one state; counts, lists and rows agree.
"""

import struct
from array import array
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from dray.errors import Corrupt
from dray.machine.packing import Reader, Writer

ROW: Final = struct.Struct("<BBHHhIIIqQQqqQq")
SIZE: Final = ROW.size
assert SIZE == 76, "the row size is part of the format"


class State(IntEnum):
    """Of a message; 0 is a slot without one."""

    FREE = 0
    READY = 1
    DELAYED = 2
    LEASED = 3
    DEAD = 4
    PREPARED = 5
    """Part of a batch that is not decided: nobody sees it."""


FREE: Final = int(State.FREE)
READY: Final = int(State.READY)
DELAYED: Final = int(State.DELAYED)
LEASED: Final = int(State.LEASED)
DEAD: Final = int(State.DEAD)
PREPARED: Final = int(State.PREPARED)
_STATES: Final = len(State)

_PARTITION: Final = struct.Struct("<H"), 2
_ATTEMPTS: Final = struct.Struct("<Hh"), 4
_LENGTH: Final = struct.Struct("<I"), 8
_POSITION: Final = struct.Struct("<I"), 12
_PRIORITY: Final = struct.Struct("<q"), 20
_ARRIVAL: Final = struct.Struct("<Q"), 28
_NAMES: Final = struct.Struct("<QQ")
_PLACE: Final = struct.Struct("<Q"), 36
_ENQUEUED: Final = struct.Struct("<q"), 44
_DUE: Final = struct.Struct("<q"), 52
ORDER: Final = struct.Struct("<B19xqQ16xq16x")
"""State, priority, arrival and due time."""
TOLD: Final = struct.Struct("<BxH4xI8xq16xq24x")
"""State, partition, length, priority and when it was enqueued."""
PLACED: Final = struct.Struct("<28xQQ32x")
"""Arrival and place."""
assert ORDER.size == TOLD.size == PLACED.size == SIZE, "what order is made of is part of a row"


_PIECE: Final = 1 << 20
"""Of a column that is copied: whoever else has work in this process gets a turn between two of them (Q8)."""


class MessageRow(NamedTuple):
    """A row, unpacked."""

    state: int
    flags: int
    partition: int
    attempts: int
    max_retries: int
    length: int
    position: int
    number: int
    priority: int
    arrival: int
    place: int
    enqueued_ms: int
    due_ms: int
    seq: int
    begun_ms: int


class MessageRows:
    """All messages of a shard. Slots must be in range: `holds` tells."""

    __slots__ = ("counts", "data", "free", "live")

    def __init__(self) -> None:
        self.data = bytearray()
        self.free: array[int] = array("I")
        """Slots without a message; the last one is used next."""
        self.counts = [0] * _STATES
        """By state; of `FREE` it says nothing."""
        self.live = 0
        """How many messages there are."""

    def __len__(self) -> int:
        return self.live

    @property
    def slots(self) -> int:
        return len(self.data) // SIZE

    def add(self, row: tuple[int, ...]) -> int:
        """A new message; its slot."""
        data = self.data
        if self.free:
            slot = self.free.pop()
            ROW.pack_into(data, slot * SIZE, *row)
        else:
            slot = len(data) // SIZE
            data += ROW.pack(*row)
        self.counts[row[0]] += 1
        self.live += 1
        return slot

    def reserve(self, count: int) -> "array[int]":
        """Slots for new messages, in the order in which `add` takes them: counted as ready, and written next."""
        free, data = self.free, self.data
        slots = free[-count:] if count <= len(free) else free[:]
        del free[len(free) - len(slots) :]
        slots.reverse()
        fresh = count - len(slots)
        if fresh:
            first = len(data) // SIZE
            data += bytes(fresh * SIZE)
            slots.extend(range(first, first + fresh))
        self.counts[READY] += count
        self.live += count
        return slots

    def freed(self, slots: list[int]) -> None:
        """Leased messages are gone, and their rows say so already."""
        self.counts[LEASED] -= len(slots)
        self.free.extend(slots)
        self.live -= len(slots)
        if not self.live:
            self.data.clear()
            self.free = array("I")

    def remove(self, slot: int) -> None:
        """The message is gone. If it was the last one, its memory goes too."""
        base = slot * SIZE
        self.counts[self.data[base]] -= 1
        self.data[base] = FREE
        self.free.append(slot)
        self.live -= 1
        if not self.live:
            self.data.clear()
            self.free = array("I")

    def cut(self, first: int) -> None:
        """Take every slot from `first` on, of a shard that is closed: its free slots are of no use any more."""
        for state in self.data[first * SIZE :: SIZE]:
            self.counts[state] -= 1
            self.live -= state != FREE
        del self.data[first * SIZE :]
        self.free = array("I")

    def move(self, slot: int, state: int) -> None:
        """From its state to another (L6)."""
        base = slot * SIZE
        self.counts[self.data[base]] -= 1
        self.data[base] = state
        self.counts[state] += 1

    def holds(self, slot: int, arrival: int) -> bool:
        """Does the message with this arrival lie in this slot?"""
        return 0 <= slot < self.slots and self.data[slot * SIZE] != FREE and self.arrival(slot) == arrival

    def read(self, slot: int) -> MessageRow:
        return MessageRow._make(ROW.unpack_from(self.data, slot * SIZE))

    def all(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, MessageRow]]:
        """The messages in some slots. The rows must not change meanwhile."""
        view = memoryview(self.data)[start * SIZE : None if end is None else end * SIZE]
        for slot, row in enumerate(map(MessageRow._make, ROW.iter_unpack(view)), start):
            if row.state != FREE:
                yield slot, row

    def order_of(self, slot: int) -> tuple[int, int, int, int]:
        """State, priority, arrival and due time of one slot."""
        return ORDER.unpack_from(self.data, slot * SIZE)

    # -- one field ---------------------------------------------------------

    def state(self, slot: int) -> int:
        return self.data[slot * SIZE]

    def arrival(self, slot: int) -> int:
        return int(_ARRIVAL[0].unpack_from(self.data, slot * SIZE + _ARRIVAL[1])[0])

    def names(self, slot: int) -> tuple[int, int]:
        """Arrival and place."""
        return _NAMES.unpack_from(self.data, slot * SIZE + _ARRIVAL[1])

    def set_arrival(self, slot: int, arrival: int) -> None:
        _ARRIVAL[0].pack_into(self.data, slot * SIZE + _ARRIVAL[1], arrival)

    def priority(self, slot: int) -> int:
        return int(_PRIORITY[0].unpack_from(self.data, slot * SIZE + _PRIORITY[1])[0])

    def set_priority(self, slot: int, priority: int) -> None:
        _PRIORITY[0].pack_into(self.data, slot * SIZE + _PRIORITY[1], priority)

    def due_ms(self, slot: int) -> int:
        return int(_DUE[0].unpack_from(self.data, slot * SIZE + _DUE[1])[0])

    def set_due(self, slot: int, due_ms: int) -> None:
        _DUE[0].pack_into(self.data, slot * SIZE + _DUE[1], due_ms)

    def enqueued_ms(self, slot: int) -> int:
        return int(_ENQUEUED[0].unpack_from(self.data, slot * SIZE + _ENQUEUED[1])[0])

    def set_enqueued(self, slot: int, enqueued_ms: int) -> None:
        _ENQUEUED[0].pack_into(self.data, slot * SIZE + _ENQUEUED[1], enqueued_ms)

    def attempts(self, slot: int) -> tuple[int, int]:
        """How often it failed, and how often it may."""
        failed, most = _ATTEMPTS[0].unpack_from(self.data, slot * SIZE + _ATTEMPTS[1])
        return failed, most

    def set_attempts(self, slot: int, failed: int, most: int) -> None:
        _ATTEMPTS[0].pack_into(self.data, slot * SIZE + _ATTEMPTS[1], failed, most)

    def partition(self, slot: int) -> int:
        return int(_PARTITION[0].unpack_from(self.data, slot * SIZE + _PARTITION[1])[0])

    def length(self, slot: int) -> int:
        return int(_LENGTH[0].unpack_from(self.data, slot * SIZE + _LENGTH[1])[0])

    def place(self, slot: int) -> int:
        return int(_PLACE[0].unpack_from(self.data, slot * SIZE + _PLACE[1])[0])

    def set_place(self, slot: int, place: int, position: int) -> None:
        base = slot * SIZE
        _PLACE[0].pack_into(self.data, base + _PLACE[1], place)
        _POSITION[0].pack_into(self.data, base + _POSITION[1], position)

    # -- checkpoint --------------------------------------------------------

    def dump(self, out: Writer) -> None:
        out.blob(self.data)
        out.column(self.free)

    def load(self, source: Reader, *, closed: bool) -> None:
        self.data = _copied(source.blob())
        self.free = source.column("I")
        if len(self.data) % SIZE:
            raise Corrupt("the rows of a heap end inside one", size=len(self.data))
        states = self.data[::SIZE]
        for state in State:
            self.counts[state] = states.count(state)
        self.live = len(states) - self.counts[FREE]
        if (self.counts[FREE] != len(self.free) and not closed) or sum(self.counts) != len(states):
            raise Corrupt("the rows of a heap and its free slots differ")


def _copied(column: memoryview) -> bytearray:
    copied = bytearray()
    for at in range(0, len(column), _PIECE):
        copied += column[at : at + _PIECE]
    return copied
