"""Run seeds: `python -m dray.sim --seeds N --first K`, or `--seed K` to replay one with its trace.

The last line is `sim seeds=N violations=V`; the exit code is 1 if V is not 0.
A seed names its scenario too, unless `--scenario` does.
"""

import argparse
import gc
import logging
import multiprocessing
import signal
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Final, NoReturn

import structlog

from dray.sim.loop import GATE, SimLoop, SimulationError, unheard
from dray.sim.planted import Scenario
from dray.sim.scenarios import BESIDE, PLANTED, SCENARIOS
from dray.sim.trace import Trace
from dray.sim.world import Violation, World

CPU_SECONDS: Final = 120
"""A run that takes more of a processor spins inside one step, where virtual bounds do not reach."""
_CHUNK: Final = 8


class StuckInAStep(KeyboardInterrupt):
    """One step took longer than a whole run may. A task lets only this kind pass through it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one seed came to."""

    seed: int
    scenario: str
    violation: str | None
    fingerprint: str
    steps: int
    seconds: float
    """Virtual time."""
    trace: list[str] = field(default_factory=list)


def scenario_of(seed: int) -> str:
    """The scenario that a seed names."""
    names = sorted(SCENARIOS)
    return names[seed % len(names)]


def find_scenario(name: str) -> Scenario:
    """A scenario by name, planted ones included."""
    found = SCENARIOS.get(name) or BESIDE.get(name) or PLANTED.get(name)
    if found is None:
        known = ", ".join([*sorted(SCENARIOS), *sorted(BESIDE), *sorted(PLANTED)])
        raise SystemExit(f"no scenario named {name}; there are: {known}")
    return found


def simulate(name: str, seed: int, *, trace_limit: int = 300, keep_trace: bool = False) -> Outcome:
    """Run one seed of one scenario from the beginning to the end; nothing of its world is left then."""
    collecting = gc.isenabled()
    gc.disable()  # or what the loop has left would end, and complain, before the world is closed
    gc.freeze()  # what was there before is no part of the world, and need not be looked through for it
    try:
        return _simulate(name, seed, trace_limit=trace_limit, keep_trace=keep_trace)
    finally:
        ended = SimLoop(seed)  # type: ignore[abstract]  # as that of the world, which is not kept
        ended.close()
        with unheard(ended):
            gc.collect()
        gc.unfreeze()
        if collecting:
            gc.enable()


def _simulate(name: str, seed: int, *, trace_limit: int, keep_trace: bool) -> Outcome:
    scenario = find_scenario(name)
    world = World(seed, trace_limit=trace_limit)
    violation: str | None
    kept = structlog.get_config()
    structlog.configure(
        processors=[_Tracer(world.trace)], wrapper_class=structlog.make_filtering_bound_logger(logging.INFO)
    )
    try:
        violation = _run(world, scenario)
        fingerprint = world.fingerprint()
        lines = world.trace.lines() if violation is not None or keep_trace else []
        return Outcome(
            seed=seed,
            scenario=name,
            violation=violation,
            fingerprint=fingerprint,
            steps=world.loop.steps,
            seconds=world.loop.time(),
            trace=lines,
        )
    finally:
        world.close()
        structlog.configure(**kept)


class _Tracer:
    """Log lines of the product become events of the trace: a replay shows what its operator would have read."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def __call__(self, _logger: object, level: str, line: structlog.typing.EventDict) -> NoReturn:
        gate = GATE.get()
        fields = " ".join(f"{name}={value}" for name, value in sorted(line.items()) if name != "event")
        self._trace.add(gate.name if gate is not None else "world", f"[{level}] {line['event']} {fields}")
        raise structlog.DropEvent


def _run(world: World, scenario: Scenario) -> str | None:
    """What was violated, or None."""
    broken: str | None = None
    try:
        world.run(scenario)
    except Violation as violation:
        broken = str(violation)
    except StuckInAStep as error:
        broken = str(error)
    except SimulationError as error:
        broken = f"{type(error).__name__}: {error}"
    except Exception as error:
        broken = f"the scenario raised {error!r}\n" + "".join(traceback.format_exception(error))
    if world.violations:
        return str(world.violations[0])
    if broken is not None:
        return broken
    failed = world.loop.failures + world.loop.untaken()
    return "nobody took: " + "; ".join(failed) if failed else None


def run_seeds(seeds: Sequence[int], scenario: str | None, jobs: int) -> Iterator[Outcome]:
    """Outcomes as they come; in order of seed if there is one job."""
    work = partial(_worker, scenario=scenario)
    chunks = [seeds[start : start + _CHUNK] for start in range(0, len(seeds), _CHUNK)]
    if jobs <= 1:
        yield from _flat(map(work, chunks))
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs) as pool:
        yield from _flat(pool.imap_unordered(work, chunks))


def _flat(parts: Iterable[list[Outcome]]) -> Iterator[Outcome]:
    for part in parts:
        yield from part


def _worker(seeds: Sequence[int], scenario: str | None) -> list[Outcome]:
    outcomes = []
    for seed in seeds:
        name = scenario or scenario_of(seed)
        previous = signal.signal(signal.SIGPROF, _stuck)
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        try:
            outcomes.append(simulate(name, seed))
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, previous)
    return outcomes


def _stuck(_number: int, frame: FrameType | None) -> None:
    where = "".join(traceback.format_stack(frame, limit=8))
    raise StuckInAStep(f"no end within {CPU_SECONDS} s of a processor, in\n{where}")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m dray.sim", description="Run seeded simulations.")
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seed", type=int, default=None, help="replay this seed and print its trace")
    parser.add_argument("--scenario", default=None, help="run this scenario instead of the one the seed names")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args(arguments)
    if options.scenario is not None:
        find_scenario(options.scenario)
    if options.seed is not None:
        return _replay(options.seed, options.scenario)
    seeds = range(options.first, options.first + options.seeds)
    violations = hours = 0.0
    for done, outcome in enumerate(run_seeds(seeds, options.scenario, options.jobs), start=1):
        hours += outcome.seconds / 3600
        if outcome.violation is not None:
            violations += 1
            _print_violation(outcome)
        if done % 1000 == 0:
            print(f"{done} of {len(seeds)} seeds, {hours:.0f} virtual hours, {violations:.0f} violations", flush=True)
    print(f"sim seeds={len(seeds)} violations={violations:.0f}")
    return 1 if violations else 0


def _replay(seed: int, scenario: str | None) -> int:
    outcome = simulate(scenario or scenario_of(seed), seed, trace_limit=20_000, keep_trace=True)
    print("\n".join(outcome.trace))
    print(f"fingerprint={outcome.fingerprint} steps={outcome.steps} virtual_seconds={outcome.seconds:.0f}")
    if outcome.violation is not None:
        print(f"violation in scenario {outcome.scenario}: {outcome.violation}")
    print(f"sim seeds=1 violations={int(outcome.violation is not None)}")
    return 1 if outcome.violation is not None else 0


def _print_violation(outcome: Outcome) -> None:
    print(f"seed {outcome.seed}, scenario {outcome.scenario}: {outcome.violation}", file=sys.stderr)
    for line in outcome.trace[-30:]:
        print(f"    {line}", file=sys.stderr)
    print(
        f"  replay: python -m dray.sim --scenario {outcome.scenario} --seed {outcome.seed}", file=sys.stderr, flush=True
    )
