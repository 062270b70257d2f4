"""Committed offsets against a dict."""

import random

from dray.machine import checkpoint
from dray.machine.groups.codes import GroupDropped
from dray.machine.groups.commands import DropGroup
from dray.machine.head import Activate
from dray.machine.names import TopicId
from dray.machine.offsets import (
    CommitOffsets,
    Committed,
    ExpireOffsets,
    OffsetCode,
    OffsetKey,
    OffsetReason,
    OffsetRow,
    OffsetsCommitted,
    OffsetsExpired,
)
from dray.machine.sessions import Close
from dray.machine.streams import FloorReason, RaiseFloor
from dray.machine.verdict import Done, Refused, Why

from .scribe import HOUR, NOW, Writer
from .shop import Shop, row

T, U = TopicId(b"t" * 16), TopicId(b"u" * 16)


def commit(shop: Shop, group: str, topic: TopicId, partition: int, offset: int, **fields):
    row = OffsetRow(topic_id=topic, partition=partition, offset=offset, **fields)
    return shop.writer.do(CommitOffsets(group=group, rows=(row,)))


def test_a_commit_is_kept_whole_and_replaced_by_the_next():
    """C1, R-186"""
    shop = Shop()
    assert commit(shop, "g", T, 0, 5, leader_epoch=3, metadata="m") == OffsetsCommitted(codes=(OffsetCode.COMMITTED,))
    assert shop.machine.offsets.find("g", T, 0) == Committed(5, 3, "m", NOW, shop.machine.position, -1)
    applied = shop.writer.send(CommitOffsets(group="g", rows=(OffsetRow(topic_id=T, partition=0, offset=2),)))
    assert not applied.groups
    assert not applied.moved, "nobody waits for a commit"
    assert shop.machine.offsets.find("g", T, 0).offset == 2
    assert shop.machine.offsets.find("g", U, 0) is None
    assert shop.machine.offsets.find("other", T, 0) is None


def test_metadata_that_is_too_large_hinders_no_neighbour():
    """R-186"""
    shop = Shop()
    rows = tuple(
        OffsetRow(topic_id=T, partition=p, offset=p, metadata="x" * size) for p, size in ((0, 4097), (1, 4096))
    )
    verdict = shop.writer.do(CommitOffsets(group="g", rows=rows))
    assert verdict.codes == (OffsetCode.METADATA_TOO_LARGE, OffsetCode.COMMITTED)
    assert [partition for _, partition, _ in shop.machine.offsets.of_group("g")] == [1]


def test_members_are_unknown_until_there_are_groups():
    shop = Shop()
    verdict = shop.writer.do(CommitOffsets(group="g", rows=(), generation=1, member="m"))
    assert isinstance(verdict, Refused)
    assert verdict.why is Why.NOT_FOUND


def test_an_offset_expires_only_if_it_has_not_moved_and_its_time_has_come():
    """C2, C3, R-189, R-190"""
    shop = Shop()
    commit(shop, "g", T, 0, 5)
    commit(shop, "g", T, 1, 6)
    looked_at = shop.machine.offsets.due("g", 0)
    assert len(looked_at) == 2
    commit(shop, "g", T, 1, 7)
    expire = ExpireOffsets(group="g", reason=OffsetReason.EXPIRED, rows=tuple(looked_at), retention_ms=2 * HOUR)
    assert shop.writer.do(expire) == OffsetsExpired(expired=0)
    shop.writer.live(2 * HOUR)
    assert shop.writer.do(expire) == OffsetsExpired(expired=1)
    assert shop.machine.offsets.find("g", T, 1).offset == 7
    rows = tuple(shop.machine.offsets.due("g", 0))
    deleted = ExpireOffsets(group="g", reason=OffsetReason.DELETED, rows=rows)
    assert shop.writer.do(deleted) == OffsetsExpired(expired=1)
    assert shop.machine.offsets.groups() == []
    assert shop.writer.do(deleted) == OffsetsExpired(expired=0)


def test_a_retention_of_the_request_counts_before_the_servers():
    """R-189"""
    shop = Shop()
    row = OffsetRow(topic_id=T, partition=0, offset=1)
    shop.writer.send(CommitOffsets(group="g", rows=(row,), retention_ms=HOUR))
    shop.writer.live(HOUR)
    assert len(shop.machine.offsets.due("g", 100 * HOUR)) == 1


