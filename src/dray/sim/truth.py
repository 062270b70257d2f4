"""The log of one domain as it is, folded at the moment it changes: what checkers compare with."""

from collections.abc import Callable

from dray.machine.machine import Machine
from dray.machine.step import Applied
from dray.sim.log import LogEntry
from dray.sim.world import World


class Truth:
    """An own fold of the log, which no fault reaches."""

    def __init__(self, world: World, machine: Machine) -> None:
        self.machine = machine
        self.last_heard: dict[int, float] = {}
        """When the last executed entry of a session was ordered."""
        self.ended: set[int] = set()
        self.watchers: list[Callable[[LogEntry, Applied], None]] = []
        self._world = world

    def landed(self, entry: LogEntry) -> None:
        applied = self.machine.apply(entry.position, entry.entry, want_verdicts=True)
        self._world.check(
            applied.session not in self.ended or applied.verdicts is None,
            "an entry of an ended session was executed",
            session=applied.session,
        )
        if applied.verdicts is not None:
            self.last_heard[applied.session] = self._world.loop.time()
        for watcher in self.watchers:
            watcher(entry, applied)
        for end in applied.ended:
            self.ended.add(end.session)
