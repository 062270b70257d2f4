"""All scenarios by name. A run takes one of `SCENARIOS` by its seed; `PLANTED` hold a bug that must be found.

Those `BESIDE` them are asked for by name alone: so that a new one gives no seed another meaning.

Each module owns its scenarios and the mistakes that they find; here they are only joined.
"""

from typing import Final

from dray.sim.planted import Scenario
from dray.sim.scenarios import (
    appends,
    batches,
    checkpoints,
    delta,
    disks,
    garbage,
    groups,
    heap_history,
    heaps,
    local,
    ordering,
    pipelines,
    recovery,
    residence,
    rollback,
    rules,
    sessions,
    table_disks,
    tables,
    topics,
    upgrades,
)

_MODULES: Final = (
    appends, batches, checkpoints, delta, disks, garbage, groups, heaps, local, ordering, pipelines, recovery, rollback,
    rules, sessions, table_disks, tables, topics, upgrades,
)  # fmt: skip

SCENARIOS: Final[dict[str, Scenario]] = {name: run for module in _MODULES for name, run in module.SCENARIOS.items()}
PLANTED: Final[dict[str, Scenario]] = {
    name: run for module in (*_MODULES, residence) for name, run in module.PLANTED.items()
}
BESIDE: Final[dict[str, Scenario]] = heap_history.SCENARIOS | residence.SCENARIOS
