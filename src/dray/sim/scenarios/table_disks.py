"""Tables of one process whose log and files lie on a disk that forgets what a crash may forget.

The catalog is elsewhere and forgets nothing. The process is killed and the
power is cut at any call of the disk: also after the catalog has taken a
commit, when the log does not know of it yet.

Checked at every start: what a table names is on the disk, whole (R-152). In
the end, after one more power cut: each offset once, what was acked at its
offset, read from objects and files as they are.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from dray.errors import DrayError
from dray.node.plane import Plane
from dray.objects.files import FileObjects
from dray.parquet.footer import footer_bytes
from dray.parquet.read import footer_of
from dray.replica.replica import Replica
from dray.sim.brokers import Broker
from dray.sim.compactor import Compactor, Tables
from dray.sim.disk import FakeFile
from dray.sim.hosted import until
from dray.sim.nemesis import Nemesis
from dray.sim.planted import Scenario, planted
from dray.sim.planted import tables as bugs
from dray.sim.process import Process
from dray.sim.scenarios.appends import PROGRESS_SECONDS
from dray.sim.scenarios.local import LocalCluster, MortalDisk, compare_files, kill, power_loss
from dray.sim.scenarios.tables import TableReaders, loop_over
from dray.sim.world import World

OBJECTS: Final = Path("/data/objects")
WORK_SECONDS: Final = 60.0


class TableCluster(LocalCluster):
    """One node, whose objects lie on its own disk beside its log, with a compactor in it."""

    def __init__(self, world: World, disk: MortalDisk, catalog: Tables) -> None:
        super().__init__(world, disk)
        self.catalog = catalog
        self.starts = 0

    def plane(self, process: Process, replicas: Mapping[int, Replica]) -> Plane:
        return replace(super().plane(process, replicas), objects=self.objects(process))

    def objects(self, process: Process) -> FileObjects:
        return FileObjects(OBJECTS, self.disk, process.offload, process.entropy)

    @asynccontextmanager
    async def serving(self, process: Process, replicas: Mapping[int, Replica]) -> AsyncIterator[Broker]:
        objects = self.objects(process)
        await objects.open()
        await self._check_tables(objects)
        self.starts += 1
        async with super().serving(process, replicas) as broker:
            mill = Compactor(broker, self.catalog, self.world.dice(f"mill/{self.starts}"))
            task = process.spawn(mill.run(), "compactor")
            try:
                yield broker
            finally:
                task.cancel()

    async def _check_tables(self, objects: FileObjects) -> None:
        """R-152: what a table names survived whatever came after its commit."""
        for stream, table in sorted(self.catalog.by_stream.items()):
            for path in table.files:
                try:
                    content = await objects.get(path)
                    footer_of(content[len(content) - footer_bytes(content) :], len(content))
                except DrayError as error:
                    raise self.world.violate(
                        "a file of a table is gone, or torn", stream=stream, path=path, why=error
                    ) from None


async def table_disks(world: World) -> None:
    """R-152, R-017, I5, T13: power cuts between the catalog's commit and everything that follows it."""
    disk, catalog = MortalDisk(world.dice("disk").randrange(1 << 30)), Tables(world)
    cluster = TableCluster(world, disk, catalog)
    workload = TableReaders(cluster, pause=1.0)
    workload.rolled_back()  # the truth is on the disk, and is read in the end
    cluster.start()
    await world.within(PROGRESS_SECONDS, cluster.create_topic(2), "a topic is created")
    workload.start(plain=2, idempotent=1, readers=2, committers=0)
    world.network.start(loop_over(workload))
    nemesis = Nemesis(world, [power_loss(cluster.node, disk), kill(cluster.node, disk)], period=4.0)
    world.network.start(nemesis.run())
    await asyncio.sleep(WORK_SECONDS)
    nemesis.heal()
    disk.crash_at = None
    await asyncio.sleep(5)  # the last power cut may still be due
    workload.history.working = False
    await asyncio.sleep(30)
    await _cut_power(world, cluster)
    await world.within(PROGRESS_SECONDS, workload.prove_progress(), "the broker works after heal")
    await compare_files(world, cluster, workload)
    world.check(catalog.commits > 0, "nothing became a file: the run proves nothing")


async def _cut_power(world: World, cluster: TableCluster) -> None:
    """Once more, when nobody works any more; it starts again by itself or is started here."""
    if cluster.node.alive:
        cluster.node.crash(power=True)
    await asyncio.sleep(1)
    if not cluster.node.alive:
        cluster.node.start()
    await world.within(PROGRESS_SECONDS, until(lambda: bool(cluster.live())), "the broker starts from the disk")


SCENARIOS: Final[dict[str, Scenario]] = {"table-disks": table_disks}

PLANTED: Final[dict[str, Scenario]] = {
    "table-disks/files-not-synced": planted(table_disks, (FakeFile, "sync", bugs.sync_of_no_files)),
}
