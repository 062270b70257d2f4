"""All scenarios by name. A run takes one of `SCENARIOS` by its seed; `PLANTED` hold a bug that must be found.

`BY_NAME` are run only when they are asked for: too few of their seeds have been run yet.

Each module owns its scenarios and the mistakes that they find; here they are only joined.
"""

from typing import Final

from dray.sim.planted import Scenario
from dray.sim.scenarios import (
    appends,
    checkpoints,
    disks,
    garbage,
    groups,
    heaps,
    local,
    ordering,
    pipelines,
    recovery,
    rollback,
    rules,
    sessions,
    tables,
    topics,
    upgrades,
)

_MODULES: Final = (
    appends, checkpoints, disks, garbage, local, ordering, pipelines, recovery, rollback, rules, sessions,
    topics, upgrades,
)  # fmt: skip

SCENARIOS: Final[dict[str, Scenario]] = {name: run for module in _MODULES for name, run in module.SCENARIOS.items()}
BY_NAME: Final[dict[str, Scenario]] = groups.BY_NAME | heaps.BY_NAME | tables.BY_NAME
PLANTED: Final[dict[str, Scenario]] = {
    name: run for module in (*_MODULES, groups, heaps, tables) for name, run in module.PLANTED.items()
}
