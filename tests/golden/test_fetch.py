"""Fetch: whole batches, waited for if there are none."""

import asyncio
import struct

import pytest

from dray.records import Codec, batches
from dray.servers.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.golden.asking import FETCH, Asker, batch, fetch_request, records_in


@pytest.fixture
async def topic(ask: Asker, name: str) -> str:
    """Batches [0,10) and [10,12)."""
    await ask.create(name)
    await ask.produce(name, batch(*(b"%d" % n for n in range(10))))
    await ask.produce(name, batch(b"10", b"11"))
    return name


def base_offsets(answer) -> list[int]:
    return [one.base_offset for one in batches(records_in(answer))]


@pytest.mark.parametrize("version", range(4, 17))
async def test_every_version_gives_the_same_data(ask: Asker, topic: str, version: int) -> None:
    """R-119, R-126."""
    [found] = (await ask.metadata(topic)).topics
    answer = await ask.fetch(topic, version=version, topic_id=found.topic_id)
    assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (0, 12, 12)
    assert base_offsets(answer) == [0, 10]
    if version >= 5:
        assert answer.log_start_offset == 0
    assert not answer.aborted_transactions
    if version >= 11:
        assert answer.preferred_read_replica == -1


@pytest.mark.parametrize(
    ("offset", "found", "code"),
    [(0, [0, 10], 0), (5, [0, 10], 0), (10, [10], 0), (11, [10], 0), (12, [], 0), (13, [], 1), (-1, [], 1)],
)
async def test_an_offset_gives_the_batch_that_holds_it(
    ask: Asker, topic: str, offset: int, found: list[int], code: int
) -> None:
    """R-116, R-118."""
    answer = await ask.fetch(topic, offset)
    assert (answer.error_code, base_offsets(answer)) == (code, found)
    if code:
        assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (-1, -1, -1)


async def test_one_whole_batch_comes_however_little_was_asked(ask: Asker, topic: str, name: str) -> None:
    """R-118: sizes are soft for the first batch and hard for what follows."""
    assert base_offsets(await ask.fetch(topic, partition_max_bytes=1)) == [0]
    assert base_offsets(await ask.fetch(topic, max_bytes=1)) == [0]


async def test_a_full_answer_has_no_data_in_the_second_partition(ask: Asker, name: str) -> None:
    await ask.create(name, 2)
    for partition in range(2):
        await ask.produce(name, batch(b"x" * 100), partition=partition)
    response = await ask.call(FETCH, 12, fetch_request([(name, 0, 0), (name, 1, 0)], max_bytes=1))
    [topic] = response.responses
    assert [(part.partition_index, bool(records_in(part))) for part in topic.partitions] == [(0, True), (1, False)]
    assert [part.error_code for part in topic.partitions] == [0, 0]


async def test_at_the_end_it_waits_for_its_time_and_answers_empty(ask: Asker, topic: str) -> None:
    """R-117, R-119."""
    loop = asyncio.get_running_loop()
    before = loop.time()
    answer = await ask.fetch(topic, 12, max_wait_ms=300, min_bytes=1)
    assert loop.time() - before >= 0.29
    assert (answer.error_code, answer.high_watermark, records_in(answer)) == (0, 12, b"")


@pytest.mark.parametrize("options", [{"max_wait_ms": 0, "min_bytes": 1}, {"max_wait_ms": 600_000, "min_bytes": 0}])
async def test_it_does_not_wait_if_told_so(ask: Asker, topic: str, options: dict[str, int]) -> None:
    """R-117."""
    assert records_in(await ask.fetch(topic, 12, **options)) == b""


async def test_a_produce_wakes_it(ask: Asker, dray, topic: str) -> None:
    """R-117: long before its time."""
    async with Asker(dray.bootstrap) as other:
        waiting = asyncio.ensure_future(ask.fetch(topic, 12, max_wait_ms=25_000, min_bytes=1))
        await other.metadata(topic)
        assert not waiting.done()
        await other.produce(topic, batch(b"news"))
        assert b"news" in records_in(await waiting)


async def test_it_waits_until_enough_bytes_are_there(ask: Asker, dray, topic: str) -> None:
    """R-117."""
    size = len(batch(b"x" * 100))
    async with Asker(dray.bootstrap) as other:
        waiting = asyncio.ensure_future(ask.fetch(topic, 12, max_wait_ms=25_000, min_bytes=2 * size))
        await other.produce(topic, batch(b"x" * 100))
        await other.metadata(topic)
        assert not waiting.done()
        await other.produce(topic, batch(b"x" * 100))
        assert len(records_in(await waiting)) == 2 * size


async def test_an_error_anywhere_answers_at_once(ask: Asker, topic: str) -> None:
    """R-086, R-117, R-120: and every partition that was asked for is in the answer, once."""
    request = fetch_request([(topic, 0, 12), (topic, 7, 0), ("no-such-topic", 0, 0)], max_wait_ms=600_000, min_bytes=1)
    response = await ask.call(FETCH, 12, request)
    codes = [
        (one.topic, [(part.partition_index, part.error_code) for part in one.partitions]) for one in response.responses
    ]
    assert codes == [(topic, [(0, 0), (7, 3)]), ("no-such-topic", [(0, 3)])]


