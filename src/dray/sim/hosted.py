"""A cluster whose brokers live on one machine, each on a data directory of its own.

What of it is on the disk, and what was shown to anybody, outlives the
processes; a start is held to it.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

from dray.disk import SyncFailed
from dray.errors import Corrupt, Unavailable
from dray.machine import checkpoint
from dray.machine.machine import Machine
from dray.machine.step import EndReason
from dray.node.joining import NoLogThere
from dray.node.metadata import Metadata, MetadataOptions
from dray.replica.writer import Timing
from dray.sim.brokers import Cluster, StrictWatch
from dray.sim.directories import Home, checkpoints_of, joined_log, kept_log, log_of
from dray.sim.host import Host
from dray.sim.process import Process
from dray.sim.witness import Witness
from dray.sim.world import World

ROOTS: Final = Path("/dray-sim")
KEEPER: Final = "keeper"
JOINERS: Final = ("joiner-1", "joiner-2")
START_SECONDS: Final = 120.0
LOOK_SECONDS: Final = 0.1
TIMING: Final = Timing(ttl_ms=6_000, keepalive_ms=2_000, settle_ms=4_000)
OPTIONS: Final = MetadataOptions(
    timing=TIMING, segment_bytes=4_000, checkpoint_due_bytes=12_000, checkpoint_kept_ms=2_000
)


class HostCluster(Cluster):
    """The brokers of one machine, each on a data directory of its own."""

    def __init__(self, world: World, joiners: Sequence[str] = JOINERS) -> None:
        super().__init__(world, nodes=0, timing=TIMING)
        self.host = Host(world)
        self.remembers = True
        """The keeper's build knows the marks of birth."""
        self.refusals: tuple[type[Corrupt], ...] = ()
        """By which a start may be refused now, because the log is away or damaged."""
        for name in (KEEPER, *joiners):
            self.host.add(name, self.boot).may_exit = self._may_exit
        self.witness = Witness(
            world,
            self.host.disk,
            log_of(ROOTS / KEEPER),
            [checkpoints_of(ROOTS / KEEPER), *(checkpoints_of(ROOTS / name, joined=True) for name in joiners)],
        )
        self._shown: dict[int, int] = {}

    def start(self) -> None:
        self.host.start()

    @property
    def generation(self) -> int:
        """Of the log that the keeper last followed."""
        return self.brokers[KEEPER].replica.machine.head.generation

    def forget_shown(self) -> None:
        """From here on another log is kept: what the old one showed may be lost."""
        self._shown.clear()

    async def boot(self, process: Process) -> None:
        shown = max(self._shown, default=0)
        async with self._metadata(process) as metadata:
            replica = metadata.domains.catalog
            self._check_shown(process, replica.machine, shown)
            async with self.serving(process, {0: replica}):
                raise await metadata.failed

    def home(self, process: Process, name: str | None = None) -> Home:
        """The directory of a broker, as a process reaches it."""
        return Home(
            root=ROOTS / (name or process.name),
            process=process,
            disk=self.host.disk,
            objects=self.world.reach_bucket(process),
            options=OPTIONS,
            watch=StrictWatch(process, self.world),
        )

    def _metadata(self, process: Process) -> AbstractAsyncContextManager[Metadata]:
        home = self.home(process)
        if process.name == KEEPER:
            return kept_log(home, remembers=self.remembers)
        return joined_log(home, ROOTS / KEEPER)

    def _may_exit(self, error: BaseException | None) -> bool:
        """A disk or a log that cannot be reached may end a process; damage only where there is some."""
        return isinstance(error, Unavailable | SyncFailed | NoLogThere) or type(error) in self.refusals

    def look(self) -> None:
        """Remember what is shown, and hold those who serve to what the others know (RP5)."""
        live = [broker for broker in self.live() if broker.process.running]
        for broker in live:
            machine = broker.replica.machine
            self._shown[machine.position] = machine.digest
        for broker in live:
            session = broker.replica.session
            if session is None or not broker.serves:
                continue
            for other in live:
                ended = other.replica.machine.sessions.ended.get(session.id)
                self.world.check(
                    ended is None or ended.reason is not EndReason.EXPIRED,
                    "a broker serves though its session was expired",
                    node=broker.process.name, session=session.id, known_to=other.process.name,
                )  # fmt: skip

    def _check_shown(self, process: Process, machine: Machine, shown: int) -> None:
        """R-017: a start shows at least what was shown before it."""
        self.world.check(
            machine.position >= shown, "entries that were shown are lost", node=process.name, shown=shown,
            found=machine.position,
        )  # fmt: skip
        known = self._shown.get(machine.position)
        self.world.check(
            known in (None, machine.digest), "another entry stands where one was shown", position=machine.position
        )

    async def compare_states(self) -> None:
        """Every replica is the fold of everything that was ever in the log."""
        for broker in sorted(self.live(), key=lambda broker: broker.replica.machine.position):
            machine = broker.replica.machine
            self.witness.fold(self.host.disk.durable(), machine.position)
            same = checkpoint.fingerprint(self.witness.machine) == checkpoint.fingerprint(machine)
            self.world.check(
                same, "a replica and a fresh fold of its log differ", node=broker.process.name,
                position=machine.position, witness=self.witness.machine.position,
            )  # fmt: skip


async def until(holds: Callable[[], bool], *, every: float = 0.1) -> None:
    """Look now and then from outside; nothing in the world has to tell."""
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(every)


async def restart_all(world: World, cluster: HostCluster) -> None:
    """The power goes, and everyone starts from what is on the disk."""
    cluster.host.cut_power()
    await asyncio.sleep(1)
    cluster.start()
    everyone = until(lambda: len(cluster.live()) == len(cluster.host.nodes))
    await world.within(START_SECONDS, everyone, "everyone starts from the disk")
