"""What the keeper of tables is told."""

from dray.errors import Conflict, Corrupt, Invalid, Unavailable, Unknown


class CatalogUnavailable(Unavailable):
    """The catalog does not answer: nothing was committed."""

    advice = "look at the catalog (table.catalog); records are safe and served, their table waits"


class TableCommitUnknown(Unknown):
    """A commit was sent, and the catalog tells neither that it landed nor that it did not: look again later."""

    advice = "look at the catalog (table.catalog); the next cycle settles it"


class TableStands(Corrupt):
    """The table does not hold what it must: nothing is written to it before it is mended. Its topic is served."""

    advice = "drayd admin table rebuild TOPIC, or undo the foreign change"


class TableChanged(TableStands):
    """Somebody else took our rows out of a table: a rollback, a rewrite, a deletion."""


class TableDropped(TableStands):
    """The catalog has no table of a topic that had one."""

    advice = "drayd admin table rebuild TOPIC makes it anew from the files"


class TableLost(TableStands):
    """The catalog names metadata that is not in the store: the data directory was moved, or somebody deleted it."""

    advice = "drayd admin table rebuild TOPIC makes it anew from the files"


class TableTaken(Conflict):
    """The name belongs to a table that is not ours."""

    advice = "rename that table, or set table.namespace to another one"


class RowsThere(Conflict):
    """The table has rows of this range from other files: the task is not the one to go on with."""


class TableBehind(TableStands):
    """The table lacks rows that the log had compacted before this range."""


class BadCatalog(Invalid):
    """The catalog cannot be opened as it is configured."""
