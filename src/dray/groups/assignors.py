"""Assignors: which member should own which partitions of what they subscribe.

Pure, and without floats: members come in the order of their instance ids, then
of their ids, topics in the order of theirs, partitions ascending. So any broker
finds the same target for the same group.

    range    as Kafka's: each topic cut into runs of neighbours, member by member
    uniform  sizes differ by at most one where all subscribe alike, and as few
             partitions move as that allows; where they do not, balance within
             each topic's subscribers comes before staying

The machine checks no target: a wrong one can make members wait, and cannot
give a partition to two of them (G6).

Invariants
    GA1  The output covers every partition of every subscribed topic once, only
         to subscribers, and does not depend on the order of the input.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cmp_to_key
from typing import Final, TypeAlias

from dray.machine.groups.masks import Masks, first, lowest, mask_of, partitions_of, size_of
from dray.machine.names import TopicId

ROUNDS: Final = 16
"""Over all topics, to even out what overlapping subscriptions left uneven."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """A member, as an assignor sees it."""

    id: str
    instance: str | None = None
    topics: frozenset[TopicId]
    """Those that it subscribes and that exist."""
    target: Mapping[TopicId, int] = field(default_factory=dict)
    """What it was to own until now."""


Sizes: TypeAlias = Mapping[TopicId, int]
"""How many partitions each topic has."""
Target: TypeAlias = dict[str, Masks]
"""What each member is to own."""
Assignor: TypeAlias = Callable[[Collection[Subscriber], Sizes], Target]


def assign_range(members: Collection[Subscriber], sizes: Sizes) -> Target:
    """Kafka's `range`."""
    target: Target = {member.id: {} for member in members}
    subscribers: dict[TopicId, int] = {}
    for topics, count in Counter(member.topics for member in members).items():
        for topic in topics:
            subscribers[topic] = subscribers.get(topic, 0) + count
    shares = {topic: divmod(sizes[topic], count) for topic, count in subscribers.items()}
    cursors = {topic: (0, 0) for topic in shares if sizes[topic]}
    for member in _in_order(members):
        mine = target[member.id]
        for topic in sorted(cursors.keys() & member.topics):
            given, start = cursors[topic]
            each, more = shares[topic]
            end = start + each + (given < more)
            mine[topic] = first(end) & ~first(start)
            if end < sizes[topic]:
                cursors[topic] = given + 1, end
            else:
                del cursors[topic]  # nothing is left, however many subscribers follow
        if not cursors:
            break
    return target


def assign_uniform(members: Collection[Subscriber], sizes: Sizes) -> Target:
    """Even, and with few moves."""
    # Who subscribes nothing gets nothing, and must not make equal subscriptions look different.
    target: Target = {member.id: {} for member in members}
    ordered = [member for member in _in_order(members) if member.topics]
    if ordered and all(member.topics == ordered[0].topics for member in ordered):
        return target | _Even(ordered, sizes).assign()
    return target | _Uneven(ordered, sizes).assign()


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}


def _in_order(members: Collection[Subscriber]) -> list[Subscriber]:
    """Static members first, by instance; then the others, by id."""
    return sorted(members, key=lambda one: (one.instance is None, one.instance or one.id, one.id))


class _Even:
    """All members subscribe alike: everybody gets the quota, some one more."""

    def __init__(self, members: Sequence[Subscriber], sizes: Sizes) -> None:
        self._members = members
        self._topics = sorted(members[0].topics)
        self._whole = {topic: first(sizes[topic]) for topic in self._topics}
        self._taken: Masks = dict.fromkeys(self._topics, 0)
        self._quota, self._extras = divmod(sum(sizes[topic] for topic in self._topics), len(members))

    def assign(self) -> Target:
        kept = {member.id: self._still_valid(member) for member in self._members}
        held = {name: size_of(mine) for name, mine in kept.items()}
        limits = self._limits(held)
        for name, mine in kept.items():
            if held[name] > limits[name]:
                self._release(mine, held[name] - limits[name])
        free = [(topic, self._whole[topic] & ~self._taken[topic]) for topic in reversed(self._topics)]
        free = [(topic, mask) for topic, mask in free if mask]
        for name, mine in kept.items():
            _hand_out(mine, limits[name] - held[name], free)
        return kept

    def _still_valid(self, member: Subscriber) -> Masks:
        """What a member may keep; what two were to own goes to the first."""
        mine: Masks = {}
        for topic, mask in member.target.items():
            if topic in self._taken:
                mask &= self._whole[topic] & ~self._taken[topic]
                if mask:
                    mine[topic] = mask
                    self._taken[topic] |= mask
        return mine

    def _limits(self, held: Mapping[str, int]) -> dict[str, int]:
        """Who holds more than the quota gets one of the extras first, so that it needs to give less."""
        limits = dict.fromkeys(held, self._quota)
        rich = sorted((name for name in held if held[name] > self._quota), key=lambda name: -held[name])
        lucky = rich[: self._extras]
        if len(lucky) < self._extras:
            known = set(lucky)
            others = (name for name in held if name not in known)
            lucky += [name for name, _ in zip(others, range(self._extras - len(lucky)), strict=False)]
        for name in lucky:
            limits[name] += 1
        return limits

    def _release(self, mine: Masks, over: int) -> None:
        """Give up the highest partitions of the last topics."""
        for topic in sorted(mine, reverse=True):
            count = mine[topic].bit_count()
            keep = lowest(mine[topic], max(0, count - over))
            self._taken[topic] &= ~(mine[topic] & ~keep)
            over -= count - keep.bit_count()
            if keep:
                mine[topic] = keep
            else:
                del mine[topic]
            if over == 0:
                return


