"""How a measurement is taken: interleaved runs, medians, marks.

A module under `bench/` exports `cases()`. Each case does one run when called
and returns a rate, or whatever its unit says. Subject and peer take turns, so
that a noisy neighbour or a warm cache meets both alike. A case that breaks is
reported and fails the whole, but hides no other.
"""

import math
import os
import statistics
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

RUNS: Final = 5
SHORT: Final = "DRAY_BENCH_SHORT"
"""Set in the environment of a run that is only to be tried."""


def sized(whole: int, short: int) -> int:
    """How much work a case does: all of it, or enough to see that it runs."""
    return short if os.environ.get(SHORT) else whole


class BadSample(ValueError):
    """A run returned something that is no measurement."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Ours against a peer on the same work; both return a rate, higher is better."""

    name: str
    subject: Callable[[], float]
    peer: Callable[[], float]
    mark: float
    """The least ratio subject/peer that passes."""
    unit: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Absolute:
    """One figure against a fixed mark."""

    name: str
    run: Callable[[], float]
    mark: float
    unit: str
    at_most: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """Figures that are worth knowing and have no mark."""

    name: str
    run: Callable[[], dict[str, float]]
    note: str = ""


Case: TypeAlias = Comparison | Absolute | Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one case."""

    module: str
    name: str
    kind: str
    unit: str = ""
    note: str = ""
    mark: float | None = None
    at_most: bool = False
    samples: Mapping[str, Sequence[float]] = field(default_factory=dict)
    medians: Mapping[str, float] = field(default_factory=dict)
    ratio: float | None = None
    passed: bool | None = None
    """None where there is no mark to miss."""
    error: str | None = None

    @property
    def failed(self) -> bool:
        return self.error is not None or self.passed is False


Progress: TypeAlias = Callable[[str], None]


def measure(module: str, case: Case, progress: Progress = lambda _: None, runs: int = RUNS) -> Outcome:
    """Run one case; an exception in it becomes an outcome with an error."""
    try:
        match case:
            case Comparison():
                return _compare(module, case, progress, runs)
            case Absolute():
                return _absolute(module, case, progress, runs)
            case Report():
                return _report(module, case, progress)
    except Exception as error:
        return broken(module, case.name, error, kind=type(case).__name__.lower(), note=case.note)


def broken(module: str, name: str, error: BaseException, kind: str = "module", note: str = "") -> Outcome:
    """The outcome of a case, or of a whole module, that could not be measured."""
    where = traceback.extract_tb(error.__traceback__)[-1:]
    place = "".join(f" at {frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in where)
    return Outcome(module=module, name=name, kind=kind, note=note, error=f"{type(error).__name__}: {error}{place}")


def _compare(module: str, case: Comparison, progress: Progress, runs: int) -> Outcome:
    sides = {"subject": case.subject, "peer": case.peer}
    for side, run in sides.items():
        progress(f"{case.name}: warm-up, {side}")
        run()
    samples: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(runs):
        for side, run in sides.items():
            progress(f"{case.name}: run {turn + 1}/{runs}, {side}")
            samples[side].append(_rate(run()))
    medians = {side: statistics.median(taken) for side, taken in samples.items()}
    ratio = medians["subject"] / medians["peer"]
    return Outcome(
        module=module, name=case.name, kind="comparison", unit=case.unit, note=case.note, mark=case.mark,
        samples=samples, medians=medians, ratio=ratio, passed=ratio >= case.mark,
    )  # fmt: skip


def _absolute(module: str, case: Absolute, progress: Progress, runs: int) -> Outcome:
    progress(f"{case.name}: warm-up")
    case.run()
    taken = []
    for turn in range(runs):
        progress(f"{case.name}: run {turn + 1}/{runs}")
        taken.append(_finite(case.run()))
    median = statistics.median(taken)
    return Outcome(
        module=module, name=case.name, kind="absolute", unit=case.unit, note=case.note, mark=case.mark,
        at_most=case.at_most, samples={"subject": taken}, medians={"subject": median},
        passed=median <= case.mark if case.at_most else median >= case.mark,
    )  # fmt: skip


def _report(module: str, case: Report, progress: Progress) -> Outcome:
    progress(case.name)
    figures = {name: _finite(value) for name, value in case.run().items()}
    return Outcome(
        module=module, name=case.name, kind="report", note=case.note, medians=figures,
        samples={name: [value] for name, value in figures.items()},
    )  # fmt: skip


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise BadSample(f"a run returned {value}")
    return float(value)


def _rate(value: float) -> float:
    if _finite(value) <= 0:
        raise BadSample(f"a run returned the rate {value}; a rate is above zero")
    return float(value)


def table(outcomes: Sequence[Outcome]) -> str:
    """The outcomes as a Markdown table."""
    rows = ["| case | dray | peer | ratio | mark | |", "| --- | ---: | ---: | ---: | ---: | --- |"]
    for outcome in outcomes:
        rows.extend(_rows(outcome))
    return "\n".join(rows) + "\n"


def _rows(outcome: Outcome) -> list[str]:
    name = f"{outcome.module}: {outcome.name}"
    if outcome.note:
        name += f" ({outcome.note})"
    if outcome.error is not None:
        return [_row(name, "", "", "", "", f"ERROR {outcome.error}")]
    if outcome.kind == "report":
        return [_row(f"{name}: {figure}", _figure(value), "", "", "", "") for figure, value in outcome.medians.items()]
    mark = "" if outcome.mark is None else f"{'≤' if outcome.at_most else '≥'} {_figure(outcome.mark)}"
    verdict = "pass" if outcome.passed else "MISSED"
    subject = f"{_figure(outcome.medians['subject'])} {outcome.unit}"
    if outcome.ratio is None:
        return [_row(name, subject, "", "", f"{mark} {outcome.unit}", verdict)]
    peer = f"{_figure(outcome.medians['peer'])} {outcome.unit}"
    return [_row(name, subject, peer, f"{outcome.ratio:.2f}", mark, verdict)]


def _row(*cells: str) -> str:
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
