"""Bodies leave the memory of a domain before it is full.

Those that came first go into an object when they are many or old, in the
order in which consumers will want them. Anybody may try: a body never changes,
and what is gone meanwhile does not count.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from dray.clock import Clock
from dray.errors import DrayError
from dray.heaps import telemetry
from dray.heaps.placing import BodyPlacer
from dray.heaps.policy import HeapPolicy
from dray.machine.command import MAX_ROWS
from dray.machine.heaps.commands import Spilled
from dray.machine.heaps.packets import Spill, SpillRow, pack_spilled
from dray.machine.heaps.shard import Shard
from dray.replica.replica import Replica
from dray.telemetry import logger


class Spiller:
    """Moves bodies of one domain out of memory."""

    def __init__(self, *, replica: Replica, placer: BodyPlacer, clock: Clock, policy: HeapPolicy) -> None:
        self._replica = replica
        self._placer = placer
        self._clock = clock
        self._policy = policy

    async def run(self) -> None:
        """For ever."""
        while True:
            await self._clock.sleep(self._policy.tick_ms / 1_000)
            try:
                await self.step()
            except DrayError as error:
                logger().warning(telemetry.UPKEEP_FAILED, error=str(error))

    async def step(self) -> int:
        """Spill what is old, and more while there is too much; how many bodies moved."""
        moved = 0
        for shard in list(self._replica.machine.heaps):
            crowded = self._replica.machine.heaps.inline.used >= self._policy.inline_most_bytes
            chosen = self._choose(shard, crowded=crowded)
            if chosen:
                moved += await self._spill(shard, chosen)
        return moved

    def _choose(self, shard: Shard, *, crowded: bool) -> list[tuple[int, bytes]]:
        """Slots and bodies, those that came first up to a limit, then in the order of their rank."""
        if shard.closed or not shard.messages.bodies:
            return []
        rows = shard.messages.rows
        old_ms = self._replica.machine.time_ms - self._policy.spill_after_ms
        chosen: list[int] = []
        size = 0
        for slot in islice(shard.messages.bodies, MAX_ROWS):
            if not crowded and rows.enqueued_ms(slot) > old_ms:
                continue
            size += rows.length(slot)
            if chosen and size > self._policy.spill_bytes:
                break
            chosen.append(slot)
        chosen.sort(key=lambda slot: (shard.messages.rank(rows.priority(slot)), rows.arrival(slot)))
        return [(slot, shard.messages.bodies[slot]) for slot in chosen]

    async def _spill(self, shard: Shard, chosen: Sequence[tuple[int, bytes]]) -> int:
        arrivals = [shard.messages.rows.arrival(slot) for slot, _ in chosen]
        placed = await self._placer.place(shard.id, [body for _, body in chosen])
        rows: Iterator[SpillRow] = (
            SpillRow(slot, arrival, position, len(body))
            for (slot, body), arrival, position in zip(chosen, arrivals, placed.positions, strict=True)
        )
        (verdict,) = await self._replica.propose(
            Spill(
                shard=shard.id, packed=pack_spilled(rows), wal_id=placed.wal_id, size=placed.size,
                created_ms=placed.created_ms, zone=self._placer.zone,
            )
        )  # fmt: skip
        telemetry.SPILLS.labels("memory").inc()
        return verdict.named if isinstance(verdict, Spilled) else 0
