"""Streams: opened, appended to, cut from the front, closed."""

import pytest

from dray.machine.append import Accepted, Appended, Rejected
from dray.machine.names import StreamId, TopicId, domain_for, domain_of, stream_id, wal_id
from dray.machine.streams import CloseStream, FloorRaised, FloorReason, OpenStream, RaiseFloor, StreamClosed
from dray.machine.topics import CreateTopic, DeleteTopic, TopicCreated
from dray.machine.verdict import Done, Refused, Why

from .scribe import LOG, NOW
from .shop import Shop, row


def shop_with(partitions: int = 1) -> tuple[Shop, list[StreamId]]:
    shop = Shop()
    return shop, shop.topic("t", partitions)


def why(verdict) -> Why:
    assert isinstance(verdict, Refused), verdict
    return verdict.why


def test_accepted_batches_get_dense_offsets_and_sizes():
    """H4, R-011, R-045, R-062"""
    shop, [one, two] = shop_with(2)
    assert shop.append((one, 3), (two, 5), (one, 1)) == [Accepted(base=0), Accepted(base=0), Accepted(base=3)]
    assert shop.append((one, 2)) == [Accepted(base=4)]
    index = shop.machine.streams.find(one).index
    assert [(r.start, r.end, r.cumulative_size, r.size, r.position) for r in index.rows(0)] == [
        (0, 3, 104, 100, 53), (3, 4, 208, 100, 53), (4, 6, 312, 100, 53),
    ]  # fmt: skip


def test_a_refused_batch_hinders_no_neighbour():
    """H4, R-102"""
    shop, [one, two] = shop_with(2)
    shop.writer.send(CloseStream(stream=two))
    rows = [
        row(one, 1), row(two, 1), row(stream_id(99, 0), 1), row(one, 0), row(one, 1, size=61),
        row(one, 1, position=3), row(one, 1, position=1 << 20), row(one, 1, producer=-2),
        row(one, 1, producer=1, epoch=-1, sequence=0), row(one, 1, producer=1, epoch=0, sequence=-1),
        row(one, 1 << 31), row(one, 1, stamp=-2), row(one, 1, stamp=1 << 60), row(one, 1),
    ]  # fmt: skip
    verdicts = shop.append_rows(*rows)
    assert verdicts[0] == Accepted(base=0)
    assert verdicts[1:3] == [Rejected.CLOSED, Rejected.UNKNOWN_STREAM]
    assert verdicts[3:13] == [Rejected.MALFORMED] * 10
    assert verdicts[13] == Accepted(base=1)
    assert shop.machine.streams.rows == 2
    assert shop.machine.objects.find(0).rows == 2


def test_an_offset_or_a_size_never_overflows():
    shop, [one] = shop_with()
    index = shop.machine.streams.find(one).index
    index.end = (1 << 63) - 3
    assert shop.append((one, 3)) == [Rejected.FULL]
    assert shop.append((one, 2)) == [Accepted(base=(1 << 63) - 3)]
    assert shop.append((one, 1)) == [Rejected.FULL]


def test_an_object_of_another_session_or_log_is_refused_whole():
    """H4, R-108: an object of an expired session may already be gone."""
    shop, [one] = shop_with()
    older = shop.next_wal()
    shop.reopen()
    for name in (older, wal_id(b"otherlog", shop.writer.session, 1), wal_id(LOG, shop.writer.session + 1, 1)):
        assert why(shop.writer.do(shop.command(row(one), name=name))) is Why.FOREIGN
    assert shop.machine.streams.find(one).end == 0
    assert shop.machine.objects.next == 0


def test_an_object_is_committed_once():
    """X5"""
    shop, [one] = shop_with()
    name = shop.next_wal()
    assert isinstance(shop.writer.do(shop.command(row(one), name=name)), Appended)
    assert why(shop.writer.do(shop.command(row(one), name=name))) is Why.EXISTS
    assert shop.machine.streams.find(one).end == 1


def test_an_append_without_batches_is_refused():
    shop, _ = shop_with()
    assert why(shop.writer.do(shop.command())) is Why.MALFORMED


