"""The tables of the cluster as a broker knows them: names from the catalog's file, metadata from the store.

Only the catalog that Dray keeps itself is shown (`table.catalog = sqlite`). One
that somebody else keeps is asked there, by whoever wants to know (ADR-0105).
"""

from collections.abc import Mapping, Sequence
from typing import Final

from dray.errors import Corrupt
from dray.node.directory import DataDirectory
from dray.objects.port import NoSuchObject, Objects
from dray.objects.settings import ObjectsSettings
from dray.offload import Offload
from dray.servers.http.catalog import LoadedTable, NoSuchNamespace, ReadOnlyCatalog, TableCatalog
from dray.tables.places import BUILT_IN, place_of, sqlite_file
from dray.tables.pointers import SqliteNames
from dray.tables.settings import TableSettings

LOOKS: Final = 3
"""How often a table is looked for whose metadata went between the look and the read: each time it was committed to."""


def served_catalog(
    tables: TableSettings, store: ObjectsSettings, directory: DataDirectory | None, objects: Objects, offload: Offload
) -> TableCatalog:
    """What a broker shows. Without a directory, everything in memory, there is no table."""
    if tables.catalog != BUILT_IN:
        return CatalogElsewhere()
    if directory is None:
        return NoTables(tables.namespace)
    names = SqliteNames(sqlite_file(directory.root))
    place = place_of(store.url or str(directory.objects))
    return BuiltInCatalog(names, tables.namespace, objects, place, _reaching(store), offload)


class BuiltInCatalog:
    """The catalog in the data directory."""

    def __init__(
        self, names: SqliteNames, namespace: str, objects: Objects, place: str, config: Mapping[str, str],
        offload: Offload,
    ) -> None:  # fmt: skip
        self._names = names
        self._namespace = namespace
        self._objects = objects
        self._place = place
        self._config = config
        self._offload = offload

    async def namespaces(self) -> Sequence[str]:
        return sorted({self._namespace, *await self._offload.run(self._names.namespaces)})

    async def tables(self, namespace: str, after: str, limit: int | None) -> Sequence[str]:
        found = await self._offload.run(self._names.tables, namespace, after, -1 if limit is None else limit)
        if not found and namespace not in await self.namespaces():
            raise NoSuchNamespace("no such namespace", namespace=namespace)
        return found

    async def exists(self, namespace: str, name: str) -> bool:
        return await self._offload.run(self._names.location, namespace, name) is not None

    async def table(self, namespace: str, name: str) -> LoadedTable | None:
        location: str | None = None
        for _ in range(LOOKS):
            location = await self._offload.run(self._names.location, namespace, name)
            if location is None:
                return None
            if not location.startswith(f"{self._place}/"):
                break
            try:
                metadata = await self._objects.get(location[len(self._place) + 1 :])
            except NoSuchObject:
                continue
            return LoadedTable(location=location, metadata=metadata, config=self._config)
        raise Corrupt(
            "the metadata of the table is not in the store: paths in a table are absolute, was the store moved?",
            table=f"{namespace}.{name}", location=location, store=self._place,
        )  # fmt: skip


class NoTables:
    """Of a broker that keeps everything in memory."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    async def namespaces(self) -> Sequence[str]:
        return [self._namespace]

    async def tables(self, namespace: str, after: str, limit: int | None) -> Sequence[str]:
        if namespace != self._namespace:
            raise NoSuchNamespace("no such namespace", namespace=namespace)
        return []

    async def exists(self, namespace: str, name: str) -> bool:
        return False

    async def table(self, namespace: str, name: str) -> LoadedTable | None:
        return None


class CatalogElsewhere:
    """Tables are in a catalog that is not ours to serve."""

    async def namespaces(self) -> Sequence[str]:
        raise self._elsewhere()

    async def tables(self, namespace: str, after: str, limit: int | None) -> Sequence[str]:
        raise self._elsewhere()

    async def exists(self, namespace: str, name: str) -> bool:
        raise self._elsewhere()

    async def table(self, namespace: str, name: str) -> LoadedTable | None:
        raise self._elsewhere()

    def _elsewhere(self) -> ReadOnlyCatalog:
        return ReadOnlyCatalog("the tables of this cluster are in the catalog that table.catalog names: ask that one")


def _reaching(store: ObjectsSettings) -> dict[str, str]:
    """For readers of S3: what is no secret, under the names of Java's and of Python's library."""
    told = {"s3.endpoint": store.endpoint, "s3.region": store.region, "client.region": store.region}
    found = {name: value for name, value in told.items() if value is not None}
    return found | ({"s3.path-style-access": "true"} if store.endpoint is not None else {})
