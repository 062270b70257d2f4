"""What was planned stays until it is read, whatever retention, deletion and crashes do meanwhile.

Brokers here delete a dead object at their next look: no grace time hides a pin that is missing.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dray.machine.garbage import MAX_PINS
from dray.pipeline import planning
from dray.pipeline.errors import BrokenObject
from dray.pipeline.keeper import SHARES
from dray.pipeline.opening import read_directory
from dray.pipeline.pins import hold, socket_of
from tests.pipeline.parts import (
    HASTY,
    broker_process,
    create,
    delete,
    driver_process,
    found_hasty,
    let_garbage_pass,
    make_plan,
    names_of,
    numbered,
    pins_of,
    planned_of,
    produce,
    read,
    wait_until,
)

pytestmark = pytest.mark.slow  # each test has a broker of its own

QUICK_EXPIRY = ("session.ttl=9s", "session.keepalive=3s")


@pytest.fixture
def hasty(tmp_path):
    with broker_process(found_hasty(tmp_path / "data"), *HASTY, *QUICK_EXPIRY) as started:
        create(started.bootstrap, "kept", 1, retention_bytes=2_000)
        yield started


def test_a_plan_outlives_retention_deletion_and_a_killed_broker(hasty):
    """R-111, SP5, SP6: what was planned is read, each record once; with the driver's end it is let go."""
    create(hasty.bootstrap, "doomed", 1)
    with driver_process() as driver:
        make_plan(hasty.directory, driver, subscribe="kept")  # from here on something is held
        produce(hasty.bootstrap, "kept", numbered(0, 200), batch_size=1_000)
        produce(hasty.bootstrap, "doomed", numbered(0, 50))
        plan = make_plan(hasty.directory, driver, subscribe="kept,doomed", failOnDataLoss="false")
        planned, expected = planned_of(plan), read(plan)
        assert len(expected) > 50
        delete(hasty.bootstrap, "doomed")
        let_garbage_pass(hasty, "kept")
        hasty.kill()
        hasty.start()
        let_garbage_pass(hasty, "kept")
        assert planned <= names_of(hasty.directory)
        assert read(plan) == expected
    wait_until(lambda: not planned & names_of(hasty.directory))
    assert not pins_of(hasty.directory)
    with pytest.raises(BrokenObject, match=r"load the DataFrame again.*no such object"):
        read(plan)


def test_a_long_directory_for_temporary_files_is_no_obstacle(hasty, tmp_path, monkeypatch):
    """A container of a Spark cluster has one of more bytes than the address of a socket holds."""
    deep = tmp_path / ("c" * 120)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    produce(hasty.bootstrap, "far", numbered(0, 10))
    with driver_process() as driver:
        assert len(read(make_plan(hasty.directory, driver, subscribe="far"))) == 10
        assert len(pins_of(hasty.directory)) == 1
    wait_until(lambda: not pins_of(hasty.directory))


def test_nothing_dies_between_the_cut_and_its_pin(hasty, driver, monkeypatch):
    """SP5: whatever dies up to the moment of the pin is not in the plan. Fails if the state is read before the pin."""
    produce(hasty.bootstrap, "kept", numbered(0, 200), batch_size=1_000)
    doomed = names_of(hasty.directory)

    async def hold_late(*arguments: object, **options: object) -> None:
        produce(hasty.bootstrap, "kept", numbered(200, 200), batch_size=1_000)
        wait_until(lambda: not doomed & names_of(hasty.directory), 60)
        await hold(*arguments, **options)

    monkeypatch.setattr(planning, "hold", hold_late)
    rows = read(make_plan(hasty.directory, driver, subscribe="kept"))
    assert [row.offset for row in rows] == list(range(rows[0].offset, 400))
    assert rows[0].offset >= 200


def test_the_pin_is_in_the_log_before_the_state_is_read(hasty, monkeypatch):
    """SP5, SP6."""
    produce(hasty.bootstrap, "ordered", numbered(0, 10))
    seen = []

    @asynccontextmanager
    async def watched(directory):
        async with opening(directory) as metadata:
            seen.append(dict((await metadata.machine(0)).objects.pins))
            yield metadata

    opening = planning.open_metadata
    monkeypatch.setattr(planning, "open_metadata", watched)
    with driver_process() as driver:
        make_plan(hasty.directory, driver, subscribe="ordered")
    assert [len(pins) for pins in seen] == [1]


def test_plans_share_pins_and_none_is_refused_for_their_number(hasty):
    """SP7: a machine takes 1,000 pins of a session; a dashboard plans more often than that."""
    directory, _ = read_directory(str(hasty.directory))

    async def plan_often(driver: int) -> None:
        for _ in range(MAX_PINS // 50 + 2):
            await asyncio.gather(*(hold(directory, seconds=86_400, driver=driver) for _ in range(50)))

    with driver_process() as driver:
        asyncio.run(hold(directory, seconds=10, driver=driver))  # too short a one to be shared for long
        asyncio.run(plan_often(driver))
        assert 1 <= len(pins_of(hasty.directory)) <= 3 < SHARES
        assert len(keepers_of(driver)) == 1
    wait_until(lambda: not pins_of(hasty.directory))
    socket = socket_of(directory, driver)
    wait_until(lambda: not list(socket.parent.glob(f"{socket.name}*")))  # nothing is left behind


def test_a_hold_that_ran_out_is_given_back_though_the_driver_lives(hasty):
    """SP6."""
    directory, _ = read_directory(str(hasty.directory))
    with driver_process() as driver:
        asyncio.run(hold(directory, seconds=600, driver=driver))
        (longer,) = pins_of(hasty.directory)
        wait_until(lambda: asyncio.run(hold(directory, seconds=1, driver=driver)) or len(pins_of(hasty.directory)) == 2)
        wait_until(lambda: pins_of(hasty.directory).keys() == {longer})


def test_a_keeper_killed_with_its_driver_loses_its_pins_by_expiry(hasty):
    """R-111, SP6: nobody is left to give them back."""
    produce(hasty.bootstrap, "orphaned", numbered(0, 10))
    with driver_process() as driver:
        plan = make_plan(hasty.directory, driver, subscribe="orphaned")
        delete(hasty.bootstrap, "orphaned")
        let_garbage_pass(hasty, "kept")
        assert len(read(plan)) == 10
        (keeper,) = keepers_of(driver)
        os.kill(keeper, signal.SIGKILL)
    wait_until(lambda: not planned_of(plan) & names_of(hasty.directory))
    assert not pins_of(hasty.directory)


def test_a_driver_killed_with_9_gives_its_pins_back(hasty):
    """R-111: a whole Spark driver, whose JVM and daemons die with it."""
    produce(hasty.bootstrap, "read", numbered(0, 100))
    driver = subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.job", "hold", "local[1]", str(hasty.directory), "read"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert driver.stdout.readline() == "100\n"
        planned = names_of(hasty.directory)
        assert len(pins_of(hasty.directory)) == 1
        delete(hasty.bootstrap, "read")
        let_garbage_pass(hasty, "kept")
        assert planned <= names_of(hasty.directory)
    finally:
        driver.kill()
        driver.communicate()
    wait_until(lambda: not planned & names_of(hasty.directory))
    assert not pins_of(hasty.directory)


def keepers_of(driver: int) -> list[int]:
    """The processes that hold pins for a driver."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"dray.pipeline.keeper" in words and words[-2] == b"%d" % driver:
                found.append(int(entry.name))
    return found
