"""One cycle: everything that is due, from WAL objects to the index, in one job of Spark and one commit for each table.

    take over ─► due ─► pin ─► CreateTask ─► Spark ─► FilesWritten ─► one commit a table ─► Swap ─► FinishTask ─► unpin

Each table, and each range within it, fails alone; what is left is taken over
by the next cycle, of this process or of another.

Invariants
    CP5  What a job reads is pinned before it is planned, for as long as it
         runs: retention and deletion do not pull objects away under it (X3).
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final, Protocol

from dray.clock import Clock
from dray.errors import DrayError, Unavailable
from dray.machine.garbage import Pin, Pinned, Unpin
from dray.machine.machine import Machine
from dray.machine.names import StreamId, TopicId
from dray.machine.tasks import Task, TaskState, WrittenFile
from dray.objects.paths import ParquetName
from dray.offload import Offload
from dray.pipeline.compactor import telemetry
from dray.pipeline.compactor.rebuild import Rebuilder
from dray.pipeline.compactor.saga import Saga, TaskFiles
from dray.pipeline.compactor.standing import PROBLEMS, StandingTables
from dray.pipeline.compactor.worker import ATTEMPTS, FileJob, JobOutcome
from dray.pipeline.plan import Span, pieces_of
from dray.replica.replica import Replica
from dray.tables.due import DueRules, DueStream, committed_until, due_streams, table_ends
from dray.tables.options import TopicDone
from dray.tables.rewrites import RewriteRules, rewrites
from dray.tables.table import ChangeDone, TableChange, TableOwner, TopicTables
from dray.telemetry import logger
from dray.wal.ids import wal_id

PIN: Final = "compaction"
LOOK_NS: Final = 60_000_000_000
"""Small files are looked for no more often: each of them is looked at."""


class RunJobs(Protocol):
    """Writes the files of jobs; Spark in a compactor. It blocks."""

    def __call__(self, jobs: Sequence[FileJob]) -> list[JobOutcome]: ...


@dataclass(slots=True, kw_only=True)
class TopicTally:
    """What was done for a topic."""

    partitions: int = 0
    records: int = 0
    bytes: int = 0
    files: int = 0
    file_bytes: int = 0
    rewritten: int = 0
    """Small files whose place others have taken."""
    failures: list[str] = field(default_factory=list)

    def told(self, topic: str) -> TopicDone:
        return TopicDone(
            topic=topic, partitions=self.partitions, records=self.records, bytes=self.bytes, files=self.files,
            file_bytes=self.file_bytes, rewritten=self.rewritten, state="failed" if self.failures else "done",
            reason="; ".join(dict.fromkeys(self.failures))[:500],
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """The files of one task, and their names."""

    due: DueStream
    task: Task
    created_ms: int
    jobs: tuple[FileJob, ...]
    counters: tuple[tuple[int, ...], ...]


class Compactor:
    """All domains of a cluster, compacted by one process; there may be others."""

    def __init__(
        self,
        replicas: Mapping[int, Replica],
        saga: Saga,
        tables: TopicTables | None,
        run_jobs: RunJobs,
        rules: DueRules,
        clock: Clock,
        offload: Offload,
        cycle_size: int,
        cluster_id: str,
        rewriting: RewriteRules | None = None,
        standing: StandingTables | None = None,
        rebuilder: Rebuilder | None = None,
    ) -> None:
        self._replicas = replicas
        self._saga = saga
        self._tables = tables
        self._run_jobs = run_jobs
        self._rules = rules
        self._clock = clock
        self._offload = offload
        self._cycle_size = cycle_size
        self._cluster_id = cluster_id
        self._rewriting = rewriting
        self._standing = standing
        self._rebuilder = rebuilder
        self._looked_ns: int | None = None
        self._tallies: dict[str, TopicTally] = {}

    def due(self, topic: str | None = None) -> list[DueStream]:
        """What is due now, the oldest first, no more than a cycle may take."""
        machines = {domain: replica.machine for domain, replica in self._replicas.items()}
        found = sorted(due_streams(machines, self._rules, topic), key=lambda one: -one.age_ms)
        found += self._small_files(machines, topic, {one.stream for one in found})
        if self._standing is not None:
            found = [one for one in found if not self._standing.stands(one.topic_id)]
        taken: list[DueStream] = []
        size = 0
        for one in found:
            if taken and size + one.size > self._cycle_size:
                break
            taken.append(one)
            size += one.size
        return taken

    def _small_files(
        self, machines: dict[int, Machine], topic: str | None, besides: Collection[StreamId]
    ) -> list[DueStream]:
        """Files that should become fewer, of streams that have nothing newer to do; looked for now and then."""
        now_ns = self._clock.boot_ns()
        waits = topic is None and self._looked_ns is not None and now_ns < self._looked_ns + LOOK_NS
        if self._rewriting is None or waits:
            return []
        self._looked_ns = now_ns
        return [one for one in rewrites(machines, self._rewriting, topic) if one.stream not in besides]

    async def run(self, topic: str | None = None) -> dict[str, TopicTally]:
        """One cycle; what it did, by topic.

        Raises:
            Unavailable: the log does not answer.
        """
        self._tallies = defaultdict(TopicTally)
        for replica in self._replicas.values():
            await replica.sync()
        if self._standing is not None:
            try:
                await self._standing.look(topic)
            except DrayError as error:
                logger().warning(telemetry.FAILED, topic=topic or "", reason=str(error))
        await self._go_on(await self._saga.take_over())
        due = self.due(topic)
        if due:
            async with self._pinned():
                await self._compact(due)
        return dict(self._tallies)

    @asynccontextmanager
    async def _pinned(self) -> AsyncIterator[None]:
        """CP5"""
        for replica in self._replicas.values():
            (verdict,) = await replica.propose(Pin(pin=PIN))
            if not isinstance(verdict, Pinned):
                raise Unavailable("a pin was refused", verdict=verdict)
        try:
            yield
        finally:
            for replica in self._replicas.values():
                with suppress(DrayError):  # it ends with the session, too
                    await replica.propose(Unpin(pin=PIN))

    async def _compact(self, due: Sequence[DueStream]) -> None:
        tasks = await self._saga.create(due)
        planned = [await self._plan(one, tasks[one.stream]) for one in due if one.stream in tasks]
        numbered = _numbered(planned)
        jobs = [job for one in numbered for job in one.jobs]
        try:
            outcomes = {outcome.number: outcome for outcome in await self._offload.run(self._run_jobs, jobs)}
        except DrayError as error:
            for one in numbered:
                await self._give_up(one.task, one.due.topic, str(error))
            return
        named = await asyncio.gather(*(self._name_files(one, outcomes) for one in numbered))
        await self._into_tables(task for task in named if task is not None)

    async def _plan(self, due: DueStream, task: Task) -> _Planned:
        replica = self._saga.replica(due.stream)
        session = await replica.open_session()
        created_ms = session.stamp_ms(self._clock.wall_ms(), self._clock.boot_ns())
        stream = replica.machine.streams.find(due.stream)
        jobs: list[FileJob] = []
        counters: list[tuple[int, ...]] = []
        start = due.start
        for end in due.cuts if stream is not None else ():
            assert stream is not None
            given = tuple(session.take_counter() for _ in range(ATTEMPTS))
            counters.append(given)
            ids = [wal_id(replica.machine.log_id, session.id, counter) for counter in given]
            paths = tuple(
                ParquetName.of(
                    topic_id=due.topic_id, partition=due.partition, domain=due.domain, created_ms=created_ms,
                    file_id=one,
                ).path()
                for one in ids
            )  # fmt: skip
            span = Span(topic=due.topic, stream=stream, start=start, end=end)
            jobs.append(
                FileJob(
                    number=0, partition=due.partition, start=start, end=end,
                    pieces=tuple(pieces_of(replica.machine, span)), paths=paths,
                )
            )  # fmt: skip
            start = end
        return _Planned(due=due, task=task, created_ms=created_ms, jobs=tuple(jobs), counters=tuple(counters))

    async def _name_files(self, planned: _Planned, outcomes: Mapping[int, JobOutcome]) -> Task | None:
        """Tell the machine of the files of a task; give it up if one of them is missing."""
        if not planned.jobs:
            await self._give_up(planned.task, planned.due.topic, "the topic was deleted")
            return None
        files = []
        for job, counters in zip(planned.jobs, planned.counters, strict=True):
            outcome = outcomes.get(job.number)
            if outcome is None or outcome.facts is None:
                reason = "Spark gave no answer" if outcome is None else outcome.failure
                await self._give_up(planned.task, planned.due.topic, reason)
                return None
            facts = outcome.facts
            files.append(
                WrittenFile(
                    counter=counters[outcome.attempt % len(counters)], size=facts.size, start=facts.start,
                    end=facts.end, records=facts.rows, min_timestamp_ms=facts.min_timestamp_ms,
                    max_timestamp_ms=facts.max_timestamp_ms, created_ms=planned.created_ms, footer_crc=facts.footer_crc,
                )
            )  # fmt: skip
        try:
            task = await self._saga.written(planned.task, files)
        except DrayError as error:
            await self._give_up(planned.task, planned.due.topic, str(error))
            return None
        tally = self._tallies[planned.due.topic]
        tally.partitions += 1
        tally.bytes += sum(job.bytes for job in planned.jobs)
        return task

    async def _give_up(self, task: Task, topic: str, reason: str) -> None:
        self._tell_failure(topic, reason)
        with suppress(DrayError):
            await self._saga.abandon(task)

    def _tell_failure(self, topic: str, reason: str) -> None:
        logger().warning(telemetry.FAILED, topic=topic, reason=reason)
        self._tallies[topic].failures.append(reason)

    async def _go_on(self, tasks: Sequence[Task]) -> None:
        """With tasks that have files: of others, or of ours whose commit nobody knew."""
        tasks = [task for task in tasks if not self._waits(task)]
        if tasks:
            logger().info(telemetry.TAKEN_OVER, tasks=len(tasks))
        waiting = []
        for task in tasks:
            if task.state is TaskState.PARQUET_WRITTEN and task.table:
                if self._saga.waiting(task) is not None and not await self._saga.is_whole(task):
                    reason = "a file of a task is not in the store as it was written: its records are compacted anew"
                    await self._give_up(task, self._topic_of(task), reason)
                    continue
                waiting.append(task)
            else:
                await self._to_the_end(task)
        await self._into_tables(waiting)

    def _waits(self, task: Task) -> bool:
        """Whether it is for a table that stands still: its files lie where they are until that is mended."""
        if self._standing is None or task.state is not TaskState.PARQUET_WRITTEN or not task.table:
            return False
        waiting = self._saga.waiting(task)
        return waiting is not None and self._standing.stands(waiting.topic_id)

    async def _into_tables(self, tasks: Iterable[Task]) -> None:
        """One commit for each table, then the index (CP3)."""
        by_topic: dict[TableOwner, list[TaskFiles]] = defaultdict(list)
        for task in tasks:
            if not task.table:
                await self._to_the_end(task)
                continue
            waiting = self._saga.waiting(task)
            if waiting is None:
                await self._give_up(task, str(task.stream), "the topic was deleted")
                continue
            name = TableOwner(name=waiting.topic, topic_id=waiting.topic_id, cluster_id=self._cluster_id)
            by_topic[name].append(waiting)
        await asyncio.gather(*(self._commit(name, waiting) for name, waiting in by_topic.items()))

    async def _commit(self, topic: TableOwner, waiting: Sequence[TaskFiles]) -> None:
        if self._tables is None:
            self._tell_failure(topic.name, "a task waits for its table: table.enabled is off")
            return
        if self._standing is not None and self._standing.stands(topic.topic_id):
            return
        address = self._tables.store.address
        new = [one for one in waiting if not one.task.rewrite]
        change = TableChange(
            added=[file for one in new for file in one.entries(address)], ranges=[one.range() for one in new],
            exchanged=[one.exchange(address) for one in waiting if one.task.rewrite],
            until_ms=self._until_ms(topic, new),
            had_rows=self._rebuilder is not None and self._rebuilder.has_kept(topic.topic_id),
        )  # fmt: skip
        try:
            committed = await self._commit_or_mend(topic, change)
        except PROBLEMS as error:
            self._tallies[topic.name].failures.append(str(error))
            if self._standing is not None:
                await self._standing.mark(topic, error)
            return
        except DrayError as error:
            self._tell_failure(topic.name, str(error))  # CP4
            return
        if committed.foreign:
            logger().warning(telemetry.FOREIGN, topic=topic.name, snapshots=committed.foreign)
        await asyncio.gather(*(self._committed(one, topic.name, committed) for one in waiting))

    async def _committed(self, one: TaskFiles, topic: str, committed: ChangeDone) -> None:
        overtaken = committed.overtaken.get(one.partition)
        if overtaken is not None and not one.task.rewrite:
            self._tell_failure(topic, str(overtaken))
            return
        try:
            task = await self._saga.committed(one.task, str(committed.snapshot_id))
        except DrayError as error:
            self._tell_failure(topic, str(error))
            return
        await self._to_the_end(task)

    async def _commit_or_mend(self, topic: TableOwner, change: TableChange) -> ChangeDone:
        """A table that has rows from files which the log does not know is made to show what it knows, once."""
        assert self._tables is not None, "a commit needs a table"
        committed = await self._offload.run(self._tables.commit, topic, change, self._now_ms())
        found = self._replicas[0].machine.topics.find(TopicId(topic.topic_id))
        if not committed.overtaken or self._rebuilder is None or found is None:
            return committed
        done = await self._rebuilder.run(found)
        logger().warning(telemetry.REBUILT, topic=topic.name, added=done.added, removed=done.removed, kept=done.kept)
        return await self._offload.run(self._tables.commit, topic, change, self._now_ms())

    async def _to_the_end(self, task: Task) -> None:
        topic, files, replaced = self._topic_of(task), self._saga.files_of(task), self._saga.waiting(task)
        try:
            await self._saga.finish(task)
        except DrayError as error:
            self._tell_failure(topic, str(error))
            return
        tally = self._tallies[topic]
        tally.files += len(files)
        tally.file_bytes += sum(owner.size for owner in files)
        if task.rewrite:
            tally.rewritten += 0 if replaced is None else len(replaced.old)
        else:
            tally.records += sum(owner.file.records for owner in files if owner.file is not None)

    def _topic_of(self, task: Task) -> str:
        waiting = self._saga.waiting(task)
        return str(task.stream) if waiting is None else waiting.topic

    def _until_ms(self, topic: TableOwner, new: Sequence[TaskFiles]) -> int:
        """How far in time the table is when these are in it."""
        machines = {domain: replica.machine for domain, replica in self._replicas.items()}
        found = machines[0].topics.find(TopicId(topic.topic_id))
        if found is None:
            return 0
        ends = {one.partition: one.task.end for one in new}
        return min(self._now_ms(), committed_until(machines, found, table_ends(machines, found) | ends))

    def _now_ms(self) -> int:
        """No later than the log says: what a clock that is ahead would expire is not lost."""
        return min(self._clock.wall_ms(), self._replicas[0].machine.timeline.time_ms)


def _numbered(planned: Sequence[_Planned]) -> list[_Planned]:
    """The same jobs, each with a number of its own."""
    numbers = count()
    return [replace(one, jobs=tuple(replace(job, number=next(numbers)) for job in one.jobs)) for one in planned]
