"""What the members of a group subscribe, and what the group knows of those topics.

The catalog is another log, so a group has its own view of each topic, true at
a position of the catalog. It changes only by commands, and never back. The
names that a pattern stands for are part of the view: `apply` matches nothing.

Invariants
    G8  A target is taken only whole, only for the group's present epoch, and
        only if everybody that it names is a member: a static one may have come
        back under another id. A view of a topic is taken only from a later
        catalog position.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dray.machine.names import ZERO_TOPIC, TopicId


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic under a name, as the catalog had it; without partitions there was none."""

    id: TopicId
    partitions: int
    catalog: int
    """The position of the catalog at which it was so."""


class Subscriptions:
    """The views of a group: of every name that a member or a pattern of a member wants."""

    __slots__ = ("_lists", "_patterns", "_wanted", "regexes", "resolved_at", "views")

    def __init__(self) -> None:
        self.views: dict[str, TopicView] = {}
        self.regexes: dict[str, tuple[str, ...] | None] = {}
        """The names of each pattern; none until they are known."""
        self.resolved_at: dict[str, int] = {}
        """The position of the catalog at which a pattern had those names."""
        self._wanted: dict[str, int] = {}
        """By how many members and patterns a name is wanted: derived."""
        self._patterns: dict[str, int] = {}
        self._lists: dict[tuple[str, ...], tuple[tuple[str, ...], int]] = {}
        """The lists of names that members have, each kept once, and how many have it."""

    def names(self) -> Iterator[str]:
        """All that are wanted."""
        return iter(self._wanted)

    def wants(self, name: str) -> bool:
        return name in self._wanted

    def is_resolved(self, regex: str) -> bool:
        return self.regexes.get(regex) is not None

    def names_of(self, names: Iterable[str], regex: str) -> set[str]:
        """All names of a subscription, those of its pattern too."""
        return {*names, *(self.regexes.get(regex) or ())} if regex else set(names)

    def topics_of(self, names: Iterable[str], regex: str) -> dict[TopicId, int]:
        """The topics of a subscription that exist, with their partitions."""
        found = {}
        for name in self.names_of(names, regex):
            view = self.views.get(name)
            if view is not None and view.partitions:
                found[view.id] = view.partitions
        return found

    def sizes(self) -> dict[TopicId, int]:
        """The partitions of all topics that exist."""
        return {view.id: view.partitions for view in self.views.values() if view.partitions}

    def add(self, names: tuple[str, ...], regex: str) -> tuple[str, ...]:
        """A member subscribes; returns its names, which all that have the same share in memory."""
        kept, count = self._lists.get(names, (names, 0))
        self._lists[kept] = kept, count + 1
        for name in kept:
            self._wanted[name] = self._wanted.get(name, 0) + 1
        if regex:
            self._patterns[regex] = self._patterns.get(regex, 0) + 1
            if regex not in self.regexes:
                self.regexes[regex] = None
        return kept

    def drop(self, names: tuple[str, ...], regex: str) -> None:
        """A member does not subscribe any more; what nobody wants is forgotten."""
        kept, count = self._lists[names]
        if count == 1:
            del self._lists[names]
        else:
            self._lists[kept] = kept, count - 1
        for name in names:
            self._unwant(name)
        if regex:
            self._patterns[regex] -= 1
            if not self._patterns[regex]:
                del self._patterns[regex]
                self.resolved_at.pop(regex, None)
                for name in self.regexes.pop(regex) or ():
                    self._unwant(name)

    def see(self, name: str, topic: TopicId, partitions: int, catalog: int) -> bool:
        """Take over a view if it is a later one (G8); whether the topic is another than before."""
        if name not in self._wanted:
            return False
        known = self.views.get(name, TopicView(ZERO_TOPIC, 0, -1))
        if known.catalog >= catalog:
            return False
        view = self.views[name] = TopicView(topic if partitions else ZERO_TOPIC, partitions, catalog)  # G8
        return (known.id, known.partitions) != (view.id, view.partitions)

    def resolve(self, regex: str, names: tuple[str, ...], catalog: int) -> bool:
        """Take over what a pattern stands for if that is known from a later position (G8); whether it differs."""
        if regex not in self.regexes or self.resolved_at.get(regex, -1) >= catalog:
            return False
        before = self.regexes[regex] or ()
        for name in names:
            self._wanted[name] = self._wanted.get(name, 0) + 1
        self.regexes[regex] = names  # G8
        self.resolved_at[regex] = catalog
        for name in before:
            self._unwant(name)
        return before != names

    def restore(self, regex: str, names: tuple[str, ...] | None, catalog: int) -> None:
        """What a checkpoint says of a pattern; members are added later."""
        self.regexes[regex] = names
        if catalog >= 0:
            self.resolved_at[regex] = catalog
        for name in names or ():
            self._wanted[name] = self._wanted.get(name, 0) + 1

    def forget_positions(self) -> None:
        """The catalog's log begins anew, and may be shorter: every view is as old as can be."""
        self.views = {name: TopicView(view.id, view.partitions, 0) for name, view in self.views.items()}
        self.resolved_at = dict.fromkeys(self.resolved_at, 0)

    def _unwant(self, name: str) -> None:
        self._wanted[name] -= 1
        if not self._wanted[name]:
            del self._wanted[name]
            self.views.pop(name, None)