def test_nothing_expires_while_time_is_paused():
    """C2, Q7"""
    shop = Shop()
    commit(shop, "g", T, 0, 5)
    shop.writer.pass_time(50 * HOUR)
    rows = (OffsetKey(topic_id=T, partition=0, commit_position=shop.machine.position),)
    verdict = shop.writer.do(ExpireOffsets(group="g", reason=OffsetReason.EXPIRED, rows=rows, retention_ms=HOUR))
    assert isinstance(verdict, Refused)
    assert verdict.why is Why.PAUSED
    gone = shop.writer.do(ExpireOffsets(group="g", reason=OffsetReason.TOPIC_GONE, rows=rows))
    assert gone == OffsetsExpired(expired=1)


def test_random_commits_and_expiries_agree_with_a_dict():
    """C1, C2, C3"""
    dice = random.Random(9)
    shop = Shop()
    twin: dict[tuple[str, TopicId, int], tuple[int, int, int]] = {}
    for step in range(1_500):
        group, topic, partition = dice.choice("abc"), dice.choice([T, U]), dice.randrange(3)
        if dice.random() < 0.7:
            retention = dice.choice([-1, HOUR])
            row = OffsetRow(topic_id=topic, partition=partition, offset=step)
            shop.writer.send(CommitOffsets(group=group, rows=(row,), retention_ms=retention))
            twin[group, topic, partition] = (step, shop.machine.time_ms, retention)
        else:
            shop.writer.live(dice.randrange(HOUR // 2))
            now = shop.machine.time_ms
            due = {
                key for key, (_, at, retention) in twin.items()
                if key[0] == group and at + (retention if retention >= 0 else 2 * HOUR) <= now
            }  # fmt: skip
            rows = tuple(shop.machine.offsets.due(group, 2 * HOUR))
            assert {(group, row.topic_id, row.partition) for row in rows} == due
            shop.writer.send(ExpireOffsets(group=group, reason=OffsetReason.EXPIRED, rows=rows, retention_ms=2 * HOUR))
            for key in due:
                del twin[key]
        found = {
            (name, t, p): committed.offset
            for name in shop.machine.offsets.groups() for t, p, committed in shop.machine.offsets.of_group(name)
        }  # fmt: skip
        assert found == {key: offset for key, (offset, _, _) in twin.items()}


def test_what_offsets_take_is_counted_and_counted_the_same_after_a_load():
    """For budgets: every way in and out, against a count from nothing."""
    shop = Shop()
    dice = random.Random(3)
    offsets = shop.machine.offsets
    for _ in range(400):
        group, partition = f"g{dice.randrange(6)}", dice.randrange(4)
        found = offsets.find(group, T, partition)
        if found is not None and dice.random() < 0.4:
            key = OffsetKey(topic_id=T, partition=partition, commit_position=found.commit_position)
            shop.writer.do(ExpireOffsets(group=group, reason=OffsetReason.TOPIC_GONE, rows=(key,), retention_ms=0))
        else:
            metadata = dice.choice(["", "m" * dice.randrange(100), "\u4e2d" * 5, "x" * 5_000])
            grown = offsets.bytes + offsets.growth(group, T, partition, metadata)
            commit(shop, group, T, partition, 7, metadata=metadata)
            assert offsets.bytes == grown or len(metadata) > 4_096
        expected = sum(300 + len(name) for name in offsets.groups())
        for name in offsets.groups():
            for _, _, one in offsets.of_group(name):
                expected += 300 + len(one.metadata) * (1 if one.metadata.isascii() else 4)
        assert offsets.bytes == expected
    assert checkpoint.load(checkpoint.dump(shop.machine)).offsets.bytes == offsets.bytes


def held(writer: Writer, seen: int, *rows: tuple[int, int]) -> tuple[OffsetCode, ...]:
    """Commit (partition, offset) pairs in an entry that was made when only `seen` was applied."""
    made = tuple(OffsetRow(topic_id=T, partition=partition, offset=offset) for partition, offset in rows)
    verdict = writer.do(CommitOffsets(group="g", rows=made), seen=seen)
    assert isinstance(verdict, OffsetsCommitted)
    return verdict.codes


def test_a_commit_that_was_held_takes_no_place_of_one_that_its_writer_had_not_seen():
    """C4: its neighbours are judged for themselves, and once seen the other one may be replaced."""
    shop = Shop(version=2)
    one, two = shop.writer, shop.tape.open("other")
    made_at = shop.machine.position
    assert held(two, shop.machine.position, (0, 46)) == (OffsetCode.COMMITTED,)
    kept = shop.machine.offsets.find("g", T, 0)
    assert held(one, made_at, (0, 45), (1, 7)) == (OffsetCode.STALE, OffsetCode.COMMITTED)
    assert shop.machine.offsets.find("g", T, 0) == kept
    assert shop.machine.offsets.find("g", T, 1).offset == 7
    assert held(one, shop.machine.position, (0, 45)) == (OffsetCode.COMMITTED,)
    assert shop.machine.offsets.find("g", T, 0).offset == 45


def test_commits_of_one_entry_replace_each_other():
    """C4: whoever writes an entry knows what stands in it."""
    shop = Shop(version=2)
    again = [CommitOffsets(group="g", rows=(OffsetRow(topic_id=T, partition=0, offset=n),)) for n in (1, 2)]
    applied = shop.writer.send(*again)
    assert applied.verdicts == [OffsetsCommitted(codes=(OffsetCode.COMMITTED,))] * 2
    assert shop.machine.offsets.find("g", T, 0).offset == 2


def test_under_version_1_a_commit_is_never_stale():
    """M10, C4: the rule begins with `Activate`, for offsets that are older too."""
    shop = Shop(version=1)
    one, two = shop.tape.open("one", highest_version=2), shop.tape.open("two", highest_version=2)
    shop.writer.send(Close())
    made_at = shop.machine.position
    assert held(two, made_at, (0, 46)) == (OffsetCode.COMMITTED,)
    assert held(one, made_at, (0, 45)) == (OffsetCode.COMMITTED,)
    assert two.do(Activate(version=2)) == Done()
    assert held(two, made_at, (0, 44)) == (OffsetCode.STALE,)
    assert held(two, shop.machine.position, (0, 44)) == (OffsetCode.COMMITTED,)


def test_what_writers_commit_late_agrees_with_who_had_seen_what():
    """C4, K2: against a list of all commits; a machine that was loaded judges alike."""
    dice = random.Random(21)
    shop = Shop(version=2)
    writers = [shop.writer, shop.tape.open("two"), shop.tape.open("three")]
    newest = dict.fromkeys(range(3), shop.machine.position)  # what each writer's own last entry let it see
    taken: dict[int, tuple[int, int, int]] = {}
    stale = 0
    for offset in range(2_000):
        who, partition = dice.randrange(3), dice.randrange(2)
        seen = dice.randint(newest[who], shop.machine.position)
        other = taken.get(partition)
        expected = other is not None and other[0] != who and other[1] > seen
        (code,) = held(writers[who], seen, (partition, offset))
        assert (code is OffsetCode.STALE) == expected, (offset, who, seen, other)
        newest[who] = shop.machine.position
        stale += expected
        if not expected:
            taken[partition] = (who, shop.machine.position, offset)
        found = shop.machine.offsets.find("g", T, partition)
        assert found is not None
        assert found.offset == taken[partition][2]
        if offset % 500 == 0:
            assert checkpoint.dump(checkpoint.load(checkpoint.dump(shop.machine))) == checkpoint.dump(shop.machine)
    assert 200 < stale < 1_800


def test_what_was_dropped_is_in_no_checkpoint_and_takes_no_rows_of_an_entry():
    """M7: a replica that was loaded has no graves to empty, and its slices do as much as anybody's."""
    shop = Shop(version=2)
    (stream,) = shop.topic("t", 1)
    for start in range(0, 12_000, 3_000):
        shop.append_rows(*(row(stream) for _ in range(1_000)))
        rows = tuple(OffsetRow(topic_id=T, partition=start + number, offset=1) for number in range(3_000))
        shop.writer.do(CommitOffsets(group="g", rows=rows))
    assert shop.writer.do(DropGroup(group="g")) == GroupDropped()
    loaded = checkpoint.load(checkpoint.dump(shop.machine))
    slices = (
        CommitOffsets(group="h", rows=(OffsetRow(topic_id=T, partition=0, offset=1),)),
        RaiseFloor(stream=stream, reason=FloorReason.DELETE_RECORDS, bound=3_000, limit=2_500),
    )
    raw = shop.writer.entry(*slices)
    live = shop.tape.write(raw)
    assert loaded.apply(shop.machine.position, raw, want_verdicts=True).verdicts == live.verdicts
    assert checkpoint.fingerprint(loaded) == checkpoint.fingerprint(shop.machine)
