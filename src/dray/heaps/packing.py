"""Messages on their way to the machine: the command that carries them."""

from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

from dray.heaps.placing import PlacedBodies
from dray.machine.heaps.packets import ATOMIC, IN_OBJECT, NO_OBJECT, Enqueue, EnqueueRow, pack_messages
from dray.machine.names import StreamId


class NewMessage(NamedTuple):
    """A message on its way: its row without a place, its body, and the key that its row means."""

    row: EnqueueRow
    body: bytes
    key: bytes | None = None
    who: str = ""
    """For the heap's history."""


def enqueue_of(
    shard: StreamId, messages: Sequence[NewMessage], placed: PlacedBodies | None, zone: str, *, atomic: bool
) -> Enqueue:
    """One command for messages of one shard, whose bodies go with it or were placed."""
    keys: dict[bytes, int] = {}
    rows, bodies = [], []
    positions = repeat(0) if placed is None else iter(placed.positions)
    for (priority, wait, partition, retries, row_flags, _, seq, _, _), body, name, _ in messages:
        key = 0 if name is None else keys.setdefault(name, len(keys) + 1)
        rows.append((priority, wait, partition, retries, row_flags, key, seq, next(positions), len(body)))
        bodies.append(body)
    flags = (IN_OBJECT if placed is not None else 0) | (ATOMIC if atomic else 0)
    return Enqueue(
        shard=shard, packed=pack_messages(rows), bodies=b"" if placed is not None else b"".join(bodies),
        keys=tuple(keys), flags=flags, wal_id=NO_OBJECT if placed is None else placed.wal_id,
        size=0 if placed is None else placed.size, created_ms=0 if placed is None else placed.created_ms,
        zone="" if placed is None else zone,
        by=tuple(message.who for message in messages) if any(message.who for message in messages) else (),
    )  # fmt: skip