def _hand_out(mine: Masks, need: int, free: list[tuple[TopicId, int]]) -> None:
    """Fill a member up from what is free; the next topic stands at the end."""
    while need > 0:
        topic, mask = free.pop()
        got = lowest(mask, need)
        mine[topic] = mine.get(topic, 0) | got
        need -= got.bit_count()
        if mask != got:
            free.append((topic, mask & ~got))


class _Uneven:
    """Members subscribe differently: the least loaded gets the next partition, then topics are evened out."""

    def __init__(self, members: Sequence[Subscriber], sizes: Sizes) -> None:
        self._members = members
        self._subscribers: dict[TopicId, list[int]] = {}
        for index, member in enumerate(members):
            for topic in member.topics:
                self._subscribers.setdefault(topic, []).append(index)
        self._load = [0] * len(members)
        self._held: dict[TopicId, dict[int, list[int]]] = {topic: {} for topic in self._subscribers}
        """By topic and member, ascending."""
        self._topics = self._by_weight(sizes)
        self._sizes = sizes

    def assign(self) -> Target:
        free = self._keep_valid()
        for topic in self._topics:
            self._hand_out(topic, free[topic])
        for _ in range(ROUNDS):
            moved = [self._even_out(topic) for topic in self._topics if len(self._subscribers[topic]) > 1]
            if not any(moved):
                break
        target: Target = {member.id: {} for member in self._members}
        for topic, held in self._held.items():
            for index, partitions in held.items():
                if partitions:
                    target[self._members[index].id][topic] = mask_of(partitions)
        return target

    def _by_weight(self, sizes: Sizes) -> list[TopicId]:
        """Most partitions for each subscriber first, then fewest subscribers, then by id."""

        def compare(one: TopicId, other: TopicId) -> int:
            ones, others = len(self._subscribers[one]), len(self._subscribers[other])
            weight = sizes[other] * ones - sizes[one] * others
            return weight or ones - others or (1 if one > other else -1)

        return sorted(self._subscribers, key=cmp_to_key(compare))

    def _keep_valid(self) -> Masks:
        """What members may keep; returns what is free of each topic."""
        free = {topic: first(self._sizes[topic]) for topic in self._topics}
        for index, member in enumerate(self._members):
            for topic, mask in member.target.items():
                if topic in member.topics and mask & free[topic]:
                    self._held[topic][index] = partitions_of(mask & free[topic])
                    self._load[index] += len(self._held[topic][index])
                    free[topic] &= ~mask
        return free

    def _hand_out(self, topic: TopicId, free: int) -> None:
        if not free:
            return
        held, load, width = self._held[topic], self._load, len(self._members)
        heap = [load[index] * width + index for index in self._subscribers[topic]]  # sorts by load, then by order
        heapq.heapify(heap)
        given: dict[int, list[int]] = {}
        for partition in partitions_of(free):
            least = heap[0]
            given.setdefault(least % width, []).append(partition)
            heapq.heapreplace(heap, least + width)
        for index, partitions in given.items():
            load[index] += len(partitions)
            held[index] = sorted(held.get(index, []) + partitions)

    def _even_out(self, topic: TopicId) -> bool:
        """Move partitions of a topic from its most to its least loaded subscriber while they differ by two or more."""
        held, load = self._held[topic], self._load
        givers = [index for index, partitions in held.items() if partitions]
        most, least = (
            max(map(load.__getitem__, givers), default=0),
            min(map(load.__getitem__, self._subscribers[topic])),
        )
        if most - least <= 1:
            return False
        low = [(load[index], index) for index in self._subscribers[topic]]
        high = [(-load[index], index) for index in givers]
        heapq.heapify(low)
        heapq.heapify(high)
        moved = False
        while high:
            count, giver = high[0]
            if -count != load[giver] or not held[giver]:
                heapq.heappop(high)  # it was pushed again with its true load when that changed
                continue
            while low[0][0] != load[low[0][1]]:
                heapq.heappop(low)
            least, taker = low[0]
            if -count - least <= 1:
                break
            held.setdefault(taker, []).append(held[giver].pop())
            load[giver] -= 1
            load[taker] += 1
            moved = True
            for index in (giver, taker):
                heapq.heappush(low, (load[index], index))
                heapq.heappush(high, (-load[index], index))
        if moved:
            for partitions in held.values():
                partitions.sort()
        return moved
