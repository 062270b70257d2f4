"""Batches that their broker left behind are decided and finished, so that nobody stays in doubt.

Where a part was prepared for ten seconds and nobody finished it, the home
domain is asked to abort the batch. It answers with the first decision, and
that is what the part is finished with: a commit that was decided before is
carried out, and a broker that comes too late with its own is told.

A commit is forgotten when no domain holds a part of its batch any more.
"""

from dray.clock import Clock
from dray.errors import DrayError
from dray.heaps import telemetry
from dray.heaps.policy import HeapPolicy
from dray.heaps.present import is_oldest, present
from dray.machine.heaps.batches import BatchWord, Decide, Decided, Finish, PreparedBatch
from dray.machine.heaps.shard import Shard
from dray.machine.names import domain_of
from dray.replica.domains import Domains
from dray.replica.replica import Replica
from dray.telemetry import logger


class BatchKeeper:
    """Keeps the batches of one domain: those prepared there, and those decided there."""

    def __init__(self, *, domains: Domains, domain: int, clock: Clock, policy: HeapPolicy) -> None:
        self._domains = domains
        self._replica: Replica = domains[domain]
        self._domain = domain
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
        """Decide and finish what is in doubt for long enough; then forget what every shard has heard."""
        machine = self._replica.machine
        if not machine.batches.committed and not any(shard.batches.all for shard in machine.heaps):
            return
        edge_ms = present(self._replica, self._clock).running_ms - self._policy.doubt_ms
        edge_ms -= 0 if is_oldest(self._replica) else self._policy.overdue_ms
        for shard in list(machine.heaps):
            for batch, prepared in list(shard.batches.all.items()):
                if prepared.since_ms <= edge_ms:
                    await self._resolve(shard, batch, prepared)
        for batch, commit in list(machine.batches.committed.items()):
            if commit.since_ms <= edge_ms and await self._is_heard(batch, {domain_of(one) for one in commit.shards}):
                await self._replica.propose(Decide(batch=batch, begun_ms=0, word=BatchWord.SETTLED))  # BA5

    async def _resolve(self, shard: Shard, batch: bytes, prepared: PreparedBatch) -> None:
        ask = Decide(batch=batch, begun_ms=prepared.begun_ms, word=BatchWord.ABORT)
        (verdict,) = await self._domains[prepared.home].propose(ask)
        if isinstance(verdict, Decided):
            logger().info(
                telemetry.BATCH_RESOLVED, batch=batch.hex(), domain=self._domain, committed=verdict.commit
            )  # fmt: skip
            finish = Finish(shard=shard.id, batch=batch, commit=verdict.commit, rows=len(prepared.slots))
            await self._replica.propose(finish)

    async def _is_heard(self, batch: bytes, domains: set[int]) -> bool:
        """Does no domain hold a part of it? Said after a sync."""
        for domain in sorted(domains):
            replica = self._domains[domain]
            await replica.sync()
            if any(batch in shard.batches.all for shard in replica.machine.heaps):
                return False
        return True
