"""Fetches and lookups that are served from table files: nobody can tell."""

import asyncio
import random
import sys
from contextlib import closing

import pytest

from dray.fetch.errors import DamagedObject
from dray.fetch.offsets import Found
from dray.fetch.service import Failed, Fetched
from dray.machine.streams import FloorReason, RaiseFloor
from dray.objects.paths import FILES_PREFIX
from dray.offload import ThreadOffload
from dray.records import batches, one_batch, records_of
from dray.records.build import NewRecord, build_batch
from tests.fetch.compacting import compact
from tests.fetch.world import MIB, T0, random_batch, world


def truth(here, stream, start=0) -> list:
    return [
        (record, one_batch(one.data).has_append_time)
        for one in here.truth[stream]
        for record in records_of(one_batch(one.data), one.start)
        if record.offset >= start
    ]


def got(answer, start=0) -> list:
    assert isinstance(answer, Fetched), answer
    data = b"".join(bytes(part) for part in answer.parts)
    assert len(data) == answer.size
    return [
        (record, view.has_append_time)
        for view in batches(data)
        for record in records_of(view)
        if record.offset >= start
    ]


async def filled(here, dice, count=20, **how) -> None:
    for _ in range(count):
        await here.write([(stream, random_batch(dice, **how)) for stream in here.streams])


async def read_all(here, stream, start=0, max_bytes=MIB) -> list:
    """What a consumer sees that asks until it is at the end."""
    found, offset = [], start
    while True:
        answer = await here.fetch_one(stream, offset, max_bytes)
        records = got(answer, offset)
        if not records:
            assert offset == answer.end, answer
            return found
        found += records
        offset = records[-1][0].offset + 1


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_stream_reads_the_same_before_and_after_it_became_files(seed):
    """R-115, R-118, R-123, R-124, R-150, F3: from every offset, whatever the limits, from files and objects."""
    print(f"seed {seed}")
    dice = random.Random(seed)
    async with world(partitions=2, version=2) as here:
        await filled(here, dice)
        stream, other = here.streams
        ends = [one.end for one in here.truth[stream]]
        await compact(here.replica, here.objects, stream, ends[3], ends[8])
        await compact(here.replica, here.objects, stream, ends[12])
        expected = truth(here, stream)
        for offset in range(ends[-1]):
            answer = got(await here.fetch_one(stream, offset), offset)
            assert answer == expected[offset : offset + len(answer)]
            assert answer
        for limit in (0, 1, 100, 300, 1_000, 5_000, MIB):
            assert await read_all(here, stream, 0, limit) == expected
        one, two = await here.fetch((other, 0, 700), (stream, 0, 700), max_bytes=900)
        assert got(one)
        assert two.size <= 900 - one.size
        assert await read_all(here, other) == truth(here, other)


async def test_files_that_became_one_read_the_same():
    """R-150, R-158"""
    dice = random.Random(4)
    async with world(partitions=1, version=2) as here:
        await filled(here, dice)
        (stream,) = here.streams
        ends = [one.end for one in here.truth[stream]]
        parts = [(one.start, one.data) for one in here.truth[stream]]
        for end in (ends[2], ends[5], ends[9]):
            await compact(here.replica, here.objects, stream, end)
        await compact(here.replica, here.objects, stream, ends[9], rewrite_from=ends[2], batches=parts)
        assert len(here.replica.machine.streams.find(stream).index) == 2 + 10
        assert await read_all(here, stream) == truth(here, stream)


@pytest.mark.slow
async def test_only_the_groups_that_are_needed_are_read_and_each_once():
    """F30, F31, R-121, R-123: a footer and a group for the first byte, and nothing again while it is kept."""
    async with world(partitions=1, version=2) as here:
        (stream,) = here.streams
        dice = random.Random(2)
        for _ in range(30):
            rows = [NewRecord(None, dice.randbytes(1_000), T0) for _ in range(1_000)]
            await here.write([(stream, build_batch(rows))])
        (path,) = await compact(here.replica, here.objects, stream, 30_000)
        size = (await here.objects.inner.head(path)).size
        here.objects.gets.clear()
        answers = await asyncio.gather(*(here.fetch_one(stream, 10) for _ in range(20)))
        assert all(answer.parts == answers[0].parts for answer in answers)
        assert len(here.objects.gets) == 2
        assert here.objects.bytes_read < size / 2
        assert got(await here.fetch_one(stream, 500))[0][0].offset == 500
        assert len(here.objects.gets) == 2
        await read_all(here, stream, 0)
        groups = {start for _, start, _ in here.objects.gets}
        assert len(groups) == len(here.objects.gets)


