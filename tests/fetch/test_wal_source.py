"""The store is read as little as possible, and what it gives is checked."""

import asyncio
import random

import pytest

from dray.errors import Corrupt, Kind, Unavailable
from dray.fetch import telemetry
from dray.fetch.errors import DamagedObject, OffsetOutOfRange, ReadTimeout
from dray.fetch.service import Failed, Fetched
from dray.machine.streams import FloorReason, RaiseFloor
from dray.objects.paths import ObjectKind
from dray.objects.port import Denied, StoreUnavailable
from dray.records import NewRecord, build_batch
from tests.fetch.test_service import check, end_of
from tests.fetch.world import MIB, random_batch, world

OLD_MS = 3_600_000


def batch(seed: int = 1, **how) -> bytes:
    return random_batch(random.Random(seed), **how)


def big(seed: int, size: int = 20_000) -> bytes:
    """Incompressible, so that its size is known."""
    return build_batch([NewRecord(None, random.Random(seed).randbytes(size), 1)])


async def test_tailing_consumers_read_nothing_from_the_store():
    """R-121: what this broker wrote is in its memory."""
    async with world() as here:
        offsets = dict.fromkeys(here.streams, 0)
        for number in range(30):
            await here.write([(stream, batch(number)) for stream in here.streams], keep=True)
            answers = await here.fetch(*[(s, o, MIB) for s, o in offsets.items()], max_wait_ms=1_000)
            for answer in answers:
                assert answer.parts
                offsets[answer.stream] = answer.end
        assert here.objects.gets == []


async def test_a_young_object_is_read_whole_and_once():
    """R-121: written by another broker, asked for by every stream in it."""
    async with world() as here:
        path = await here.write([(stream, batch(n)) for n, stream in enumerate(here.streams * 3)])
        here.clock.advance(59_000)
        await asyncio.gather(*[here.fetch_one(stream, 0) for stream in here.streams for _ in range(5)])
        for stream in here.streams:
            check(await here.fetch_one(stream, 0), here.truth[stream], end_of(here, stream))
        size = len(await here.objects.inner.get(path))
        assert here.objects.gets == [(path, 0, size)]


async def test_an_old_object_is_read_in_ranges_of_just_the_batches_needed():
    """F5, R-121, R-061: not a byte of other batches while they are further apart than a gap."""
    async with world(join_gap_bytes=100) as here:
        one, two, _ = here.streams
        await here.write([(one, big(1)), (two, big(2)), (one, big(3)), (two, big(4))])
        here.clock.advance(OLD_MS)
        answer = await here.fetch_one(one, 0)
        assert answer.size == sum(end - start for _, start, end in here.objects.gets) - 4  # one length lies between
        await here.fetch_one(two, 1)
        assert here.objects.bytes_read == sum(len(big(n)) for n in (1, 3, 4)) + 4


