"""A batch goes in, its offsets come out, and nothing is answered before it is durable."""

import asyncio

import pytest

from dray.clock import ManualClock, SystemClock
from dray.disk import LocalDisk
from dray.errors import Unavailable
from dray.fetch.cache import ObjectCache
from dray.log.files import FileLog
from dray.machine.streams import FloorReason, RaiseFloor
from dray.objects.files import FileObjects
from dray.objects.memory import MemoryObjects
from dray.objects.port import PutUnknown
from dray.offload import ThreadOffload
from dray.produce.errors import (
    BadBatch,
    NotStored,
    OutOfOrder,
    ProducerFenced,
    Stopping,
    StoredUnknown,
    StreamMissing,
)
from dray.replica.errors import Diverged
from tests.produce.broker import GatedObjects, HeldLog, batch, broker, decoded, objects_in, outlast, settle, stored
from tests.replica.domain import MoodyLog, genesis, new_log
from tests.topics.test_service import cluster_logs


async def test_a_batch_gets_the_next_offsets_of_its_stream_and_can_be_read_back():
    async with broker({0: await new_log()}, MemoryObjects()) as one:
        (stream,) = await one.streams()
        first = await one.produce.submit(batch(stream, b"a", records=3))
        second = await one.produce.submit(batch(stream, b"b", records=2))
        assert (first.base_offset, second.base_offset, second.log_start_offset) == (0, 3, 0)
        assert await stored(one, stream) == [(0, b"a"), (1, b"a"), (2, b"a"), (3, b"b"), (4, b"b")]


async def test_put_append_apply_and_answer_come_in_this_order():
    """R-093, PR1."""
    log, objects = HeldLog(await new_log()), GatedObjects()
    moments = objects.moments = log.moments
    async with broker({0: log}, objects) as one:
        (stream,) = await one.streams()
        answer = one.produce.submit(batch(stream))
        answer.add_done_callback(lambda _: moments.append("answer"))
        await objects.put_count(1)
        await settle()
        assert moments == ["put"]
        objects.let(0)
        await answer
        await settle()
    assert moments.index("durable") < moments.index("append") < moments.index("appended") < moments.index("answer")
    assert moments.index("applied") < moments.index("answer")


async def test_a_broker_that_dies_between_put_and_append_leaves_nothing_to_be_seen():
    """I3, R-093, L-54, L-94, L-97: its object is an orphan, the stream is empty, the next gives offset 0 again."""
    log, objects = await new_log(), MemoryObjects()
    held = HeldLog(log.handle())
    async with broker({0: held}, objects) as one:
        (stream,) = await one.streams()
        held.hold()
        answer = one.produce.submit(batch(stream, b"a"))
        while "append" not in held.moments:
            await asyncio.sleep(0)
        assert len(await objects_in(objects)) == 1
    with pytest.raises(StoredUnknown):
        answer.result()
    async with broker({0: log.handle()}, objects, name="broker-2") as two:
        assert await stored(two, stream) == []
        assert (await two.produce.submit(batch(stream, b"a"))).base_offset == 0
        assert await stored(two, stream) == [(0, b"a")]


async def test_a_lone_batch_waits_for_nothing():
    """R-091: the clock stands still."""
    async with broker({0: await new_log()}, MemoryObjects(), clock=ManualClock()) as one:
        (stream,) = await one.streams()
        assert (await one.produce.submit(batch(stream))).base_offset == 0


async def test_with_a_linger_a_lone_batch_waits_for_company_until_it_is_over():
    """R-091: `wal.linger` trades latency for puts."""
    clock, objects = ManualClock(), GatedObjects(gated=False)
    async with broker({0: await new_log()}, objects, clock=clock, linger_ms=250) as one:
        (stream,) = await one.streams()
        answers = [one.produce.submit(batch(stream))]
        await settle()
        clock.advance(200)
        answers.append(one.produce.submit(batch(stream)))
        await settle()
        assert objects.puts == []
        clock.advance(50)
        assert [answer.base_offset for answer in await asyncio.gather(*answers)] == [0, 1]
        assert len(objects.puts) == 1


async def test_whatever_arrives_in_one_turn_or_while_a_put_runs_shares_an_object():
    """R-091: batch while busy."""
    objects = GatedObjects()
    async with broker({0: await new_log()}, objects) as one:
        streams = await one.streams(partitions=5)
        answers = [one.produce.submit(batch(stream)) for stream in streams]
        await objects.put_count(1)
        for _ in range(50):
            answers.append(one.produce.submit(batch(streams[0])))
            await asyncio.sleep(0)
        await settle()
        assert len(objects.puts) == 1
        objects.open_all()
        await asyncio.gather(*answers)
        assert len(objects.puts) == 2
        assert len(await stored(one, streams[0])) == 51


