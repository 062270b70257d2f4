"""Where the metadata of each table is now, as the SQLite catalog says; without PyIceberg, so a broker may ask.

The file belongs to the compactor, which writes it through PyIceberg. What is
read here is the one table that the catalogs of all Iceberg libraries with SQL
have in common (Java's JDBC catalog, PyIceberg): names, and for each the
location of its metadata. Calls block: they are for a thread.

Invariants
    TC1  What is told of a table was committed: it is read in one query, by a
         connection that writes nothing but what SQLite itself sets right after
         a writer that was killed.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from dray.errors import Unavailable
from dray.tables.places import NAME

BUSY_S: Final = 5.0
"""How long a writer may hold the file."""
_MISSING: Final = "no such table"

_NAMESPACES: Final = "SELECT DISTINCT table_namespace FROM iceberg_tables WHERE catalog_name = ? ORDER BY 1"
_TABLES: Final = (
    "SELECT table_name FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ? AND table_name > ? "
    "ORDER BY table_name LIMIT ?"
)
_LOCATION: Final = (
    "SELECT metadata_location FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?"
)


class CatalogBusy(Unavailable):
    """The file of the catalog cannot be read now."""

    advice = "ask again; if it stays, look at the disk and at DIR/tables/catalog.db"


class SqliteNames:
    """The names in the catalog of a data directory."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def namespaces(self) -> list[str]:
        return [row[0] for row in self._ask(_NAMESPACES)]

    def tables(self, namespace: str, after: str = "", limit: int = -1) -> list[str]:
        """Names in their order, behind one, and not more than so many."""
        return [row[0] for row in self._ask(_TABLES, namespace, after, limit)]

    def location(self, namespace: str, name: str) -> str | None:
        """Of the metadata that is current; None: there is no such table."""
        rows = self._ask(_LOCATION, namespace, name)
        return rows[0][0] if rows else None

    def _ask(self, query: str, *given: str | int) -> list[tuple[str]]:
        try:
            with self._opened() as connection:
                return [] if connection is None else connection.execute(query, (NAME, *given)).fetchall()
        except sqlite3.Error as error:
            if _MISSING in str(error):
                return []  # the file is being made
            raise CatalogBusy("the catalog cannot be read", file=self._file, reason=str(error)[:200]) from error

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection | None]:
        """None before the first table is made. Not read-only: a killed writer's change is taken back by who opens."""
        if not self._file.is_file():
            yield None
            return
        address = f"{self._file.absolute().as_uri()}?mode=rw"
        with closing(sqlite3.connect(address, uri=True, timeout=BUSY_S)) as connection:
            connection.execute("PRAGMA query_only = ON")  # TC1
            yield connection
