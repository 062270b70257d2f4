"""A new log that begins with the state of a lost one, or of one whose time ran ahead."""

from dray.machine import checkpoint, producers
from dray.machine.names import LogId, TopicId
from dray.machine.offsets import CommitOffsets, OffsetRow
from dray.machine.recovery import renew
from dray.machine.streams import FloorReason, RaiseFloor

from .scribe import HOUR, NOW
from .shop import Shop, row

DAY = 24 * HOUR
YEAR = 365 * DAY
NEW = LogId(b"new log!")


def commit(shop: Shop, topic: TopicId, partition: int, retention_ms: int) -> None:
    rows = (OffsetRow(topic_id=topic, partition=partition, offset=1),)
    shop.writer.do(CommitOffsets(group="readers", rows=rows, retention_ms=retention_ms))


def ran_ahead() -> Shop:
    """A log whose time jumped ten years, with something of everything that time takes away."""
    shop = Shop()
    (stream, other) = shop.topic("orders", 2)
    shop.append_rows(row(stream, stamp=NOW - 5 * HOUR), row(other, stamp=NOW - 2 * HOUR))
    shop.reopen(wall_ms=NOW + 10 * YEAR, accept_clock=True)
    (late,) = shop.topic("late", 1)
    topic = shop.machine.topics.named("late").id
    shop.append_rows(row(late, producer=7, sequence=0, epoch=0, stamp=NOW + 10 * YEAR))
    commit(shop, topic, 0, -1)
    commit(shop, topic, 1, 3 * HOUR)
    shop.writer.do(RaiseFloor(stream=other, reason=FloorReason.DELETE_RECORDS, bound=1))
    shop.writer.do(RaiseFloor(stream=stream, reason=FloorReason.DELETE_RECORDS, bound=1))
    return shop


def test_a_log_that_ran_ahead_begins_anew_at_its_newest_record_that_the_clock_has_passed():
    """RN1: nothing keeps a time of the future, and what was promised in hours stays that many hours."""
    shop = ran_ahead()
    (stream,) = shop.topic("fresh", 1)
    shop.append_rows(row(stream, stamp=NOW + HOUR), row(stream, stamp=NOW + 3 * HOUR))
    machine = shop.machine
    renew(machine, NEW, NOW + 2 * HOUR)
    now = NOW + HOUR
    assert (machine.time_ms, machine.timeline.sure_ms, machine.timeline.paused) == (now, now, True)
    assert machine.objects.dead
    assert all(death.time_ms <= now for death in machine.objects.dead.values())
    assert machine.sessions.ended
    assert all(ended.time_ms <= now for ended in machine.sessions.ended.values())
    for one in machine.streams.open.values():
        assert one.opened_ms <= now
        for producer in producers.producer_ids(one.producers):
            assert producers.find(one.producers, producer).used_min <= now // 60_000
    assert all(
        max(topic.created_ms, topic.changed_ms, *topic.opened_ms) <= now for topic in machine.topics.all.values()
    )
    kept = [committed for _, _, committed in machine.offsets.of_group("readers")]
    assert [(one.commit_ms, one.expire_ms) for one in kept] == [(now, -1), (now, now + 3 * HOUR)]
    assert checkpoint.dump(checkpoint.load(checkpoint.dump(machine))) == checkpoint.dump(machine)


def test_without_a_record_that_the_clock_has_passed_it_is_the_clock():
    shop = ran_ahead()
    renew(shop.machine, NEW, NOW + 2 * HOUR)
    assert shop.machine.time_ms == NOW + 2 * HOUR


def test_a_log_that_agrees_with_the_clock_or_is_behind_it_keeps_its_time():
    """A wrong clock at the moment of the recovery moves nothing forward."""
    for wall_ms in (NOW - DAY, NOW, NOW + 10 * YEAR):
        shop = Shop()
        renew(shop.machine, NEW, wall_ms)
        assert shop.machine.time_ms == NOW


def test_a_renewed_log_knows_where_streams_ended_in_every_generation_before():
    """RN2, K-063: also after a checkpoint, and of no stream that is gone."""
    shop = Shop(version=2)
    (stream, gone) = shop.topic("orders", 2)
    shop.append_rows(row(stream, records=3), row(gone, records=1))
    machine = shop.machine
    assert machine.generations.end_of(stream, 0) is None
    renew(machine, NEW, NOW)
    machine = checkpoint.load(checkpoint.dump(machine))
    assert [machine.generations.end_of(stream, number) for number in (0, 1)] == [3, None]
    machine.streams.open[stream].index.append(5, 1_000, 1, 0, NOW)
    del machine.streams.open[gone]
    renew(machine, LogId(b"newer!!!"), NOW)
    machine = checkpoint.load(checkpoint.dump(machine))
    assert [machine.generations.end_of(stream, number) for number in (0, 1, 2)] == [3, 5, None]
    assert machine.generations.end_of(gone, 0) is None