async def test_a_full_buffer_is_flushed_in_parallel_up_to_the_limit():
    """R-091: `wal.flush_bytes` and `wal.flushes`."""
    objects = GatedObjects()
    size = len(batch(1).data)
    async with broker({0: await new_log()}, objects, flush_bytes=2 * size, flushes=3) as one:
        (stream,) = await one.streams()
        answers = [one.produce.submit(batch(stream)) for _ in range(20)]
        await settle()
        assert len(objects.puts) == 3
        objects.open_all()
        assert [answer.base_offset for answer in await asyncio.gather(*answers)] == list(range(20))
        assert len(objects.puts) == 10


async def test_appends_enter_the_log_in_flush_order_whatever_put_is_done_first():
    """R-092, PR2."""
    log, objects = HeldLog(await new_log()), GatedObjects()
    async with broker({0: log}, objects, flush_batches=1) as one:
        (stream,) = await one.streams()
        answers = [one.produce.submit(batch(stream, str(number).encode())) for number in range(4)]
        await objects.put_count(4)
        for number in (3, 1, 2):
            objects.let(number)
            await settle()
        assert log.appends == []
        objects.let(0)
        assert [answer.base_offset for answer in await asyncio.gather(*answers)] == [0, 1, 2, 3]
        assert [append.wal_id.hex() for append in log.appends] == [path[-35:-3] for path in objects.puts]
        assert log.moments.count("append") == 1, "what is ready goes in one entry"


async def test_a_lost_reply_of_the_log_is_settled_and_stored_once():
    """R-098."""
    log = MoodyLog(await new_log())
    async with broker({0: log}, MemoryObjects()) as one:
        (stream,) = await one.streams()
        log.lose_replies = 1
        assert (await one.produce.submit(batch(stream, b"a"))).base_offset == 0
        assert await stored(one, stream) == [(0, b"a")]


async def test_an_outcome_that_stays_unknown_is_told_as_such_and_its_object_is_left():
    """R-098, PR4: never success, never a definite failure."""
    clock, log, objects = ManualClock(), HeldLog(await new_log()), GatedObjects(gated=False)
    async with broker({0: log}, objects, clock=clock) as one:
        (stream,) = await one.streams()
        log.lose_appends = 1_000
        answer = one.produce.submit(batch(stream, b"a", producer=1, sequence=0))
        await outlast(clock, answer)
        with pytest.raises(StoredUnknown):
            await answer
        log.lose_appends = 0
        again = await one.produce.submit(batch(stream, b"a", producer=1, sequence=0))
        assert again.base_offset == 0
        assert await stored(one, stream) == [(0, b"a")]
        assert objects.deleted == []


async def test_an_append_that_the_log_refuses_is_a_retriable_failure_and_its_object_goes():
    """R-106, PR4: a live writer deletes its own orphan."""
    log, objects = HeldLog(await new_log()), GatedObjects(gated=False)
    async with broker({0: log}, objects) as one:
        (stream,) = await one.streams()
        log.refuse_appends = 1
        with pytest.raises(NotStored):
            await one.produce.submit(batch(stream))
        await settle()
        assert objects.deleted == objects.puts
        assert (await one.produce.submit(batch(stream))).base_offset == 0


@pytest.mark.parametrize("error", [PutUnknown("lost"), ValueError("a bug"), None], ids=["unknown", "bug", "refused"])
async def test_a_put_that_fails_in_any_way_commits_nothing_and_is_retriable(error):
    """R-097."""
    log, objects = HeldLog(await new_log()), GatedObjects()
    async with broker({0: log}, objects) as one:
        (stream,) = await one.streams()
        answer = one.produce.submit(batch(stream))
        await objects.put_count(1)
        objects.fail(0, error)
        with pytest.raises(Unavailable):
            await answer
        objects.open_all()
        assert (await one.produce.submit(batch(stream))).base_offset == 0
        assert len(log.appends) == 1
        assert objects.deleted == [], "nobody knows whose bytes lie there"