def test_opening_a_stream_again_is_harmless_and_another_one_with_its_id_is_refused():
    shop = Shop(domain=3, domains=4)
    stream = stream_id(1, 3)
    opening = OpenStream(stream=stream, topic_id=TopicId(b"t" * 16), partition=0)
    assert shop.writer.do(opening) == Done()
    shop.append((stream, 4))
    assert shop.writer.do(opening) == Done()
    assert shop.machine.streams.find(stream).end == 4
    other = OpenStream(stream=stream, topic_id=TopicId(b"u" * 16), partition=0)
    assert why(shop.writer.do(other)) is Why.EXISTS


def test_a_stream_of_another_domain_is_refused():
    """T1"""
    shop = Shop(domain=3, domains=4)
    stream = stream_id(1, 2)
    topic = TopicId(b"t" * 16)
    for command in (
        OpenStream(stream=stream, topic_id=topic, partition=0), CloseStream(stream=stream),
        RaiseFloor(stream=stream, reason=FloorReason.SIZE, bound=0),
    ):  # fmt: skip
        assert why(shop.writer.do(command)) is Why.FOREIGN


def test_a_closed_stream_takes_nothing_and_is_never_opened_again():
    """H6, R-193, E-20"""
    shop = Shop(domain=3, domains=4)
    stream, never = stream_id(1, 3), stream_id(2, 3)
    opening = OpenStream(stream=stream, topic_id=TopicId(b"t" * 16), partition=0)
    shop.writer.send(opening)
    shop.append((stream, 4))
    assert shop.writer.do(CloseStream(stream=stream)) == StreamClosed(left=0)
    assert shop.writer.do(CloseStream(stream=stream)) == StreamClosed(left=0)
    assert shop.append((stream, 1)) == [Rejected.CLOSED]
    assert why(shop.writer.do(opening)) is Why.STATE
    # The close may overtake the open of a saga that somebody else finishes late.
    assert shop.writer.do(CloseStream(stream=never)) == StreamClosed(left=0)
    assert why(shop.writer.do(OpenStream(stream=never, topic_id=TopicId(b"t" * 16), partition=1))) is Why.STATE


def test_a_closed_stream_is_taken_away_in_slices():
    """Q8, H6"""
    shop, [one] = shop_with()
    for _ in range(10):
        shop.append(*[(one, 1)] * 10)
    lefts = []
    while not lefts or lefts[-1]:
        lefts.append(shop.writer.do(CloseStream(stream=one, limit=30)).left)
        assert shop.append((one, 1)) == [Rejected.CLOSED]
    assert lefts == [70, 40, 10, 0]
    assert shop.machine.streams.find(one) is None
    assert shop.machine.streams.rows == 0


def test_delete_records_moves_the_start_at_once_and_drops_rows_in_slices():
    """H5, Q8, R-199, E-7"""
    shop, [one] = shop_with()
    for _ in range(10):
        shop.append((one, 10))
    stream = shop.machine.streams.find(one)
    cut = RaiseFloor(stream=one, reason=FloorReason.DELETE_RECORDS, bound=75, limit=3)
    assert shop.writer.do(cut) == FloorRaised(start=75, left=4)
    assert (stream.start, len(stream.index), stream.index.first_start) == (75, 7, 30)
    assert shop.writer.do(cut) == FloorRaised(start=75, left=1)
    assert shop.writer.do(cut) == FloorRaised(start=75, left=0)
    assert (stream.start, len(stream.index), stream.index.first_start) == (75, 3, 70)
    lower = RaiseFloor(stream=one, reason=FloorReason.DELETE_RECORDS, bound=20)
    assert shop.writer.do(lower) == FloorRaised(start=75, left=0)
    beyond = RaiseFloor(stream=one, reason=FloorReason.DELETE_RECORDS, bound=101)
    assert why(shop.writer.do(beyond)) is Why.STATE
    everything = RaiseFloor(stream=one, reason=FloorReason.DELETE_RECORDS, bound=100)
    assert shop.writer.do(everything) == FloorRaised(start=100, left=0)
    assert shop.append((one, 1)) == [Accepted(base=100)]


