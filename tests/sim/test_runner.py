"""Seeds: they repeat, they find planted bugs, and they are clean without one."""

import asyncio
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dray.machine.sessions import Sessions
from dray.sim import runner
from dray.sim.runner import main, scenario_of, simulate
from dray.sim.scenarios import PLANTED, SCENARIOS
from tests.sim.found import find, known

KNOWN = known()

LIGHT = ("local", "memory", "ordering", "rollback")
"""Scenarios whose runs take less than a second."""

KEPT = [
    line.split(maxsplit=2)
    for line in (Path(__file__).parent / "seeds.txt").read_text().splitlines()
    if line and not line.startswith("#")
]


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "seed", "found"), KEPT or [("ordering", "1", "nothing yet")])
def test_a_seed_that_once_found_something_is_clean_now(scenario, seed, found):
    outcome = simulate(scenario, int(seed))
    assert outcome.violation is None, f"{scenario} {seed} ({found}): {outcome.violation}"


@pytest.mark.parametrize("name", sorted(name for name in PLANTED if name.startswith("ordering/")))
def test_each_planted_bug_of_the_self_test_is_found_within_200_seeds(name):
    """A simulator that finds no known bug proves nothing."""
    assert find(name, KNOWN.get(name, 1)) is not None, name


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(name for name in PLANTED if not name.startswith("ordering/")))
def test_each_bug_planted_in_the_product_is_found_within_200_seeds(name):
    """T02: what the clean runs prove is worth as much as the mistakes that they would have found."""
    assert find(name, KNOWN.get(name, 1)) is not None, name


@pytest.mark.parametrize("error", [TypeError, AttributeError, NameError])
@pytest.mark.parametrize("place", ["scenario", "process", "task"])
def test_a_planted_bug_is_not_found_by_its_own_words(monkeypatch, error, place):
    async def stumble(*_):
        raise error("of the plant")

    async def stumbles(world):
        match place:
            case "scenario":
                await stumble()
            case "process":
                world.node("a", stumble).start()
            case "task":
                world.network.start(stumble())
        await asyncio.sleep(1)

    monkeypatch.setitem(PLANTED, "stumbles", stumbles)
    monkeypatch.setattr("tests.sim.found.MOST", 3)
    assert "of the plant" in simulate("stumbles", 1).violation
    assert find("stumbles") is None


@pytest.mark.slow
def test_a_planted_bug_is_gone_after_its_run():
    before = dict(vars(Sessions))
    simulate("garbage/expired-may-write", 1)
    assert dict(vars(Sessions)) == before


def test_nothing_of_a_run_that_was_broken_off_is_left_to_somebody_elses_loop(monkeypatch):
    """Thrown away, a process starts its cleanup: without a loop of its own asyncio looks for another."""

    async def broken_off(world):
        async def boot(process):
            try:
                await world.loop.create_future()
            finally:
                await asyncio.gather(*(world.network.link("a", "log").never() for _ in range(3)))

        world.node("a", boot).start()
        await asyncio.sleep(1)
        raise world.violate("broken off")

    def run():
        other = asyncio.new_event_loop()
        asyncio.set_event_loop(other)
        try:
            return simulate("broken-off", 1).violation, asyncio.all_tasks(other)
        finally:
            asyncio.set_event_loop(None)
            other.close()

    monkeypatch.setitem(SCENARIOS, "broken-off", broken_off)
    with ThreadPoolExecutor(1) as thread:  # which has no loop from other tests
        assert thread.submit(run).result() == ("broken off", set())


@pytest.mark.slow
@pytest.mark.parametrize("name", LIGHT)
def test_the_first_seeds_of_light_scenarios_are_clean(name):
    for seed in (1, 2):
        outcome = simulate(name, seed)
        assert outcome.violation is None, f"seed={seed}: {outcome.violation}"


def test_five_hundred_seeds_meet_every_scenario_ten_times():
    met = Counter(map(scenario_of, range(1, 501)))
    assert met.keys() == SCENARIOS.keys()
    assert min(met.values()) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, 501, 25))
