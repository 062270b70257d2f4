"""How far tables are behind a steady load, and what compaction costs those who produce meanwhile.

1,000 records of 1 KiB a second over 64 streams of 8 topics, into a broker that compacts what is 20 s old, and before
that into one that does not compact. The age of a range is that of its first record when the snapshot with it was made;
what was sent before every table had its first snapshot, while Spark started, is not counted.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

from bench._brokers import ROOT, BadRun, create_topic, records_in
from bench._targets import Running, ready_address
from bench.harness import Absolute, Case, Report, sized
from dray.tables import fence
from dray.tables.places import NAME, sqlite_file
from dray.tables.snapshots import OFFSETS
from tools.peers.process import run, spawn, stop

TOPICS: Final = 8
PARTITIONS: Final = 8
RATE: Final = sized(1_000, 200)
WINDOW_S: Final = sized(20, 20)
WINDOWS: Final = sized(4, 2)
WARM_WINDOWS: Final = 15
"""At most, before it is counted: Spark starts in them, and the first cycle makes the tables."""
DUE_S: Final = 20
SLACK_S: Final = 15
ALL_SECONDS: Final = 300.0
COMPACTING: Final = (
    "compaction.enabled=true", f"compaction.max_age={DUE_S}s", "compaction.look=1s", "compaction.master=local[2,4]",
)  # fmt: skip


@contextmanager
def broker_of(*settings: str) -> Iterator[Running]:
    program = Path(sys.executable).with_name("drayd")
    with tempfile.TemporaryDirectory(prefix="dray-bench-fresh-") as made:
        root = Path(made)
        command = [
            program,
            "dev",
            "--data",
            root / "data",
            "--kafka",
            "127.0.0.1:0",
            "--http",
            "127.0.0.1:0",
            "--grpc",
            "",
        ]
        with (root / "drayd.log").open("wb") as log:
            process = spawn(
                [*command, *(word for one in settings for word in ("--set", one))], stdout=subprocess.PIPE, stderr=log
            )
        try:
            address = ready_address(process, root / "drayd.log")
            yield Running(address=address, pid=process.pid, ready_s=0, directory=root / "data")
        finally:
            stop(process)


def load(broker: Running, topics: list[str], windows: int) -> tuple[list[dict[str, float]], dict[str, list[int]]]:
    """Latencies of each window; and of each partition the offsets and times that were kept."""
    with tempfile.NamedTemporaryFile(suffix=".times") as times:
        command = [sys.executable, "-m", "bench._steadyload", broker.address, ",".join(topics), str(PARTITIONS)]
        command += [f"--rate={RATE}", f"--window={WINDOW_S}", f"--windows={windows}", f"--times={times.name}"]
        said = json.loads(run(command, directory=ROOT, seconds=windows * WINDOW_S + ALL_SECONDS))
        kept = defaultdict[str, list[int]](list)
        for line in Path(times.name).read_text(encoding="utf-8").splitlines():
            topic, partition, *numbers = line.split()
            kept[f"{topic} {partition}"] += map(int, numbers)
    if said["errors"]:
        raise BadRun(f"records were not taken: {said['errors']}")
    return said["windows"], kept


@cache
def without() -> list[dict[str, float]]:
    """Windows of a broker that does not compact; the first one warms it up."""
    with broker_of("compaction.enabled=false") as broker:
        topics = [create_topic(broker, PARTITIONS) for _ in range(TOPICS)]
        return load(broker, topics, 1 + WINDOWS)[0][1:]


@cache
def beside() -> tuple[list[dict[str, float]], list[float]]:
    """Windows of one that does, and the age of each range that came into a table."""
    with broker_of(*COMPACTING) as broker:
        assert broker.directory is not None
        topics = [create_topic(broker, PARTITIONS) for _ in range(TOPICS)]
        for _ in range(WARM_WINDOWS):
            load(broker, topics, 1)
            if _are_made(broker.directory, topics):
                break
        else:
            raise BadRun(f"no cycle came to its end in {WARM_WINDOWS * WINDOW_S} s")
        windows, kept = load(broker, topics, WINDOWS)
        catalog = _catalog(broker.directory)
        whole = _await_all(broker, catalog, topics)
        return windows, _ages(catalog, topics, kept) if whole else []


def _catalog(directory: Path) -> Catalog:
    return load_catalog(NAME, type="sql", uri=f"sqlite:///{sqlite_file(directory)}")


def _are_made(directory: Path, topics: list[str]) -> bool:
    """Whether the first cycle is over for every topic."""
    if not sqlite_file(directory).exists():
        return False
    catalog = _catalog(directory)
    try:
        return all(catalog.load_table(("topics", topic)).metadata.snapshots for topic in topics)
    except (NoSuchTableError, NoSuchNamespaceError):
        return False


def _await_all(broker: Running, catalog: Catalog, topics: list[str]) -> bool:
    """Until every record is in its table; False if that takes for ever."""
    wanted, end = {topic: records_in(broker, topic, PARTITIONS) for topic in topics}, time.monotonic() + ALL_SECONDS
    while time.monotonic() < end:
        try:
            there = {
                topic: sum(fence.parse(catalog.load_table(("topics", topic)).properties.get(fence.PROPERTY)).values())
                for topic in topics
            }
        except Exception:  # the table is not there yet, or SQLite is busy
            there = {}
        if there == wanted:
            return True
        time.sleep(1)
    return False


def _ages(catalog: Catalog, topics: list[str], kept: dict[str, list[int]]) -> list[float]:
    """In seconds, of ranges whose first record was sent after their table was made."""
    ages = []
    for topic in topics:
        snapshots = catalog.load_table(("topics", topic)).metadata.snapshots
        after_ms = snapshots[0].timestamp_ms
        for snapshot in snapshots[1:]:
            summary = snapshot.summary
            told = None if summary is None else summary.additional_properties.get(OFFSETS)
            for partition, (start, _) in json.loads(told or "{}").items():
                numbers = kept[f"{topic} {partition}"]
                offsets, times = numbers[::2], numbers[1::2]
                at = bisect_right(offsets, start) - 1  # the record itself, or one that was sent just before
                if at >= 0 and times[at] >= after_ms:
                    ages.append((snapshot.timestamp_ms - times[at]) / 1000)
    return ages


def worst_age() -> float:
    ages = beside()[1]
    if not ages:
        raise BadRun("nothing that was sent after the first cycle came into a table in time: was the machine busy?")
    return max(ages)


def slower() -> float:
    """The median p99 of windows while compaction runs, over that without."""
    plain = statistics.median(window["p99_ms"] for window in without())
    return statistics.median(window["p99_ms"] for window in beside()[0]) / plain


def report() -> dict[str, float]:
    windows, ages = beside()
    found = {"ranges": float(len(ages))} | ({"median age, s": statistics.median(ages)} if ages else {})
    for name, taken in (("without compaction", without()), ("while compaction runs", windows)):
        for figure in ("p50_ms", "p99_ms"):
            found[f"produce {name}: {figure.replace('_', ' ')}"] = statistics.median(one[figure] for one in taken)
    return found


def cases() -> list[Case]:
    note = f"{RATE} records of 1 KiB a second, 64 streams of 8 topics, due after {DUE_S} s"
    return [
        Absolute("p99 of a produce while compaction runs over that without", slower, 2, "x", at_most=True, note=note),
        Absolute("oldest record that was not in its table", worst_age, DUE_S + SLACK_S, "s", at_most=True, note=note),
        Report("steady load", run=report),
    ]
