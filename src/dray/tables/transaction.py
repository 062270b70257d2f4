"""What PyIceberg lacks: staging that does not copy all metadata at each look, and snapshots of a named kind.

`Transaction` of the library applies all updates to a deep copy of the metadata
whenever it is asked for them, fifteen times a commit: with 500 snapshots that
is most of its time. Nothing here changes metadata in place, so updates are
applied once, and the old and the new share what is the same. And its `commit_transaction` deletes what it wrote when a
catalog says 409, which destroys the table if the commit had landed; so it is
never called: `send` gives the catalog the staged updates and deletes nothing.

These lean on names that are private to PyIceberg 0.12, which is pinned.
"""

from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import (
    AssertTableUUID,
    TableUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
    _update_table_metadata_log,
)
from pyiceberg.table.update.snapshot import _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT


class AppliedUpdates:
    """Metadata, and the updates that were applied to it."""

    def __init__(self, metadata: TableMetadata) -> None:
        self.metadata = metadata
        self._updates: tuple[TableUpdate, ...] = ()
        self._context = _TableMetadataUpdateContext()

    def apply(self, updates: tuple[TableUpdate, ...]) -> None:
        """Go on to these updates, which begin with those that are applied."""
        assert updates[: len(self._updates)] == self._updates, "updates are only ever added"
        for update in updates[len(self._updates) :]:
            self.metadata = _apply_table_update(update, self.metadata, self._context)
        self._updates = updates


def updated(base: TableMetadata, location: str, updates: tuple[TableUpdate, ...]) -> TableMetadata:
    """What a catalog writes: the metadata with the updates, a snapshot among them, and its older file in their log."""
    applied = AppliedUpdates(base)
    applied.apply(updates)
    return _update_table_metadata_log(applied.metadata, location, base.last_updated_ms)


class Staged(Transaction):
    """Updates that are staged against one state of a table."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._applied = AppliedUpdates(table.metadata)

    @property
    def table_metadata(self) -> TableMetadata:
        """The metadata with all updates, each of which is applied once."""
        self._applied.apply(self._updates)
        return self._applied.metadata

    @property
    def has_updates(self) -> bool:
        return bool(self._updates)

    def send(self, catalog: Catalog) -> None:
        """Commit against the state that was staged on, or not at all. Any exception: nobody knows."""
        requirements = (*self._requirements, AssertTableUUID(uuid=self._table.metadata.table_uuid))
        catalog.commit_table(self._table, requirements, self._updates)


class ExchangedFiles(_OverwriteFiles):
    """Takes files out of a table and puts others in, as REPLACE or DELETE: streaming readers stop at an OVERWRITE."""

    def __init__(
        self, operation: Operation, transaction: Transaction, io: FileIO, snapshot_properties: dict[str, str]
    ) -> None:
        super().__init__(
            operation=Operation.OVERWRITE, transaction=transaction, io=io, snapshot_properties=snapshot_properties
        )
        self._told = operation

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        summary = super()._summary(snapshot_properties)
        return Summary(operation=self._told, **summary.additional_properties)
