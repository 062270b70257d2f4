"""Committed offsets against a dict."""

import random

from dray.machine import checkpoint
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
from dray.machine.verdict import Refused, Why

from .scribe import HOUR, NOW
from .shop import Shop

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
    assert applied.groups == ("g",)
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
