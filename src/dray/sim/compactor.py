"""A compactor for the simulator: the saga of `dray.machine.tasks` with real files, on a catalog that may lose answers.

It runs in the process of a broker and reads through its store. There is no
Spark in it and no Iceberg: `Tables` keeps what a catalog keeps of a table, a
version, how far each stream has come and which files there are, and takes a
commit only on the version that its writer had seen.
"""

import asyncio
import io
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from dray.errors import DrayError, Unavailable, Unknown
from dray.machine.garbage import ReleaseFiles
from dray.machine.machine import Machine
from dray.machine.names import ObjectId, SessionId, StreamId, wal_id
from dray.machine.objects import StoredObject
from dray.machine.tasks import (
    AbandonTask,
    CreateTask,
    FilesWritten,
    FinishTask,
    Swap,
    TableCommitted,
    TakeTask,
    Task,
    TaskState,
    WrittenFile,
)
from dray.objects.paths import ObjectKind, ParquetName
from dray.parquet.footer import footer_bytes
from dray.parquet.read import COLUMNS, footer_of, tables_of
from dray.parquet.write import ParquetFile
from dray.records import one_batch
from dray.records.arrow import to_arrow
from dray.sim.brokers import Broker
from dray.sim.world import World


@dataclass(slots=True)
class Table:
    """What a catalog knows of the table of one stream."""

    version: int = 0
    upto: int = 0
    """The rows below are in it, or never were."""
    files: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The offsets of each file, by its name."""


class Tables:
    """The catalog: outside of all processes. Commits may be late, and their answers may be lost."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.by_stream: dict[StreamId, Table] = {}
        self.commits = 0
        self._dice = world.dice("catalog")

    async def load(self, stream: StreamId) -> Table:
        """The table as it is now."""
        await asyncio.sleep(self._dice.random() * 0.2)
        found = self.by_stream.setdefault(stream, Table())
        return Table(found.version, found.upto, dict(found.files))

    async def commit(self, stream: StreamId, seen: Table, add: dict[str, tuple[int, int]], remove: list[str]) -> None:
        """Change a table, if it is still the one that was seen.

        Raises:
            Unavailable: it is not; nothing happened.
            Unknown: it may have happened, or may happen later.
        """
        kind = self._dice.random()
        if kind < 0.05:
            raise Unknown("the catalog did not answer: it never heard of it", stream=stream)
        if kind < 0.15:
            self.world.network.start(self._land_late(stream, seen, add, remove))
            raise Unknown("the catalog did not answer: the request is under way", stream=stream)
        await asyncio.sleep(self._dice.random() ** 3 * 4)
        self._land(stream, seen, add, remove)
        await asyncio.sleep(self._dice.random() ** 3 * 2)
        if self._dice.random() < 0.2:
            raise Unknown("the catalog did not answer", stream=stream)

    async def _land_late(
        self, stream: StreamId, seen: Table, add: dict[str, tuple[int, int]], remove: list[str]
    ) -> None:
        """A request that its sender has given up is heard all the same."""
        await asyncio.sleep(self._dice.random() * 20)
        with suppress(Unavailable):
            self._land(stream, seen, add, remove)

    def _land(self, stream: StreamId, seen: Table, add: dict[str, tuple[int, int]], remove: list[str]) -> None:
        table = self.by_stream[stream]
        if table.version != seen.version:
            raise Unavailable("the table has moved on", stream=stream)
        for path in remove:
            table.files.pop(path, None)
        for start, end in add.values():
            taken = [one for one in table.files.values() if one[0] < end and start < one[1]]
            self.world.check(not taken, "a row is in the table twice", stream=stream, start=start, end=end, there=taken)
        table.files |= add
        table.upto = max([table.upto, *(end for _, end in add.values())])
        table.version += 1
        self.commits += 1
        self.world.trace.add("catalog", "committed", stream=stream, add=len(add), remove=len(remove))

    def names(self, path: str) -> bool:
        """Is a file in any table?"""
        return any(path in table.files for table in self.by_stream.values())


