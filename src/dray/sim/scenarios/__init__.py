"""All scenarios by name. A run takes one of `SCENARIOS` by its seed; `PLANTED` hold a bug that must be found."""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final

from dray.sim.scenarios.appends import appends, latest
from dray.sim.scenarios.checkpoints import checkpoints
from dray.sim.scenarios.garbage import garbage
from dray.sim.scenarios.ordering import Bug, ordering
from dray.sim.scenarios.rollback import rollback
from dray.sim.scenarios.sessions import sessions
from dray.sim.world import World

Scenario = Callable[[World], Coroutine[object, object, None]]

SCENARIOS: Final[dict[str, Scenario]] = {
    "appends": appends,
    "checkpoints": checkpoints,
    "garbage": garbage,
    "latest": latest,
    "ordering": ordering,
    "rollback": rollback,
    "sessions": sessions,
}

PLANTED: Final[dict[str, Scenario]] = {f"ordering/{bug.value}": partial(ordering, bug=bug) for bug in Bug}
