"""Bodies leave the memory of a domain before it is full.

Those that came first go into an object when they are many or old, in the
order in which consumers will want them. Anybody may try: a body never changes,
and what is gone meanwhile does not count.
"""

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from dray.buffers import Buffer
from dray.clock import Clock
from dray.errors import DrayError
from dray.heaps import telemetry
from dray.heaps.placing import BodyPlacer
from dray.heaps.policy import HeapPolicy
from dray.machine.command import MAX_ROWS
from dray.machine.heaps.commands import Spilled
from dray.machine.heaps.packets import Spill, SpillRow, pack_spilled
from dray.machine.heaps.shard import Shard
from dray.machine.names import StreamId
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
        arrival = shard.messages.rows.arrival
        bodies = [MovingBody(slot, arrival(slot), body) for slot, body in chosen]
        return await move_bodies(self._replica, self._placer, shard.id, bodies, "memory")


class MovingBody(NamedTuple):
    """A body on its way to another object: whose it is, and its bytes."""

    slot: int
    arrival: int
    body: Buffer


async def move_bodies(
    replica: Replica, placer: BodyPlacer, shard: StreamId, bodies: Sequence[MovingBody], why: str
) -> int:
    """Write bodies into one object, and let their rows name it; how many were still there."""
    placed = await placer.place(shard, [one.body for one in bodies])
    rows = (
        SpillRow(one.slot, one.arrival, position, len(one.body))
        for one, position in zip(bodies, placed.positions, strict=True)
    )
    (verdict,) = await replica.propose(
        Spill(
            shard=shard, packed=pack_spilled(rows), wal_id=placed.wal_id, size=placed.size,
            created_ms=placed.created_ms, zone=placer.zone,
        )
    )  # fmt: skip
    telemetry.SPILLS.labels(why).inc()
    return verdict.named if isinstance(verdict, Spilled) else 0