def test_retention_by_time_takes_whole_rows_from_the_front():
    """R-199"""
    shop, [one] = shop_with()
    shop.writer.pass_time(10 * 60_000)
    for age in (9, 8, 20, 3, 7):  # minutes
        shop.append_rows(row(one, 2, stamp=NOW + (10 - age) * 60_000))
    raising = RaiseFloor(stream=one, reason=FloorReason.TIME, bound=5 * 60_000)
    assert shop.writer.do(raising) == FloorRaised(start=6, left=0)
    assert len(shop.machine.streams.find(one).index) == 2
    slice_ = RaiseFloor(stream=one, reason=FloorReason.TIME, bound=0, limit=1)
    assert shop.writer.do(slice_) == FloorRaised(start=8, left=0)


def test_a_row_without_a_timestamp_is_as_old_as_its_object():
    shop, [one] = shop_with()
    shop.append_rows(row(one, 1, stamp=-1))
    shop.writer.pass_time(60_000)
    keep = RaiseFloor(stream=one, reason=FloorReason.TIME, bound=60_000)
    assert shop.writer.do(keep) == FloorRaised(start=0, left=0)
    drop = RaiseFloor(stream=one, reason=FloorReason.TIME, bound=59_999)
    assert shop.writer.do(drop) == FloorRaised(start=1, left=0)


@pytest.mark.parametrize(("kept", "start"), [(10**9, 0), (416, 0), (415, 0), (312, 1), (311, 1), (1, 3), (0, 4)])
def test_retention_by_size_keeps_at_least_the_bytes_asked_for(kept, start):
    """R-199"""
    shop, [one] = shop_with()
    for _ in range(4):
        shop.append((one, 1))
    assert shop.writer.do(RaiseFloor(stream=one, reason=FloorReason.SIZE, bound=kept)).start == start


def test_after_all_records_expired_the_next_one_gets_the_old_end():
    """H1, R-200"""
    shop, [one] = shop_with()
    shop.append((one, 7))
    assert shop.writer.do(RaiseFloor(stream=one, reason=FloorReason.SIZE, bound=0)) == FloorRaised(start=7, left=0)
    stream = shop.machine.streams.find(one)
    assert (stream.start, stream.end) == (7, 7)
    assert shop.append((one, 1)) == [Accepted(base=7)]


def test_the_touched_streams_are_told_once_each():
    shop, [one, two, three] = shop_with(3)
    applied = shop.writer.send(shop.command(row(two), row(one), row(two), row(three, 0)))
    assert applied.streams == (two, one)
    raised = shop.writer.send(RaiseFloor(stream=one, reason=FloorReason.SIZE, bound=0))
    assert raised.streams == (one,)
    assert shop.writer.send(CloseStream(stream=three)).streams == (three,)


def test_stream_ids_name_their_domain_and_partitions_spread():
    """T1, T4, R-023, R-095"""
    topic = TopicId(bytes(range(16)))
    assert [domain_for(topic, partition, 1) for partition in range(4)] == [0, 0, 0, 0]
    assert [domain_for(topic, partition, 16) for partition in range(18)] == [
        *range(11, 17), *range(1, 13)
    ]  # fmt: skip
    shop = Shop(domain=0, domains=16)
    created = shop.writer.do(CreateTopic(topic_id=topic, name="t", partitions=32))
    assert isinstance(created, TopicCreated)
    domains = [domain_of(stream) for stream in created.streams]
    assert sorted(domains) == sorted(2 * [*range(1, 17)])
    assert [stream >> 16 for stream in created.streams] == list(range(1, 33))


def test_a_stream_is_only_what_the_catalog_says_where_both_are_at_hand():
    shop, [one] = shop_with()
    topic = shop.machine.topics.named("t")
    for stream, partition, topic_id in (
        (stream_id(77, 0), 0, topic.id), (one, 1, topic.id), (one, 0, TopicId(b"?" * 16)),
    ):  # fmt: skip
        assert why(shop.writer.do(OpenStream(stream=stream, topic_id=topic_id, partition=partition))) is Why.NOT_FOUND
    shop.writer.send(DeleteTopic(topic_id=topic.id))
    assert why(shop.writer.do(OpenStream(stream=one, topic_id=topic.id, partition=0))) is Why.NOT_FOUND


def test_the_footprint_counts_rows_objects_and_producers():
    shop, [one] = shop_with()
    shop.append_rows(row(one, 1, producer=1, sequence=0, epoch=0), row(one))
    found = shop.machine.streams.footprint()
    assert (found.streams, found.rows, found.objects, found.producer_states) == (1, 2, 1, 1)
    assert found.bytes > 0