async def test_neighbours_are_joined_within_the_gap_and_no_further():
    """F5, R-121: bytes read are at most bytes needed and one gap for each read."""
    piece = len(big(0))
    for gap, joined in ((0, 1), (piece + 4, 2), (2 * piece + 10, 3), (MIB, 10)):
        async with world(partitions=2, join_gap_bytes=gap, readahead_bytes=0) as here:
            one, two = here.streams
            # Every other batch of the chunk was refused: the rows have gaps of one batch and a length.
            await here.write(
                [(one, big(n)) for n in range(19)] + [(two, big(99))], refuse=frozenset(range(1, 19, 2))
            )  # fmt: skip
            here.clock.advance(OLD_MS)
            answer = await here.fetch_one(one, 0)
            check(answer, here.truth[one], end_of(here, one))
            assert len(here.truth[one]) == 10
            lengths = [end - start for _, start, end in here.objects.gets]
            assert len(lengths) == -(-10 // joined)
            lies_between = 9 * (4 + piece + 4)
            assert here.objects.bytes_read <= answer.size + min(gap * len(lengths) + 8 * 10, lies_between)


async def test_partitions_of_one_request_share_a_read_of_their_object():
    """F5: neighbouring chunks are one GET."""
    async with world() as here:
        await here.write([(stream, batch(n)) for n, stream in enumerate(here.streams)])
        here.clock.advance(OLD_MS)
        answers = await here.fetch(*[(stream, 0, MIB) for stream in here.streams])
        assert all(answer.parts for answer in answers)
        assert len(here.objects.gets) == 1


@pytest.mark.parametrize("cache_bytes", [0, 64 * MIB])
async def test_a_hundred_readers_of_one_cold_range_cause_one_read(cache_bytes):
    """F6, R-121, R-128: with and without a cache."""
    async with world(cache_bytes=cache_bytes) as here:
        stream = here.streams[0]
        await here.write([(stream, batch(n)) for n in range(5)])
        here.clock.advance(OLD_MS)
        here.objects.gate = asyncio.Event()
        readers = [asyncio.create_task(here.fetch_one(stream, 0)) for _ in range(100)]
        while not here.objects.gets:
            await asyncio.sleep(0)
        readers[0].cancel()  # who began it may leave
        for _ in range(20):
            await asyncio.sleep(0)
        # One who wants less of the same shares it, too.
        late = asyncio.create_task(here.fetch_one(stream, here.truth[stream][2].start))
        for _ in range(20):
            await asyncio.sleep(0)
        here.objects.gate.set()
        answers = await asyncio.gather(*readers[1:])
        for answer in answers:
            check(answer, here.truth[stream], end_of(here, stream))
        check(await late, here.truth[stream][2:], end_of(here, stream))
        assert len(here.objects.gets) == 1


async def test_no_more_reads_are_in_flight_than_allowed():
    """F7."""
    async with world(partitions=1, gets_in_flight=3, readahead_bytes=0) as here:
        stream = here.streams[0]
        for number in range(20):
            await here.write([(stream, batch(number))])
        here.clock.advance(OLD_MS)
        answer = await here.fetch_one(stream, 0)
        check(answer, here.truth[stream], end_of(here, stream))
        assert len(here.objects.gets) == 20
        assert here.objects.most_running == 3


def cut_in_half(held: bytearray) -> bytearray:
    return held[: len(held) // 2]


def flip_a_bit(held: bytearray) -> bytearray:
    held[49 + 4 + 70] ^= 1
    return held


def nothing(_: bytearray) -> None:
    return None


def other_length(held: bytearray) -> bytearray:
    held[49 + 4 + 11] ^= 1
    return held


@pytest.mark.parametrize("age_ms", [0, OLD_MS])
@pytest.mark.parametrize("damage", [cut_in_half, flip_a_bit, nothing, other_length])
async def test_a_damaged_object_is_an_error_after_one_fresh_lookup(damage, age_ms):
    """F4, F11, R-125: never other bytes, never skipped offsets; neighbours are served."""
    async with world() as here:
        one, two, _ = here.streams
        path = await here.write([(one, big(n)) for n in range(2)])
        await here.write([(one, big(3)), (two, big(4))])
        here.clock.advance(age_ms)
        await here.objects.spoil(path, damage)
        tails, errors = here.log.tails, telemetry.ERRORS.labels("DamagedObject")._value.get()
        bad, good = await here.fetch((one, 0, MIB), (two, 0, MIB))
        assert isinstance(bad, Failed)
        assert isinstance(bad.error, DamagedObject)
        assert bad.error.kind is Kind.CORRUPT
        check(good, here.truth[two], end_of(here, two))
        assert here.log.tails == tails + 1
        assert sum(1 for got, _, _ in here.objects.gets if got == path) == 2
        assert telemetry.ERRORS.labels("DamagedObject")._value.get() == errors + 1
        check(await here.fetch_one(one, 2), here.truth[one][2:], end_of(here, one))


async def test_records_before_the_damage_are_served_and_none_behind_it():
    """F11, R-125."""
    async with world() as here:
        one = here.streams[0]
        await here.write([(one, big(0)), (one, big(1))])
        path = await here.write([(one, big(2))])
        await here.write([(one, big(3))])
        await here.objects.spoil(path, nothing)
        check(await here.fetch_one(one, 0), here.truth[one][:2], 4)
        assert isinstance((await here.fetch_one(one, 2)).error, DamagedObject)


async def test_an_object_that_is_whole_again_is_read_again():
    """R-125: neither the damage nor the error is remembered."""
    async with world() as here:
        one = here.streams[0]
        path = await here.write([(one, big(0))])
        await here.objects.spoil(path, flip_a_bit)
        assert isinstance((await here.fetch_one(one, 0)).error, DamagedObject)
        await here.objects.spoil(path, flip_a_bit)
        check(await here.fetch_one(one, 0), here.truth[one], 1)


async def test_what_retention_removed_meanwhile_is_out_of_range_and_not_damage():
    """F11: a lagging replica still names the object; the fresh lookup says that it is below the log start."""
    async with world() as here, world(log=here.log.inner, name="broker-2", objects=here.objects) as there:
        one = here.streams[0]
        path = await here.write([(one, big(0))])
        await here.write([(one, big(1))])
        await there.replica.sync()
        there.log.open.clear()
        await here.replica.propose(RaiseFloor(stream=one, reason=FloorReason.DELETE_RECORDS, bound=1, limit=10))
        await here.objects.spoil(path, nothing)
        answer = await there.fetch_one(one, 0)
        assert isinstance(answer.error, OffsetOutOfRange)


async def test_a_store_that_is_down_is_an_error_that_may_be_tried_again():
    async with world() as here:
        one = here.streams[0]
        await here.write([(one, big(0))])
        for error in (StoreUnavailable("down"), Denied("who are you")):
            here.objects.errors = [error]
            answer = await here.fetch_one(one, 0)
            assert isinstance(answer.error, Unavailable)
            assert not isinstance(answer.error, Corrupt)
        assert isinstance(await here.fetch_one(one, 0), Fetched)


async def test_a_read_has_a_deadline():
    async with world(read_deadline="20ms") as here:
        one = here.streams[0]
        await here.write([(one, big(0))])
        here.objects.gate = asyncio.Event()
        assert isinstance((await here.fetch_one(one, 0)).error, ReadTimeout)
        here.objects.gate = None
        check(await here.fetch_one(one, 0), here.truth[one], 1)


async def test_a_closed_service_ends_its_reads():
    async with world() as here:
        await here.write([(here.streams[0], big(0))])
        here.objects.gate = asyncio.Event()
        reading = asyncio.create_task(here.fetch_one(here.streams[0], 0))
        while not here.objects.gets:
            await asyncio.sleep(0)
        await here.service.close()
        assert isinstance((await reading).error, Unavailable)


async def settle(here) -> None:
    for _ in range(50):
        await asyncio.sleep(0)
    while here.objects.running:
        await asyncio.sleep(0)


async def test_a_consumer_that_catches_up_is_read_ahead_of():
    """F7, R-121: its next batches are in memory when it asks, and no more than the window beyond it."""
    window = 200_000
    async with world(partitions=1, readahead_bytes=window, join_gap_bytes=0) as here:
        stream = here.streams[0]
        for number in range(60):
            await here.write([(stream, big(number))])
        here.clock.advance(OLD_MS)
        offset = needed = 0
        while offset < 60:
            in_memory = offset >= 4  # the first says where it begins, the second that it goes on
            before = telemetry.MISSES._value.get()
            answer = await here.fetch_one(stream, offset, 41_000)
            assert (telemetry.MISSES._value.get() == before) == in_memory
            needed += answer.size
            offset += 2
            await settle(here)
            assert here.objects.bytes_read <= needed + window
        assert needed == sum(len(written.data) for written in here.truth[stream])
        assert here.objects.bytes_read == needed  # nothing twice
        assert len(here.objects.gets) == 60


async def test_nobody_reads_ahead_of_a_single_fetch_or_of_a_jumping_consumer():
    """F5, F7."""
    async with world(partitions=1, readahead_bytes=200_000, join_gap_bytes=0) as here:
        stream = here.streams[0]
        for number in range(30):
            await here.write([(stream, big(number))])
        here.clock.advance(OLD_MS)
        needed = 0
        for offset in (0, 20, 3, 11, 27):
            needed += (await here.fetch_one(stream, offset, 41_000)).size
            await settle(here)
        assert here.objects.bytes_read == needed


async def test_what_is_read_ahead_for_everyone_is_bounded():
    """F7."""
    async with world(partitions=8, readahead_bytes=50_000, cache_bytes=400_000, join_gap_bytes=0) as here:
        for number in range(12):
            await here.write([(stream, big(number)) for stream in here.streams])
        here.clock.advance(OLD_MS)
        reader = here.service.sources._by_kind[ObjectKind.WAL]
        assert reader.readahead_limit == 100_000
        for offset in range(0, 8, 2):
            await asyncio.gather(*[here.fetch_one(stream, offset, 41_000) for stream in here.streams])
            assert reader._ahead_bytes <= reader.readahead_limit
        await settle(here)
        assert reader._ahead_bytes == 0
        assert here.cache.bytes <= here.cache.limit_bytes
