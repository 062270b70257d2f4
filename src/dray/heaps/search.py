"""From the id of a message to its row.

Nothing but the row itself knows the id, so the rows are looked through, in
slices off the apply path; whoever acts on what was found names slot and
arrival, and the machine checks both. Tokens need no search.
"""

import asyncio
import struct
from collections.abc import Collection
from typing import Final

from dray.heaps.errors import BadMessageId, UnknownHeap
from dray.heaps.ids import MessageId
from dray.machine.heaps.catalog import Heap
from dray.machine.heaps.commands import MessageRef
from dray.machine.heaps.rows import FREE, PREPARED, SIZE
from dray.machine.heaps.shard import Shard
from dray.machine.names import domain_of
from dray.replica.domains import Domains
from dray.replica.replica import Replica

SLICE: Final = 5_000
"""Rows that are looked at before others have their turn."""
MAX_IDS: Final = 1_000
_NAMED: Final = struct.Struct("<B15xI8xQ24xQq")
assert _NAMED.size == SIZE, "what an id is made of is part of a row"


def shard_of(replica: Replica, heap: Heap) -> Shard:
    """The shard of a heap as this broker knows it now. It may be another object after any wait."""
    shard = replica.machine.heaps.find(heap.shard)
    if shard is None or shard.closed:
        raise UnknownHeap("no such heap", heap=heap.name)
    return shard


async def find_messages(domains: Domains, heap: Heap, ids: Collection[MessageId]) -> dict[MessageId, MessageRef]:
    """Where the messages with these ids lie. One that is missing was not there when this began.

    Raises:
        BadMessageId: too many at once.
        UnknownHeap, Unavailable: nothing was looked for.
    """
    if len(ids) > MAX_IDS:
        raise BadMessageId("too many ids at once", count=len(ids), most=MAX_IDS)
    replica = domains.of(heap.shard)
    await replica.sync()
    domain = domain_of(heap.shard)
    wanted = {(one.number, one.seq, one.begun_ms): one for one in ids if one.domain == domain}
    found: dict[MessageId, MessageRef] = {}
    start = 0
    while len(found) < len(wanted):
        rows = shard_of(replica, heap).messages.rows
        if start >= rows.slots:
            break
        part = bytes(memoryview(rows.data)[start * SIZE : (start + SLICE) * SIZE])
        for slot, (state, number, arrival, seq, begun_ms) in enumerate(_NAMED.iter_unpack(part), start):
            one = wanted.get((number, seq, begun_ms))
            if one is not None and state not in (FREE, PREPARED):  # BA2
                found[one] = MessageRef(slot=slot, arrival=arrival)
        start += SLICE
        await asyncio.sleep(0)
    return found
