"""Who watches the tasks that run for as long as the process does.

A loop that sweeps, saves or registers is missed only when it is too late: the
disk is full, the log has grown, the broker is not in the metadata. So each of
them is somebody's: what fails is told, counted, begun again a little later,
and after the third time in a row the process says that it is not ready.

A failure here is a bug, or something of the machine that nobody foresaw (no
process can be forked, a child hangs). What a service expects to fail it deals
with itself. And what must not be begun again is not watched here: a replica
whose follower dies ends its process.

Invariants
    WT1  Work that fails or returns is begun again, each time after a longer
         pause up to half a minute, for as long as its owner does not stop it.
    WT2  Every failure is counted; from the third in a row on `check` names
         the work, until it has gone well again.
    WT3  A failure of one work touches no other.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Final, TypeAlias

from dray.clock import Clock
from dray.errors import Unavailable
from dray.tasks import telemetry
from dray.telemetry import logger

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0
SHOWN_FROM: Final = 3
HEALED_S: Final = 60.0
"""Work that nobody calls well counts as such after this long, and twice as long as it lived before it failed."""

Work: TypeAlias = Callable[[], Coroutine[None, None, None]]


class Troubled(Unavailable):
    """Some long-lived work of this process fails again and again: look for `tasks.died` in its log."""


@dataclass(slots=True)
class _Record:
    """How one work has done lately."""

    failures: int = 0
    begun_ns: int = 0
    lived_ns: int = 0
    """How long it went before its last failure."""


class Watch:
    """All long-lived work of one process, by name."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._records: dict[str, _Record] = {}

    def start(self, name: str, work: Work) -> "asyncio.Task[None]":
        """Run something for ever; its owner gives the task to `stop`."""
        return asyncio.create_task(self.keep(name, work), name=name)

    async def stop(self, task: "asyncio.Task[None]") -> None:
        """End it, whatever it does."""
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def keep(self, name: str, work: Work) -> None:
        """Run something for ever, as part of the caller's own task."""
        record = self._record(name)
        while True:
            record.begun_ns = self._clock.boot_ns()
            try:
                await work()
            except asyncio.CancelledError:
                own = asyncio.current_task()
                if own is None or own.cancelling():
                    raise
                self.failed(name, RuntimeError("something that it waited for was cancelled"))
            except Exception as error:  # WT3: whatever it is, it is this work's alone
                self.failed(name, error)
            else:
                self.failed(name, RuntimeError("it ended"))
            await self._clock.sleep(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (record.failures - 1)))  # WT1

    def failed(self, name: str, error: Exception) -> None:
        """Work, or a step of it that its owner goes on without, failed (WT2)."""
        record = self._record(name)
        now_ns = self._clock.boot_ns()
        if self._healed(record, now_ns):
            record.failures = 0
        record.failures += 1
        record.lived_ns = now_ns - record.begun_ns
        record.begun_ns = now_ns
        telemetry.DEATHS.labels(name).inc()
        logger().error(telemetry.DIED, task=name, failures=record.failures, error=repr(error), exc_info=error)

    def went_well(self, name: str) -> None:
        """A whole round of it was done."""
        record = self._records.get(name)
        if record is not None:
            record.failures = 0

    def check(self) -> None:
        """Raise if some work fails again and again (WT2)."""
        now_ns = self._clock.boot_ns()
        troubled = [
            name
            for name, record in sorted(self._records.items())
            if record.failures >= SHOWN_FROM and not self._healed(record, now_ns)
        ]
        if troubled:
            raise Troubled("work of this broker fails again and again: report a bug", tasks=",".join(troubled))

    def _record(self, name: str) -> _Record:
        return self._records.setdefault(name, _Record(begun_ns=self._clock.boot_ns()))

    def _healed(self, record: _Record, now_ns: int) -> bool:
        return now_ns - record.begun_ns > max(2 * record.lived_ns, int(HEALED_S * 1e9))
