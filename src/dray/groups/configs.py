"""The configs of a group: which keys there are, and what holds for a group about which nothing was said."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dray.errors import Invalid, Unavailable
from dray.groups.errors import BadGroupConfig
from dray.machine.group_configs import AlterGroup
from dray.machine.verdict import Done
from dray.replica.domains import Domains

SESSION: Final = "consumer.session.timeout.ms"
HEARTBEAT: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT: Final = "consumer.assignment.interval.ms"
_WHOLE: Final = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """A number that may be changed for a group, in milliseconds."""

    default: int
    low: int
    high: int


class GroupConfigService:
    """What holds for each group."""

    def __init__(self, *, domains: Domains, bounds: Mapping[str, Bounds]) -> None:
        self._catalog = domains.catalog
        self._bounds = bounds

    @property
    def keys(self) -> Mapping[str, Bounds]:
        return self._bounds

    def value(self, group: str, key: str) -> int:
        """What holds for a group: what was set, within the bounds of today."""
        bounds = self._bounds[key]
        text = self._catalog.machine.group_configs.of(group).get(key, "")
        if _WHOLE.fullmatch(text) is None:
            return bounds.default
        return max(bounds.low, min(int(text), bounds.high))

    def given(self, group: str) -> dict[str, str]:
        """What was set for a group."""
        return dict(self._catalog.machine.group_configs.of(group))

    def check(self, group: str, given: Mapping[str, str]) -> None:
        """Raise unless these may be set.

        Raises:
            Invalid: a group has a name.
            BadGroupConfig: an unknown key, or a value out of bounds.
        """
        if not group:
            raise Invalid("a group has a name")
        for key, text in given.items():
            bounds = self._bounds.get(key)
            if bounds is None:
                raise BadGroupConfig("there is no such config of a group", key=key[:100])
            if _WHOLE.fullmatch(text) is None or not bounds.low <= int(text) <= bounds.high:
                raise BadGroupConfig(
                    "the value is out of bounds", key=key, value=text[:100], low=bounds.low, high=bounds.high
                )

    async def alter(self, group: str, given: Mapping[str, str], remove: tuple[str, ...] = ()) -> None:
        """Change configs of a group; durable when it returns."""
        self.check(group, given)
        (verdict,) = await self._catalog.propose(AlterGroup(group=group, set=dict(given), remove=remove))
        if not isinstance(verdict, Done):
            raise Unavailable("the configs of groups are full", verdict=repr(verdict)[:200])
