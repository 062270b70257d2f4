"""Messages in an order: what is ready by rank, what is delayed by when it is due, then by arrival.

    key << 80 | arrival << 32 | slot          key: the rank of a ready message, the due time of a delayed one

Keys are unique, so the layout of an order is never seen from outside, and one
that was built anew from rows goes on like the one that grew. A message that
leaves by its name (buried, dropped, purged) is taken out at once: what is left
behind would cost a later lease, and there is nothing of it in a checkpoint.

Invariants
    L5  A lease takes the best ready messages there are: by priority, then
        by arrival. A message keeps its arrival when it comes back.
"""

from heapq import heappop, heappush
from typing import Final

from dray.machine.heaps.kernel import MessageOrder
from dray.machine.heaps.rows import MessageRows

KEY_SHIFT: Final = 80
ARRIVAL_SHIFT: Final = 32
SLOT_MASK: Final = 0xFFFF_FFFF
MAX_ARRIVAL: Final = 0xFFFF_FFFF_FFFF
BIAS: Final = 1 << 63
PIECE: Final = 50_000
"""Rows that are looked at, and entries that are put in order, at once: 5 ms."""


def entry_of(key: int, arrival: int, slot: int) -> int:
    return key << KEY_SHIFT | arrival << ARRIVAL_SHIFT | slot


def load_order(order: MessageOrder, rows: MessageRows, state: int, by: int) -> None:
    """Fill an order that is empty. One call for all would hold everything else in this process meanwhile (Q8)."""
    for start in range(0, rows.slots, PIECE):
        order.load(rows.data, start, min(start + PIECE, rows.slots), state, by)
    left = len(order)
    while left:
        left = order.arrange(left, PIECE)


def best(order: MessageOrder, limit: int) -> list[int]:
    """The entries of an order, the least first, without taking them: a walk from the root."""
    found: list[int] = []
    ends, arity = order.ends(), order.arity
    edge = [(order.entry(0), 0)] if ends else []
    while edge and len(found) < limit:
        (key, arrival, slot), at = heappop(edge)
        for child in range(arity * at + 1, min(arity * at + arity + 1, ends)):
            heappush(edge, (order.entry(child), child))
        if slot >= 0:
            found.append(entry_of(key, arrival, slot))
    return found
