"""Tables: rows become files while they are read, cut, deleted and swept, by compactors that die at any step.

Every broker has a compactor beside it, and they take each other's tasks over;
the catalog answers late or not at all, and what it was told may land long
after its sender gave up. Retention drops rows and files, and topics are
deleted.

Checked: what was acked is read at its offset, from files as before; a
file that a table or a row names is never deleted; no row is in a table
twice. In the end: each offset once through every broker, the table's
files are there, and nothing else is left in the bucket.
"""

import asyncio
from typing import Final

from dray.errors import DrayError, NotFound
from dray.fetch.errors import DamagedObject, OffsetOutOfRange, StreamGone
from dray.fetch.plan import PartitionRead
from dray.fetch.service import Failed
from dray.fetch.sources.parquet import ParquetSource
from dray.machine.garbage import Objects
from dray.machine.names import StreamId
from dray.machine.objects import ObjectTable
from dray.machine.tasks import Tasks
from dray.records import batches, records_of
from dray.sim.brokers import Broker, Cluster
from dray.sim.compactor import Compactor, Tables
from dray.sim.nemesis import Nemesis, crash, partition, pause, rough_weather
from dray.sim.network import ROUGH
from dray.sim.planted import Scenario, planted
from dray.sim.planted import tables as bugs
from dray.sim.scenarios.appends import PROGRESS_SECONDS, finish
from dray.sim.scenarios.garbage import (
    CLEAN_SECONDS,
    DOOMED,
    EAGER,
    GRACE_MS,
    QUICK,
    Warden,
    cut,
    delete_topic,
    until_clean,
)
from dray.sim.workload import Fate, Sent, Workload, value_of
from dray.sim.world import World

WORK_SECONDS: Final = 60.0
FETCH_BYTES: Final = 1 << 20


class TableReaders(Workload):
    """Clients that look at records: batches are rebuilt from files, and their bytes are not those that were sent."""

    async def read_acked(self, sent: Sent, *, broker: Broker | None = None) -> None:
        """What was acked is at its offset, through any broker (R-012)."""
        batch = sent.batch
        try:
            found = await self.cluster.ask(lambda broker: records(broker, batch.stream, sent.base), broker=broker)
        except DamagedObject as error:
            raise self.world.violate("an acked record cannot be read", value=value_of(batch), why=error) from None
        if found is None:
            self.world.check(self.is_gone(sent), "an acked record is missing", value=value_of(batch), base=sent.base)
        else:
            at = {offset: value for offset, value in found}
            expected = {sent.base + number: value_of(batch) for number in range(batch.records)}
            same = all(at.get(offset, value) == value for offset, value in expected.items()) and sent.base in at
            self.world.check(same, "an acked record is not at its offset", value=value_of(batch), base=sent.base)
            self.history.reads += 1

    async def check(self) -> None:
        """Read every stream whole through every broker: each offset once, and what clients were told."""
        for broker in self.cluster.live():
            for stream in self.cluster.streams:
                try:
                    found = await self.cluster.ask(lambda one: whole(one, stream), broker=broker, patience=600)  # noqa: B023
                except DamagedObject as error:
                    raise self.world.violate("a stream cannot be read", stream=stream, why=error) from None
                self._check_read(stream, found)

    def check_dense(self, stream: StreamId, found: list[tuple[int, bytes]]) -> None:
        """I5"""
        offsets = [offset for offset, _ in found]
        dense = offsets == list(range(offsets[0], offsets[0] + len(offsets))) if offsets else True
        self.world.check(dense, "offsets have a hole, or are there twice", stream=stream)

    def _check_read(self, stream: StreamId, found: list[tuple[int, bytes]]) -> None:
        self.check_dense(stream, found)
        at: dict[bytes, list[int]] = {}
        for offset, value in found:
            at.setdefault(value, []).append(offset)
        for one in (one for one in self.history.sent if one.batch.stream == stream):
            places = at.get(value_of(one.batch), [])
            if one.fate is Fate.REFUSED:
                self.world.check(not places, "a batch that was surely not taken is there", value=value_of(one.batch))
            elif one.fate is Fate.ACKED and not self.is_gone(one):
                expected = list(range(one.base, one.base + one.batch.records))
                self.world.check(
                    places == expected, "an acked batch is lost", value=value_of(one.batch), base=one.base, at=places
                )
            else:
                self.world.check(len(places) <= one.batch.records, "a batch is there twice", value=value_of(one.batch))


