"""Assignors: full cover, balance, few moves, and the same result for the same group."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.groups.assignors import ASSIGNORS, Subscriber, Target, assign_range, assign_uniform
from dray.machine.groups.masks import partitions_of, size_of
from dray.machine.names import TopicId

TOPICS = [TopicId(bytes([number]) * 16) for number in range(4)]


@st.composite
def groups(draw: st.DrawFn, *, alike: bool = False) -> tuple[list[Subscriber], dict[TopicId, int]]:
    """A group with any earlier targets: overlapping, of partitions and topics that are gone, of nobody."""
    sizes = {topic: draw(st.integers(0, 12)) for topic in draw(st.sets(st.sampled_from(TOPICS), min_size=1))}
    some = st.frozensets(st.sampled_from(sorted(sizes)))
    shared = draw(some)
    names = draw(st.lists(st.text("abé", min_size=1, max_size=3), unique=True, min_size=1, max_size=7))
    members = [
        Subscriber(
            id=name,
            instance=draw(st.none() | st.just("i" + name)),
            topics=shared if alike else draw(some),
            target=draw(st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 1 << 14), max_size=3)),
        )
        for name in names
    ]
    return members, sizes


def check_cover(members: list[Subscriber], sizes: Mapping[TopicId, int], target: Target) -> None:
    assert target.keys() == {member.id for member in members}
    seen: dict[TopicId, int] = {}
    for member in members:
        for topic, mask in target[member.id].items():
            assert mask
            assert topic in member.topics
            assert not seen.get(topic, 0) & mask
            seen[topic] = seen.get(topic, 0) | mask
    for topic in {topic for member in members for topic in member.topics}:
        assert seen.get(topic, 0) == (1 << sizes[topic]) - 1


def moves(members: list[Subscriber], target: Target) -> int:
    """How many partitions leave a member."""
    return sum(
        (mask & ~target[member.id].get(topic, 0)).bit_count()
        for member in members
        for topic, mask in member.target.items()
    )


@pytest.mark.slow
@given(groups(), st.randoms(use_true_random=False))
def test_every_partition_has_one_subscriber_in_whatever_order_members_come(
    group: tuple[list[Subscriber], dict[TopicId, int]], dice: Random
) -> None:
    """GA1, for every assignor."""
    members, sizes = group
    for assign in ASSIGNORS.values():
        target = assign(members, sizes)
        check_cover(members, sizes, target)
        mixed = [
            replace(member, target=dict(dice.sample(sorted(member.target.items()), len(member.target))))
            for member in dice.sample(members, len(members))
        ]
        assert assign(mixed, dict(dice.sample(sorted(sizes.items()), len(sizes)))) == target


@given(groups(alike=True))
def test_equal_subscriptions_get_sizes_that_differ_by_at_most_one(
    group: tuple[list[Subscriber], dict[TopicId, int]],
) -> None:
    """R-180."""
    members, sizes = group
    counts = [size_of(mine) for mine in assign_uniform(members, sizes).values()]
    assert max(counts) - min(counts) <= 1


@pytest.mark.slow
@given(groups(alike=True), st.data())
def test_as_few_partitions_move_as_balance_allows(
    group: tuple[list[Subscriber], dict[TopicId, int]], data: st.DataObject
) -> None:
    """R-180: members leave, one joins, partitions are added; only what exceeds a share moves."""
    members, sizes = group
    settled = assign_uniform(members, sizes)
    left = [replace(member, target=settled[member.id]) for member in members if data.draw(st.booleans())]
    left.append(Subscriber(id="new", topics=members[0].topics))
    grown = {topic: count + data.draw(st.integers(0, 3)) for topic, count in sizes.items()}
    target = assign_uniform(left, grown)

    quota, extras = divmod(sum(grown[topic] for topic in members[0].topics), len(left))
    held = sorted((size_of(member.target) for member in left), reverse=True)
    least = sum(max(0, count - quota - (rank < extras)) for rank, count in enumerate(held))
    assert moves(left, target) == least


@given(groups())
def test_an_unchanged_group_keeps_its_target(group: tuple[list[Subscriber], dict[TopicId, int]]) -> None:
    members, sizes = group
    target = assign_uniform(members, sizes)
    for _ in range(3):
        before = target
        target = assign_uniform([replace(member, target=before[member.id]) for member in members], sizes)
    assert target == before


@given(groups())
def test_no_move_between_two_subscribers_of_a_topic_would_even_out_more(
    group: tuple[list[Subscriber], dict[TopicId, int]],
) -> None:
    """Balance within the subscribers of each topic, also where subscriptions differ."""
    members, sizes = group
    target = assign_uniform(members, sizes)
    load = {member.id: size_of(target[member.id]) for member in members}
    for giver in members:
        for topic in target[giver.id]:
            for taker in members:
                if topic in taker.topics:
                    assert load[giver.id] - load[taker.id] <= 1


def naive_range(members: list[Subscriber], sizes: Mapping[TopicId, int]) -> Target:
    """Range as its description reads, partition by partition."""
    target: Target = {member.id: {} for member in members}
    static = sorted((member for member in members if member.instance is not None), key=lambda one: one.instance or "")
    dynamic = sorted((member for member in members if member.instance is None), key=lambda one: one.id)
    for topic, count in sizes.items():
        subscribers = [member for member in [*static, *dynamic] if topic in member.topics]
        partition = 0
        for index, member in enumerate(subscribers):
            share = count // len(subscribers) + (1 if index < count % len(subscribers) else 0)
            for _ in range(share):
                target[member.id][topic] = target[member.id].get(topic, 0) | 1 << partition
                partition += 1
    return target


@given(groups())
def test_range_is_what_its_description_says(group: tuple[list[Subscriber], dict[TopicId, int]]) -> None:
    members, sizes = group
    assert assign_range(members, sizes) == naive_range(members, sizes)


def test_range_lays_equal_topics_side_by_side() -> None:
    sizes = {TOPICS[0]: 7, TOPICS[1]: 7}
    members = [Subscriber(id=name, topics=frozenset(sizes)) for name in "cab"]
    told = {
        name: [partitions_of(mine[topic]) for topic in sizes] for name, mine in assign_range(members, sizes).items()
    }
    assert told == {"a": [[0, 1, 2]] * 2, "b": [[3, 4]] * 2, "c": [[5, 6]] * 2}
