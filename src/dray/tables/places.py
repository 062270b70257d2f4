"""Where the built-in catalog and the files of tables are; nothing is loaded for it."""

from pathlib import Path
from typing import Final

NAME: Final = "dray"
"""Of the catalog. Spark's must have the same name, or it finds no namespace."""
BUILT_IN: Final = "sqlite"
"""The value of `table.catalog` that means the file in the data directory."""
DATABASE: Final = "postgresql://"
"""How a value of `table.catalog` begins that names a database."""


def sqlite_file(directory: Path) -> Path:
    return directory / "tables" / "catalog.db"


def place_of(address: str) -> str:
    """The store at an address, as files in a table name it."""
    return (address if "://" in address else f"file://{Path(address).absolute()}").rstrip("/")
