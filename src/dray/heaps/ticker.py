"""What is due in heaps happens, whether or not somebody waits for it.

The oldest broker that is alive does it each second; any other once it is two
seconds overdue. A Tick that comes twice finds nothing due.
"""

from dray.clock import Clock
from dray.errors import DrayError
from dray.heaps import telemetry
from dray.heaps.policy import HeapPolicy
from dray.heaps.present import DomainTime, due_in_ms, is_oldest, present
from dray.machine.heaps.commands import Tick, Ticked
from dray.machine.heaps.shard import Shard
from dray.machine.heaps.tombs import KEPT_MS
from dray.replica.replica import Replica
from dray.telemetry import logger


class Ticker:
    """Ticks the heaps of one domain."""

    def __init__(self, replica: Replica, clock: Clock, policy: HeapPolicy) -> None:
        self._replica = replica
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

    async def step(self) -> None:
        """Tick every shard that is due, until nothing is."""
        for shard in list(self._replica.machine.heaps):
            more = self._is_due(shard, present(self._replica, self._clock))
            while more:
                (verdict,) = await self._replica.propose(Tick(shard=shard.id))
                more = isinstance(verdict, Ticked) and verdict.more

    def _is_due(self, shard: Shard, at: DomainTime) -> bool:
        if shard.closed:
            return False
        patience_ms = 0 if is_oldest(self._replica) else self._policy.overdue_ms
        due_ms = due_in_ms(shard, at)
        if due_ms is not None and due_ms <= -patience_ms:
            return True
        return self._is_overgrown(shard, at, patience_ms)

    def _is_overgrown(self, shard: Shard, at: DomainTime, patience_ms: int) -> bool:
        """Is something kept for longer than it has to be?"""
        config = shard.messages.config
        edge_ms = at.running_ms - patience_ms
        window_ms, tombs_ms = shard.dedup.next_end_ms(config.dedup_window_ms), shard.tombs.oldest_ms()
        oldest = next(iter(shard.messages.dead), None)
        return (
            (window_ms is not None and window_ms <= edge_ms)
            or (tombs_ms is not None and tombs_ms + KEPT_MS <= edge_ms)
            or (
                oldest is not None
                and not self._replica.machine.timeline.paused
                and shard.messages.rows.due_ms(oldest) + config.retention_ms <= at.now_ms - patience_ms
            )
        )