class Compactor:
    """One of perhaps several, each in the process of a broker."""

    def __init__(self, broker: Broker, tables: Tables, dice: Random) -> None:
        self._broker = broker
        self._replica = broker.replica
        self._store = broker.services.plane.objects
        self._tables = tables
        self._dice = dice

    async def run(self) -> None:
        """Look for work, for ever."""
        while True:
            await asyncio.sleep(self._dice.random() * 2)
            try:
                await self.step()
            except DrayError:
                continue

    async def step(self) -> None:
        """One step of one stream's saga, or of what its table holds for nobody."""
        await self._replica.sync()
        session = await self._replica.open_session()
        machine = self._replica.machine
        streams = sorted({*machine.streams.open, *machine.tasks.by_stream})
        if not streams:
            return
        stream = self._dice.choice(streams)
        task = machine.tasks.find(stream)
        if self._dice.random() < 0.25:
            await self._let_go(machine)
        elif task is None:
            await self._begin(machine, stream)
        elif task.session != session.id:
            if task.session not in machine.sessions.live:
                await self._replica.propose(TakeTask(stream=stream, task=task.id))
        else:
            await self._go_on(machine, task, session.id)

    async def _begin(self, machine: Machine, number: StreamId) -> None:
        stream = machine.streams.find(number)
        if stream is None or stream.closed:
            return
        index, hot = stream.index, machine.streams.first_hot(stream)
        rewrite = hot > 1 and self._dice.random() < 0.3
        first = self._dice.randrange(hot - 1) if rewrite else hot
        last = hot if rewrite else len(index)
        if first < last:
            end = index.end_of(self._dice.randint(first + 1, last))
            start = index.end_of(first)
            await self._replica.propose(CreateTask(stream=number, start=start, end=end, rewrite=rewrite))

    async def _go_on(self, machine: Machine, task: Task, session: SessionId) -> None:
        stream = machine.streams.find(task.stream)
        gone = stream is None or stream.closed
        match task.state:
            case TaskState.INDEX_SWAPPED:
                await self._replica.propose(FinishTask(stream=task.stream, task=task.id, limit=2))
            case TaskState.ICEBERG_COMMITTED:
                await self._replica.propose(Swap(stream=task.stream, task=task.id))
            case _ if gone or self._dice.random() < 0.1:
                await self._replica.propose(AbandonTask(stream=task.stream, task=task.id))
            case TaskState.CREATED:
                await self._write(machine, task, session)
            case TaskState.PARQUET_WRITTEN:
                await self._commit(task)

    async def _write(self, machine: Machine, task: Task, session: SessionId) -> None:
        stream = machine.streams.find(task.stream)
        assert stream is not None
        rows = [row for row in stream.index.rows(0) if task.start < row.end <= task.end]
        owners = [machine.objects.find(row.object) for row in rows]
        if not rows or rows[-1].end != task.end or None in owners:
            await self._replica.propose(AbandonTask(stream=task.stream, task=task.id))
            return
        sink = io.BytesIO()
        file = ParquetFile(sink, stream.partition)
        for row, owner in zip(rows, owners, strict=True):
            assert owner is not None
            await self._copy(file, owner, row.start, row.position, row.size)
        facts, content = file.finish(), sink.getvalue()
        live = self._replica.session
        if live is None or live.id != session:
            return
        counter, created_ms = live.take_counter(), machine.time_ms
        path = ParquetName.of(
            topic_id=stream.topic_id, partition=stream.partition, domain=machine.domain, created_ms=created_ms,
            file_id=wal_id(machine.log_id, session, counter),
        ).path()  # fmt: skip
        await self._store.put(path, [content])
        written = WrittenFile(
            counter=counter, size=len(content), start=task.start, end=task.end, records=facts.rows,
            min_timestamp_ms=facts.min_timestamp_ms, max_timestamp_ms=facts.max_timestamp_ms, created_ms=created_ms,
            footer_crc=facts.footer_crc,
        )  # fmt: skip
        await self._replica.propose(FilesWritten(stream=task.stream, task=task.id, files=(written,)))

    async def _copy(self, file: ParquetFile, owner: StoredObject, start: int, position: int, size: int) -> None:
        """Put the rows of one row of the index into a file."""
        if owner.kind is ObjectKind.WAL:
            view = one_batch(await self._store.get(owner.path(), position, position + size))
            file.write(to_arrow([(view, start)]), append_time=view.has_append_time)
            return
        content = await self._store.get(owner.path())
        footer = footer_of(content[len(content) - footer_bytes(content) :], len(content))
        for group in footer.groups:
            part = content[group.position : group.position + group.size]
            for found in tables_of(footer, group.number, part, COLUMNS):
                kept = found.filter([offset >= start for offset in found.column("offset").to_pylist()])
                file.write(kept.drop_columns(["attributes"]), append_time=False)

    async def _commit(self, task: Task) -> None:
        """The table first. What was seen of it comes before the look at who has the task: a late commit fails."""
        seen = await self._tables.load(task.stream)
        await self._replica.sync()
        machine = self._replica.machine
        files = {}
        for number in task.files:
            found = machine.objects.find(number)
            if machine.tasks.find(task.stream) != task or found is None or found.file is None:
                return
            files[found.path()] = (found.file.start, found.file.end)
        if not files.keys() <= seen.files.keys():
            if not task.rewrite and seen.upto > task.start:
                await self._replica.propose(AbandonTask(stream=task.stream, task=task.id))
                return
            old = [path for path, (start, end) in seen.files.items() if task.start < end and start < task.end]
            await self._tables.commit(task.stream, seen, files, old if task.rewrite else [])
        await self._replica.propose(TableCommitted(stream=task.stream, task=task.id, commit=f"task-{task.id}"))

    async def _let_go(self, machine: Machine) -> None:
        """Files that no row and no task names leave their table; then nobody can bring them back into it."""
        for number in list(machine.objects.only_in_table())[:5]:
            found = machine.objects.find(ObjectId(number))
            if found is not None and found.file is not None:
                seen = await self._tables.load(found.file.stream)
                await self._tables.commit(found.file.stream, seen, {}, [found.path()])
                await self._replica.propose(ReleaseFiles(objects=(number,)))
