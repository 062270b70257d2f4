"""The loop that tends the consumer groups of a domain, when they move, when topics change, and when time is up.

The keeper of a group is the broker that clients are told to ask. The broker of
rank r looks r steps later whether anything is left to do; so a dead keeper
costs a step, and whoever is too late finds nothing to do.
"""

import asyncio
from contextlib import suppress
from typing import Final

from dray.clock import Clock
from dray.errors import DrayError
from dray.groups import telemetry
from dray.groups.configs import ASSIGNMENT, SESSION, GroupConfigService
from dray.groups.deadlines import Timetable
from dray.groups.keeper import GroupKeeper
from dray.groups.placement import BrokerOrder
from dray.groups.targets import ConsumerKeeping
from dray.machine.groups.consumer import ConsumerGroup
from dray.machine.groups.group import Group
from dray.replica.replica import Replica
from dray.replica.wakeups import CATALOG
from dray.telemetry import logger

AGAIN_MS: Final = 1_000
"""After a proposal that failed."""
AT_ONCE: Final = 32
LONGEST_S: Final = 60.0
CATALOG_PAUSE_S: Final = 0.1


class ConsumerKeeper:
    """Tends the consumer groups of one domain."""

    def __init__(
        self,
        *,
        replica: Replica,
        catalog: Replica,
        keeper: GroupKeeper,
        keeping: ConsumerKeeping,
        configs: GroupConfigService,
        routing: BrokerOrder,
        clock: Clock,
        step_in_ms: int,
    ) -> None:
        self._replica = replica
        self._catalog = catalog
        self._keeper = keeper
        self._keeping = keeping
        self._configs = configs
        self._routing = routing
        self._clock = clock
        self._step_in_ms = step_in_ms
        self._deadlines: Timetable[str] = Timetable(clock)
        self._moved: dict[str, None] = {}
        self._event = asyncio.Event()
        keeper.looks.append(self._look)

    def clear(self) -> None:
        """The domain goes from here: it is looked at anew when it comes back."""
        self._deadlines = Timetable(self._clock)
        self._moved.clear()

    async def run(self) -> None:
        """Look and propose, for ever."""
        self._moved.update(dict.fromkeys(self._replica.machine.groups.all))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_catalog())
            tasks.create_task(self._tend_all())

    async def _follow_catalog(self) -> None:
        with self._catalog.waiter((CATALOG,)) as waiter:
            while True:
                if await waiter.wait(LONGEST_S):
                    waiter.clear()
                    self.catalog_changed()
                    await self._clock.sleep(CATALOG_PAUSE_S)  # topics are often made by the dozen

    def catalog_changed(self) -> None:
        """Look at every group."""
        self._keeping.catalog_changed()
        self._moved.update(dict.fromkeys(self._replica.machine.groups.all))
        self._event.set()

    async def _tend_all(self) -> None:
        while True:
            self._event.clear()
            await self.step()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._deadlines.plan()):
                    await self._event.wait()

    async def step(self) -> None:
        """One look at what has moved and what is due."""
        moved, self._moved = self._moved, {}
        for name in moved:
            self._deadlines.set(name, self._routing.rank(name) * self._step_in_ms)
        due = self._deadlines.take()
        for start in range(0, len(due), AT_ONCE):
            await asyncio.gather(*(self._tend(name) for name in due[start : start + AT_ONCE]))

    def _look(self, group: Group, swept: bool) -> None:
        if not isinstance(group, ConsumerGroup):
            self._keeping.forget(group.id)
            return
        if swept:
            session_ms = self._configs.value(group.id, SESSION)
            for member in group.members.values():
                self._keeper.look_at_home(group.id, member.id, member.home, session_ms)
        if self._keeping.is_due(group):
            self._moved[group.id] = None
            self._event.set()

    async def _tend(self, name: str) -> None:
        group = self._replica.machine.groups.consumer(name)
        if group is None or group.is_empty:
            self._keeping.forget(name)
            return
        try:
            wait_ms = await self._keeping.tend(
                self._replica, name, assignment_ms=self._configs.value(name, ASSIGNMENT)
            )  # fmt: skip
        except DrayError as error:
            logger().info(telemetry.NOT_TENDED, group=name[:100], error=str(error))
            wait_ms = AGAIN_MS
        if wait_ms is not None:
            self._deadlines.set(name, wait_ms + self._routing.rank(name) * self._step_in_ms)
