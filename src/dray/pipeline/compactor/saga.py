"""The steps of tasks: each a command that is applied before the next effect begins.

    CreateTask ─► files ─► FilesWritten ─► table ─► TableCommitted ─► Swap ─► FinishTask, in slices

Whoever finds the task of a session that has ended goes on where it stopped. A
task without files is given up, which costs nothing. One that has them commits
the very same files: the table tells whether they are in it already (TT1).

Invariants
    CP3  No step is proposed before the effect of the one before is durable:
         files lie in the store before they are named, are named before a table
         can have them, and are in the table before they replace rows.
    CP4  After a commit whose outcome nobody knows the task stays as it is.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dray.errors import Conflict
from dray.machine.command import Command
from dray.machine.machine import Machine
from dray.machine.names import ObjectId, StreamId, domain_of
from dray.machine.objects import StoredObject
from dray.machine.stream import Stream
from dray.machine.tasks import (
    AbandonTask,
    CreateTask,
    FilesKnown,
    FilesWritten,
    FinishTask,
    Swap,
    Swapped,
    TableCommitted,
    TakeTask,
    Task,
    TaskCreated,
    TaskFinished,
    TaskState,
    WrittenFile,
)
from dray.machine.verdict import Refused, Verdict
from dray.objects.port import NoSuchObject, Objects
from dray.pipeline.compactor import telemetry
from dray.replica.replica import Replica
from dray.tables.due import DueStream
from dray.tables.fence import Range
from dray.tables.snapshots import NewFile
from dray.tables.table import FileExchange
from dray.telemetry import logger


class StepRefused(Conflict):
    """The machine did not take a step: somebody else has the task, or its stream is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFiles:
    """The files of a task that wait for the table, as the machine has them."""

    task: Task
    topic: str
    topic_id: bytes
    files: tuple[StoredObject, ...]
    floor: int
    old: tuple[str, ...] = ()
    """Names of the files that a rewrite takes the place of: rows of the index."""
    older: tuple[str, ...] = ()
    """Names of those in its range that no row names any more: the table may have let go of them."""

    def range(self) -> Range:
        return Range(
            partition=self.partition, start=self.task.start, end=self.task.end, floor=self.floor
        )  # fmt: skip

    @property
    def partition(self) -> int:
        file = self.files[0].file
        assert file is not None, "a task names files"
        return file.partition

    def entries(self, address: str) -> list[NewFile]:
        """As the table has them, in the store at this address."""
        return [entry_of(owner, address) for owner in self.files]

    def exchange(self, address: str) -> FileExchange:
        """What a rewrite does to the table."""
        return FileExchange(
            old=tuple(f"{address}/{path}" for path in self.old),
            older=tuple(f"{address}/{path}" for path in self.older), new=tuple(self.entries(address)),
        )  # fmt: skip


def entry_of(owner: StoredObject, address: str) -> NewFile:
    """A file as a table has it, in the store at this address."""
    assert owner.file is not None, "it is one of a stream"
    return NewFile(
        location=f"{address}/{owner.path()}", partition=owner.file.partition, start=owner.file.start,
        end=owner.file.end, rows=owner.file.records, size=owner.size, min_timestamp_ms=owner.file.min_timestamp_ms,
        max_timestamp_ms=owner.file.max_timestamp_ms,
    )  # fmt: skip


