"""A catalog, a store and files for tests of tables."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from dray.disk import Disk, LocalDisk
from dray.ids import SystemEntropy
from dray.objects.files import FileObjects
from dray.offload import InlineOffload
from dray.parquet.write import ParquetFile
from dray.records import NewRecord, build_batch, one_batch
from dray.records.arrow import to_arrow
from dray.tables.catalog import NAME, open_catalog, sqlite_file
from dray.tables.fence import Range
from dray.tables.io import BoundStore, bound_store
from dray.tables.snapshots import NewFile
from dray.tables.table import ChangeDone, TableChange, TableOwner, TopicTables

ORDERS = TableOwner(name="orders.eu", topic_id=bytes(range(16)), cluster_id="c1")
NOW_MS = 1_700_000_000_000
LATE_MS = 4_000_000_000_000
"""Later than any snapshot of a test."""


@dataclass(frozen=True)
class Warehouse:
    tables: TopicTables
    store: BoundStore
    root: Path

    @property
    def catalog(self) -> Catalog:
        return self.tables.catalog

    def file(self, partition: int, start: int, count: int, mark: str = "") -> NewFile:
        """A Parquet file in the store."""
        sink = io.BytesIO()
        file = ParquetFile(sink, partition)
        records = [NewRecord(b"k%d" % at, b"v%d" % at, NOW_MS + at) for at in range(start, start + count)]
        file.write(to_arrow([(one_batch(memoryview(build_batch(records))), start)]), append_time=False)
        facts = file.finish()
        name = f"compaction/v1/{partition}-{start}-{count}{mark}.parquet"
        self.store.put(name, sink.getvalue())
        return NewFile(
            location=self.store.location_of(name), partition=partition, start=facts.start, end=facts.end,
            rows=facts.rows, size=facts.size, min_timestamp_ms=facts.min_timestamp_ms,
            max_timestamp_ms=facts.max_timestamp_ms,
        )  # fmt: skip

    def append(self, partition: int, start: int, count: int, *, floor: int = 0, mark: str = "") -> ChangeDone:
        return self.tables.commit(ORDERS, appending(self.file(partition, start, count, mark), floor=floor), NOW_MS)

    def as_somebody_else(self, topic: TableOwner = ORDERS) -> Table:
        """The table as any user of PyIceberg has it."""
        catalog = load_catalog(NAME, type="sql", uri=f"sqlite:///{sqlite_file(self.root)}")
        return catalog.load_table(self.tables.identifier(topic.name))

    def rows(self, topic: TableOwner = ORDERS) -> list[tuple[int, int]]:
        """Partition and offset of every row, read by PyIceberg."""
        table = self.tables.find(topic)
        assert table is not None
        found = table.scan().to_arrow()
        return sorted(zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True))


def appending(*files: NewFile, floor: int = 0) -> TableChange:
    ranges = [Range(partition=file.partition, start=file.start, end=file.end, floor=floor) for file in files]
    return TableChange(added=files, ranges=ranges)


def span(partition: int, start: int, end: int) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in range(start, end)]


@contextmanager
def warehouse(root: Path, disk: Disk | None = None, kind: str = "sqlite") -> Iterator[Warehouse]:
    async def objects() -> FileObjects:
        opened = FileObjects(root / "objects", disk or LocalDisk(), InlineOffload())
        await opened.open()
        return opened

    with bound_store(f"file://{root}/objects", objects) as store:
        tables = TopicTables(open_catalog(kind, root, store), store, SystemEntropy())
        yield Warehouse(tables, store, root)
