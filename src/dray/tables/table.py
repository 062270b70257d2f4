"""The table of a topic: made when it is first needed, changed by whole commits, each row in it once.

A commit is one call of the catalog, whatever it holds: new files, files that
take the place of others, files that go, snapshots that expire. It is staged
against the table as it was just loaded and lands on that state or not at all.

Whatever the catalog answers, an exception tells nothing: the table is loaded
again, and its fence and its files tell whether the rows are in it. If they are
not, the change is staged anew. Nothing that was written for a commit is deleted
because of an answer; what no commit names is found by `clean`.

Invariants
    TT1  A row of a range is in the table once, however often its commit was
         tried, lost or repeated, and by whomever (TF1).
    TT2  Nothing is deleted after an unknown outcome.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import ExpireSnapshots
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from dray.ids import Entropy
from dray.tables import fence
from dray.tables.catalog import PLACE, is_lower_casing
from dray.tables.errors import (
    CatalogUnavailable,
    RowsThere,
    TableChanged,
    TableCommitUnknown,
    TableDropped,
    TableLost,
    TableTaken,
)
from dray.tables.fence import FenceState, Range
from dray.tables.io import BoundStore, OutsideStore
from dray.tables.names import escaped
from dray.tables.snapshots import (
    COMMIT_ID,
    COMMITTED_UNTIL,
    LAST_COMMIT,
    OFFSETS,
    InUse,
    NewFile,
    check_foreign,
    expired,
    foreign,
    present,
    reached,
    until_of,
)
from dray.tables.transaction import ExchangedFiles, Staged

ATTEMPTS: Final = 8
CLEAN_GRACE_MS: Final = 3_600_000
UNTIL_MS: Final = 3_600_000
"""A table that gets nothing new tells this often that it has everything."""
TOPIC: Final = "dray.topic"
TOPIC_ID: Final = "dray.topic-id"
CLUSTER_ID: Final = "dray.cluster-id"
SCHEMA: Final = Schema(
    NestedField(1, "partition", IntegerType(), required=True),
    NestedField(2, "offset", LongType(), required=True),
    NestedField(3, "timestamp", TimestamptzType(), required=True),
    NestedField(4, "key", BinaryType()),
    NestedField(5, "value", BinaryType()),
    NestedField(
        6,
        "headers",
        ListType(
            element_id=12,
            element=StructType(
                NestedField(13, "key", StringType(), required=True), NestedField(14, "value", BinaryType())
            ),
            element_required=True,
        ),
        required=True,
    ),
    NestedField(7, "producer_id", LongType()),
    NestedField(8, "producer_epoch", IntegerType()),
    NestedField(9, "base_sequence", IntegerType()),
    NestedField(10, "attributes", IntegerType(), required=True),
    NestedField(11, "record_crc", IntegerType()),
)
SPEC: Final = PartitionSpec(PartitionField(source_id=1, field_id=1000, transform=IdentityTransform(), name="partition"))
PROPERTIES: Final = {
    "format-version": "2",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "30",
    "commit.retry.num-retries": "0",  # whoever uses the library on it doubles no row by its retries
    "gc.enabled": "false",  # other tools must not expire or sweep what the log still needs
    "write.metadata.previous-versions-max": "20",
    "write.delete.isolation-level": "snapshot",
    "dray.schema-version": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOwner:
    """Whose table it is."""

    name: str
    topic_id: bytes
    cluster_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileExchange:
    """Files that hold the rows of others, in their place."""

    old: tuple[str, ...]
    new: tuple[NewFile, ...]
    older: tuple[str, ...] = ()
    """These too, if they are still there: the log has dropped their rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """What one commit does to a table."""

    added: Sequence[NewFile] = ()
    ranges: Sequence[Range] = ()
    """Of the added files, one for each partition."""
    exchanged: Sequence[FileExchange] = ()
    removed: Sequence[str] = ()
    """Locations of files whose rows the log has dropped."""
    seal: bool = False
    """Let there be a new snapshot, whatever is in it: what others have staged before can not be committed then."""
    until_ms: int = 0
    """After it every record is in the table that was acknowledged before this time; 0: not known."""
    had_rows: bool = False
    """The table is known to show rows that the log has dropped: there must be one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeDone:
    """A change that is in the table."""

    snapshot_id: int
    foreign: tuple[int, ...] = ()
    """Snapshots of others that were found on top of ours."""
    overtaken: dict[int, RowsThere] = field(default_factory=dict)
    """Partitions whose rows were there from other files: nothing of theirs was added."""


class TopicTables:
    """The tables of a cluster. Its calls block."""

    def __init__(self, catalog: Catalog, store: BoundStore, entropy: Entropy, *, namespace: str = "topics") -> None:
        self.catalog = catalog
        self.store = store
        self.namespace = namespace
        self._entropy = entropy

    def identifier(self, topic: str) -> tuple[str, str]:
        return self.namespace, escaped(topic) if is_lower_casing(self.catalog) else topic

    def find(self, topic: TableOwner) -> Table | None:
        """The table, if there is one.

        Raises:
            CatalogUnavailable: nobody knows whether there is one.
            TableLost: its metadata is not where the catalog says.
            TableTaken: the name is another's.
        """
        try:
            table = self.catalog.load_table(self.identifier(topic.name))
        except NoSuchTableError:
            return None
        except (FileNotFoundError, OutsideStore) as error:
            raise TableLost(
                "the metadata of the table is not in the store: was the data directory moved?", topic=topic.name,
                location=str(error)[:300],
            ) from error  # fmt: skip
        except Exception as error:  # a catalog raises what its transport raises
            raise _unavailable(error, topic.name) from error
        told = tuple(table.properties.get(name) for name in (TOPIC, TOPIC_ID, CLUSTER_ID))
        if told != (topic.name, topic.topic_id.hex(), topic.cluster_id):
            raise TableTaken(
                "the name belongs to another table", table=".".join(table.name()), topic=told[0], topic_id=told[1],
                cluster=told[2],
            )  # fmt: skip
        return table

    def load(self, topic: TableOwner) -> Table:
        """The table, made now if there is none."""
        table = self.find(topic)
        if table is not None:
            return table
        whose = {TOPIC: topic.name, TOPIC_ID: topic.topic_id.hex(), CLUSTER_ID: topic.cluster_id}
        try:
            self._make_namespace()
            with suppress(TableAlreadyExistsError):
                self.catalog.create_table(
                    self.identifier(topic.name), SCHEMA, self._location(topic), SPEC, properties=PROPERTIES | whose
                )
        except Exception as error:
            raise _unavailable(error, topic.name) from error
        made = self.find(topic)
        if made is None:
            raise CatalogUnavailable("the table was just made and is gone", topic=topic.name)
        return made

    def _make_namespace(self) -> None:
        try:
            self.catalog.create_namespace(self.namespace)
        except Exception:  # some catalogs raise what their database does when another is faster
            if not self.catalog.namespace_exists(self.namespace):
                raise

    def _location(self, topic: TableOwner) -> str:
        """A new table of a topic that has had one before lies apart from it."""
        apart = self._entropy.random_bytes(4).hex()
        return self.store.location_of(f"{PLACE}/topic={topic.topic_id.hex()}/{apart}")

    def commit(self, topic: TableOwner, change: TableChange, now_ms: int) -> ChangeDone:
        """Bring a change into the table, once (TT1). `now_ms` is the log's time: it decides what expires.

        Raises:
            CatalogUnavailable: nothing was committed.
            TableCommitUnknown: it may have been; calling again with the same change settles it.
            TableStands, TableTaken: an operator must look.
        """
        cause: Exception | None = None
        for _ in range(ATTEMPTS):
            try:
                table = self._load_for(topic, change)
            except CatalogUnavailable as error:
                if cause is None:
                    raise
                raise _unknown(cause, topic.name) from error
            staging = _Staging(table, change, self._entropy.random_bytes(16).hex())
            staged = staging.stage(now_ms)
            if staged is None:
                return staging.committed()
            try:
                staged.send(self.catalog)
            except Exception as error:  # TT2: it says nothing; the next look does
                cause = error
            else:
                return staging.committed()
        assert cause is not None, "each attempt but a successful one ends with a cause"
        raise _unknown(cause, topic.name) from cause

    def _load_for(self, topic: TableOwner, change: TableChange) -> Table:
        """The table; it is made only where nothing says that there was one."""
        table = self.find(topic)
        if table is None:
            _check_new(topic, change.ranges, lost=bool(change.exchanged) or change.had_rows)
            return self.load(topic)
        return table

    def check(self, topic: TableOwner, ranges: Sequence[Range], *, had_rows: bool = False) -> None:
        """Whether these ranges could be added: somebody may have mended the table, or changed it while nobody looked.

        Raises:
            CatalogUnavailable: nobody knows.
            TableStands, TableTaken: and what is wrong.
        """
        table = self.find(topic)
        if table is None:
            _check_new(topic, ranges, lost=had_rows)
            return
        check_foreign(table.metadata, table.io)
        ends = fence.parse(table.properties.get(fence.PROPERTY))
        for one in ranges:
            with suppress(RowsThere):  # that is mended by whoever commits
                fence.judge(ends, one)

    def file_names(self, topic: TableOwner) -> list[str]:
        """The names of the files that the newest snapshot shows."""
        table = self.find(topic)
        if table is None:
            return []
        return sorted(self.store.name_of(task.file.file_path) for task in table.scan().plan_files())

    def reached(self, table: Table) -> InUse:
        """What the retained snapshots of a table lead to."""
        return reached(table.metadata, table.metadata_location, table.io)

    def clean(self, table: Table, grace_ms: int = CLEAN_GRACE_MS) -> list[str]:
        """Delete metadata that nothing reaches; the table's head must be ours (TX2)."""
        head = table.current_snapshot()
        if head is None or foreign(table.metadata):
            return []
        before_ms = head.timestamp_ms - grace_ms
        place = self.store.name_of(f"{table.location()}/metadata/")
        needed = {self.store.name_of(location) for location in self.reached(table).metadata}
        gone = [
            info.path for info in self.store.list(place) if info.path not in needed and info.modified_ms < before_ms
        ]
        newest = self.catalog.load_table(table.name())
        if newest.metadata_location != table.metadata_location:
            return []  # somebody has committed since: look again after a commit of our own
        for name in gone:
            self.store.delete(name)
        return gone


