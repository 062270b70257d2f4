"""Settings of tables, and of the compactor that makes them."""

from datetime import timedelta
from typing import Literal

from pydantic import Field, field_validator

from dray.config import Section, Size
from dray.errors import Invalid
from dray.log.urls import parse_log_url
from dray.tables.places import DATABASE


class TableSettings(Section):
    """Each topic as an Iceberg table."""

    enabled: bool = True
    """Put compacted files into tables. Without it records are compacted for consumers alone."""

    catalog: str = "sqlite"
    """Where tables are found: `sqlite`, a file in the data directory; `postgresql://USER@HOST/DATABASE`, a SQL catalog
    in a database (the extra `postgres`); the `http://` or `https://` address of a REST catalog; or `pyiceberg`, what
    PyIceberg's own configuration says of the catalog named dray. Brokers of several machines need another one than
    `sqlite`."""

    namespace: str = Field(default="topics", pattern=r"[A-Za-z0-9_]{1,100}")
    """The namespace of all tables in the catalog."""

    retention: Literal["follow", "keep"] = "follow"
    """What becomes of a table's rows that the log drops, by retention or DeleteRecords. follow: they leave the table,
    file by file. keep: they stay, for ever; only what was compacted before the log dropped it can."""

    on_topic_delete: Literal["drop", "keep"] = "drop"
    """What becomes of the table of a deleted topic. keep: it is renamed, with the topic's id at its end."""

    @field_validator("catalog")
    @classmethod
    def _known_catalog(cls, value: str) -> str:
        if value.startswith(DATABASE):
            try:
                parse_log_url(value)  # it has the same form, and a password in it is refused alike
            except Invalid as error:
                raise ValueError(str(error)) from None
        elif value not in ("sqlite", "pyiceberg") and not value.startswith(("http://", "https://")):
            raise ValueError("expected sqlite, pyiceberg, postgresql://USER@HOST/DATABASE, or a REST catalog's address")
        return value


class CompactionSettings(Section):
    """When records become Parquet files, and how."""

    enabled: bool = True
    """Let `drayd dev` compact; it starts Spark only when something is due."""

    max_age: timedelta = timedelta(minutes=10)
    """Compact a partition whose oldest record that is not compacted is as old as this. Shorter: fresher tables, more
    and smaller files."""

    max_bytes: Size = Size("32MiB")
    """Compact a partition that holds this much that is not compacted, whatever its age."""

    look: timedelta = timedelta(seconds=5)
    """Look this often whether something is due."""

    target_file_bytes: Size = Size("128MiB")
    """Cut files of more records than this."""

    small_files: int = Field(default=10, ge=2, le=1_000)
    """Put so many neighbouring files of a partition together, if each holds less than half of `target_file_bytes`.
    Fewer: fewer files for queries to open, and records are written again more often."""

    settled: timedelta = timedelta(days=1)
    """Put small files together, however few, when no newer records came to them for as long as this."""

    cycle_bytes: Size = Size("4GiB")
    """Take no more than this in hand at a time."""

    idle: timedelta = timedelta(minutes=5)
    """Stop Spark when nothing was due for this long. It takes ten seconds to start again. `drayd dev` looks as often at
    tables that stand still."""

    master: str = "local[*,4]"
    """Where Spark runs: on the cores of this machine, at the `spark://` address of a cluster, or at the `sc://` address
    of a Spark Connect server."""
