"""How many groups there are and how many members they have, as metrics.

Each group is told by its keeper alone, the broker that clients are sent to, so
that sums over brokers are right.
"""

import asyncio
from collections import Counter
from typing import Final

from dray.clock import Clock
from dray.groups import telemetry
from dray.groups.placement import BrokerOrder
from dray.machine.groups.classic import ClassicGroup
from dray.machine.groups.consumer import ConsumerGroup
from dray.pace import Pace
from dray.replica.domains import Domains

EVERY_S: Final = 10.0
EMPTY: Final = "Empty"


class Census:
    """Counts the groups that this broker keeps."""

    def __init__(self, *, domains: Domains, routing: BrokerOrder, clock: Clock) -> None:
        self._domains = domains
        self._routing = routing
        self._clock = clock
        self._told: set[tuple[str, str]] = set()

    async def run(self) -> None:
        """Count and tell, for ever; at the end nothing is told any more."""
        try:
            while True:
                await self.look()
                await self._clock.sleep(EVERY_S)
        finally:
            self._tell(Counter(), Counter())

    async def look(self) -> None:
        """Count once. A group with committed offsets only is an empty classic one, as in Kafka's lists."""
        groups: Counter[tuple[str, str]] = Counter()
        members: Counter[str] = Counter()
        pace = Pace()
        for _, replica in self._domains:
            for name in replica.machine.groups.names() if replica.is_loaded else ():
                if pace.is_due():
                    await asyncio.sleep(0)
                if not replica.is_loaded:
                    break  # it went meanwhile
                if self._routing.rank(name) > 0:
                    continue
                match replica.machine.groups.find(name):
                    case ClassicGroup() | ConsumerGroup() as group:
                        groups[group.kind, group.state_name] += 1
                        members[group.kind] += len(group.members)
                    case _:
                        groups[ClassicGroup.kind, EMPTY] += 1
        self._tell(groups, members)

    def _tell(self, groups: Counter[tuple[str, str]], members: Counter[str]) -> None:
        for kind in (ClassicGroup.kind, ConsumerGroup.kind):
            telemetry.MEMBERS.labels(kind).set(members[kind])
        for labels, count in groups.items():
            telemetry.GROUPS.labels(*labels).set(count)
        for labels in self._told - groups.keys():
            telemetry.GROUPS.labels(*labels).set(0)
        self._told = set(groups)