class _Staging:
    """One attempt at a change, against one state of the table."""

    def __init__(self, table: Table, change: TableChange, commit_id: str) -> None:
        self._table = table
        self._change = change
        self._commit_id = commit_id
        self._foreign = check_foreign(table.metadata, table.io)
        self._ends = fence.parse(table.properties.get(fence.PROPERTY))
        self._overtaken: dict[int, RowsThere] = {}
        self._snapshot_id = 0 if table.metadata.current_snapshot_id is None else table.metadata.current_snapshot_id
        wanted = {file.location for file in change.added}
        wanted |= {old for one in change.exchanged for old in (*one.old, *one.older)} | set(change.removed)
        wanted |= {new.location for exchange in change.exchanged for new in exchange.new}
        needs_look = change.exchanged or change.removed or any(self._standing(one) for one in change.ranges)
        self._present = present(table.current_snapshot(), wanted if needs_look else (), table.io)

    def stage(self, now_ms: int) -> Staged | None:
        """What is missing of the change; None if nothing is."""
        staged = Staged(self._table)
        properties = {COMMIT_ID: self._commit_id}
        added = self._append(staged, properties)
        exchanged = self._exchange(staged, properties)
        removed = self._remove(staged, properties)
        changed = added or exchanged or removed
        if self._change.seal and not changed:
            _exchange(Operation.REPLACE, staged, properties, [], [])
            changed = True
        told = self._until(always=changed)
        if changed:
            told |= {fence.PROPERTY: fence.dump(self._ends), LAST_COMMIT: self._commit_id}
            staged.set_properties(told)
            current = staged.table_metadata.current_snapshot_id
            assert current is not None, "a snapshot was just staged"
            self._snapshot_id = current
        elif told:
            staged.set_properties(told)
        gone = expired(staged.table_metadata, now_ms)
        if gone:
            ExpireSnapshots(transaction=staged).by_ids(gone).commit()
        return staged if staged.has_updates else None

    def _until(self, *, always: bool) -> dict[str, str]:
        """How far in time the table is: told with every snapshot, and by itself now and then."""
        until_ms, before_ms = self._change.until_ms, until_of(self._table.metadata)
        if self._overtaken or until_ms < before_ms + (1 if always else UNTIL_MS):
            return {}
        return {COMMITTED_UNTIL: str(until_ms)}

    def committed(self) -> ChangeDone:
        return ChangeDone(
            snapshot_id=self._snapshot_id,
            foreign=tuple(snapshot.snapshot_id for snapshot in self._foreign),
            overtaken=self._overtaken,
        )

    def _standing(self, wanted: Range) -> bool:
        """Whether its rows are there already; a range that cannot be added is told apart."""
        try:
            return fence.judge(self._ends, wanted) is FenceState.THERE
        except RowsThere as error:
            self._overtaken[wanted.partition] = error
            return False

    def _append(self, staged: Staged, properties: dict[str, str]) -> bool:
        fresh: list[Range] = []
        for one in self._change.ranges:
            there = self._standing(one)
            if there and not self._has_files(one.partition):
                self._overtaken[one.partition] = RowsThere(
                    "the table has these rows from other files", partition=one.partition, start=one.start, end=one.end
                )
            elif not there and one.partition not in self._overtaken:
                fresh.append(one)
        if not fresh:
            return False
        partitions = {one.partition for one in fresh}
        offsets = {str(one.partition): [one.start, one.end] for one in fresh}
        producer = staged.update_snapshot(
            snapshot_properties=properties | {OFFSETS: fence.dump_ranges(offsets)}
        ).merge_append()
        with producer:
            for file in self._change.added:
                if file.partition in partitions:
                    producer.append_data_file(file.entry())
        self._ends |= {one.partition: one.end for one in fresh}
        return True

    def _has_files(self, partition: int) -> bool:
        return all(file.location in self._present for file in self._change.added if file.partition == partition)

    def _exchange(self, staged: Staged, properties: dict[str, str]) -> bool:
        open_ = [one for one in self._change.exchanged if not all(new.location in self._present for new in one.new)]
        if not open_:
            return False
        old = [self._file(location) for one in open_ for location in one.old]
        old += [self._present[location] for one in open_ for location in one.older if location in self._present]
        new = [file.entry() for one in open_ for file in one.new]
        _exchange(Operation.REPLACE, staged, properties, old, new)
        return True

    def _file(self, location: str) -> DataFile:
        found = self._present.get(location)
        if found is None:
            raise TableChanged("a file of ours is not in the table any more: somebody has rewritten it", file=location)
        return found

    def _remove(self, staged: Staged, properties: dict[str, str]) -> bool:
        gone = [self._present[location] for location in self._change.removed if location in self._present]
        if gone:
            _exchange(Operation.DELETE, staged, properties, gone, [])
        return bool(gone)


def _exchange(
    operation: Operation, staged: Staged, properties: dict[str, str], old: Sequence[DataFile], new: Sequence[DataFile]
) -> None:
    with ExchangedFiles(operation, staged, staged._table.io, properties) as producer:
        for file in old:
            producer.delete_data_file(file)
        for file in new:
            producer.append_data_file(file)


def _check_new(topic: TableOwner, ranges: Sequence[Range], *, lost: bool) -> None:
    if lost or any(one.start > one.floor for one in ranges):
        raise TableDropped("the table is not in the catalog any more", topic=topic.name)


def _unavailable(error: Exception, topic: str) -> CatalogUnavailable:
    return CatalogUnavailable(
        "the catalog does not answer", topic=topic, reason=f"{type(error).__name__}: {error}"[:300]
    )


def _unknown(error: Exception, topic: str) -> TableCommitUnknown:
    return TableCommitUnknown(
        "the catalog did not confirm a commit", topic=topic, reason=f"{type(error).__name__}: {error}"[:300]
    )
