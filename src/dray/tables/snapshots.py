"""Which snapshots are ours, which may go, and which files nothing reaches any more.

Each of our snapshots carries the id of its commit and the offsets that it
changed; the table remembers the last id. Whoever finds another snapshot on top
has found a foreign commit; whoever does not find the last one below the head
has found that our rows were taken out.

Invariants
    TX1  Never expired: the head of a branch or tag, and our last snapshot.
    TX2  A file of metadata is deleted only when the table's newest state does
         not reach it and it is older, by the grace time, than the head, which
         is ours: whatever was staged before the head was there can not be
         committed on top of it any more, and what is staged now is younger.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from pyiceberg.conversions import to_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, LongType, TimestamptzType

from dray.tables.errors import TableChanged

COMMIT_ID: Final = "dray.commit-id"
LAST_COMMIT: Final = "dray.last-commit"
OFFSETS: Final = "dray.offsets"
COMMITTED_UNTIL: Final = "dray.committed-until"
"""A property of the table: every record that was acknowledged before this time, in ms, is in it."""
REBUILT: Final = "dray.rebuilt"
"""In the summary of a snapshot that made a table anew: what others did before is undone by it."""
HOUR_MS: Final = 3_600_000
KEPT_MS: Final = 7 * 24 * HOUR_MS
MOST: Final = 500
UNTHINNED: Final = 300
"""Of the newest; older ones are thinned to one an hour, at most 168 in the time that they are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    """A Parquet file for a table."""

    location: str
    partition: int
    start: int
    end: int
    rows: int
    size: int
    min_timestamp_ms: int
    max_timestamp_ms: int

    def entry(self) -> DataFile:
        """As a manifest has it, with exact bounds for what queries prune by."""
        counts = dict.fromkeys((1, 2, 3), self.rows)
        lower = (self.partition, self.start, 1000 * self.min_timestamp_ms)
        upper = (self.partition, self.end - 1, 1000 * self.max_timestamp_ms)
        return DataFile.from_args(
            content=DataFileContent.DATA, file_path=self.location, file_format=FileFormat.PARQUET,
            partition=Record(self.partition), record_count=self.rows, file_size_in_bytes=self.size, column_sizes={},
            value_counts=counts, null_value_counts=dict.fromkeys(counts, 0), nan_value_counts={},
            lower_bounds=_bounds(lower), upper_bounds=_bounds(upper), key_metadata=None, split_offsets=None,
            equality_ids=None, sort_order_id=0, spec_id=0,
        )  # fmt: skip


def _bounds(values: tuple[int, int, int]) -> dict[int, bytes]:
    kinds = IntegerType(), LongType(), TimestamptzType()
    return {at: to_bytes(kind, value) for at, (kind, value) in enumerate(zip(kinds, values, strict=True), 1)}


def foreign(metadata: TableMetadata) -> list[Snapshot]:
    """The snapshots of others on top of our last one, the newest first.

    Raises:
        TableChanged: our last one is not below the head: somebody has set the table back.
    """
    last = metadata.properties.get(LAST_COMMIT)
    found = []
    for snapshot in _line(metadata):
        commit = commit_of(snapshot)
        if commit is None:
            found.append(snapshot)
        elif commit == last:
            return found
        else:
            raise TableChanged(
                "somebody has set the table back: our last commit is not in it", snapshot=snapshot.snapshot_id,
                has=commit, wanted=last,
            )  # fmt: skip
    if last is not None:
        raise TableChanged("our last commit is not in the table any more", wanted=last, foreign=len(found))
    return found


def strangers(metadata: TableMetadata) -> list[Snapshot]:
    """The snapshots of others since the table was made, or made anew, as far as they are kept; the newest first."""
    found = []
    for snapshot in _line(metadata):
        if commit_of(snapshot) is None:
            found.append(snapshot)
        elif snapshot.summary is not None and snapshot.summary.additional_properties.get(REBUILT):
            break
    return found


def check_foreign(metadata: TableMetadata, io: FileIO) -> list[Snapshot]:
    """The snapshots of others on top of ours, if they have left all of our files where they were.

    Raises:
        TableChanged: they have not, or somebody has set the table back.
    """
    found = foreign(metadata)
    if all(one.summary is not None and one.summary.operation is Operation.APPEND for one in found):
        return found
    last = metadata.properties.get(LAST_COMMIT)
    ours = next((one for one in metadata.snapshots if last is not None and commit_of(one) == last), None)
    head = metadata.current_snapshot()
    named = ", ".join(describe(one) for one in found)
    if has_deletes(head, io):
        raise TableChanged("somebody has deleted rows of the table", snapshots=named)
    missing = shown(ours, io).keys() - shown(head, io).keys()
    if missing:
        raise TableChanged(
            "somebody has rewritten or deleted files of the table", snapshots=named, files=len(missing)
        )  # fmt: skip
    return found


