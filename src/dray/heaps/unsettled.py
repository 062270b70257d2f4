"""A consumer that is given as many messages as it has not settled, and no more.

Credits are spent by delivery alone; whoever cannot give them (a stream in one
direction) says how many messages it may hold instead. What it holds is what
the machine says: a message counts until its lease ends, through any broker.

Invariants
    HL7  A consumer holds at most `most` messages that this gave it, by what
         this broker has seen of the log.
"""

from collections.abc import Sequence

from dray.heaps.consumers import Consumer, Delivery
from dray.heaps.ids import LeaseToken
from dray.heaps.service import HeapService
from dray.machine.heaps.catalog import Heap
from dray.replica.domains import Domains

LOOK_S = 0.25
"""How often it is looked whether something was settled, while it may not be given more."""


class UnsettledConsumer:
    """Takes messages of one heap, as long as few enough are unsettled."""

    def __init__(self, service: HeapService, domains: Domains, heap: Heap, consumer: Consumer, most: int) -> None:
        self._service = service
        self._domains = domains
        self._heap = heap
        self._consumer = consumer
        self._most = most
        self._held: dict[LeaseToken, None] = {}
        self._given = 0
        """Credits that were given and not spent."""

    @property
    def stopping(self) -> bool:
        return self._consumer.closed

    @property
    def gone(self) -> bool:
        """There is no such heap any more: nothing will ever come."""
        known = self._service.admin.peek(self._heap.name)
        return known is None or known.id != self._heap.id

    async def take(self, seconds: float) -> list[Delivery]:
        """What has come, waiting at most so long for the first."""
        self._refill()
        full = not self._given
        found = await self._consumer.take(min(seconds, LOOK_S) if full else seconds)
        self._given -= len(found)
        self._held.update(dict.fromkeys(delivery.token for delivery in found))
        return found

    async def close(self, unsent: Sequence[Delivery] = ()) -> None:
        """No more; what was taken and not sent is ready again."""
        await self._service.close(self._consumer)
        await self._service.give_back(self._heap, unsent)

    def _refill(self) -> None:
        shard = self._domains.of(self._heap.shard).machine.heaps.find(self._heap.shard)
        if shard is not None:
            gone = [token for token in self._held if shard.leases.find(token.slot, token.nonce) is None]
            for token in gone:
                del self._held[token]
        room = self._most - len(self._held) - self._given
        if room > 0:
            self._given += room
            self._consumer.add_credits(room)  # HL7
