"""ListOffsets: ends of a log, and offsets by time, compared with a linear scan."""

import random

import pytest

from dray.records import Codec, NewRecord, build_batch
from dray.servers.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.golden.asking import LIST_OFFSETS, NOW_MS, Asker

SEED = 20261115
LATEST, EARLIEST, NEWEST, EARLIEST_LOCAL, TIERED, PENDING = -1, -2, -3, -4, -5, -6
BASE_MS = NOW_MS


async def fill(ask: Asker, name: str, batches_of_times: list[list[int]], codec: Codec = Codec.NONE) -> None:
    await ask.create(name)
    for times in batches_of_times:
        rows = [NewRecord(value=b"v", timestamp=BASE_MS + at) for at in times]
        assert (await ask.produce(name, build_batch(rows, codec=codec))).error_code == 0


async def look_up(ask: Asker, name: str, at: int, version: int = 10) -> tuple[int, int, int]:
    answer = await ask.offset_at(name, at, version=version)
    return answer.error_code, answer.offset, answer.timestamp


@pytest.mark.parametrize("version", range(1, 11))
async def test_the_table_of_timestamps_in_every_version(ask: Asker, name: str, version: int) -> None:
    """R-132, R-135: a special value below its version is refused with 35."""
    await fill(ask, name, [[0, 10], [30, 20]])
    known = {LATEST: (0, 4, -1), EARLIEST: (0, 0, -1)}
    if version >= 7:
        known[NEWEST] = (0, 2, BASE_MS + 30)
    if version >= 8:
        known[EARLIEST_LOCAL] = (0, 0, -1)
    if version >= 9:
        known[TIERED] = (0, -1, -1)
    for special in (LATEST, EARLIEST, NEWEST, EARLIEST_LOCAL, TIERED, PENDING):
        assert await look_up(ask, name, special, version) == known.get(special, (35, -1, -1)), special


async def test_an_empty_log_has_ends_and_no_times(ask: Asker, name: str) -> None:
    """R-132, R-135."""
    await ask.create(name)
    assert await look_up(ask, name, LATEST) == (0, 0, -1)
    assert await look_up(ask, name, EARLIEST) == (0, 0, -1)
    assert await look_up(ask, name, NEWEST) == (0, -1, -1)
    assert await look_up(ask, name, BASE_MS) == (0, -1, -1)


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
async def test_a_time_finds_the_lowest_offset_at_or_after_it(ask: Asker, name: str, codec: Codec) -> None:
    """R-133: also where times run back, inside a batch and between batches."""
    print(f"seed {SEED}")
    dice = random.Random(SEED + codec)
    times = [[dice.randrange(200) for _ in range(dice.randrange(1, 6))] for _ in range(8)]
    await fill(ask, name, times, codec)
    flat = [at for some in times for at in some]
    for asked in (-1, *sorted({at + step for at in flat for step in (-1, 0, 1)}), 500):
        found = next(((0, offset, BASE_MS + at) for offset, at in enumerate(flat) if at >= asked), (0, -1, -1))
        assert await look_up(ask, name, BASE_MS + asked) == found, asked
    newest = max(flat)
    assert await look_up(ask, name, NEWEST) == (0, flat.index(newest), BASE_MS + newest)


async def test_a_partition_asked_twice_or_unknown_is_refused_alone(ask: Asker, name: str) -> None:
    await ask.create(name, 2)
    answers = await ask.offsets_at(name, [(0, LATEST), (0, EARLIEST), (1, LATEST), (5, LATEST)])
    assert sorted((one.partition_index, one.error_code) for one in answers) == [(0, 42), (1, 0), (5, 3)]
    for topics in ([name, name], ["no-such-topic", "no-such-topic"]):
        partitions = [ListOffsetsPartition(partition_index=0, timestamp=LATEST)]
        asked = [ListOffsetsTopic(name=one, partitions=partitions) for one in topics]
        [found] = (await ask.call(LIST_OFFSETS, 10, ListOffsetsRequest(replica_id=-1, topics=asked))).topics
        assert [(one.partition_index, one.error_code) for one in found.partitions] == [(0, 42)]
    [unknown] = await ask.offsets_at("no-such-topic", [(0, LATEST)])
    assert (unknown.error_code, unknown.offset, unknown.timestamp) == (3, -1, -1)
