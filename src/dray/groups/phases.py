"""How often groups rebalance, and how long they are in each phase, as metrics.

Told by the keeper of a group alone, so that sums over brokers are right. It
ends the phases itself, or computes the targets, so it sees each of them begin.
"""

from dataclasses import dataclass
from typing import Final

from dray.clock import Clock
from dray.groups import telemetry
from dray.machine.groups.classic import ClassicGroup
from dray.machine.groups.consumer import ConsumerGroup
from dray.machine.groups.group import Group
from dray.machine.groups.members import ConsumerState
from dray.machine.groups.roster import Completing, Preparing

STEADY: Final = "steady"
_RECONCILING: Final = {ConsumerState.RECONCILING: "reconciling"}


@dataclass(frozen=True, slots=True)
class _Seen:
    """A group at the last look."""

    phase: str
    generation: int
    since_ns: int


class PhaseWatch:
    """Looks at groups when they move."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, _Seen] = {}

    def look(self, name: str, group: Group | None) -> None:
        """The group has moved; None: it is gone, or kept by another broker."""
        if group is None:
            self._seen.pop(name, None)
            return
        before, phase, generation = self._seen.get(name), _phase(group), _generation(group)
        if before is not None and generation > before.generation:
            # A classic group may have had several while nobody looked; targets come one at a time.
            count = generation - before.generation if isinstance(group, ClassicGroup) else 1
            telemetry.REBALANCES.labels(group.kind).inc(count)
        now_ns = self._clock.boot_ns()
        if before is not None and phase == before.phase:
            now_ns = before.since_ns
        elif before is not None and before.phase != STEADY:
            telemetry.PHASE.labels(before.phase).observe((now_ns - before.since_ns) / 1e9)
        if group.is_idle:
            self._seen.pop(name, None)  # the next one to come begins a phase
        else:
            self._seen[name] = _Seen(phase, generation, now_ns)


def _generation(group: Group) -> int:
    return group.assignment_epoch if isinstance(group, ConsumerGroup) else group.last_generation


def _phase(group: Group) -> str:
    if isinstance(group, ConsumerGroup):
        return "assigning" if group.is_behind else _RECONCILING.get(group.state, STEADY)
    match group.state if isinstance(group, ClassicGroup) else None:
        case Preparing(initial=True):
            return "initial"
        case Preparing():
            return "preparing"
        case Completing():
            return "completing"
        case _:
            return STEADY