def shown(snapshot: Snapshot | None, io: FileIO) -> dict[str, DataFile]:
    """Every file that a snapshot shows, by location."""
    if snapshot is None:
        return {}
    return {
        entry.data_file.file_path: entry.data_file
        for manifest in snapshot.manifests(io)
        if manifest.content == ManifestContent.DATA
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=True)
    }


def has_deletes(snapshot: Snapshot | None, io: FileIO) -> bool:
    """Whether files beside the data say that some of its rows are not there."""
    return snapshot is not None and any(one.content == ManifestContent.DELETES for one in snapshot.manifests(io))


def commit_of(snapshot: Snapshot) -> str | None:
    """The id of our commit; None for a foreign one."""
    return None if snapshot.summary is None else snapshot.summary.additional_properties.get(COMMIT_ID)


def describe(snapshot: Snapshot) -> str:
    """A snapshot for people."""
    operation = "unknown" if snapshot.summary is None else snapshot.summary.operation.value
    return f"{snapshot.snapshot_id} ({operation})"


def _line(metadata: TableMetadata) -> Iterator[Snapshot]:
    """From the head to its oldest ancestor that is kept."""
    snapshot = metadata.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else metadata.snapshot_by_id(parent)


def expired(metadata: TableMetadata, now_ms: int, *, kept_ms: int = KEPT_MS, most: int = MOST) -> list[int]:
    """The snapshots that may go: too old, or, where there are too many, all but one an hour of the older ones."""
    kept = {reference.snapshot_id for reference in metadata.refs.values()}  # TX1
    last = metadata.properties.get(LAST_COMMIT)
    kept |= {one.snapshot_id for one in metadata.snapshots if last is not None and commit_of(one) == last}
    snapshots = sorted(metadata.snapshots, key=lambda one: (one.timestamp_ms, one.snapshot_id))
    gone = [one for one in snapshots if one.timestamp_ms < now_ms - kept_ms]
    rest = snapshots[len(gone) :]
    if len(rest) > most:
        older = rest[: len(rest) - most * UNTHINNED // MOST]
        last_of_hour = {one.timestamp_ms // HOUR_MS: one.snapshot_id for one in older}
        gone += [one for one in older if one.snapshot_id != last_of_hour[one.timestamp_ms // HOUR_MS]]
    return [one.snapshot_id for one in gone if one.snapshot_id not in kept]


@dataclass(frozen=True, slots=True, kw_only=True)
class InUse:
    """Everything that some retained snapshot leads to, by location."""

    metadata: frozenset[str]
    data: frozenset[str]


def reached(metadata: TableMetadata, location: str, io: FileIO) -> InUse:
    """What the table needs: of its own files, and of ours."""
    own = {location, *(entry.metadata_file for entry in metadata.metadata_log)}
    own |= {statistics.statistics_path for statistics in metadata.statistics}
    data: set[str] = set()
    for snapshot in metadata.snapshots:
        own.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(io):
            if manifest.manifest_path in own:
                continue
            own.add(manifest.manifest_path)
            data |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(io, discard_deleted=True)}
    return InUse(metadata=frozenset(own), data=frozenset(data))


def present(snapshot: Snapshot | None, wanted: Iterable[str], io: FileIO) -> dict[str, DataFile]:
    """Those of the wanted locations that a snapshot shows."""
    looked = set(wanted)
    if not looked:
        return {}
    return {location: file for location, file in shown(snapshot, io).items() if location in looked}


def until_of(metadata: TableMetadata) -> int:
    """Up to when every record is in the table; 0: it does not tell."""
    told = metadata.properties.get(COMMITTED_UNTIL, "")
    return int(told) if told.isascii() and told.isdigit() else 0


def totals(snapshot: Snapshot | None) -> tuple[int, int, int]:
    """Files, rows and bytes that a snapshot shows."""
    if snapshot is None or snapshot.summary is None:
        return 0, 0, 0
    told = snapshot.summary.additional_properties
    files, rows, size = (int(told.get(name) or 0) for name in ("total-data-files", "total-records", "total-files-size"))
    return files, rows, size
