"""When a checkpoint is due, who may trust it, and what may then be forgotten.

    due -> made by a child -> read back -> announced in the log -> confirmed -> trimmed to

The maker announces what it read back. A replica that did not make it folds
the same position itself and says whether it got the same bytes; alone, the
live replica confirms by its digest and by reading the file back. Only a
checkpoint that the machine calls usable gets the name under which it may be
loaded (CK1), and the log is trimmed no further than to the older of the two
newest of them (CK2).

Each piece of work is tried again by itself when it fails, later each time; one
mark that cannot be checked hinders no other.

What may then go is said in `dray.replica.letting_go`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from dray.clock import Clock
from dray.errors import Corrupt, DrayError, NotFound
from dray.machine.checkpoint import Summary
from dray.machine.confirmations import Checkpointed, CheckpointMark
from dray.machine.sessions import SessionKind
from dray.replica import telemetry
from dray.replica.checkpoints import CheckpointStore
from dray.replica.fold import Folder
from dray.replica.keeping import KeepLimits
from dray.replica.letting_go import LettingGo
from dray.replica.replica import Replica
from dray.telemetry import logger

DUE_BYTES: Final = 8 << 20
DUE_WITH_BODIES: Final = 256 << 20
"""What the log may grow by, bodies of messages included."""
DUE_ROWS: Final = 700_000
"""What its entries may name: so much is folded in about three seconds, which is what a start after a crash may take."""
KEPT_MS: Final = 3_600_000
KEPT_BYTES: Final = 2 << 30
STOP_S: Final = 10.0
"""What a clean stop gives its last checkpoint."""
_STOP_SHARE: Final = 8
"""At a clean stop a checkpoint is worth making for this part of what makes one due otherwise."""
_FIRST_PAUSE_S: Final = 10
_LONGEST_PAUSE_S: Final = 600
_MAKING: Final = -1
_QUIET_LOOKS: Final = 30
"""When nothing has happened, so many looks are left out: each costs a listing of the store."""


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
        due_with_bodies: int = DUE_WITH_BODIES,
        kept_ms: int = KEPT_MS,
        kept_bytes: int = KEPT_BYTES,
        trims: bool = True,
        log_bytes: Callable[[int], int] | None = None,
        crowded: Callable[[], bool] | None = None,
    ) -> None:
        """`trims`: this process keeps the log (CK4); `log_bytes` tells how much of it lies behind a position.

        `crowded` says that the log has little room: checkpoints come early then, and history goes.
        """
        self._crowded = crowded
        self._replica = replica
        self._store = store
        self._folder = folder
        self._clock = clock
        self._due_bytes = due_bytes
        self._due_with_bodies = due_with_bodies
        self._letting_go = LettingGo(
            store,
            replica.log if trims else None,
            limits=KeepLimits(kept_ms=kept_ms, kept_bytes=kept_bytes),
            log_bytes=log_bytes,
            crowded=crowded,
        )
        self._failures: dict[int, int] = {}
        self._not_before_ns: dict[int, int] = {}
        self._newest_mark = self._newest_of_marks()

    async def run(self, interval_s: float = 1.0) -> None:
        """Look every so often, for ever; a failure keeps the log and is tried again later."""
        seen, quiet = self._happened(), _QUIET_LOOKS
        while True:
            await self._clock.sleep(interval_s)
            before, seen = seen, self._happened()
            quiet = quiet + 1 if seen == before and not self._failures else _QUIET_LOOKS
            if quiet < _QUIET_LOOKS:
                continue
            quiet = 0
            try:
                await self.step()
            except DrayError as error:
                logger().warning(telemetry.CHECKPOINT_FAILED, error=str(error))
                await self._clock.sleep(10 * interval_s)

    def _happened(self) -> object:
        """Something that is another thing when there may be something to do."""
        marks = [(one.position, one.confirmed, one.disputed) for one in self._replica.machine.confirmations.marks]
        return marks, self._replica.session is None, self._is_due(), self._is_crowded()

    def _is_crowded(self) -> bool:
        return self._crowded is not None and self._crowded()

    def _is_due(self) -> bool:
        most = max(self._due_bytes, self._letting_go.last_size // 2)
        since = self._replica.bytes_since_checkpoint
        with_bodies = max(most, 0 if self._is_crowded() else self._due_with_bodies)
        due = since > most or since + self._replica.bodies_since_checkpoint > with_bodies
        return (due or self._replica.rows_since_checkpoint > DUE_ROWS) and self._is_maker()

    async def step(self) -> None:
        """Do whatever is due now."""
        if self._replica.session is None:
            return
        await self._check_others()
        if self._is_due():
            await self._attempt(_MAKING, self.make)
        await self._adopt()
        await self._forget()

    async def finish(self) -> None:
        """A clean stop: one more checkpoint if that spares the next start enough. The session is still open."""
        worth = max(self._due_bytes, self._letting_go.last_size) // _STOP_SHARE
        if self._replica.session is None or not self._is_alone() or self._replica.bytes_since_checkpoint < worth:
            return
        try:
            async with asyncio.timeout(STOP_S):
                await self.make()
                await self._adopt()
                await self._forget()
        except (DrayError, TimeoutError) as error:  # the log has everything; the next start takes longer
            logger().warning(telemetry.CHECKPOINT_FAILED, error=str(error) or "a clean stop does not wait for it")

    async def make(self) -> None:
        """Make a checkpoint of where the live replica is now, and announce it."""
        position, digest = self._replica.machine.position, self._replica.machine.digest
        covered, bodies = self._replica.bytes_since_checkpoint, self._replica.bodies_since_checkpoint
        rows = self._replica.rows_since_checkpoint
        await self._folder.fold(position)
        made = await self._store.examine(position)  # what counts is what can be read back
        if (made.position, made.digest) != (position, digest):
            await self._store.discard(position)
            raise self._replica.fail(
                DrayError("this replica and a fold of its log disagree: it must not go on", position=position)
            )
        announced = Checkpointed(position=position, hash=made.hash, size=made.size)
        confirmed = Checkpointed(position=position, hash=made.hash, size=made.size, confirms=True)
        # The second one counts only while this is the only broker alive: the machine judges that (K1).
        await self._replica.propose(announced)
        await self._replica.propose(confirmed)
        # Only now: what was not announced is still due.
        self._replica.bytes_since_checkpoint = max(0, self._replica.bytes_since_checkpoint - covered)
        self._replica.bodies_since_checkpoint = max(0, self._replica.bodies_since_checkpoint - bodies)
        self._replica.rows_since_checkpoint = max(0, self._replica.rows_since_checkpoint - rows)
        self._newest_mark = max(self._newest_mark, position)

    # -- who does what -----------------------------------------------------

    def _newest_of_marks(self) -> int:
        return max((mark.position for mark in self._replica.machine.confirmations.marks), default=0)

    def _is_maker(self) -> bool:
        """The oldest live broker makes them: one is enough."""
        own = self._replica.session
        brokers = (s.id for s in self._replica.machine.sessions.live.values() if s.kind is not SessionKind.TOOL)
        return own is not None and own.id == min(brokers, default=own.id)

    def _is_alone(self) -> bool:
        own = self._replica.session
        live = self._replica.machine.sessions.live.values()
        return own is not None and all(s.id == own.id or s.kind is SessionKind.TOOL for s in live)

    async def _attempt(self, what: int, work: Callable[[], Awaitable[None]]) -> None:
        """Try one piece of work; after a failure not before a pause, which doubles."""
        if self._clock.boot_ns() < self._not_before_ns.get(what, 0):
            return
        try:
            await work()
        except DrayError as error:
            failures = self._failures[what] = self._failures.get(what, 0) + 1
            pause_s = min(_FIRST_PAUSE_S << min(failures - 1, 10), _LONGEST_PAUSE_S)
            self._not_before_ns[what] = self._clock.boot_ns() + pause_s * 1_000_000_000
            position = None if what == _MAKING else what
            logger().warning(telemetry.CHECKPOINT_FAILED, error=str(error), position=position, again_in_s=pause_s)
        else:
            self._failures.pop(what, None)
            self._not_before_ns.pop(what, None)

    # -- other makers' -----------------------------------------------------

    async def _check_others(self) -> None:
        """Fold what another session made, and say in the log whether the bytes are the same."""
        own = self._replica.session
        marks = list(self._replica.machine.confirmations.marks)
        if (newest := self._newest_of_marks()) > self._newest_mark:
            # Another made one: what it covers is not due here any more.
            self._newest_mark = newest
            self._replica.bytes_since_checkpoint = self._replica.bodies_since_checkpoint = 0
            self._replica.rows_since_checkpoint = 0
        # What lies below a confirmed one is of no use to anybody; one that was copied may lie above many marks.
        usable = [mark.position for mark in marks if mark.usable]
        floor = max([*usable, *await self._store.confirmed()], default=0)
        for mark in marks:
            if own is None or mark.maker == own.id or mark.confirmed or mark.disputed or mark.position <= floor:
                continue
            await self._attempt(mark.position, partial(self._check, mark))

    async def _check(self, mark: CheckpointMark) -> None:
        own_fold = await self._refold(mark)
        if own_fold is None:
            return
        logger().info(telemetry.CHECKPOINTED, position=mark.position, agrees=own_fold.hash == mark.hash)
        await self._say(mark, own_fold)

    async def _say(self, mark: CheckpointMark, found: Summary) -> None:
        await self._replica.propose(
            Checkpointed(position=mark.position, hash=found.hash, size=found.size, confirms=True)
        )

    async def _refold(self, mark: CheckpointMark) -> Summary | None:
        if mark.position in await self._store.confirmed():
            return None
        await self._folder.fold(mark.position)
        return await self._store.examine(mark.position)

    # -- what may be loaded ------------------------------------------------

    async def _adopt(self) -> None:
        """Give usable checkpoints the name under which they may be loaded (CK1)."""
        newest = max(await self._store.confirmed(), default=0)
        usable = [mark for mark in self._replica.machine.confirmations.usable() if mark.position > newest]
        for mark in usable:
            try:
                made = await self._store.examine(mark.position)
            except NotFound:
                if mark is usable[-1]:  # others agreed on it before it was folded here; the log may go only with it
                    await self._attempt(mark.position, partial(self._catch_up, mark))
                continue
            except Corrupt as error:
                logger().warning(telemetry.CHECKPOINT_FAILED, error=str(error), position=mark.position)
                await self._store.discard(mark.position)  # folded again at the next look
                continue
            await self._attempt(mark.position, partial(self._take, mark, made))

    async def _catch_up(self, mark: CheckpointMark) -> None:
        found = await self._refold(mark)
        if found is not None:
            await self._take(mark, found)

    async def _take(self, mark: CheckpointMark, found: Summary) -> None:
        if found.hash == mark.hash:
            await self._store.confirm(mark.position)
            logger().info(telemetry.CHECKPOINTED, position=mark.position, size=found.size)
        else:
            await self._store.discard(mark.position)
            await self._say(mark, found)  # two agreed and we do not: nobody uses it (K1)

    # -- what may go -------------------------------------------------------

    async def _forget(self) -> None:
        newest = await self._letting_go.step(self._replica.machine.time_ms)
        await self._tidy(newest)

    async def _tidy(self, newest: int) -> None:
        """Forget what was made and will never be adopted."""
        disputed = {mark.position for mark in self._replica.machine.confirmations.marks if mark.disputed}
        for position in await self._store.made():
            if position <= newest or position in disputed:
                await self._store.discard(position)
        for what in [what for what in self._failures if what != _MAKING and what <= newest]:
            del self._failures[what], self._not_before_ns[what]
