"""What one commit to a table costs while its snapshots grow from none to 500: one file each, the SQLite catalog.

Everything is measured that a compactor waits for: the table is loaded, judged, staged, its manifests, list and metadata
are put as synced objects, and the catalog is told. The files that are added are names only; nobody reads them here.
"""

import atexit
import shutil
import statistics
import tempfile
import time
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Final

from bench.harness import Absolute, Case, Report, sized
from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.ids import SystemEntropy
from dray.objects.files import FileObjects
from dray.offload import InlineOffload
from dray.tables.catalog import open_catalog
from dray.tables.fence import Range
from dray.tables.io import bound_store
from dray.tables.snapshots import MOST as KEPT
from dray.tables.snapshots import NewFile
from dray.tables.table import TableChange, TableOwner, TopicTables

MOST: Final = sized(500, 60)
STOPS: Final = [stop for stop in (10, 50, 100, 200, 300, 400, 500) if stop <= MOST]
ROWS: Final = 1_000
TOGETHER: Final = 10
"""Commits of one sample."""
OWNER: Final = TableOwner(name="orders", topic_id=bytes(16), cluster_id="bench")


class Growing:
    """A table that gets a file by every commit."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        atexit.register(self._stack.close)
        root = Path(tempfile.mkdtemp(prefix="dray-bench-iceberg-"))
        self._stack.callback(shutil.rmtree, root, ignore_errors=True)

        async def objects() -> FileObjects:
            opened = FileObjects(root / "objects", LocalDisk(), InlineOffload())
            await opened.open()
            return opened

        store = self._stack.enter_context(bound_store(f"file://{root}/objects", objects))
        self._tables = TopicTables(open_catalog("sqlite", root, store), store, SystemEntropy())
        self._clock = SystemClock()
        self.commits = 0

    def commit(self) -> tuple[float, float]:
        """Seconds and CPU seconds of one."""
        start = self.commits * ROWS
        file = NewFile(
            location=self._tables.store.location_of(f"compaction/v1/{start}.parquet"), partition=0, start=start,
            end=start + ROWS, rows=ROWS, size=1 << 20, min_timestamp_ms=start, max_timestamp_ms=start + ROWS,
        )  # fmt: skip
        change = TableChange(added=[file], ranges=[Range(partition=0, start=start, end=start + ROWS, floor=0)])
        began, spent = time.perf_counter(), time.process_time()
        self._tables.commit(OWNER, change, self._clock.wall_ms())
        self.commits += 1
        return time.perf_counter() - began, time.process_time() - spent

    def snapshots(self) -> int:
        table = self._tables.find(OWNER)
        return 0 if table is None else len(table.metadata.snapshots)


@cache
def growing() -> Growing:
    return Growing()


def growth() -> dict[str, float]:
    """Medians of the ten commits before each stop."""
    table, taken, found = growing(), list[tuple[float, float]](), dict[str, float]()
    for stop in STOPS:
        while table.commits < stop:
            taken.append(table.commit())
        last = taken[-TOGETHER:]
        found[f"{stop} snapshots, ms"] = 1000 * statistics.median(wall for wall, _ in last)
        found[f"{stop} snapshots, ms CPU"] = 1000 * statistics.median(cpu for _, cpu in last)
    return found


def at_most() -> float:
    """The median of the ten commits that bring a table to as many as it keeps; one more would thin the older ones."""
    table = growing()
    while MOST == KEPT and table.snapshots() != MOST - TOGETHER:  # in the short form nothing is ever thinned
        table.commit()
    taken = [table.commit()[0] for _ in range(TOGETHER)]
    assert table.snapshots() >= MOST, table.snapshots()
    return statistics.median(taken)


def cases() -> list[Case]:
    return [
        Report("a commit to a table", run=growth),
        Absolute(f"a commit at {MOST} snapshots", at_most, mark=0.2, unit="s", at_most=True),
    ]
