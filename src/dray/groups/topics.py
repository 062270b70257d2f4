"""What the catalog has for a group: the topics under its names, and the names of its patterns.

A group has its own view of topics, because they live in another log. Whoever
sends a member's subscription sends along what the catalog has for it, with the
position at which that was so; later on, whoever keeps the group tells it what
changed.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from dray.groups.patterns import matching
from dray.machine.groups.beats import MAX_NAMES, RegexRow, SetTopics, TopicRow
from dray.machine.groups.consumer import ConsumerGroup
from dray.offload import Offload
from dray.replica.domains import Domains
from dray.replica.replica import Replica
from dray.topics.service import TopicService

INLINE_NAMES: Final = 200
"""So many names are matched at once, without a thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Topics as the catalog had them at a position."""

    catalog: int
    rows: tuple[TopicRow, ...]


class TopicViews:
    """The catalog, as groups are told of it."""

    def __init__(self, *, domains: Domains, topics: TopicService, offload: Offload) -> None:
        self._catalog: Replica = domains.catalog
        self._topics = topics
        self._offload = offload

    @property
    def catalog(self) -> Replica:
        return self._catalog

    async def of(self, names: Iterable[str]) -> Seen:
        """What there is under these names; that there is nothing is said after a sync (TS1)."""
        wanted = list(dict.fromkeys(names))
        if any(self._topics.peek(name) is None for name in wanted):
            await self._catalog.sync()
        return self._seen(wanted)

    def news(self, group: ConsumerGroup) -> SetTopics | None:
        """What changed under the names of a group since it was told; none if nothing did."""
        views = group.topics.views
        seen = self._seen(group.topics.names())
        rows = []
        for row in seen.rows:
            view = views.get(row.name)
            if view is None or ((view.id, view.partitions) != (row.topic_id, row.partitions)):
                rows.append(row)
        return SetTopics(group=group.id, catalog=seen.catalog, topics=tuple(rows[:MAX_NAMES])) if rows else None

    async def resolve(self, group: ConsumerGroup, patterns: Iterable[str]) -> SetTopics | None:
        """What these patterns stand for now; none if a group knows that already."""
        catalog = self._catalog.machine.position
        # Read together, before anything is awaited: the position is true of all of it (G8).
        known = {topic.name: (topic.id, topic.visible) for topic in self._topics.visible()}
        rows = []
        for pattern in patterns:
            names = await self._matching(pattern, known)
            if group.topics.regexes.get(pattern) != names:
                rows.append(RegexRow(regex=pattern, names=names))
        if not rows:
            return None
        new = dict.fromkeys(name for row in rows for name in row.names if name not in group.topics.views)
        topics = [TopicRow(name=name, topic_id=known[name][0], partitions=known[name][1]) for name in new]
        return SetTopics(group=group.id, catalog=catalog, topics=tuple(topics[:MAX_NAMES]), regexes=tuple(rows))

    async def _matching(self, pattern: str, names: Collection[str]) -> tuple[str, ...]:
        if len(names) <= INLINE_NAMES:
            return matching(pattern, names)[:MAX_NAMES]
        return (await self._offload.run(matching, pattern, list(names)))[:MAX_NAMES]

    def _seen(self, names: Iterable[str]) -> Seen:
        rows = []
        for name in names:
            topic = self._topics.peek(name)
            if topic is None:
                rows.append(TopicRow(name=name))
            else:
                rows.append(TopicRow(name=name, topic_id=topic.id, partitions=topic.visible))
        return Seen(catalog=self._catalog.machine.position, rows=tuple(rows))
