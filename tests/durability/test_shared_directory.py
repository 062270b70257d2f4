"""Brokers that share directories and nothing else: the log is files that are created once."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.ids import SystemEntropy
from dray.objects.opening import StoreEffects, StoreOptions, open_store
from dray.offload import InlineOffload
from tests.durability.cluster import QUICK
from tests.durability.commits import check_commits
from tests.durability.daemon import Drayd
from tests.durability.survivors import the_third_has_everything

SEED = 20261121
pytestmark = pytest.mark.slow


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[Drayd]]:
    flags = [
        "--log", f"deltalog:{tmp_path / 'log'}", *QUICK, "--set", "cluster.domains=1",
        "--set", f"objects.url=file://{tmp_path / 'objects'}",
    ]  # fmt: skip
    found = [Drayd(tmp_path / f"broker-{n}", *flags, "--set", f"broker.id={n}") for n in (1, 2, 3)]
    with ExitStack() as stack, ThreadPoolExecutor(len(found)) as threads:
        for one in found:
            stack.push(one.__exit__)
        list(threads.map(Drayd.start, found))  # they begin the cluster together
        yield found


async def test_two_of_three_die_with_their_disks_and_the_third_has_everything(
    brokers: list[Drayd], tmp_path: Path
) -> None:
    """R-002, L-12, L-16: what they acknowledged lies in the directories, and the commits tell the same offsets."""
    await the_third_has_everything(brokers, tmp_path, SEED, seconds=14)
    effects = StoreEffects(clock=SystemClock(), entropy=SystemEntropy(), disk=LocalDisk(), offload=InlineOffload())
    log, records = [
        await open_store(f"file://{tmp_path / name}", StoreOptions(), effects) for name in ("log", "objects")
    ]
    await check_commits(log, records)
    await log.close()
    await records.close()
