"""The configs of groups: what an operator said about some, kept with the catalog.

A group need not exist to have configs, and keeps them when it is gone, as
with Kafka. Which keys there are is for the service to say.
"""

from typing import Annotated, ClassVar, Final

import msgspec
from msgspec import Meta

from dray.machine.command import Command, Configs, Key, Packed
from dray.machine.head import Head
from dray.machine.keys import Shape
from dray.machine.names import SessionId
from dray.machine.noun import Listing, stray
from dray.machine.packing import Reader, Writer
from dray.machine.step import Step
from dray.machine.verdict import DONE, Verdict, Why, refused

MAX_GROUPS: Final = 100_000
MAX_CONFIGS: Final = 100
GROUP_CONFIG_KEY: Final = Shape("groups/$/config")


class AlterGroup(Packed, frozen=True, kw_only=True):
    """Change the configs of a group."""

    number = 36
    since = 2

    group: Annotated[str, Meta(min_length=1, max_length=32_767)]
    set: Configs = msgspec.field(default_factory=dict)
    remove: Annotated[tuple[Key, ...], Meta(max_length=200)] = ()


class GroupConfigs:
    """What was said about groups, kept in domain 0."""

    name: ClassVar[str] = "group-configs"
    since: ClassVar[int] = 2
    commands: ClassVar[tuple[type[Command], ...]] = (AlterGroup,)

    def __init__(self, head: Head) -> None:
        self._head = head
        self.all: dict[str, dict[str, str]] = {}

    def of(self, group: str) -> dict[str, str]:
        """What was set for a group."""
        return self.all.get(group, {})

    def apply(self, step: Step, command: Command) -> Verdict:
        if not isinstance(command, AlterGroup):
            return stray(command)
        if not self._head.is_catalog:
            return refused(Why.FOREIGN, "the catalog is domain 0")
        kept = {key: value for key, value in self.of(command.group).items() if key not in command.remove}
        configs = dict(sorted((kept | command.set).items()))
        if len(configs) > MAX_CONFIGS or (command.group not in self.all and len(self.all) >= MAX_GROUPS):
            return refused(Why.LIMIT, "too many configs, or too many groups with configs")
        if configs:
            self.all[command.group] = configs
        else:
            self.all.pop(command.group, None)
        step.catalog_changed = True
        return DONE

    def session_ended(self, step: Step, session: SessionId) -> None:
        """Configs belong to no session."""

    def dump(self, out: Writer, version: int) -> None:
        out.values([len(self.all)])
        for group, configs in sorted(self.all.items()):
            out.values([group, list(configs), list(configs.values())])

    def load(self, source: Reader, version: int) -> None:
        (groups,) = source.ints(1)
        for _ in range(groups):
            row = source.row()
            group = row.text()
            self.all[group] = dict(zip(row.texts(), row.texts(), strict=True))

    def show(self, prefix: str) -> Listing:
        for key, configs in sorted((GROUP_CONFIG_KEY.build(group), configs) for group, configs in self.all.items()):
            yield key, {"config": dict(configs)}
