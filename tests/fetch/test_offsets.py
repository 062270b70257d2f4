"""Offsets by time and at the ends: the same as reading every record would find."""

import random

import pytest

from dray.fetch.errors import DamagedObject, StreamGone
from dray.fetch.offsets import Found
from dray.machine.append import Append, pack_rows
from dray.machine.names import wal_id
from dray.machine.streams import CloseStream, FloorReason, RaiseFloor
from dray.records import Codec, NewRecord, build_batch, one_batch, records_of
from tests.fetch.world import T0, random_batch, world


def scan(here, stream, start: int) -> list[tuple[int, int]]:
    """Offset and timestamp of every record from the log start on."""
    return [
        (record.offset, record.timestamp)
        for written in here.truth.get(stream, [])
        for record in records_of(one_batch(written.data), written.start)
        if record.offset >= start
    ]


async def cut(here, stream, start: int, limit: int = 1_000) -> None:
    await here.replica.propose(
        RaiseFloor(stream=stream, reason=FloorReason.DELETE_RECORDS, bound=start, limit=limit)
    )  # fmt: skip


@pytest.mark.parametrize("settings", [{}, {"cache_bytes": 0}])
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_a_time_leads_to_the_record_that_a_linear_scan_finds(seed, settings):
    """F13, R-133, R-135, answer 19: timestamps in any order, all codecs, LogAppendTime, a log start inside a batch."""
    print(f"seed {seed}")
    dice = random.Random(seed)
    async with world(partitions=1, **settings) as here:
        stream = here.streams[0]
        for _ in range(25):
            await here.write([(stream, random_batch(dice, spread_ms=300)) for _ in range(dice.randint(1, 4))])
        end = here.truth[stream][-1].end
        for start in sorted({0, *dice.sample(range(end + 1), 5), end}):
            await cut(here, stream, start, limit=dice.choice([1, 1_000]))
            known = scan(here, stream, start)
            for time in {0, T0, T0 + 300, T0 + 301, *(T0 + dice.randint(0, 300) for _ in range(25))}:
                expected = next(((offset, stamp) for offset, stamp in known if stamp >= time), None)
                found = await here.offsets.at_time(stream, time)
                assert found == (None if expected is None else Found(offset=expected[0], timestamp_ms=expected[1]))
            greatest = max((stamp for _, stamp in known), default=None)
            newest = next(((offset, stamp) for offset, stamp in known if stamp == greatest), None)
            found = await here.offsets.newest(stream)
            assert found == (None if newest is None else Found(offset=newest[0], timestamp_ms=newest[1]))


async def test_a_lookup_by_time_among_ten_thousand_rows_reads_at_most_two_batches():
    """R-133: pruned by the rows, whatever the order of timestamps."""
    seed = 9
    print(f"seed {seed}")
    dice = random.Random(seed)
    async with world(partitions=1, cache_bytes=0) as here:
        stream = here.streams[0]
        session = await here.replica.open_session()
        # All rows but the last few hundred lie in objects that a lookup must not read: they do not exist.
        for _ in range(5):
            counter = session.take_counter()
            rows = [(stream, T0 + dice.randint(0, 500), T0, -1, -1, 3, 100, 64 + 104 * n, -1) for n in range(2_000)]
            name = wal_id(here.replica.machine.log_id, session.id, counter)
            await here.replica.propose(
                Append(wal_id=name, size=10**6, created_ms=T0, zone="", packed=pack_rows(rows))
            )  # fmt: skip
        late = [NewRecord(None, b"v", T0 + 600 + n) for n in range(4)]
        await here.write([(stream, build_batch(late, codec=Codec.ZSTD))])
        base = here.truth[stream][0].start
        assert base == 30_000
        assert await here.offsets.at_time(stream, T0 + 602) == Found(offset=base + 2, timestamp_ms=T0 + 602)
        assert await here.offsets.newest(stream) == Found(offset=base + 3, timestamp_ms=T0 + 603)
        assert len(here.objects.gets) == 2
        await cut(here, stream, base + 2, limit=1)
        here.objects.gets.clear()
        assert await here.offsets.at_time(stream, T0) == Found(offset=base + 2, timestamp_ms=T0 + 602)
        assert await here.offsets.at_time(stream, T0 + 604) is None
        assert len(here.objects.gets) <= 2


async def test_the_ends_are_told_after_a_sync():
    """F12, R-012, R-132: at once after an ack or a retention step through another broker."""
    async with world() as here, world(log=here.log.inner, name="broker-2", objects=here.objects) as there:
        stream = here.streams[0]
        assert await there.offsets.latest(stream) == 0
        for number in range(10):
            there.log.open.clear()
            await here.write([(stream, random_batch(random.Random(number)))])
            end = here.truth[stream][-1].end
            assert await there.offsets.latest(stream) == end
            there.log.open.clear()
            await cut(here, stream, end - 1)
            assert await there.offsets.earliest(stream) == end - 1
            there.log.open.clear()
            last = scan(here, stream, end - 1)[-1]
            assert await there.offsets.at_time(stream, 0) == Found(offset=last[0], timestamp_ms=last[1])


async def test_an_empty_stream_has_ends_and_no_times():
    """R-132, R-133, R-135."""
    async with world() as here:
        stream = here.streams[0]
        assert (await here.offsets.earliest(stream), await here.offsets.latest(stream)) == (0, 0)
        assert await here.offsets.at_time(stream, 0) is None
        assert await here.offsets.newest(stream) is None
        await here.write([(stream, build_batch([NewRecord(None, b"v")]))])  # a record without a timestamp
        assert await here.offsets.at_time(stream, 0) is None
        assert await here.offsets.newest(stream) is None


async def test_a_closed_stream_has_no_offsets():
    async with world() as here:
        stream = here.streams[0]
        await here.replica.propose(CloseStream(stream=stream, limit=1))
        for ask in (here.offsets.latest, here.offsets.earliest, here.offsets.newest):
            with pytest.raises(StreamGone):
                await ask(stream)


async def test_a_batch_that_cannot_be_read_is_an_error_after_a_second_look():
    """F11, R-125."""
    async with world() as here:
        stream = here.streams[0]
        path = await here.write([(stream, random_batch(random.Random(1)))])
        await here.objects.spoil(path, lambda held: None)
        with pytest.raises(DamagedObject):
            await here.offsets.at_time(stream, 0)
        assert len(here.objects.gets) == 2


async def test_a_damaged_batch_is_not_remembered():
    """R-125: once it is whole again, it is read again."""
    async with world() as here:
        stream = here.streams[0]
        path = await here.write([(stream, random_batch(random.Random(1)))])

        def flip_a_bit(held):
            held[-60] ^= 1
            held[49 + 4 + 70] ^= 1
            return held

        await here.objects.spoil(path, flip_a_bit)
        with pytest.raises(DamagedObject):
            await here.offsets.newest(stream)
        assert len(here.objects.gets) == 2
        await here.objects.spoil(path, flip_a_bit)
        assert (await here.offsets.newest(stream)).offset < here.truth[stream][-1].end
