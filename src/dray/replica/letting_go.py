"""What two checkpoints make needless: the log before them, and older checkpoints.

Invariants
    CK4  The log is trimmed by the process that keeps it and by nobody else,
         and only to checkpoints that it has itself and has just read whole:
         so it can always be started again (ADR-0026). A log that no process
         keeps is trimmed by any broker, to checkpoints that are published
         (CK6).
    CK5  How old a checkpoint is, is told by machine time, which it carries:
         a process that lives for minutes forgets as much as one that lives
         for months.
"""

from collections.abc import Callable
from dataclasses import replace

from dray.errors import Corrupt, NotFound
from dray.log.port import Log, Position
from dray.machine.checkpoint import Summary
from dray.replica.checkpoints import CheckpointStore, report_damaged
from dray.replica.keeping import KeepLimits, Kept, needed_from


class LettingGo:
    """Lets go of one domain's history."""

    def __init__(
        self,
        store: CheckpointStore,
        log: Log | None,
        *,
        limits: KeepLimits,
        log_bytes: Callable[[int], int] | None = None,
        crowded: Callable[[], bool] | None = None,
    ) -> None:
        """`log`: for the process that keeps it (CK4); `log_bytes` tells how much of it lies behind a position.

        `crowded`: there is little room, so that nothing is kept but what CK2 asks for.
        """
        self._crowded = crowded
        self._store = store
        self._log = log
        self._limits = limits
        self._log_bytes = log_bytes
        self._known: dict[int, Summary] = {}
        """Confirmed checkpoints that were read whole."""
        self._trimmed = 0

    @property
    def last_size(self) -> int:
        """The size of the newest checkpoint, as of the last step."""
        return self._known[max(self._known)].size if self._known else 0

    async def step(self, now_ms: int | None = None) -> int:
        """Let go of what two checkpoints and an hour make needless (CK2); the position of the newest checkpoint.

        `now_ms` is machine time; without one, the newest checkpoint tells what it was at least.
        """
        have = await self._readable(fresh=False)
        now = max([one.time_ms for one in have], default=0) if now_ms is None else now_ms
        kept = [
            Kept(position=one.position, age_ms=now - one.time_ms, log_bytes=self._behind(one.position)) for one in have
        ]
        crowded = self._crowded is not None and self._crowded()
        limits = replace(self._limits, kept_ms=0) if crowded else self._limits
        floor = needed_from(kept, limits, log_bytes=self._behind(0))
        newest = kept[-1].position if kept else 0
        if floor is not None and floor > self._trimmed:
            # CK4: memory says that they were whole once; the disk says it now.
            still = {one.position for one in await self._readable(fresh=True)}
            if not still.issuperset(one.position for one in kept if one.position >= floor):
                return newest
            if self._log is not None:
                await self._log.trim(Position(floor))
            self._trimmed = floor
        for one in kept:
            if floor is not None and one.position < floor:
                await self._store.remove(one.position)
                self._known.pop(one.position, None)
        return newest

    def _behind(self, position: int) -> int:
        return 0 if self._log_bytes is None else self._log_bytes(position)

    async def _readable(self, *, fresh: bool) -> list[Summary]:
        """The confirmed checkpoints that are whole, oldest first; others are kept aside (CK3)."""
        positions = await self._store.confirmed()
        self._known = {position: self._known[position] for position in positions if position in self._known}
        for position in positions:
            if position in self._known and not fresh:
                continue
            self._known.pop(position, None)
            try:
                self._known[position] = await self._store.check(position)
            except NotFound:
                continue
            except Corrupt as error:
                await report_damaged(self._store, position, error)
        return [self._known[position] for position in sorted(self._known)]
