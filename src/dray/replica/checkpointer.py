"""When a checkpoint is due, who may trust it, and what may then be forgotten.

    due -> made by a child -> read back -> announced in the log -> confirmed -> trimmed to

The maker announces what it read back. A replica that did not make it folds
the same position itself and says whether it got the same bytes; alone, the
live replica confirms by its digest and by reading the file back. Only a
checkpoint that the machine calls usable gets the name under which it may be
loaded (CK1), and the log is trimmed no further than to the older of the two
newest of them (CK2).
"""

from typing import Final

from dray.clock import Clock
from dray.errors import Corrupt, DrayError, NotFound
from dray.log.port import Position
from dray.machine.checkpoint import Summary
from dray.machine.confirmations import Checkpointed, CheckpointMark
from dray.machine.sessions import SessionKind
from dray.replica import telemetry
from dray.replica.checkpoints import CheckpointStore
from dray.replica.fold import Folder
from dray.replica.replica import Replica
from dray.telemetry import logger

DUE_BYTES: Final = 8 << 20
KEPT_MS: Final = 3_600_000
KEPT: Final = 2


class Checkpointer:
    """Makes, confirms and trims for one replica."""

    def __init__(
        self,
        replica: Replica,
        store: CheckpointStore,
        folder: Folder,
        clock: Clock,
        *,
        due_bytes: int = DUE_BYTES,
        kept_ms: int = KEPT_MS,
    ) -> None:
        self._replica = replica
        self._store = store
        self._folder = folder
        self._clock = clock
        self._due_bytes = due_bytes
        self._kept_ms = kept_ms
        self._last_size = 0
        self._trimmed = 0
        self._made_at_ms: dict[int, int] = {}

    async def run(self, interval_s: float = 1.0) -> None:
        """Look every so often, for ever; a failure keeps the log and is tried again later."""
        while True:
            await self._clock.sleep(interval_s)
            try:
                await self.step()
            except DrayError as error:
                logger().warning(telemetry.CHECKPOINT_FAILED, error=str(error))
                await self._clock.sleep(10 * interval_s)

    async def step(self) -> None:
        """Do whatever is due now."""
        if self._replica.session is None:
            return
        await self._check_others()
        if self._is_maker() and self._replica.bytes_since_checkpoint > max(self._due_bytes, self._last_size // 2):
            await self.make()
        await self._adopt()
        await self._trim()

    async def make(self) -> None:
        """Make a checkpoint of where the live replica is now, and announce it."""
        position, digest = self._replica.machine.position, self._replica.machine.digest
        self._replica.bytes_since_checkpoint = 0
        await self._folder.fold(position)
        made = await self._store.examine(position)  # what counts is what can be read back
        if (made.position, made.digest) != (position, digest):
            await self._store.remove(position)
            raise self._replica.fail(
                DrayError("this replica and a fold of its log disagree: it must not go on", position=position)
            )
        self._last_size = made.size
        self._made_at_ms[position] = self._replica.machine.time_ms
        announced = Checkpointed(position=position, hash=made.hash, size=made.size)
        confirmed = Checkpointed(position=position, hash=made.hash, size=made.size, confirms=True)
        # The second one counts only while this is the only broker alive: the machine judges that (K1).
        await self._replica.propose(announced)
        await self._replica.propose(confirmed)

    def _is_maker(self) -> bool:
        """The oldest live broker makes them: one is enough."""
        own = self._replica.session
        brokers = (s.id for s in self._replica.machine.sessions.live.values() if s.kind is not SessionKind.TOOL)
        return own is not None and own.id == min(brokers, default=own.id)

    async def _check_others(self) -> None:
        """Fold what another session made, and say in the log whether the bytes are the same."""
        own = self._replica.session
        for mark in list(self._replica.machine.confirmations.marks):
            if own is None or mark.maker == own.id or mark.confirmed or mark.disputed:
                continue
            own_fold = await self._refold(mark)
            if own_fold is None:
                continue
            found = Checkpointed(position=mark.position, hash=own_fold.hash, size=own_fold.size, confirms=True)
            logger().info(telemetry.CHECKPOINTED, position=mark.position, agrees=found.hash == mark.hash)
            await self._replica.propose(found)

    async def _refold(self, mark: CheckpointMark) -> Summary | None:
        if mark.position in await self._store.confirmed():
            return None
        await self._folder.fold(mark.position)
        return await self._store.examine(mark.position)

    async def _adopt(self) -> None:
        """Give usable checkpoints the name under which they may be loaded (CK1)."""
        have = await self._store.confirmed()
        for mark in self._replica.machine.confirmations.usable():
            if mark.position in have:
                continue
            try:
                made = await self._store.examine(mark.position)
            except NotFound:
                continue
            except Corrupt as error:
                logger().warning(telemetry.CHECKPOINT_FAILED, error=str(error), position=mark.position)
                await self._store.remove(mark.position)  # a later one takes its place
                continue
            if made.hash == mark.hash:
                await self._store.confirm(mark.position)
                logger().info(telemetry.CHECKPOINTED, position=mark.position, size=made.size)

    async def _trim(self) -> None:
        """Forget what two checkpoints and an hour make needless (CK2)."""
        have = await self._store.confirmed()
        now = self._replica.machine.time_ms
        ages = {position: now - self._made_at_ms.setdefault(position, now) for position in have}
        old = [position for position in have[:-KEPT] if ages[position] >= self._kept_ms]
        if len(have) >= KEPT and have[-KEPT] > self._trimmed and ages[have[-KEPT]] >= self._kept_ms:
            await self._replica.log.trim(Position(have[-KEPT]))
            self._trimmed = have[-KEPT]
        for position in old:
            await self._store.remove(position)
            self._made_at_ms.pop(position, None)
