"""What consumers get is what was accepted: whole batches, in order, with their real offsets."""

import random

import pytest

from dray.fetch.errors import OffsetOutOfRange, StreamGone
from dray.fetch.line import Line
from dray.fetch.plan import PartitionRead
from dray.fetch.service import Failed, Fetched
from dray.machine.streams import CloseStream, FloorReason, RaiseFloor
from dray.records import NewRecord, batches, build_batch
from tests.fetch.world import MIB, World, Written, random_batch, world

SEEDS = [1, 2]
WAYS = {
    "cached": {},
    "uncached": {"cache_bytes": 0},
    "tight": {"cache_bytes": 3_000, "readahead_bytes": 500, "join_gap_bytes": 300, "gets_in_flight": 1},
    "ranges": {"young": 0},
}


def settings_of(way: str) -> dict:
    chosen = dict(WAYS[way])
    if "young" in chosen:
        chosen["young"] = "0s"
    return chosen


def expect(truth: dict, asked, max_bytes: int) -> list[list[Written]]:
    """The naive twin: whole batches in order within both limits, the first of all whatever its size."""
    answers, left, first = [], max_bytes, True
    for stream, offset, limit in asked:
        taken, size = [], 0
        for written in truth.get(stream, []):
            if written.end <= offset:
                continue
            if size + len(written.data) > min(limit, left) and not (first and not taken):
                break
            taken.append(written)
            size += len(written.data)
        left -= size
        first = first and not taken
        answers.append(taken)
    return answers


def check(answer, expected: list[Written], end: int) -> None:
    assert isinstance(answer, Fetched)
    sent = b"".join(answer.parts)
    assert answer.size == len(sent)
    assert answer.end == end
    found = list(batches(sent))
    assert [(batch.base_offset, batch.base_offset + batch.record_count) for batch in found] == [
        (written.start, written.end) for written in expected
    ]
    for batch, written in zip(found, expected, strict=True):
        assert batch.crc_is_right
        assert batch.leader_epoch == 0
        assert bytes(batch.buffer[16:]) == written.data[16:]


async def fill(here: World, dice: random.Random, objects: int = 18) -> None:
    for _ in range(objects):
        count = dice.randint(1, 9)
        made = [(dice.choice(here.streams), random_batch(dice)) for _ in range(count)]
        refused = frozenset(n for n in range(count) if dice.random() < 0.2)
        if len(refused) < count:
            await here.write(made, keep=dice.random() < 0.4, refuse=refused)


def end_of(here: World, stream: int) -> int:
    return here.truth[stream][-1].end if here.truth.get(stream) else 0


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", SEEDS)
async def test_every_offset_with_any_limits_gives_what_a_naive_reader_finds(seed, way):
    """F3, R-039, R-115, R-118, R-119, R-128, E-11: with every cache, and with none."""
    print(f"seed {seed}")
    dice = random.Random(seed)
    async with world(**settings_of(way)) as here:
        await fill(here, dice)
        for stream in here.streams:
            for offset in range(end_of(here, stream) + 1):
                limit, total = dice.choice([0, 1, 300, 2_000, MIB]), dice.choice([1, 500, MIB])
                asked = [(stream, offset, limit)]
                (answer,) = await here.fetch(*asked, max_bytes=total)
                check(answer, expect(here.truth, asked, total)[0], end_of(here, stream))
        for _ in range(60):
            asked = [
                (stream, dice.randint(0, end_of(here, stream)), dice.choice([0, 100, 1_500, MIB]))
                for stream in dice.sample(here.streams, dice.randint(1, len(here.streams)))
            ]
            total = dice.choice([1, 1_000, 5_000, MIB])
            answers = await here.fetch(*asked, max_bytes=total)
            for (stream, _, _), answer, expected in zip(asked, answers, expect(here.truth, asked, total), strict=True):
                check(answer, expected, end_of(here, stream))
        assert here.cache.bytes <= here.cache.limit_bytes


async def test_the_first_batch_is_sent_even_if_it_is_larger_than_all_limits():
    """F3, R-118: and only the first of the response, not of each partition."""
    dice = random.Random(5)
    async with world() as here:
        one, two, _ = here.streams
        big = random_batch(dice, records=40, value_bytes=500)
        await here.write([(one, big), (one, big), (two, big)])
        first, second = await here.fetch((one, 0, 10), (two, 0, 10), max_bytes=10)
        assert first.size == len(big)
        assert second.parts == []
        assert second.end == end_of(here, two)
        answers = await here.fetch((here.streams[2], 0, 10), (two, 0, 10), max_bytes=10)
        assert [answer.size for answer in answers] == [0, len(big)]


