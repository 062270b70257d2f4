"""What is due in heaps happens, whether or not somebody waits for it.

The oldest broker that is alive does it each second; any other once it is two
seconds overdue. A Tick that comes twice finds nothing due.

Time stands in a domain in which no broker has a session, as after all of them
were stopped: then whoever finds that something waits there opens one.

Invariants
    HK1  What waits for time to pass in a domain does not wait for somebody
         to write there.
"""

from dray.clock import Clock
from dray.errors import DrayError
from dray.heaps import telemetry
from dray.heaps.policy import HeapPolicy
from dray.heaps.present import DomainTime, due_in_ms, is_oldest, present
from dray.machine.heaps.commands import Tick, Ticked
from dray.machine.heaps.shard import Shard
from dray.machine.heaps.tombs import KEPT_MS
from dray.machine.sessions import SessionKind
from dray.replica.expiry import SILENT_BEATS
from dray.replica.replica import Replica
from dray.telemetry import logger


class Ticker:
    """Ticks the heaps of one domain."""

    def __init__(self, replica: Replica, clock: Clock, policy: HeapPolicy) -> None:
        self._replica = replica
        self._clock = clock
        self._policy = policy
        self._position, self._since_ns = -1, 0
        """How far the log was, and since when."""

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
        if self._replica.session is None and self._is_deserted() and self._is_waited_for():
            await self._replica.open_session()  # HK1
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

    def _is_deserted(self) -> bool:
        """Has no other broker a session here, or has none been heard for two signs of life?

        One of this broker's own name is what it was before it stopped.
        """
        replica, now_ns = self._replica, self._clock.boot_ns()
        if replica.machine.position != self._position:
            self._position, self._since_ns = replica.machine.position, now_ns
        live = replica.machine.sessions.live.values()
        others = any(one.kind is SessionKind.BROKER and one.name != replica.name for one in live)
        return not others or now_ns - self._since_ns > SILENT_BEATS * replica.timing.keepalive_ms * 1_000_000

    def _is_waited_for(self) -> bool:
        """Does anything here end by itself?"""
        machine, at = self._replica.machine, present(self._replica, self._clock)
        return bool(machine.batches.committed) or any(_ends(shard, at) for shard in machine.heaps)

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


def _ends(shard: Shard, at: DomainTime) -> bool:
    """Has it a delay, a lease, a batch in doubt, or something that is kept for a time?"""
    kept = (
        shard.dedup.next_end_ms(shard.messages.config.dedup_window_ms) is not None
        or shard.tombs.oldest_ms() is not None
    )
    return not shard.closed and bool(
        kept or due_in_ms(shard, at) is not None or shard.batches.all or shard.messages.dead
    )