async def test_each_batch_of_an_object_is_told_its_own_truth():
    """R-086, R-096, R-102: refused batches get no row, hinder nobody, and count nowhere."""
    async with broker({0: await new_log()}, MemoryObjects()) as one:
        good, closed = await one.streams("t", 2)
        await one.produce.submit(batch(good, b"0", producer=5, sequence=0, epoch=3))
        (gone,) = await one.streams("gone", 1)
        await one.topics.delete(await one.topics.find("gone"))
        answers = [
            one.produce.submit(batch(good, b"1", producer=5, sequence=1, epoch=3)),
            one.produce.submit(batch(good, b"x", producer=5, sequence=9, epoch=3)),
            one.produce.submit(batch(good, b"x", producer=5, sequence=2, epoch=2)),
            one.produce.submit(batch(good, b"0", producer=5, sequence=0, epoch=3)),
            one.produce.submit(batch(gone)),
            one.produce.submit(batch(1 << 30)),
            one.produce.submit(batch(closed)._replace(records=0)),
            one.produce.submit(batch(closed, b"2")),
        ]
        told = await asyncio.gather(*answers, return_exceptions=True)
        kinds = [type(answer).__name__ if isinstance(answer, Exception) else answer.base_offset for answer in told]
        refused = [OutOfOrder, ProducerFenced, StreamMissing, StreamMissing, BadBatch]
        assert kinds[:4] == [1, "OutOfOrder", "ProducerFenced", 0]
        assert [type(told[at]) for at in (1, 2, 4, 5, 6)] == refused
        assert told[7].base_offset == 0
        assert [value for _, value in await stored(one, good)] == [b"0", b"1"]
        kept = one.replica.machine.streams.find(good)
        assert kept.kept_bytes == 2 * (4 + len(batch(good, producer=5, sequence=0).data))


async def test_an_object_tells_of_each_stream_what_it_holds():
    """The chunk index has the records of each stream, and the least and the greatest of their times."""
    objects = GatedObjects(gated=False)
    async with broker({0: await new_log()}, objects) as one:
        first, second = await one.streams("t", 2)
        batches = [batch(first, records=3), batch(second, records=2), batch(first, records=5)]
        batches[2] = batches[2]._replace(min_timestamp_ms=400, max_timestamp_ms=7_000)
        await asyncio.gather(*map(one.produce.submit, batches))
        whole = await decoded(objects, objects.puts[0])
        told = [(c.stream, c.records, c.batch_count, c.min_timestamp_ms, c.max_timestamp_ms) for c in whole.chunks]
        assert told == [(first, 8, 2, 400, 7_000), (second, 2, 1, 1_000, 1_001)]


async def test_a_request_over_two_domains_may_succeed_in_one():
    """R-096."""
    logs = {domain: MoodyLog(log) for domain, log in (await cluster_logs(2)).items()}
    async with broker(logs, MemoryObjects()) as one:
        first, second = sorted(await one.streams(partitions=2), key=lambda stream: stream & 0xFFFF)
        await one.produce.submit(batch(first))
        logs[1].refuse = 1
        answers = [one.produce.submit(batch(first)), one.produce.submit(batch(second))]
        told = await asyncio.gather(*answers, return_exceptions=True)
        assert isinstance(told[0], NotStored)
        assert told[1].base_offset == 0


async def test_one_batch_sent_through_two_brokers_at_once_is_stored_once():
    """R-101: both answers carry the same offset."""
    log, objects = await new_log(), MemoryObjects()
    async with (
        broker({0: log.handle()}, objects, name="broker-1") as one,
        broker({0: log.handle()}, objects, name="broker-2") as two,
    ):
        (stream,) = await one.streams()
        for sequence in range(30):
            same = batch(stream, str(sequence).encode(), producer=4, sequence=sequence)
            answers = await asyncio.gather(one.produce.submit(same), two.produce.submit(same))
            assert [answer.base_offset for answer in answers] == [sequence, sequence]
        assert [offset for offset, _ in await stored(one, stream)] == list(range(30))


async def test_a_replica_that_has_stopped_for_good_is_a_retriable_failure_and_deletes_nothing():
    """R-085, PR4: another broker may take the batch; this one no longer knows what is true."""
    objects = GatedObjects()
    async with broker({0: await new_log()}, objects) as one:
        (stream,) = await one.streams()
        answer = one.produce.submit(batch(stream))
        await objects.put_count(1)
        one.replica.fail(Diverged("the log was rolled back"))
        objects.open_all()
        with pytest.raises(NotStored):
            await answer
        await settle()
        assert objects.deleted == []


async def test_written_objects_are_offered_to_readers_before_the_commit_wakes_them(monkeypatch):
    """Design section 5: a tailing consumer reads nothing from the store."""
    kept: dict[str, bytes] = {}

    def add(_cache, path, parts, size) -> None:
        kept[path] = b"".join(parts)
        assert len(kept[path]) == size

    monkeypatch.setattr(ObjectCache, "add", add)
    log, objects = HeldLog(await new_log()), MemoryObjects()
    async with broker({0: log}, objects) as one:
        (stream,) = await one.streams()
        log.hold()
        answer = one.produce.submit(batch(stream))
        while "append" not in log.moments:
            await asyncio.sleep(0)
        assert [await objects.get(path) for path in kept] == list(kept.values())
        assert len(kept) == 1
        log.let_go()
        await answer


