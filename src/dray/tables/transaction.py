"""What PyIceberg lacks: staging that does not copy all metadata at each look, and snapshots of a named kind.

`Transaction` of the library applies all updates to a deep copy of the metadata
whenever it is asked for them, fifteen times a commit: with 500 snapshots that
is most of its time. And its `commit_transaction` deletes what it wrote when a
catalog says 409, which destroys the table if the commit had landed; so it is
never called: `send` gives the catalog the staged updates and deletes nothing.

These lean on names that are private to PyIceberg 0.12, which is pinned.
"""

from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AssertTableUUID, TableUpdate, update_table_metadata
from pyiceberg.table.update.snapshot import _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT


class Staged(Transaction):
    """Updates that are staged against one state of a table."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._applied: tuple[tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The metadata with all updates; made once for each set of them."""
        if self._applied is None or self._applied[0] is not self._updates:
            self._applied = self._updates, update_table_metadata(self._table.metadata, self._updates)
        return self._applied[1]

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