async def test_an_unknown_topic_id_is_told_as_such(ask: Asker) -> None:
    """R-126."""
    assert (await ask.fetch("", version=13, topic_id=bytes(range(16)))).error_code == 100


async def test_the_id_of_a_deleted_topic_gives_nothing_of_its_successor(ask: Asker, topic: str) -> None:
    """R-126, R-193."""
    [old] = (await ask.metadata(topic)).topics
    assert await ask.delete(topic) == 0
    new = await ask.create(topic)
    await ask.produce(topic, batch(b"new"))
    assert (await ask.fetch("", version=13, topic_id=old.topic_id)).error_code == 100
    assert base_offsets(await ask.fetch("", version=13, topic_id=new.topic_id)) == [0]


async def test_sessions_are_declined(ask: Asker, topic: str) -> None:
    """R-120."""
    opened = await ask.call(FETCH, 12, fetch_request([(topic, 0, 12)], session_id=0, session_epoch=0))
    assert (opened.session_id, opened.error_code, len(opened.responses)) == (0, 0, 1)
    closed = await ask.call(FETCH, 12, fetch_request([(topic, 0, 0)], session_id=5, session_epoch=-1))
    assert (closed.session_id, closed.error_code, len(closed.responses)) == (0, 0, 1)
    for number, epoch in ((123, 1), (0, 1), (0, -7), (-1, 5)):
        asked = FetchRequest(session_id=number, session_epoch=epoch, topics=[FetchTopic(topic=topic)])
        unknown = await ask.call(FETCH, 12, asked)
        assert (unknown.error_code, list(unknown.responses)) == (70, [])


async def test_a_leader_epoch_from_the_future_is_refused(ask: Asker, topic: str) -> None:
    assert (await ask.fetch(topic, epoch=7)).error_code == 75
    assert (await ask.fetch(topic, epoch=0)).error_code == 0


async def test_read_committed_reads_the_same(ask: Asker, topic: str) -> None:
    """R-119."""
    answer = await ask.fetch(topic, isolation_level=1)
    assert (base_offsets(answer), answer.aborted_transactions) == ([0, 10], [])
    assert (await ask.fetch(topic, isolation_level=0)).aborted_transactions is None


@pytest.mark.parametrize("version", [4, 9, 10])
async def test_zstd_is_given_to_everyone(ask: Asker, name: str, version: int) -> None:
    """As by Kafka 4: whoever cannot read it says so at that batch, and reads the ones before it."""
    await ask.create(name)
    await ask.produce(name, batch(b"plain"))
    await ask.produce(name, batch(codec=Codec.ZSTD))
    answer = await ask.fetch(name, version=version)
    assert (answer.error_code, base_offsets(answer)) == (0, [0, 1])


async def test_no_more_is_waited_for_than_fits_into_the_answer(ask: Asker, name: str) -> None:
    """R-117: the least above the most is the most; what the next batch does not fit into is full."""
    await ask.create(name)
    for _ in range(4):
        await ask.produce(name, batch(b"x" * 1_000))
    size = len(batch(b"x" * 1_000))
    for max_bytes in (2 * size, 2 * size + 100, 1):
        asked = {"min_bytes": 1_000_000, "max_bytes": max_bytes, "max_wait_ms": 600_000}
        async with asyncio.timeout(30):  # it would be ten minutes
            answer = await ask.fetch(name, **asked)
        assert base_offsets(answer) == [0, 1][: max(1, max_bytes // size)]


async def test_a_partition_that_is_named_twice_is_answered_once_as_named_last(ask: Asker, topic: str) -> None:
    """As by Kafka; also while it waits."""
    for places in ([(topic, 0, 0), (topic, 0, 10)], [(topic, 0, 10), (topic, 0, 10)]):
        [found] = (await ask.call(FETCH, 12, fetch_request(places))).responses
        assert [base_offsets(part) for part in found.partitions] == [[10]]
    request = fetch_request([(topic, 0, 0), (topic, 0, 12)], max_wait_ms=100, min_bytes=1)
    [found] = (await ask.call(FETCH, 12, request)).responses
    assert [(part.error_code, part.high_watermark, records_in(part)) for part in found.partitions] == [(0, 12, b"")]


@pytest.mark.parametrize("version", [12, 13])
async def test_a_topic_that_is_named_twice_is_answered_once(ask: Asker, name: str, version: int) -> None:
    made = await ask.create(name, 2)
    await ask.produce(name, batch(), partition=1)
    topics = [
        FetchTopic(
            topic=name if version < 13 else "",
            topic_id=made.topic_id,
            partitions=[FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20)],
        )
        for number in (0, 1)
    ]
    [found] = (await ask.call(FETCH, version, FetchRequest(max_bytes=1 << 20, topics=topics))).responses
    assert [(part.partition_index, part.high_watermark) for part in found.partitions] == [(0, 0), (1, 1)]


async def test_served_batches_carry_their_offsets_and_the_one_epoch(ask: Asker, topic: str) -> None:
    stored = records_in(await ask.fetch(topic, 10))
    assert struct.unpack_from(">qii", stored)[::2] == (10, 0)
