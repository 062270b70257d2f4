"""A table made to show exactly the files that the log says, whatever became of it.

The files, their ranges and their statistics are all known to the machine, so a
table can be made anew without opening one of them: after a drop, a rollback, a
foreign rewrite, a move of the data directory or a change of the catalog. What
stands in the table already stays; the rest is put in and taken out by one
REPLACE snapshot, against the very state that was looked at.

Invariants
    TR1  A table is mended only on the state that was loaded before the log was
         asked: whatever was committed since makes it fail, and it is looked at
         again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from dray.tables import fence
from dray.tables.errors import CatalogUnavailable, TableLost
from dray.tables.snapshots import (
    COMMIT_ID,
    COMMITTED_UNTIL,
    LAST_COMMIT,
    REBUILT,
    NewFile,
    has_deletes,
    shown,
    strangers,
)
from dray.tables.table import TableOwner, TopicTables
from dray.tables.transaction import ExchangedFiles, Staged


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTable:
    """A table as it was found, and the locations of the files that it shows."""

    table: Table
    made: bool
    """There was none that could be read: this one is new."""
    shown: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mending:
    """What was done to a table."""

    added: int
    removed: int
    kept: int


def load_for_mending(tables: TopicTables, owner: TableOwner) -> FoundTable:
    """The table; one that cannot be read, or whose rows are deleted beside its files, is dropped and made anew.

    Raises:
        CatalogUnavailable: nothing was done, or nobody knows.
        TableTaken: the name is another's.
    """
    try:
        table = tables.find(owner)
        unusable = table is not None and has_deletes(table.current_snapshot(), table.io)
    except TableLost:
        table, unusable = None, True
    except FileNotFoundError:  # the metadata is there, and what it names is not
        unusable = True
    if unusable:
        _drop(tables, owner)
        table = None
    made = table is None
    table = tables.load(owner)
    return FoundTable(table=table, made=made, shown=frozenset(shown(table.current_snapshot(), table.io)))


def _drop(tables: TopicTables, owner: TableOwner) -> None:
    """Out of the catalog alone: its files are the log's, or nobody's."""
    try:
        tables.catalog.drop_table(tables.identifier(owner.name))
    except NoSuchTableError:
        return
    except Exception as error:  # a catalog raises what its transport raises
        raise CatalogUnavailable("the catalog does not answer", topic=owner.name, reason=str(error)[:300]) from error


def mend(
    tables: TopicTables,
    found: FoundTable,
    files: Sequence[NewFile],
    ends: Mapping[int, int],
    commit_id: str,
    until_ms: int,
) -> Mending:
    """Let it show these files and no others, by one commit on the state that was loaded (TR1).

    Raises:
        Exception: whatever the catalog raises: nobody knows; load and look again.
    """
    table = found.table
    there = shown(table.current_snapshot(), table.io)
    wanted = {file.location: file for file in files}
    old = [file for location, file in there.items() if location not in wanted]
    new = [file for location, file in wanted.items() if location not in there]
    staged = Staged(table)
    properties = {fence.PROPERTY: fence.dump(ends), COMMITTED_UNTIL: str(until_ms)}
    if old or new or strangers(table.metadata) or not _is_ours(table):
        with ExchangedFiles(
            Operation.REPLACE, staged, table.io, {COMMIT_ID: commit_id, REBUILT: "true"}
        ) as producer:  # fmt: skip
            for file in old:
                producer.delete_data_file(file)
            for added in new:
                producer.append_data_file(added.entry())
        properties |= {LAST_COMMIT: commit_id}
    if any(table.properties.get(name) != value for name, value in properties.items() if name != COMMITTED_UNTIL):
        staged.set_properties(properties)
    if staged.has_updates:
        staged.send(tables.catalog)
    return Mending(added=len(new), removed=len(old), kept=len(wanted) - len(new))


def _is_ours(table: Table) -> bool:
    """Whether the head is our last commit; a table without one is nobody's yet, and right as it is."""
    head, last = table.current_snapshot(), table.properties.get(LAST_COMMIT)
    if head is None:
        return last is None
    return head.summary is not None and head.summary.additional_properties.get(COMMIT_ID) == last