async def records(broker: Broker, stream: StreamId, offset: int) -> list[tuple[int, bytes]] | None:
    """Offsets and values from an offset on, as far as one answer goes; None: there is no such offset any more."""
    request = PartitionRead(stream=stream, offset=offset, max_bytes=FETCH_BYTES)
    (found,) = await broker.services.fetch.fetch([request], min_bytes=1, max_bytes=FETCH_BYTES, max_wait_ms=0)
    if isinstance(found, Failed):
        if isinstance(found.error, OffsetOutOfRange | StreamGone):
            return None
        raise found.error
    data = b"".join(bytes(part) for part in found.parts)
    return [
        (record.offset, record.value or b"")
        for view in batches(data)
        for record in records_of(view)
        if record.offset >= offset
    ]


async def whole(broker: Broker, stream: StreamId) -> list[tuple[int, bytes]]:
    """A stream from its start to its end."""
    while True:
        found: list[tuple[int, bytes]] = []
        offset = await broker.earliest(stream)
        while (part := await records(broker, stream, offset)) is not None:
            if not part:
                return found
            found += part
            offset = part[-1][0] + 1
        # the log start has passed it: begin again


async def loop_over(workload: TableReaders) -> None:
    """A client that reads whole streams while rows become files: each offset once, whatever is swapped (I5)."""
    cluster, dice = workload.cluster, workload.world.dice("loop")
    while workload.history.working:
        await asyncio.sleep(dice.random())
        stream = dice.choice(cluster.streams)
        try:
            found = await cluster.ask(lambda broker: whole(broker, stream))  # noqa: B023 - it is awaited
        except DamagedObject as error:
            raise workload.world.violate("a stream cannot be read", stream=stream, why=error) from None
        except DrayError:
            continue
        workload.check_dense(stream, found)
        workload.history.reads += 1


class TableWarden(Warden):
    """Looks at every deletion, for the sake of the tables too."""

    def __init__(self, cluster: Cluster, tables: Tables) -> None:
        super().__init__(cluster)
        self._tables = tables

    def deleted(self, path: str, by: str) -> None:
        self._world.check(not self._tables.names(path), "a file that a table names was deleted", path=path, by=by)
        super().deleted(path, by)


async def tables(world: World) -> None:
    """R-109, R-113, R-115, R-123, R-146, R-150..R-154, R-156, R-202, I5, T13, T14"""
    cluster = Cluster(world, min_grace_ms=GRACE_MS, timing=QUICK, settings=EAGER)
    catalog = Tables(world)
    TableWarden(cluster, catalog)
    workload = TableReaders(cluster, pause=1.5)
    workload.may_vanish = True
    cluster.beside.append(lambda broker: Compactor(broker, catalog, world.dice(f"mill/{broker.process.name}")).run())
    cluster.start()
    kept = cluster.create_topic(2, retention_ms="300000", retention_bytes="4000")
    await world.within(PROGRESS_SECONDS, kept, "a topic is created in fair weather")
    await world.within(PROGRESS_SECONDS, cluster.create_topic(1, DOOMED), "a second topic is created")
    workload.start(plain=3, idempotent=1, readers=2, committers=0)
    for number, client in enumerate((cut, delete_topic)):
        world.network.start(client(workload, world.dice(f"tables/{number}")))
    world.network.start(loop_over(workload))
    faults = [crash(), crash(), pause(longest=30.0), partition(), rough_weather(ROUGH)]
    nemesis = Nemesis(world, faults, period=5.0)
    world.network.start(nemesis.run())
    await asyncio.sleep(WORK_SECONDS)
    nemesis.heal()
    workload.history.working = False
    await finish(world, cluster, workload)
    await _check_tables(world, cluster, catalog)
    await world.within(CLEAN_SECONDS, until_clean(cluster), "the bucket is clean after heal")
    world.check(catalog.commits > 0, "nothing became a file: the run proves nothing")


async def _check_tables(world: World, cluster: Cluster, catalog: Tables) -> None:
    """What a table names is there."""
    for stream, table in sorted(catalog.by_stream.items()):
        for path in table.files:
            try:
                await cluster.bucket.read(path)
            except NotFound:
                raise world.violate("a file of a table is gone", stream=stream, path=path) from None


SCENARIOS: Final[dict[str, Scenario]] = {"tables": tables}

PLANTED: Final[dict[str, Scenario]] = {
    "tables/swap-takes-a-row-too-many": planted(tables, (Tasks, "_put_file", bugs.put_over_one_row_more)),
    "tables/the-table-holds-nothing": planted(tables, (Objects, "record_file", bugs.record_without_the_table)),
    "tables/sweep-knows-no-files": planted(tables, (ObjectTable, "counters_of", bugs.counters_of_wal_objects)),
    "tables/given-up-means-unused": planted(tables, (Tasks, "_abandon", bugs.abandon_and_let_go)),
    "tables/reads-behind-the-offset": planted(tables, (ParquetSource, "_rebuild", bugs.rebuild_one_later)),
}