def test_five_hundred_seeds_are_clean(first):
    """T02, L-54, L-71, L-94, L-97.

    R-011..R-014, R-017..R-021, R-041..R-050, R-100, R-101, R-106..R-113, R-199, R-200
    """
    for seed in range(first, first + 25):
        outcome = simulate(scenario_of(seed), seed)
        assert outcome.violation is None, f"scenario={outcome.scenario} seed={seed}: {outcome.violation}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "signs"),
    [
        ("sessions", ["replica.session_expired", "nemesis      clone", "error=Superseded", "the log is away"]),
        ("checkpoints", ["replica.jumped", "log          trimmed", "agrees=False", "agrees=True"]),
        ("garbage", ["objects      deleted", "put reply lost", "late copy", "pause"]),
        ("rollback", ["error=Diverged"]),
        ("local", ["power cut", "log.torn_tail_cut"]),
        ("disks", ["log.trimmed", "error=LogFailed", "log.reconnecting", "session_expired", "error=Corrupt"]),
        (
            "upgrades",
            ["error=TooNew", "error=CheckpointTooNew", "rolled back to=", "activated", "log          trimmed"],
        ),
        ("recovery", ["the log is decayed", "the log is old copy", "error=LogDamaged"]),
        ("tables", ["catalog      committed", "objects      deleted", "pause"]),
        ("table-disks", ["catalog      committed", "power cut"]),
        ("groups-classic", ["Removal.EXPIRED", "EndPhase", "Rehome"]),
        ("groups-consumer", ["Removal.EXPIRED", "SetTarget", "SetTopics"]),
        ("heaps", ["heaps.turn_failed", "pause", "replica.session_expired", "jobs         left"]),
    ],
)
def test_the_first_seeds_show_what_a_scenario_is_about(name, signs):
    """A clean run in which nothing happened proves nothing."""
    missing = set(signs)
    for seed in range(1, 31):
        lines = "\n".join(simulate(name, seed, trace_limit=20_000, keep_trace=True).trace)
        missing = {sign for sign in missing if sign not in lines}
        if not missing:
            return
    assert not missing


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "seed"), [("ordering", "17"), ("pipelines", "3"), ("groups-consumer", "3")])
def test_a_run_repeats_exactly_in_another_process_under_another_hash_seed(scenario, seed):
    """SM1, SM4"""
    seen = set()
    for hash_seed in ("0", "7", "random"):
        done = subprocess.run(
            [sys.executable, "-m", "dray.sim", "--scenario", scenario, "--seed", seed],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        seen.add(done.stdout)
    assert len(seen) == 1
    assert "fingerprint=" in seen.pop()


def test_the_last_line_counts_seeds_and_violations_and_the_exit_code_tells(capsys):
    assert main(["--seeds", "3", "--first", "5", "--scenario", "ordering"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "sim seeds=3 violations=0"

    assert main(["--seeds", "2", "--scenario", "ordering/stale-read"]) == 1
    captured = capsys.readouterr()
    assert captured.out.splitlines()[-1] == "sim seeds=2 violations=2"
    assert "replay: python -m dray.sim --scenario ordering/stale-read --seed 1" in captured.err


def test_a_replay_prints_the_trace_and_the_same_violation(capsys):
    expected = simulate("ordering/repeats-count", 1)
    assert main(["--seed", "1", "--scenario", "ordering/repeats-count"]) == 1
    out = capsys.readouterr().out
    assert expected.violation in out
    assert f"fingerprint={expected.fingerprint}" in out
    assert "late copy" in out


@pytest.mark.slow
def test_seeds_give_the_same_outcomes_in_parallel():
    alone = sorted((o.seed, o.fingerprint) for o in runner.run_seeds(range(1, 17), "ordering", 1))
    together = sorted((o.seed, o.fingerprint) for o in runner.run_seeds(range(1, 17), "ordering", 2))
    assert alone == together


def test_an_unknown_scenario_is_refused_with_the_names_there_are():
    with pytest.raises(SystemExit, match="there are: appends"):
        main(["--scenario", "nope"])


def test_a_scenario_that_breaks_is_a_violation_with_its_traceback(monkeypatch):
    async def broken(world):
        raise KeyError("oops")

    monkeypatch.setitem(SCENARIOS, "broken", broken)
    outcome = simulate("broken", 1)
    assert "KeyError" in outcome.violation
    assert "in broken" in outcome.violation


@pytest.mark.slow
def test_a_step_that_never_ends_is_a_violation_that_shows_where(monkeypatch):
    async def spins(world):
        async def boot(process):
            while True:
                try:
                    len("spinning")
                except Exception:
                    continue

        world.node("a", boot).start()
        await world.loop.create_future()

    monkeypatch.setitem(SCENARIOS, "spins", spins)
    monkeypatch.setattr(runner, "CPU_SECONDS", 1)
    (outcome,) = runner.run_seeds([1], "spins", 1)
    assert "no end within 1 s of a processor" in outcome.violation
    assert "in boot" in outcome.violation
