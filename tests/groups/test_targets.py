"""Targets as commands: small enough, only what changed, and whole again when they are put together."""

from hypothesis import given
from hypothesis import strategies as st

from dray.groups.assignors import Target
from dray.groups.targets import slices
from dray.machine.groups.beats import MAX_TARGET_MEMBERS, MAX_TARGET_PARTITIONS
from dray.machine.groups.masks import first, unpack
from dray.machine.names import TopicId

TOPICS = [TopicId(bytes([number]) * 16) for number in range(3)]
MASKS = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 1 << 12), max_size=3)


def put_together(commands) -> Target:
    target: Target = {}
    for number, command in enumerate(commands):
        assert command.slice == number
        assert command.last == (number == len(commands) - 1)
        assert len(command.rows) <= MAX_TARGET_MEMBERS
        for row in command.rows:
            mine = target.setdefault(row.member, {})
            for part in row.parts:
                mine[part.topic_id] = mine.get(part.topic_id, 0) | unpack(part.partitions)
    return target


@given(st.dictionaries(st.text(max_size=3), MASKS), st.dictionaries(st.text(max_size=3), MASKS))
def test_only_members_whose_target_changed_are_named(before: Target, after: Target) -> None:
    commands = list(slices("g", 7, before, after))
    assert put_together(commands) == {name: mine for name, mine in after.items() if before.get(name) != mine}
    assert {command.epoch for command in commands} == {7}


def test_a_target_of_one_member_with_very_many_partitions_is_cut() -> None:
    target = {"m": {TOPICS[0]: first(12_000), TOPICS[1]: first(4_000) << 100}, "n": {}}
    commands = list(slices("g", 1, {}, target))
    assert put_together(commands) == target
    for command in commands:
        parts = [unpack(part.partitions).bit_count() for row in command.rows for part in row.parts]
        assert sum(parts) <= MAX_TARGET_PARTITIONS


def test_three_thousand_members_take_three_slices() -> None:
    target = {f"m{number}": {TOPICS[0]: 1 << number} for number in range(3_000)}
    commands = list(slices("g", 1, {}, target))
    assert put_together(commands) == target
    assert len(commands) <= 4
    assert max(len(command.payload(2)) for command in commands) < 256 << 10