@pytest.mark.slow
async def test_rows_in_memory_are_bounded():
    """F31"""
    async with world(partitions=1, version=2, cold_cache_bytes="9MiB") as here:
        (stream,) = here.streams
        for _ in range(30):
            await here.write([(stream, build_batch([NewRecord(None, bytes(1_000), T0)] * 1_000))])
        await compact(here.replica, here.objects, stream, 30_000)
        source = here.service.files
        assert len(await read_all(here, stream)) == 30_000
        assert source._held_bytes == sum(part.bytes for rows in source._groups.values() for part in rows)
        assert source._held_bytes <= 9 * MIB or len(source._groups) == 1


async def test_pyarrow_never_runs_on_the_loop_of_a_broker():
    """F31: neither for a fetch, nor for a search by time; what a thread has made is all that the loop touches."""
    dice = random.Random(5)
    seen: set[str] = set()

    def note(frame, event, _) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and (module.startswith("pyarrow") or module == "dray.parquet.read"):
            seen.add(f"{module}.{frame.f_code.co_name}")

    with closing(ThreadOffload(1)) as threads:
        async with world(partitions=1, version=2, unpack=threads) as here:
            (stream,) = here.streams
            await filled(here, dice, spread_ms=300)
            await compact(here.replica, here.objects, stream, here.truth[stream][-1].end)
            sys.setprofile(note)  # of this thread, which is the loop's
            try:
                found = await read_all(here, stream)
                at_a_time = await here.offsets.at_time(stream, T0 + 150)
                newest = await here.offsets.newest(stream)
            finally:
                sys.setprofile(None)
            assert found == truth(here, stream)
    assert at_a_time is not None
    assert newest is not None
    assert seen <= {"dray.parquet.read.first", "dray.parquet.read.<lambda>"}  # a search among numbers


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_time_leads_to_the_record_that_a_linear_scan_finds_in_files_too(seed):
    """F13, R-133: timestamps in any order, a log start inside a file, and what is no file yet."""
    print(f"seed {seed}")
    dice = random.Random(seed)
    async with world(partitions=1, version=2) as here:
        (stream,) = here.streams
        await filled(here, dice, 25, spread_ms=300)
        ends = [one.end for one in here.truth[stream]]
        await compact(here.replica, here.objects, stream, ends[6], ends[15])
        for start in (0, ends[6] - 1, ends[6] + 1, ends[14], ends[18]):
            await here.replica.propose(RaiseFloor(stream=stream, reason=FloorReason.DELETE_RECORDS, bound=start))
            known = [(record.offset, record.timestamp) for record, _ in truth(here, stream, start)]
            for time in {0, T0, T0 + 300, T0 + 301, *(T0 + dice.randint(0, 300) for _ in range(15))}:
                expected = next(((offset, stamp) for offset, stamp in known if stamp >= time), None)
                found = await here.offsets.at_time(stream, time)
                assert found == (None if expected is None else Found(offset=expected[0], timestamp_ms=expected[1]))
            greatest = max(stamp for _, stamp in known)
            offset = next(offset for offset, stamp in known if stamp == greatest)
            assert await here.offsets.newest(stream) == Found(offset=offset, timestamp_ms=greatest)


async def test_a_damaged_or_missing_file_is_an_error_and_never_other_records():
    """F11, F32, R-125: of that stream alone; what was read before does not count."""
    dice = random.Random(6)
    for change in (lambda _: None, lambda raw: raw[:-10], lambda raw: bytearray(len(raw))):
        async with world(partitions=2, version=2) as here:
            await filled(here, dice, 6)
            stream, other = here.streams
            (path,) = await compact(here.replica, here.objects, stream, here.truth[stream][-1].end)
            await here.objects.spoil(path, change)
            failed, served = await here.fetch((stream, 0, MIB), (other, 0, MIB), max_bytes=4 * MIB)
            assert isinstance(failed, Failed)
            assert isinstance(failed.error, DamagedObject)
            assert got(served) == truth(here, other)
            with pytest.raises(DamagedObject):
                await here.offsets.at_time(stream, T0)


async def test_readers_that_loop_while_swaps_happen_see_each_offset_once():
    """I5, R-150: at every moment, from the first offset to the last."""
    dice = random.Random(9)
    async with world(partitions=1, version=2) as here:
        (stream,) = here.streams
        await filled(here, dice, 40)
        ends = [one.end for one in here.truth[stream]]
        expected, rounds, done = truth(here, stream), [0, 0, 0], asyncio.Event()

        async def read(number: int, limit: int) -> None:
            while not done.is_set() or not rounds[number]:
                assert await read_all(here, stream, 0, limit) == expected
                rounds[number] += 1

        async with asyncio.TaskGroup() as tasks:
            for number, limit in enumerate((200, 2_000, MIB)):
                tasks.create_task(read(number, limit))
            for at in range(3, 40, 6):
                await compact(here.replica, here.objects, stream, ends[at - 2], ends[at], limit=2)
            done.set()
        assert all(rounds)
        names = [info.path async for info in here.objects.inner.list(FILES_PREFIX)]
        assert len(names) == 14
