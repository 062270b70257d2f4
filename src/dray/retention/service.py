"""Retention, as a service: three loops that look, and propose what is due.

    retain   log starts rise, closed streams go, dead objects leave the store
    expire   idle producers and old committed offsets are forgotten
    sweep    orphans of ended sessions leave the store

What records are too old is judged by `dray.retention.present`; everything
else the machine decides by its own time, and this service only asks. A pass
that fails is cut short and the next one goes on, since every step can be
repeated by anybody.

Invariants
    RT10  A step that fails in one domain, by a bug too, hinders no other step
          and no other domain.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial

from dray.clock import Clock
from dray.errors import DrayError
from dray.objects.port import Objects
from dray.replica.domains import Domains
from dray.replica.replica import Replica
from dray.retention import telemetry
from dray.retention.expiry import Expiry
from dray.retention.floors import Floors
from dray.retention.garbage import Garbage
from dray.retention.orphans import Orphans
from dray.retention.present import DAY_MS, HOUR_MS, Present, is_ahead, read_present
from dray.retention.settings import RetentionSettings
from dray.retention.turns import Turns
from dray.tasks.watch import Watch
from dray.telemetry import logger


class RetentionService:
    """What keeps the disk from growing for ever."""

    def __init__(
        self,
        *,
        domains: Domains,
        store: Objects,
        clock: Clock,
        settings: RetentionSettings | None = None,
        watch: Watch | None = None,
    ) -> None:
        self._watch = watch or Watch(clock)
        self._settings = settings or RetentionSettings()
        self._clock = clock
        self._turns = Turns(domains)
        self._floors = Floors(domains.catalog, self._present)
        self._garbage = Garbage(store, self._settings)
        self._expiry = Expiry(domains.catalog, self._settings)
        self._told: dict[int, int] = {}
        self._orphans = Orphans(domains=domains, store=store, clock=clock, settings=self._settings)

    async def run(self) -> None:
        """Look and propose, for ever."""
        settings = self._settings
        async with asyncio.TaskGroup() as tasks:
            for interval, look in (
                (settings.interval, self.retain),
                (settings.expiry_interval, self.expire),
                (settings.sweep_interval, self.sweep),
            ):
                name = f"retention-{look.__name__}"
                tasks.create_task(self._watch.keep(name, partial(self._every, interval, look)))

    async def retain(self) -> None:
        """One look at log starts, closed streams and dead objects."""
        mine = await self._turns.take()
        for domain, replica in mine:
            if not replica.is_loaded:
                continue
            self._compare_clocks(domain, replica)
            await self._attempt("floors", domain, self._floors.run(replica))
            await self._attempt("garbage", domain, self._garbage.run(replica))
        for domain, replica in self._turns.others(mine):
            await self._attempt("stand-by", domain, self._stand_by(domain, replica))

    async def _stand_by(self, domain: int, replica: Replica) -> None:
        undone = self._garbage.undone(replica) or bool(await self._floors.find(replica))
        self._turns.watch(domain, undone=undone)

    async def expire(self) -> None:
        """One look at producers and committed offsets."""
        for domain, replica in self._turns.mine():
            if replica.is_loaded and not is_ahead(replica.machine, self._clock.wall_ms()):
                await self._attempt("expiry", domain, self._expiry.run(replica))

    async def sweep(self) -> None:
        """One look at what ended sessions left behind."""
        await self._attempt("sweep", None, self._orphans.run(self._turns.mine()))

    def _present(self, replica: Replica) -> Present | None:
        return read_present(replica.machine, self._clock.wall_ms(), vouched=replica.clock_is_vouched)

    def _compare_clocks(self, domain: int, replica: Replica) -> None:
        """Tell, once, that the log and this machine do not agree about the time, and what to do."""
        machine, wall_ms = replica.machine, self._clock.wall_ms()
        ahead_ms = machine.timeline.sure_ms - wall_ms
        telemetry.LOG_AHEAD.labels(str(domain)).set(ahead_ms / 1000)
        state = 1 if is_ahead(machine, wall_ms) else -1 if ahead_ms < -DAY_MS else 0
        if state == self._told.get(domain, 0):
            return
        self._told[domain] = state
        hours = round(abs(ahead_ms) / HOUR_MS, 1)
        if state > 0:
            logger().error(telemetry.LOG_IS_AHEAD, domain=domain, hours=hours, vouched=replica.clock_is_vouched)
        elif state < 0:
            logger().info(telemetry.LOG_IS_BEHIND, domain=domain, hours=hours)

    async def _attempt(self, step: str, domain: int | None, work: Awaitable[object]) -> None:
        name = f"retention-{step}" if domain is None else f"retention-{step}-{domain}"
        try:
            await work
        except DrayError as error:
            logger().warning(telemetry.FAILED, step=step, domain=domain, error=str(error))  # RT10
        except Exception as error:  # a bug in one step is no reason to leave out the others (RT10)
            self._watch.failed(name, error)
        else:
            self._watch.went_well(name)

    async def _every(self, interval: timedelta, look: Callable[[], Awaitable[None]]) -> None:
        # A process that starts again and again must get to every look: the first comes soon.
        await self._clock.sleep(self._settings.interval.total_seconds())
        while True:
            await look()
            await self._clock.sleep(interval.total_seconds())