class Saga:
    """Moves tasks, in all domains."""

    def __init__(self, replicas: Mapping[int, Replica], objects: Objects, *, tables: bool) -> None:
        self._replicas = replicas
        self._objects = objects
        self._tables = tables

    def replica(self, stream: StreamId) -> Replica:
        return self._replicas[domain_of(stream)]

    async def create(self, due: Sequence[DueStream]) -> dict[StreamId, Task]:
        """Take ranges in hand; those that somebody else has taken, or that have changed, are left out."""
        made = await asyncio.gather(*(self._create(one) for one in due))
        return {task.stream: task for task in made if task is not None}

    async def _create(self, due: DueStream) -> Task | None:
        command = CreateTask(stream=due.stream, start=due.start, end=due.end, rewrite=due.rewrite, table=self._tables)
        verdict = await self._propose(due.stream, command)
        if not isinstance(verdict, TaskCreated):
            logger().info(telemetry.NOT_TAKEN, topic=due.topic, partition=due.partition, reason=_why(verdict))
            return None
        return self.replica(due.stream).machine.tasks.find(due.stream)

    async def written(self, task: Task, files: Sequence[WrittenFile]) -> Task:
        """The files of a task are in the store (CP3)."""
        await self._step(task, FilesWritten(stream=task.stream, task=task.id, files=tuple(files)), FilesKnown)
        return self._now(task)

    async def committed(self, task: Task, commit: str) -> Task:
        """The files of a task are in the table (CP3)."""
        await self._step(task, TableCommitted(stream=task.stream, task=task.id, commit=commit), None)
        return self._now(task)

    async def finish(self, task: Task) -> None:
        """From files in the table, or in the store where there is none, to the end."""
        if task.state is not TaskState.INDEX_SWAPPED:
            await self._step(task, Swap(stream=task.stream, task=task.id), Swapped)
        left = 1
        while left:
            verdict = await self._step(task, FinishTask(stream=task.stream, task=task.id), TaskFinished)
            assert isinstance(verdict, TaskFinished)
            left = verdict.left

    async def abandon(self, task: Task) -> None:
        await self._step(task, AbandonTask(stream=task.stream, task=task.id), None)

    async def take_over(self) -> list[Task]:
        """The tasks of sessions that have ended, and ours that were left over: they are ours now.

        Those without files are given up at once.
        """
        found = []
        for replica in self._replicas.values():
            session = await replica.open_session()
            for task in list(replica.machine.tasks.by_stream.values()):
                if task.session != session.id and not await self._take(replica, task):
                    continue
                if task.state is TaskState.CREATED:
                    await self.abandon(task)
                else:
                    found.append(self._now(task))
        return found

    async def _take(self, replica: Replica, task: Task) -> bool:
        if task.session in replica.machine.sessions.live:
            return False
        verdict = await self._propose(task.stream, TakeTask(stream=task.stream, task=task.id))
        return not isinstance(verdict, Refused)

    async def is_whole(self, task: Task) -> bool:
        """Whether its files are in the store as they were named."""
        for owner in self.files_of(task):
            try:
                if (await self._objects.head(owner.path())).size != owner.size:
                    return False
            except NoSuchObject:
                return False
        return True

    def files_of(self, task: Task) -> tuple[StoredObject, ...]:
        objects = self.replica(task.stream).machine.objects
        found = [objects.find(ObjectId(number)) for number in task.files]
        return tuple(owner for owner in found if owner is not None)

    def waiting(self, task: Task) -> TaskFiles | None:
        """What the table is to get; None if the topic is gone."""
        machine = self.replica(task.stream).machine
        stream = machine.streams.find(task.stream)
        catalog = self._replicas[0].machine
        topic = None if stream is None or stream.closed else catalog.topics.find(stream.topic_id)
        if stream is None or topic is None:
            return None
        found = TaskFiles(task=task, topic=topic.name, topic_id=topic.id, files=self.files_of(task), floor=stream.start)
        if not task.rewrite:
            return found
        old, older = self._replaced(machine, stream, task)
        return replace(found, old=old, older=older)

    def _replaced(self, machine: Machine, stream: Stream, task: Task) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The files whose rows a rewrite holds: named by rows, or, where the log has dropped those, by nobody."""
        index, objects = stream.index, machine.objects
        first, end = index.count_below(task.start), index.count_below(task.end)
        rows = {index.row(number).object for number in range(first, end)} - set(task.files)
        others = {
            number
            for number, file in objects.files.items()
            if file.stream == stream.id and file.held and task.start < file.end and file.start < task.end
        }
        old, older = (
            tuple(owner.path() for owner in map(objects.find, sorted(numbers)) if owner is not None)
            for numbers in (rows, others - rows - set(task.files))
        )
        return old, older

    def _now(self, task: Task) -> Task:
        found = self.replica(task.stream).machine.tasks.find(task.stream)
        if found is None or found.id != task.id:
            raise StepRefused("the task is gone", stream=task.stream, task=task.id)
        return found

    async def _step(self, task: Task, command: Command, wanted: type[Verdict] | None) -> Verdict:
        verdict = await self._propose(task.stream, command)
        if isinstance(verdict, Refused) or (wanted is not None and not isinstance(verdict, wanted)):
            raise StepRefused(
                "the machine refused a step", step=type(command).__name__, stream=task.stream, reason=_why(verdict)
            )
        return verdict

    async def _propose(self, stream: StreamId, command: Command) -> Verdict:
        (verdict,) = await self.replica(stream).propose(command)
        return verdict


def _why(verdict: Verdict) -> str:
    return verdict.reason if isinstance(verdict, Refused) else type(verdict).__name__
