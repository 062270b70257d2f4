"""A table made anew from the index: metadata alone, no Spark, no file opened.

What the table must show is told by the machine: the files of its rows, those of
tasks that are on their way through the table, and, where the table keeps what
the log drops, those that the log start has passed. The table is loaded first
and the log asked after it (TR1): what a compactor commits in between makes the
commit here fail, and everything is looked at again.

Invariants
    CP7  After it each offset that is in files is in the table once, whatever
         was there before; tasks under way find their ranges fresh, or there.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from dray.errors import DrayError
from dray.ids import Entropy
from dray.machine.command import MAX_ROWS
from dray.machine.garbage import FilesHeld, HoldFiles
from dray.machine.machine import Machine
from dray.machine.names import ObjectId, StreamId, domain_of
from dray.machine.objects import StoredObject
from dray.machine.stream import Stream
from dray.machine.tasks import Task, TaskState
from dray.machine.topics import Topic
from dray.offload import Offload
from dray.pipeline.compactor.saga import entry_of
from dray.replica.replica import Replica
from dray.tables.due import committed_until
from dray.tables.errors import TableCommitUnknown
from dray.tables.mending import FoundTable, Mending, load_for_mending, mend
from dray.tables.table import TableOwner, TopicTables

ATTEMPTS: Final = 8
SLICE: Final = 1_000
assert SLICE <= MAX_ROWS, "a command takes so many objects"


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedFiles:
    """What a table must show."""

    files: tuple[StoredObject, ...]
    ends: dict[int, int]
    """How far each partition is then."""
    until_ms: int


class Rebuilder:
    """Makes tables anew."""

    def __init__(
        self,
        replicas: Mapping[int, Replica],
        tables: TopicTables,
        offload: Offload,
        entropy: Entropy,
        cluster_id: str,
        *,
        keep: bool,
    ) -> None:
        self._replicas = replicas
        self._tables = tables
        self._offload = offload
        self._entropy = entropy
        self._cluster_id = cluster_id
        self._keep = keep

    async def run(self, topic: Topic) -> Mending:
        """Let the table of a topic show what the log says.

        Raises:
            CatalogUnavailable: nothing was done.
            TableCommitUnknown: nobody knows; calling again settles it.
            TableTaken: the name is another's.
        """
        owner = TableOwner(name=topic.name, topic_id=topic.id, cluster_id=self._cluster_id)
        cause: Exception | None = None
        for _ in range(ATTEMPTS):
            found = await self._offload.run(load_for_mending, self._tables, owner)
            for replica in self._replicas.values():
                await replica.sync()  # TR1
            wanted = self.wanted(topic, found.shown)
            if not await self._hold(wanted):
                continue  # the log has dropped one of them meanwhile
            try:
                return await self._offload.run(self._mend, found, wanted)
            except DrayError:
                raise
            except Exception as error:  # it tells nothing; the next look does
                cause = error
        raise TableCommitUnknown(
            "the catalog did not confirm a commit", topic=topic.name, reason=f"{type(cause).__name__}: {cause}"[:300]
        ) from cause

    def _mend(self, found: FoundTable, wanted: WantedFiles) -> Mending:
        files = [entry_of(owner, self._tables.store.address) for owner in wanted.files]
        return mend(self._tables, found, files, wanted.ends, self._entropy.random_bytes(16).hex(), wanted.until_ms)

    def has_kept(self, topic_id: bytes) -> bool:
        """Whether the table of a topic is to show what the log has dropped."""
        return self._keep and any(
            owner.file is not None and owner.file.topic_id == topic_id
            for replica in self._replicas.values()
            for owner in passed_files(replica.machine)
        )

    def wanted(self, topic: Topic, shown: Collection[str]) -> WantedFiles:
        """What the table of a topic must show now, which shows these locations."""
        kept = self._passed(topic) if self._keep else {}
        files: list[StoredObject] = []
        ends: dict[int, int] = {}
        for number in topic.streams[: topic.visible]:
            machine = self._replicas[domain_of(number)].machine
            stream = machine.streams.find(number)
            if stream is None or stream.closed:
                continue
            found = self._of_stream(machine, stream, shown)
            earlier = uncovered(kept.get(number, []), found)
            files += [*earlier, *found]
            end = max((owner.file.end for owner in (*earlier, *found) if owner.file is not None), default=None)
            if end is not None:
                ends[stream.partition] = end
        machines = {domain: replica.machine for domain, replica in self._replicas.items()}
        return WantedFiles(files=tuple(files), ends=ends, until_ms=committed_until(machines, topic, ends))

    def _of_stream(self, machine: Machine, stream: Stream, shown: Collection[str]) -> list[StoredObject]:
        """The files of its rows, and those of a task whose commit is in the table."""
        index, objects = stream.index, machine.objects
        numbers = files_of_rows(machine, stream)
        task = machine.tasks.find(stream.id)
        if task is not None and self._is_committed(machine, task, shown):
            taken = range(index.count_below(task.start), index.count_below(task.end)) if task.rewrite else range(0)
            numbers = [one for at, one in enumerate(numbers) if at not in taken] + list(task.files)
        found = [objects.find(ObjectId(number)) for number in numbers]
        return [owner for owner in found if owner is not None]

    def _is_committed(self, machine: Machine, task: Task, shown: Collection[str]) -> bool:
        if task.state is TaskState.PARQUET_WRITTEN and task.table:
            owners = [machine.objects.find(number) for number in task.files]
            address = self._tables.store.address
            return all(owner is not None and f"{address}/{owner.path()}" in shown for owner in owners)
        return task.state is TaskState.ICEBERG_COMMITTED

    def _passed(self, topic: Topic) -> dict[StreamId, list[StoredObject]]:
        """What the log start has passed and the table keeps."""
        found: dict[StreamId, list[StoredObject]] = {}
        for replica in self._replicas.values():
            for owner in passed_files(replica.machine):
                assert owner.file is not None, "it is one of a stream"
                if owner.file.topic_id == topic.id:
                    found.setdefault(owner.file.stream, []).append(owner)
        return found

    async def _hold(self, wanted: WantedFiles) -> bool:
        """Files that were in no table: from here on they are not garbage before it lets go of them."""
        by_domain: dict[int, list[ObjectId]] = {}
        for owner in wanted.files:
            if owner.file is not None and not owner.file.held:
                by_domain.setdefault(owner.domain, []).append(owner.id)
        for domain, numbers in by_domain.items():
            for at in range(0, len(numbers), SLICE):
                asked = tuple(numbers[at : at + SLICE])
                (verdict,) = await self._replicas[domain].propose(HoldFiles(objects=asked))
                if not isinstance(verdict, FilesHeld) or verdict.objects != asked:
                    return False
        return True


def files_of_rows(machine: Machine, stream: Stream) -> list[ObjectId]:
    return [stream.index.row(number).object for number in range(machine.streams.first_hot(stream))]


def kept_files(machine: Machine) -> set[ObjectId]:
    """What tables keep of what the log start has passed: not what was written again."""
    by_stream: dict[StreamId, list[StoredObject]] = {}
    for owner in passed_files(machine):
        assert owner.file is not None, "it is one of a stream"
        by_stream.setdefault(owner.file.stream, []).append(owner)
    kept: set[ObjectId] = set()
    for number, passed in by_stream.items():
        stream = machine.streams.find(number)
        rows = [] if stream is None else [machine.objects.find(one) for one in files_of_rows(machine, stream)]
        kept |= {owner.id for owner in uncovered(passed, [owner for owner in rows if owner is not None])}
    return kept


def passed_files(machine: Machine) -> Iterator[StoredObject]:
    """Files that only a table can show, because the log start has passed them."""
    for number in machine.objects.only_in_table():
        owner = machine.objects.find(number)
        if owner is not None and owner.file is not None and owner.file.passed:
            yield owner


def uncovered(kept: Collection[StoredObject], found: Collection[StoredObject]) -> list[StoredObject]:
    """Those whose rows no other file holds: one that was written again is covered by what it became."""
    numbers = {owner.id for owner in kept}
    spans = [(owner.file.start, -owner.file.end, owner) for owner in (*found, *kept) if owner.file is not None]
    left, reached = [], -1
    for _, end, owner in sorted(spans, key=lambda span: span[:2]):
        if -end > reached and owner.id in numbers:
            left.append(owner)
        reached = max(reached, -end)
    return left