async def test_a_batch_that_holds_the_offset_in_its_middle_is_sent_whole():
    """R-118, R-061."""
    async with world() as here:
        dice = random.Random(1)
        await fill(here, dice, objects=6)
        stream = here.streams[0]
        written = next(w for w in here.truth[stream] if w.end - w.start > 2)
        answer = await here.fetch_one(stream, written.start + 1, 1)
        check(answer, [written], end_of(here, stream))


async def test_at_the_end_there_is_nothing_and_no_error():
    """R-116, R-119: records are empty, never null."""
    async with world() as here:
        await here.write([(here.streams[0], random_batch(random.Random(1)))])
        end = end_of(here, here.streams[0])
        answer = await here.fetch_one(here.streams[0], end)
        assert answer == Fetched(stream=here.streams[0], parts=[], size=0, start=0, end=end)


@pytest.mark.parametrize("beyond", [-1, 1, 1_000])
async def test_an_offset_outside_the_log_is_out_of_range(beyond):
    """R-116: below the log start, or above the end."""
    async with world() as here:
        stream = here.streams[0]
        for _ in range(4):
            await here.write([(stream, random_batch(random.Random(1)))])
        start, end = here.truth[stream][1].start + 1, end_of(here, stream)
        await here.replica.propose(
            RaiseFloor(stream=stream, reason=FloorReason.DELETE_RECORDS, bound=start, limit=1_000)
        )
        offset = end + beyond if beyond > 0 else start - 1
        answer = await here.fetch_one(stream, offset)
        assert isinstance(answer.error, OffsetOutOfRange)
        assert (answer.error.facts["start"], answer.error.facts["end"]) == (start, end)
        check(await here.fetch_one(stream, start), here.truth[stream][1:], end)


async def test_a_closed_stream_is_gone_and_its_neighbours_are_served():
    """R-126: what was deleted is not served, whatever the cache holds."""
    async with world() as here:
        one, two, _ = here.streams
        batch = random_batch(random.Random(1))
        await here.write([(one, batch), (two, batch)], keep=True)
        await here.replica.propose(CloseStream(stream=one, limit=1))
        gone, there = await here.fetch((one, 0, MIB), (two, 0, MIB), max_wait_ms=60_000, min_bytes=MIB)
        assert isinstance(gone, Failed)
        assert isinstance(gone.error, StreamGone)
        check(there, here.truth[two], end_of(here, two))


async def test_no_record_byte_is_copied():
    """What is sent lies where the producer's bytes lie."""
    async with world() as here:
        stream, batch = here.streams[0], random_batch(random.Random(1))
        await here.write([(stream, batch)], keep=True)
        answer = await here.fetch_one(stream, 0)
        assert answer.parts[1].obj is batch


async def test_a_fetch_that_finds_no_room_reads_nothing_and_says_so_without_an_error():
    """F14: first as much as there is room for, then nothing, until somebody took what was sent."""
    line = Line(2 * MIB, wait_s=0.01)
    async with world(cache_bytes=0, readahead_bytes=0) as here:
        stream = here.streams[0]
        half = build_batch([NewRecord(value=bytes(MIB // 2), timestamp=0)])
        await here.write([(stream, half)] * 8)
        first, second = line.account(), line.account()

        async def ask(account) -> Fetched:
            read = PartitionRead(stream=stream, offset=0, max_bytes=1 << 30)
            [answer] = await here.service.fetch([read], min_bytes=1, max_bytes=1 << 30, max_wait_ms=0, account=account)
            assert isinstance(answer, Fetched)
            return answer

        answer = await ask(first)
        assert answer.size == 3 * len(half)
        assert first.planned_bytes == 2 * MIB
        before = here.objects.bytes_read
        answer = await ask(second)
        assert (answer.size, answer.end) == (0, 8)
        assert here.objects.bytes_read == before
        first.forget_plan()
        first.keep_unsent(len(half))
        assert (await ask(second)).size == 2 * len(half)
