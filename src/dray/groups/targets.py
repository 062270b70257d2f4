"""What whoever keeps a consumer group does for it: targets, news of topics, patterns.

None of it belongs to a member, so it belongs to no home. Everything here is
proposed and names what was seen: where two brokers do the same work at once,
the machine takes one of them (G8).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from dray.clock import Clock
from dray.groups import telemetry
from dray.groups.assignors import ASSIGNORS, Subscriber, Target
from dray.groups.topics import TopicViews
from dray.machine.groups.beats import (
    MAX_TARGET_MEMBERS,
    MAX_TARGET_PARTITIONS,
    SetTarget,
    TargetPart,
    TargetRow,
)
from dray.machine.groups.consumer import ConsumerGroup
from dray.machine.groups.masks import Masks, pack, partitions_of
from dray.machine.groups.names import MemberId
from dray.machine.names import TopicId
from dray.machine.verdict import Refused
from dray.offload import Offload
from dray.replica.replica import Replica

INLINE_PAIRS: Final = 2_000
"""Members times topics: so much is assigned at once, without a thread."""
MS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPace:
    """How often a group may be given new targets and have its patterns looked at."""

    assignment_ms: int = 1_000
    regex_ms: int = 10_000
    """At most so often, while topics come and go."""
    regex_idle_ms: int = 600_000
    """At least so often."""


@dataclass(slots=True)
class _Kept:
    """What a keeper remembers of a group: times only, so that losing it costs time."""

    target_ns: int | None = None
    resolved_ns: int | None = None
    compared: tuple[int, int] = (-1, -1)
    """The changes of the catalog and the revision of the group when its views were compared."""
    resolved: int = -1
    """The changes of the catalog when its patterns were."""


class ConsumerKeeping:
    """The consumer groups that this broker keeps."""

    def __init__(
        self, *, views: TopicViews, clock: Clock, offload: Offload, pace: TargetPace, assignors: tuple[str, ...]
    ) -> None:
        self._views = views
        self._clock = clock
        self._offload = offload
        self._pace = pace
        self._assignors = assignors
        self._kept: dict[str, _Kept] = {}
        self._changes = 0

    def catalog_changed(self) -> None:
        """Topics may have come, gone or grown: all groups are to be looked at."""
        self._changes += 1

    def is_due(self, group: ConsumerGroup) -> bool:
        """Whether anything is to be done for a group, now or after a pause."""
        if group.is_empty:
            return False
        kept = self._kept.get(group.id)
        unresolved = any(names is None for names in group.topics.regexes.values())
        return group.is_behind or unresolved or kept is None or kept.compared != (self._changes, group.revision)

    async def tend(self, replica: Replica, name: str, *, assignment_ms: int | None = None) -> int | None:
        """Do what is due for a group; in how many milliseconds there is more to do, none: when it moves.

        Raises:
            Unavailable, Unknown: look again later; what was proposed may have been applied.
        """
        group = replica.machine.groups.consumer(name)
        if group is None or group.is_empty:
            self._kept.pop(name, None)
            return None
        kept = self._kept.setdefault(name, _Kept())
        await self._tell_news(replica, group, kept)
        waits = (
            await self._resolve(replica, group, kept),
            await self._retarget(replica, name, kept, assignment_ms),
        )
        return min((wait for wait in waits if wait is not None), default=None)

    def forget(self, name: str) -> None:
        """Another broker keeps the group, or nobody."""
        self._kept.pop(name, None)

    async def _tell_news(self, replica: Replica, group: ConsumerGroup, kept: _Kept) -> None:
        """Also after a member came: the broker that heard it may have known an older catalog."""
        looked_at = self._changes, group.revision
        if kept.compared == looked_at:
            return
        news = self._views.news(group)
        if news is not None:
            await replica.propose(news)
            looked_at = looked_at[0], group.revision
        kept.compared = looked_at

    async def _resolve(self, replica: Replica, group: ConsumerGroup, kept: _Kept) -> int | None:
        """New patterns at once; all of them when topics changed, but not too often, and every so often anyway."""
        patterns = list(group.topics.regexes)
        if not patterns:
            return None
        now = self._clock.boot_ns()
        pause_ms = self._pace.regex_idle_ms if kept.resolved == self._changes else self._pace.regex_ms
        wait_ms = 0 if kept.resolved_ns is None else pause_ms - (now - kept.resolved_ns) // MS
        if wait_ms <= 0:
            kept.resolved_ns, kept.resolved = now, self._changes
        else:
            patterns = [pattern for pattern in patterns if group.topics.regexes[pattern] is None]
        found = await self._views.resolve(group, patterns) if patterns else None
        if found is not None:
            await replica.propose(found)
        return wait_ms if wait_ms > 0 else pause_ms

    async def _retarget(self, replica: Replica, name: str, kept: _Kept, assignment_ms: int | None) -> int | None:
        """Compute a target and propose it, unless the last one is too young."""
        group = replica.machine.groups.consumer(name)
        if group is None or not group.is_behind:
            return None
        now = self._clock.boot_ns()
        interval_ms = self._pace.assignment_ms if assignment_ms is None else assignment_ms
        if kept.target_ns is not None:
            wait_ms = interval_ms - (now - kept.target_ns) // MS
            if wait_ms > 0:
                return wait_ms
        epoch = group.epoch
        before = {member.id: member.target for member in group.members.values()}
        target = await self._assign(group)
        telemetry.TARGETS.observe((self._clock.boot_ns() - now) / 1e9)
        for command in slices(name, epoch, before, target):
            (verdict,) = await replica.propose(command)
            if isinstance(verdict, Refused):
                return 0  # it moved on meanwhile: look again
        kept.target_ns = now
        return None

    async def _assign(self, group: ConsumerGroup) -> Target:
        members = subscribers(group)
        sizes = group.topics.sizes()
        assign = ASSIGNORS[chosen(group, self._assignors)]
        if sum(1 + len(member.topics) for member in members) <= INLINE_PAIRS:
            return assign(members, sizes)
        return await self._offload.run(assign, members, sizes)


def chosen(group: ConsumerGroup, assignors: tuple[str, ...]) -> str:
    """The assignor that most members want; of equals the first, and that too if nobody wants any."""
    votes = dict.fromkeys(assignors, 0)
    for member in group.members.values():
        if member.assignor in votes:
            votes[member.assignor] += 1
    return max(votes, key=lambda name: votes[name])


def subscribers(group: ConsumerGroup) -> list[Subscriber]:
    """The members of a group, as an assignor sees them; equal subscriptions are kept once."""
    topics: dict[tuple[tuple[str, ...], str], frozenset[TopicId]] = {}
    found = []
    for member in group.members.values():
        wanted = member.names, member.regex
        if wanted not in topics:
            topics[wanted] = frozenset(group.subscribed(member))
        found.append(
            Subscriber(id=member.id, instance=member.instance, topics=topics[wanted], target=member.target)
        )  # fmt: skip
    return found


def slices(group: str, epoch: int, before: Mapping[MemberId, Masks], target: Target) -> Iterator[SetTarget]:
    """A target as commands of bounded size: only members whose target changed are named."""
    cut: list[TargetRow] = []
    room = MAX_TARGET_PARTITIONS
    number = 0
    for row in _rows({name: mine for name, mine in sorted(target.items()) if before.get(MemberId(name)) != mine}):
        count = sum(len(part.partitions) for part in row.parts)
        if cut and (len(cut) == MAX_TARGET_MEMBERS or count > room):
            yield SetTarget(group=group, epoch=epoch, slice=number, last=False, rows=tuple(cut))
            cut, room, number = [], MAX_TARGET_PARTITIONS, number + 1
        cut.append(row)
        room -= count
    yield SetTarget(group=group, epoch=epoch, slice=number, last=True, rows=tuple(cut))


def _rows(target: Target) -> Iterator[TargetRow]:
    """One row a member, or several if it is to own very much."""
    for name, mine in target.items():
        parts: list[TargetPart] = []
        room = MAX_TARGET_PARTITIONS
        for topic, mask in sorted(mine.items()):
            partitions = partitions_of(mask)
            start = 0
            while start < len(partitions):
                taken = partitions[start : start + room]
                parts.append(TargetPart(topic_id=topic, partitions=pack(taken)))
                start += len(taken)
                room -= len(taken)
                if not room:
                    yield TargetRow(member=MemberId(name), parts=tuple(parts))
                    parts, room = [], MAX_TARGET_PARTITIONS
        if parts or not mine:
            yield TargetRow(member=MemberId(name), parts=tuple(parts))
