"""Where planted bugs are found, so that a test need not try all seeds; `python -m tests.sim.found` looks again.

A line of found.txt is a bug and a seed that finds it. A line that is not right any more costs time and nothing
else: whoever asks goes on with the other seeds.
"""

from pathlib import Path

from dray.sim.runner import simulate
from dray.sim.scenarios import PLANTED

MOST = 200
ACCIDENTS = ("TypeError", "AttributeError", "NameError")
FILE = Path(__file__).parent / "found.txt"


def known() -> dict[str, int]:
    return {name: int(seed) for name, seed in (line.split() for line in FILE.read_text().splitlines())}


def find(name: str, first: int = 1) -> int | None:
    """A seed up to `MOST` that finds the bug; `first` is tried before the others."""
    for seed in dict.fromkeys((first, *range(1, MOST + 1))):
        outcome = simulate(name, seed)
        if outcome.violation is not None and not is_accident(outcome.violation):
            print(f"{name}: seed {seed}: {outcome.violation.splitlines()[0]}")
            return seed
    return None


def is_accident(violation: str) -> bool:
    """Whether a run broke for the words of a plant, or of the scenario itself, and not for a promise.

    Wherever they were said: in the scenario, in a process that ended, or in work that nobody waited for.
    """
    return any(f"{error}(" in violation or f"\n{error}: " in violation for error in ACCIDENTS)


if __name__ == "__main__":
    before = known()
    found = {name: find(name, before.get(name, 1)) for name in sorted(PLANTED)}
    FILE.write_text("".join(f"{name} {seed}\n" for name, seed in found.items() if seed is not None))
