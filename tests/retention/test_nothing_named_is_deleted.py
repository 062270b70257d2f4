"""Whatever compactors, tables, brokers, clocks and crashes do: what a row, a task, a table or a pin names stays.

Brokers and their retention are the product's, and so is the machine; the table is a list of snapshots here, as a
catalog keeps them, and the compactors are the saga, a step at a time, by brokers that may die between any two.
"""

import pytest

from dray.machine.garbage import Objects, ReleaseFiles
from dray.machine.machine import Machine
from dray.machine.names import ObjectId, StreamId
from dray.machine.objects import ObjectTable, StoredObject
from dray.machine.tasks import (
    AbandonTask,
    CreateTask,
    FilesKnown,
    FilesWritten,
    FinishTask,
    Swap,
    TableCommitted,
    TakeTask,
    Task,
    Tasks,
    TaskState,
    WrittenFile,
)
from dray.machine.topics import TopicState
from dray.sim.planted import replaced
from dray.sim.planted import tables as bugs

from .shop import Broker
from .test_files import put
from .test_nothing_needed_is_deleted import Story, needed


class TableStory(Story):
    """A story in which rows become files, and files fewer files."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.snapshots: dict[StreamId, list[dict[str, tuple[int, int]]]] = {}
        """Of the table of each stream, the newest last: its files, and the offsets in each."""
        self.swaps = self.rewrites = self.released = 0

    def actions(self):
        return [*super().actions(), *[self.compact] * 16, self.release, self.release, self.expire_snapshots]

    # -- who needs what --------------------------------------------------------

    def needed(self) -> set[str]:
        """By the rows, the tasks and every snapshot that is kept, not by any count."""
        found = needed(self.machine)
        for task in self.machine.tasks.by_stream.values():
            if task.state is not TaskState.INDEX_SWAPPED:
                found |= {owner.path() for owner in files_of(self.machine, task)}
        for snapshots in self.snapshots.values():
            found |= {path for snapshot in snapshots for path in snapshot}
        return found

    # -- the compactors ----------------------------------------------------------

    async def compact(self) -> None:
        """The next step for some stream, by some broker."""
        broker, streams = self.broker(), await self.streams()
        await broker.catalog.sync()
        machine = broker.machine
        stream = self.dice.choice([list(machine.tasks.by_stream) or streams, streams[:2]][self.dice.random() < 0.3])
        task, session = machine.tasks.find(stream), broker.catalog.session.id
        if task is None:
            await self.begin(broker, stream)
        elif task.session == session:
            await self.go_on(broker, task)
        elif task.session not in machine.sessions.live:
            await broker.catalog.propose(TakeTask(stream=stream, task=task.id))

    async def begin(self, broker: Broker, number: StreamId) -> None:
        stream, machine = broker.stream(number), broker.machine
        if stream is None or stream.closed:
            return
        hot = machine.streams.first_hot(stream)
        rewrite = hot > 1 and self.dice.random() < 0.5
        first, last = (self.dice.randrange(hot - 1), hot) if rewrite else (hot, len(stream.index))
        if first < last:
            end = stream.index.end_of(self.dice.randint(first + 1, last if rewrite else min(last, first + 2)))
            command = CreateTask(stream=number, start=stream.index.end_of(first), end=end, rewrite=rewrite)
            await broker.catalog.propose(command)

    async def go_on(self, broker: Broker, task: Task) -> None:
        stream = broker.stream(task.stream)
        gone = stream is None or stream.closed
        match task.state:
            case TaskState.INDEX_SWAPPED:
                await broker.catalog.propose(FinishTask(stream=task.stream, task=task.id, limit=2))
            case TaskState.ICEBERG_COMMITTED if not gone:
                await broker.catalog.propose(Swap(stream=task.stream, task=task.id))
                self.swaps += 1
                self.rewrites += task.rewrite
            case _ if gone or self.dice.random() < 0.1:
                await broker.catalog.propose(AbandonTask(stream=task.stream, task=task.id))
            case TaskState.CREATED:
                await self.write(broker, task)
            case TaskState.PARQUET_WRITTEN:
                await self.commit(broker, task)

    async def write(self, broker: Broker, task: Task) -> None:
        path, counter, created_ms = await put(broker, task.stream)
        if self.dice.random() < 0.2:
            self.uncommitted[path] = broker.catalog.session.id  # an attempt that nobody told of
            return
        file = WrittenFile(
            counter=counter, size=6, start=task.start, end=task.end, records=task.end - task.start,
            min_timestamp_ms=created_ms, max_timestamp_ms=created_ms, created_ms=created_ms,
        )  # fmt: skip
        (verdict,) = await broker.catalog.propose(FilesWritten(stream=task.stream, task=task.id, files=(file,)))
        if not isinstance(verdict, FilesKnown):
            self.uncommitted[path] = broker.catalog.session.id

    async def commit(self, broker: Broker, task: Task) -> None:
        """The table first; then perhaps nobody hears of it (R-156)."""
        kept = self.snapshots.setdefault(task.stream, [])
        newest = dict(kept[-1]) if kept else {}
        files = {owner.path(): (owner.file.start, owner.file.end) for owner in files_of(broker.machine, task)}
        if not files.keys() <= newest.keys():
            old = [path for path, (start, end) in newest.items() if task.start < end and start < task.end]
            for path in old:
                del newest[path]
            kept.append(newest | files)
        if self.dice.random() < 0.8:
            await broker.catalog.propose(TableCommitted(stream=task.stream, task=task.id, commit="c"))

    # -- upkeep ---------------------------------------------------------------

    async def release(self) -> None:
        """Files that only tables name leave them; when no snapshot has one, the machine is told (CP6)."""
        broker = self.broker()
        await broker.catalog.sync()
        for number in list(broker.machine.objects.only_in_table())[:5]:
            owner = broker.machine.objects.find(ObjectId(number))
            if await self.take_out(broker, owner):
                await broker.catalog.propose(ReleaseFiles(objects=(number,)))
                self.released += 1

    async def take_out(self, broker: Broker, owner: StoredObject) -> bool:
        topic, stream = broker.machine.topics.find(owner.file.topic_id), owner.file.stream
        if topic is not None and topic.state is not TopicState.READY:
            return False
        kept = self.snapshots.setdefault(stream, [])
        if topic is None:
            kept.clear()  # its table was dropped
        elif kept and owner.path() in kept[-1]:
            kept.append({path: part for path, part in kept[-1].items() if path != owner.path()})
        return not any(owner.path() in snapshot for snapshot in kept)

    async def expire_snapshots(self) -> None:
        for kept in self.snapshots.values():
            del kept[: self.dice.randint(0, max(0, len(kept) - 1))]

    async def finish(self) -> None:
        """Tasks end, snapshots expire: nothing is left but what somebody needs."""
        while self.machine.tasks.by_stream:
            for broker in self.brokers:
                await broker.catalog.sync()
                for task in list(broker.machine.tasks.by_stream.values()):
                    if task.session not in broker.machine.sessions.live:
                        await broker.catalog.propose(TakeTask(stream=task.stream, task=task.id))
                    elif task.session == broker.catalog.session.id:
                        await self.go_on(broker, task)
        await self.let_go()
        await super().finish()

    async def let_go(self) -> None:
        released = -1
        while self.released > released:
            released = self.released
            for kept in self.snapshots.values():
                del kept[:-1]
            await self.release()


def files_of(machine: Machine, task: Task) -> list[StoredObject]:
    return [machine.objects.find(number) for number in task.files]


async def tell(seed: int, steps: int) -> TableStory:
    print("seed", seed)
    story = TableStory(seed)
    await story.run(steps)
    return story


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_what_a_row_a_task_a_table_or_a_pin_names_is_never_deleted(seed):
    """T14, R-113, R-107, R-108, R-153, R-156, R-202, X7, RT7: 400 random steps, each deletion judged."""
    story = await tell(seed, 400)
    assert story.deletions > 10
    assert story.swaps
    assert story.released


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("seed", range(1_000, 1_050))
async def test_nothing_named_is_deleted_in_a_hundred_thousand_steps(seed):
    """T14: fifty times two thousand."""
    await tell(seed, 2_000)


MISTAKES = {
    "the sweep knows no files": (ObjectTable, "counters_of", bugs.counters_of_wal_objects),
    "a table holds nothing": (Objects, "record_file", bugs.record_without_the_table),
    "what is given up is unused": (Tasks, "_abandon", bugs.abandon_and_let_go),
}


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES)
async def test_mistakes_about_what_is_named_are_found(mistake):
    """T14: planted one by one, each deletes something that is named within the steps that every run makes."""

    async def runs() -> None:
        for seed in range(4):
            await tell(seed, 400)

    with replaced(*MISTAKES[mistake]), pytest.raises(AssertionError):
        await runs()