async def test_a_caller_that_is_gone_hinders_no_other():
    async with broker({0: await new_log()}, MemoryObjects()) as one:
        (stream,) = await one.streams()
        gone, kept = one.produce.submit(batch(stream, b"a")), one.produce.submit(batch(stream, b"b"))
        gone.cancel()
        assert (await kept).base_offset == 1
        assert one.produce.pressure.unacked == 0


async def test_drain_stores_what_was_taken_and_takes_nothing_more():
    clock, objects = ManualClock(), GatedObjects()
    policy = {"linger_ms": 60_000, "flush_batches": 2, "appends_per_second": 1}
    async with broker({0: await new_log()}, objects, clock=clock, **policy) as one:
        (stream,) = await one.streams()
        answers = [one.produce.submit(batch(stream)) for _ in range(9)]
        drained = asyncio.create_task(one.produce.drain())
        await settle()
        with pytest.raises(Stopping):
            one.produce.submit(batch(stream))
        assert not drained.done()
        objects.open_all()
        await drained
        assert [answer.result().base_offset for answer in answers] == list(range(9))


async def test_whoever_waits_when_the_service_stops_is_told():
    """PR8: before the commit nothing happened; during it nobody knows."""
    log, objects = HeldLog(await new_log()), GatedObjects()
    async with broker({0: log}, objects, flush_batches=1, flushes=2) as one:
        (stream,) = await one.streams()
        answers = [one.produce.submit(batch(stream)) for _ in range(3)]
        await objects.put_count(2)
        log.hold()
        objects.let(0)
        while "append" not in log.moments:
            await asyncio.sleep(0)
        pressure = one.produce.pressure
    assert [type(answer.exception()) for answer in answers] == [StoredUnknown, Stopping, Stopping]
    assert pressure.unacked == 0


async def test_what_was_answered_survives_the_restart_of_a_local_broker(tmp_path):
    """R-089, I1: files for objects and log."""
    offload = ThreadOffload(4)
    objects = FileObjects(tmp_path / "objects", LocalDisk(), offload)
    await objects.open()

    async def open_log() -> FileLog:
        return await FileLog.open(tmp_path / "log", disk=LocalDisk(), offload=offload, clock=SystemClock())

    log = await open_log()
    await log.append(genesis())
    async with broker({0: log}, objects) as one:
        streams = await one.streams(partitions=3)
        answers = [one.produce.submit(batch(streams[n % 3], str(n).encode())) for n in range(60)]
        await asyncio.gather(*answers)
        before = [await stored(one, stream) for stream in streams]
    await log.close()
    log = await open_log()
    async with broker({0: log}, objects, name="broker-1 again") as one:
        assert [await stored(one, stream) for stream in streams] == before
        assert [value for _, value in before[1]] == [str(n).encode() for n in range(1, 60, 3)]
        assert (await one.produce.submit(batch(streams[1]))).base_offset == 20
    await log.close()
    offload.close()


async def test_two_writers_of_one_stream_leave_no_gap_and_no_overlap():
    """R-105: 10^4 appends each through two brokers."""
    log, objects = await new_log(), MemoryObjects()
    count = 10_000
    async with (
        broker({0: log.handle()}, objects, name="broker-1", flush_batches=100) as one,
        broker({0: log.handle()}, objects, name="broker-2", flush_batches=37) as two,
    ):
        (stream,) = await one.streams()

        async def write(through) -> list[int]:
            same = batch(stream, b"x")
            bases = []
            for _ in range(count // 500):
                answers = await asyncio.gather(*[through.produce.submit(same) for _ in range(500)])
                bases += [answer.base_offset for answer in answers]
            return bases

        await two.replica.sync()
        bases = await asyncio.gather(write(one), write(two))
        assert sorted(bases[0] + bases[1]) == list(range(2 * count))
        assert all(mine == sorted(mine) for mine in bases)
        assert one.replica.machine.streams.find(stream).end == 2 * count


async def test_a_duplicate_is_told_since_when_it_is_stored_and_nothing_once_its_row_is_gone():
    """P1: the row behind it, which is found then, is another batch's."""
    async with broker({0: await new_log()}, MemoryObjects()) as dray:
        (stream,) = await dray.streams()
        first = batch(stream, producer=7, sequence=0)._replace(max_timestamp_ms=1_000)
        second = batch(stream, producer=7, sequence=1)._replace(max_timestamp_ms=2_000)
        for one in (first, second):
            assert (await dray.produce.submit(one)).timestamp_ms == -1
        assert [(await dray.produce.submit(one)).timestamp_ms for one in (first, second)] == [1_000, 2_000]
        await dray.replica.propose(RaiseFloor(stream=stream, reason=FloorReason.DELETE_RECORDS, bound=1))
        again = [await dray.produce.submit(one) for one in (first, second)]
        assert [(one.base_offset, one.timestamp_ms) for one in again] == [(0, -1), (1, 2_000)]
