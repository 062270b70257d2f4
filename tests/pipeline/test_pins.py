"""What was planned stays until it is read, whatever retention, deletion and crashes do meanwhile.

Brokers here delete a dead object at their next look: no grace time hides a hold that is missing.
"""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from dray.cli.main import run
from dray.machine.holds import MAX_HOLDS
from dray.pipeline import pins, planning
from dray.pipeline.errors import BrokenObject, NotPinned
from dray.pipeline.opening import read_directory
from dray.pipeline.options import parse_options
from tests.pipeline.parts import (
    HASTY,
    broker_process,
    create,
    delete,
    found_hasty,
    holds_of,
    let_garbage_pass,
    make_plan,
    names_of,
    numbered,
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


def sessions_of(directory: Path) -> list[str]:
    """The names of those that live."""
    drayd, prefix = Path(sys.executable).parent / "drayd", "/dray/v1/sessions"
    answer = subprocess.run(
        [drayd, "admin", "meta", "ls", str(directory), prefix, "--format", "json"], capture_output=True, text=True,
        check=True, timeout=60,
    )  # fmt: skip
    found = [key["value"] for key in json.loads(answer.stdout)["keys"]]
    return [value["name"] for value in found if value.get("state") == "LIVE"]


def test_a_plan_outlives_retention_deletion_and_a_killed_broker_and_ends_by_time(hasty):
    """R-111, SP5, SP6, SP7, X9: what was planned is read, each record once; nobody lives for it."""
    create(hasty.bootstrap, "doomed", 1)
    produce(hasty.bootstrap, "kept", numbered(0, 200), batch_size=1_000)
    produce(hasty.bootstrap, "doomed", numbered(0, 50))
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    plan = make_plan(hasty.directory, subscribe="kept,doomed", failOnDataLoss="false", pinSeconds=40)
    planned, expected = planned_of(plan), read(plan)
    assert {process.pid for process in psutil.Process().children(recursive=True)} == before
    assert list(holds_of(hasty.directory)) == [plan.pin]
    assert not [name for name in sessions_of(hasty.directory) if name.startswith("plan")]
    assert len(expected) > 50
    delete(hasty.bootstrap, "doomed")
    let_garbage_pass(hasty, "kept")
    hasty.kill()
    hasty.start()
    assert planned <= names_of(hasty.directory)
    assert read(plan) == expected
    wait_until(lambda: not planned & names_of(hasty.directory))
    assert not holds_of(hasty.directory)
    with pytest.raises(BrokenObject, match=r"load the DataFrame again.*no such object"):
        read(plan)


def test_nothing_dies_between_the_cut_and_its_hold(hasty, monkeypatch):
    """SP5: whatever dies up to the moment of the hold is not in the plan. Fails if the state is read before it."""
    produce(hasty.bootstrap, "kept", numbered(0, 200), batch_size=1_000)
    doomed = names_of(hasty.directory)
    real = planning.held_state

    async def late(*arguments: object, **options: object) -> pins.HeldState:
        produce(hasty.bootstrap, "kept", numbered(200, 200), batch_size=1_000)
        wait_until(lambda: not doomed & names_of(hasty.directory), 60)
        return await real(*arguments, **options)

    monkeypatch.setattr(planning, "held_state", late)
    rows = read(make_plan(hasty.directory, subscribe="kept"))
    assert [row.offset for row in rows] == list(range(rows[0].offset, 400))
    assert rows[0].offset >= 200


def test_the_hold_is_part_of_the_state_that_a_plan_is_cut_from(hasty):
    """SP6"""
    directory, _ = read_directory(str(hasty.directory))
    state = asyncio.run(pins.held_state(directory, seconds=60))
    for machine in state.machines.values():
        assert list(machine.holds.current()) == [state.pin]


def test_plans_share_holds_and_who_shares_none_lets_go_early(hasty):
    """X10: all plans of a minute have one hold for a day."""
    plans = [make_plan(hasty.directory, subscribe="kept") for _ in range(5)]
    (pin,) = {plan.pin for plan in plans}
    assert list(holds_of(hasty.directory)) == [pin]
    directory, _ = read_directory(str(hasty.directory))
    options = parse_options({"path": str(hasty.directory), "subscribe": "kept"})
    own = asyncio.run(planning.plan_read(options, shared=False))
    assert set(holds_of(hasty.directory)) == {pin, own.pin}
    asyncio.run(pins.let_go(directory, own.pin))
    assert list(holds_of(hasty.directory)) == [pin]


def test_a_cluster_with_too_many_holds_says_so_at_once(hasty, monkeypatch):
    """SP6, X10"""
    directory, _ = read_directory(str(hasty.directory))
    pin = pins.Hold

    async def fill() -> None:
        async with pins.reach(directory, pins.effects()) as reached, pins._followed(reached) as replicas:
            for replica in replicas.values():
                await replica.propose(*(pin(pin=f"p{n}", length_ms=60_000, shared=False) for n in range(MAX_HOLDS)))

    asyncio.run(fill())
    with pytest.raises(NotPinned, match="drayd admin pins ls"):
        make_plan(hasty.directory, subscribe="kept")


def test_an_operator_sees_holds_and_drops_one(hasty, capsys):
    plan = make_plan(hasty.directory, subscribe="kept", pinSeconds=3_600)
    assert run(["admin", "pins", "ls", str(hasty.directory), "--format", "json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["pins"]
    assert (told["pin"], told["domain"]) == (plan.pin, 0)
    assert 3_500 < told["seconds_left"] <= 3_600
    assert run(["admin", "pins", "ls", str(hasty.directory)]) == 0
    assert plan.pin in capsys.readouterr().out
    assert run(["admin", "pins", "drop", str(hasty.directory), plan.pin]) == 0
    assert not holds_of(hasty.directory)
    assert run(["admin", "pins", "drop", str(hasty.directory), plan.pin]) == 1
    assert "no such pin" in capsys.readouterr().err


def test_a_driver_killed_with_9_leaves_a_hold_and_nothing_else(hasty):
    """R-111, SP7: a whole Spark driver, whose JVM and daemons die with it."""
    produce(hasty.bootstrap, "read", numbered(0, 100))
    driver = subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.job", "hold", "local[1]", str(hasty.directory), "read"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert driver.stdout.readline() == "100\n"
        planned = names_of(hasty.directory)
        (pin,) = holds_of(hasty.directory)
        delete(hasty.bootstrap, "read")
        let_garbage_pass(hasty, "kept")
        assert planned <= names_of(hasty.directory)
    finally:
        driver.kill()
        driver.communicate()
    assert run(["admin", "pins", "drop", str(hasty.directory), pin]) == 0
    wait_until(lambda: not planned & names_of(hasty.directory))


def test_rules_that_know_no_holds_are_read_without_one(tmp_path):
    """Between an upgrade and its activation: what a read has is the grace time."""
    with broker_process(found_hasty(tmp_path / "data", version=1)) as started:
        produce(started.bootstrap, "old", numbered(0, 10))
        plan = make_plan(started.directory, subscribe="old")
        assert plan.pin is None
        assert len(read(plan)) == 10
