"""Several writers of one log: what they lose against one, and what the slowest of them gets.

three writers      three processes with one append in flight each, against one of three that writes with three in
                   flight: every process follows the log, as brokers do whether they write or not
one alone          commits of three such writers, and of one process that nobody follows: three of them read three times
                   as much as one, and here they share two cores with the server (Oxia's is our double, in Python)
slowest share      of three processes that always have something to write, on a log where writers race for each version

Places and entries are those of `engines`.
"""

import os
from contextlib import ExitStack
from functools import partial
from typing import Final

from bench import _engineplaces as places
from bench._engineplaces import Where, client
from bench.engines import PUT_INTO, ended, run_clients, started
from bench.harness import SHORT, Absolute, Case, Comparison, Report

SECONDS: Final = 1.0 if os.environ.get(SHORT) else 2.0
RACE_SECONDS: Final = {"directory": SECONDS, "S3 + 30 ms": 2 * SECONDS}
RACED: Final[dict[str, Where]] = {"directory": places.delta_directory, "S3 + 30 ms": places.delta_bucket}
WRITERS: Final = 3


def cases() -> list[Case]:
    return [
        *(
            Comparison(
                f"three writers on {name}", partial(_rate, where, WRITERS), partial(_rate, where, 1), 0.8,
                "commits/s", "against one of three, as many in flight",
            )
            for name, where in PUT_INTO.items()
        ),
        *(
            Report(f"three writers and one alone on {name}", partial(_alone, where), "as many in flight")
            for name, where in PUT_INTO.items()
        ),
        *(
            Absolute(
                f"deltalog, {name}: the slowest of three writers", partial(_least, name, where), 0.25,
                "of its share", note="three processes, never done",
            )
            for name, where in RACED.items()
        ),
        *(
            Report(f"deltalog, {name}, three writers", partial(_raced, name, where), "three processes, never done")
            for name, where in RACED.items()
        ),
    ]  # fmt: skip


def _rate(where: Where, writers: int, processes: int = WRITERS) -> float:
    with where() as place, ExitStack() as stack:
        beside = [stack.enter_context(started(client("follow", place))) for _ in range(processes - writers)]
        found = run_clients([client("write", place, str(WRITERS // writers), str(SECONDS))] * writers)
        ended(beside)
    return sum(len(one["latencies"]) / one["seconds"] for one in found)


def _alone(where: Where) -> dict[str, float]:
    return {"three, commits/s": _rate(where, WRITERS), "one alone, commits/s": _rate(where, 1, 1)}


def _race(name: str, where: Where) -> list[list[float]]:
    with where() as place:
        found = run_clients([client("write", place, "1", str(RACE_SECONDS[name]))] * WRITERS)
    return [one["latencies"] for one in found]


def _least(name: str, where: Where) -> float:
    counts = [len(own) for own in _race(name, where)]
    return min(counts) * WRITERS / sum(counts)


def _raced(name: str, where: Where) -> dict[str, float]:
    found = sorted(one for own in _race(name, where) for one in own)
    return {
        "commits/s": len(found) / RACE_SECONDS[name],
        "p50 ms": found[len(found) // 2] * 1e3,
        "p99 ms": found[len(found) * 99 // 100] * 1e3,
    }
