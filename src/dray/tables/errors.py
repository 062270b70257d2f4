"""What the keeper of tables is told."""

from dray.errors import Conflict, Corrupt, Invalid, Unavailable, Unknown


class CatalogUnavailable(Unavailable):
    """The catalog does not answer: nothing was committed."""

    advice = "look at the catalog (table.catalog); records are safe and served, their table waits"


class TableCommitUnknown(Unknown):
    """A commit was sent, and the catalog tells neither that it landed nor that it did not: look again later."""

    advice = "look at the catalog (table.catalog); the next cycle settles it"


class TableChanged(Corrupt):
    """Somebody else took our rows out of a table: a rollback, a drop, a rewrite. An operator must look."""

    advice = "undo the foreign change: bring the table back to the snapshot that it had before"


class TableTaken(Conflict):
    """The name belongs to a table that is not ours."""

    advice = "rename that table, or set table.namespace to another one"


class RowsThere(Conflict):
    """The table has rows of this range from other files: the task is not the one to go on with."""


class TableBehind(Corrupt):
    """The table lacks rows that the log had compacted before this range."""


class BadCatalog(Invalid):
    """The catalog cannot be opened as it is configured."""
