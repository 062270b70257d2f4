"""The Iceberg catalog: a SQLite file in the data directory, or any that PyIceberg knows.

sqlite              DIR/tables/catalog.db, the default; brokers of several machines have no such directory
postgresql://       a SQL catalog in a database, which may be the one of the log
http://, https://   a REST catalog
pyiceberg           what PyIceberg's own configuration says of the catalog `dray` (Glue, Hive ...)
"""

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyiceberg.catalog import AVAILABLE_CATALOGS, Catalog, CatalogType, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import ServerError, ServiceUnavailableError
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter

from dray.tables.errors import BadCatalog, CatalogUnavailable
from dray.tables.io import IMPLEMENTATION, STORE, BoundStore
from dray.tables.places import BUILT_IN, DATABASE, NAME, sqlite_file
from dray.tables.transaction import updated

CONNECT_S: Final = 10
ANSWER_S: Final = 60
PARSED: Final = 16
"""Of tables whose metadata is kept as it was parsed."""
LOWER_CASING: Final = frozenset({"glue", "hive", "dynamodb"})
PLACE: Final = "iceberg"
"""The prefix of all metadata in the store."""


def open_catalog(kind: str, directory: Path | None, store: BoundStore) -> Catalog:
    """Open it; tables that are made in it keep their metadata in the store. No directory: the log is in none.

    Raises:
        BadCatalog: and what is wrong with the setting.
        CatalogUnavailable: it does not answer.
    """
    given = {"py-io-impl": IMPLEMENTATION, STORE: store.key, "warehouse": store.location_of(PLACE)}
    properties = _properties(kind, directory)
    try:
        return _loaded({**given, **properties})
    except (OSError, ServerError, ServiceUnavailableError) as error:  # all errors of requests are the first
        raise CatalogUnavailable("the catalog does not answer", catalog=kind, reason=str(error)[:200]) from error
    except Exception as error:  # each kind of catalog raises its own, and all mean the same here
        raise BadCatalog(
            "the catalog cannot be opened: correct table.catalog", catalog=kind, reason=str(error)[:200]
        ) from error


def is_lower_casing(catalog: Catalog) -> bool:
    """Whether it would take two topics for one table."""
    return str(catalog.properties.get("type", "")).lower() in LOWER_CASING


def _loaded(properties: Mapping[str, str]) -> Catalog:
    try:
        return load_catalog(NAME, **properties)
    except Exception:
        # Two that make the tables of one database at once: the database refuses one of them, which finds them then.
        if properties.get("type") != "sql":
            raise
        return load_catalog(NAME, **properties)


def _properties(kind: str, directory: Path | None) -> Mapping[str, str]:
    if kind == BUILT_IN:
        if directory is None:
            raise BadCatalog(
                "a catalog in a data directory is of one machine, and this log is shared by several: set table.catalog "
                "to postgresql://USER@HOST/DATABASE, to the address of a REST catalog, or to pyiceberg",
                catalog=kind,
            )
        file = sqlite_file(directory)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return {"type": "sql", "uri": f"sqlite:///{file}"}
    if kind.startswith(DATABASE):
        if importlib.util.find_spec("psycopg") is None:
            raise BadCatalog("a catalog in a database needs an extra: pip install 'dray[postgres]'", catalog=kind)
        return {"type": "sql", "uri": f"postgresql+psycopg://{kind.removeprefix(DATABASE)}", "pool_pre_ping": "true"}
    if kind.startswith(("http://", "https://")):
        return {"type": "rest", "uri": kind}
    if kind == "pyiceberg":
        return {}
    raise BadCatalog("expected sqlite, pyiceberg, a database, or the address of a REST catalog", catalog=kind)


class LimitedRestCatalog(RestCatalog):
    """No request of it waits for ever, from its first question on; the library sets no limit."""

    def _create_session(self) -> Session:
        session = super()._create_session()
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Limited())
        return session


class _Limited(HTTPAdapter):
    def send(  # type: ignore[override] # every call of the library gives these by name
        self, request: PreparedRequest, **options: object
    ) -> Response:
        return super().send(request, **{**options, "timeout": (CONNECT_S, ANSWER_S)})  # type: ignore[arg-type]


class SharingSqlCatalog(SqlCatalog):
    """Metadata is parsed once and not copied: with 500 snapshots that is most of what a commit costs.

    A commit looks at its table twice, and the second time it is nearly always the same: a file of metadata never
    changes under its name. Where the newest one lies is asked of the database each time.
    """

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self._parsed: dict[str, TableMetadata] = {}

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        location = orm_table.metadata_location
        known = self._parsed.get(location or "")
        if location is None or known is None:
            table = super()._convert_orm_to_iceberg(orm_table)
            while len(self._parsed) >= PARSED:
                self._parsed.pop(next(iter(self._parsed)), None)
            self._parsed[table.metadata_location] = table.metadata
            return table
        io = self._load_file_io(known.properties, location)
        if not io.new_input(location).exists():
            raise FileNotFoundError(location)
        identifier = (*self.identifier_to_tuple(orm_table.table_namespace), orm_table.table_name)
        return Table(identifier=identifier, metadata=known, metadata_location=location, io=io, catalog=self)

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        if current_table is None or not any(isinstance(update, AddSnapshotUpdate) for update in updates):
            return super()._update_and_stage_table(current_table, table_identifier, requirements, updates)
        for requirement in requirements:
            requirement.validate(current_table.metadata)
        metadata = updated(current_table.metadata, current_table.metadata_location, updates)
        version = self._parse_metadata_version(current_table.metadata_location) + 1
        places = load_location_provider(metadata.location, metadata.properties)
        location = places.new_table_metadata_file_location(version)
        io = self._load_file_io(properties=metadata.properties, location=location)
        return StagedTable(
            identifier=table_identifier, metadata=metadata, metadata_location=location, io=io, catalog=self
        )


# Whatever names a REST catalog, our setting or PyIceberg's own configuration.
AVAILABLE_CATALOGS[CatalogType.REST] = lambda name, properties: LimitedRestCatalog(name, **properties)
AVAILABLE_CATALOGS[CatalogType.SQL] = lambda name, properties: SharingSqlCatalog(name, **properties)
