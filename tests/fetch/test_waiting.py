"""Long polls: woken by apply, sure of what they deny, and free while they wait."""

import asyncio
import random

import pytest

from dray.clock import SystemClock
from dray.errors import Unavailable
from dray.fetch.cache import ObjectCache
from dray.fetch.errors import OffsetOutOfRange, StreamGone
from dray.fetch.plan import PartitionRead, Planner
from dray.fetch.service import Failed, Fetched, FetchService
from dray.fetch.settings import FetchSettings
from dray.ids import SystemEntropy
from dray.log.port import Position
from dray.machine.checkpoint import dump
from dray.machine.names import StreamId
from dray.machine.streams import CloseStream, OpenStream
from dray.machine.topics import CreateTopic
from dray.offload import InlineOffload
from dray.records import batches
from dray.replica.checkpoints import MemoryCheckpoints
from dray.replica.domains import Domains
from dray.replica.errors import NotServing
from dray.topics.service import NewTopic, TopicService
from tests.fetch.world import CALM, MIB, CountedObjects, random_batch, world, write
from tests.replica.domain import replica_on, running
from tests.topics.test_service import cluster_logs

LONG_MS = 60_000


def batch(seed: int = 1) -> bytes:
    return random_batch(random.Random(seed))


async def turns(count: int = 30) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_waiting_fetch_is_woken_by_a_commit_made_through_another_broker():
    """R-117, R-129: and reads neither engine nor store while it waits (F9)."""
    async with world() as here, world(log=here.log.inner, name="broker-2", objects=here.objects) as there:
        stream = here.streams[0]
        waiting = asyncio.create_task(there.fetch_one(stream, 0, max_wait_ms=LONG_MS))
        await turns()
        tails = there.log.tails
        await turns(200)
        assert not waiting.done()
        assert (there.log.tails, there.objects.gets) == (tails, [])
        await here.write([(stream, batch())])
        answer = await waiting
        assert answer.end == here.truth[stream][0].end
        assert answer.size == len(here.truth[stream][0].data)
        assert there.log.tails == tails


async def test_one_sync_at_arrival_and_none_while_waiting():
    """R-117: F9."""
    async with world() as here:
        before = here.log.tails
        waiting = asyncio.create_task(here.fetch_one(here.streams[0], 0, max_wait_ms=LONG_MS))
        await turns(100)
        assert here.log.tails == before + 1
        await here.write([(here.streams[0], batch())])
        await waiting
        assert here.log.tails == before + 1


async def test_a_fetch_that_need_not_wait_answers_at_once():
    """R-117: max wait 0, min bytes 0, or nothing asked."""
    async with world() as here:
        stream = here.streams[0]
        assert (await here.fetch_one(stream, 0, max_wait_ms=0)).parts == []
        assert (await here.fetch_one(stream, 0, max_wait_ms=LONG_MS, min_bytes=0)).parts == []
        assert await here.fetch(max_wait_ms=LONG_MS) == []


async def test_a_fetch_waits_for_min_bytes_over_all_its_partitions():
    """R-117."""
    async with world() as here:
        one, two, three = here.streams
        piece = batch()
        asked = [(stream, 0, MIB) for stream in here.streams]
        waiting = asyncio.create_task(here.fetch(*asked, min_bytes=3 * len(piece), max_wait_ms=LONG_MS))
        for stream in (one, two):
            await here.write([(stream, piece)])
            await turns()
            assert not waiting.done()
        await here.write([(three, piece)])
        assert [answer.size for answer in await waiting] == [len(piece)] * 3


async def test_a_fetch_that_waits_looks_only_at_what_was_touched(monkeypatch):
    """F20: and has all of it in the end."""
    looked: list[StreamId] = []
    look_at = Planner.look_at

    def counted(self, stream, *args, **kwargs):
        looked.append(stream)
        return look_at(self, stream, *args, **kwargs)

    async with world(partitions=40) as here:
        piece = batch()
        asked = [(stream, 0, MIB) for stream in here.streams]
        waiting = asyncio.create_task(here.fetch(*asked, min_bytes=10 * len(piece), max_wait_ms=LONG_MS))
        await turns()
        monkeypatch.setattr(Planner, "look_at", counted)
        for number in range(9):
            await here.write([(here.streams[number % 3], piece)])
            await turns()
        assert not waiting.done()
        assert looked == [], "sums were enough"
        await here.write([(here.streams[7], piece)])
        sizes = [answer.size // len(piece) for answer in await waiting]
        assert sizes[:8] == [3, 3, 3, 0, 0, 0, 0, 1]
        assert len(looked) == 40, "one plan, for the answer"


async def test_what_was_touched_before_the_deadline_is_in_the_answer():
    """R-117, F20: too little to end the wait, and sent at its end."""
    async with world() as here:
        piece = batch()
        waiting = asyncio.create_task(here.fetch_one(here.streams[0], 0, min_bytes=MIB, max_wait_ms=500))
        await turns()
        await here.write([(here.streams[0], piece)])
        assert (await waiting).size == len(piece)


async def test_limits_that_are_reached_end_the_wait():
    """R-117, F20: what has no room for more is sent, though it is less than was asked for."""
    async with world() as here:
        one, two, _ = here.streams
        piece = batch()
        limit = 2 * len(piece) - 1
        asked = [(one, 0, limit), (two, 0, limit)]
        waiting = asyncio.create_task(here.fetch(*asked, min_bytes=limit, max_bytes=limit, max_wait_ms=LONG_MS))
        for stream in (one, two):
            await turns()
            assert not waiting.done()
            await here.write([(stream, piece)])
        assert [answer.size for answer in await waiting] == [len(piece), 0]


async def test_at_the_deadline_there_is_what_there_is():
    """R-117."""
    async with world() as here:
        piece = batch()
        await here.write([(here.streams[0], piece)])
        answer = await here.fetch_one(here.streams[0], 0, min_bytes=MIB, max_wait_ms=20)
        assert answer.size == len(piece)
        assert (await here.fetch_one(here.streams[1], 0, max_wait_ms=20)).parts == []


async def test_an_error_ends_the_wait():
    """R-117: a topic that is deleted while somebody waits at its end."""
    async with world() as here:
        stream = here.streams[0]
        waiting = asyncio.create_task(here.fetch_one(stream, 0, max_wait_ms=LONG_MS))
        await turns()
        await here.replica.propose(CloseStream(stream=stream, limit=1))
        answer = await waiting
        assert isinstance(answer.error, StreamGone)


async def test_a_lagging_replica_finds_what_was_acknowledged_elsewhere():
    """F8, R-012, R-116: the end, an offset beyond it and an unknown stream are never told from memory."""
    async with world() as here, world(log=here.log.inner, name="broker-2", objects=here.objects) as there:
        stream = here.streams[0]
        await there.replica.sync()
        for number in range(20):
            there.log.open.clear()
            await here.write([(stream, batch(number))])
            last = here.truth[stream][-1]
            assert there.replica.machine.streams.find(stream).end == last.start  # it lags
            asked = last.start if number % 2 else last.end
            answer = await there.fetch_one(stream, asked)
            assert isinstance(answer, Fetched)
            assert (answer.end, bool(answer.parts)) == (last.end, asked == last.start)
        there.log.open.clear()
        created = CreateTopic(topic_id=b"n" * 16, name="new", partitions=1)
        (verdict,) = await here.replica.propose(created)
        fresh = StreamId(verdict.streams[0])
        await here.replica.propose(OpenStream(stream=fresh, topic_id=b"n" * 16, partition=0))
        assert there.replica.machine.streams.find(fresh) is None
        assert isinstance(await there.fetch_one(fresh, 0), Fetched)
        assert isinstance((await there.fetch_one(StreamId(0xABC << 16), 0)).error, StreamGone)
        assert isinstance((await there.fetch_one(stream, 10_000)).error, OffsetOutOfRange)


async def test_if_the_log_cannot_be_asked_nothing_is_denied():
    """F8: an outage is an error that says so, and what is known is served."""
    async with world() as here:
        one, two, _ = here.streams
        await here.write([(one, batch())])

        async def no_tail():
            raise Unavailable("no engine")

        here.replica._tails._tail = no_tail
        known, unsure, beyond = await here.fetch((one, 0, MIB), (two, 0, MIB), (two, 7, MIB))
        assert known.size == len(here.truth[one][0].data)
        for answer in (unsure, beyond):
            assert isinstance(answer, Failed)
            assert isinstance(answer.error, Unavailable)


async def test_wake_ups_dropped_or_doubled_cost_time_and_no_records():
    """R-130: F9."""
    seed = 11
    print(f"seed {seed}")
    dice = random.Random(seed)
    async with world() as here:
        wakeups = here.replica._wakeups
        honest = wakeups.wake

        def moody(keys):
            keys = tuple(keys)
            for _ in range(dice.choice([0, 1, 2])):
                honest(keys)

        wakeups.wake = moody
        stream, got = here.streams[0], bytearray()

        async def consume():
            offset = 0
            while offset < 60:
                answer = await here.fetch_one(stream, offset, max_wait_ms=10)
                for found in batches(b"".join(answer.parts)):
                    assert found.base_offset == offset
                    offset += found.record_count
                    got.extend(found.buffer[16:])

        reader = asyncio.create_task(consume())
        for number in range(60):
            await here.write([(stream, random_batch(dice, records=1, value_bytes=number))])
        await reader
        assert bytes(got) == b"".join(written.data[16:] for written in here.truth[stream])


async def test_a_broker_that_may_not_serve_answers_nobody():
    """R-127, RP5."""
    async with world() as here:
        await here.write([(here.streams[0], batch())])

        def stale():
            raise NotServing("too long")

        here.replica.check_serving = stale
        assert isinstance((await here.fetch_one(here.streams[0], 0)).error, NotServing)


async def test_a_domain_that_is_not_followed_here_is_somebody_elses():
    async with world() as here:
        answer = await here.fetch_one(StreamId(1 << 16 | 9), 0)
        assert isinstance(answer.error, Unavailable)


async def test_an_answer_is_never_older_than_what_was_applied_when_its_request_came():
    """F10, R-127: also when the replica jumps to a checkpoint while the fetch waits."""
    async with world() as here, world(log=here.log.inner, name="broker-2", objects=here.objects) as there:
        stream, store = here.streams[0], MemoryCheckpoints()
        there.replica._checkpoints = store
        await here.write([(stream, batch(1))])
        seen = await there.fetch_one(stream, 0)
        waiting = asyncio.create_task(there.fetch_one(stream, seen.end, max_wait_ms=LONG_MS))
        await turns()
        there.log.open.clear()
        for number in range(3):
            await here.write([(stream, batch(number))])
        before, position = there.replica.machine, here.replica.machine.position
        await store.write(position, dump(here.replica.machine))
        await store.confirm(position)
        await here.log.inner.trim(Position(position))
        there.log.open.set()
        answer = await waiting
        assert isinstance(answer, Fetched) or isinstance(answer.error, NotServing)  # its session went with the jump
        await there.replica.open_session()
        after = await there.fetch_one(stream, seen.end)
        assert there.replica.machine is not before  # it jumped
        assert there.replica.machine.position >= before.position
        assert after.end == here.truth[stream][-1].end
        assert after.size == sum(len(written.data) for written in here.truth[stream][1:])


async def test_one_request_waits_for_streams_of_several_domains():
    """R-117: whichever is appended to wakes it."""
    logs = await cluster_logs(3)
    replicas = {domain: replica_on(log, timing=CALM) for domain, log in logs.items()}
    async with running(*replicas.values()):
        domains, objects = Domains(replicas), CountedObjects()
        await domains.catalog.open_session()
        clock = SystemClock()
        topics = TopicService(domains=domains, entropy=SystemEntropy(), clock=clock)
        topic = await topics.create(NewTopic(name="t", partitions=3, replication_factor=1, configs={}))
        settings = FetchSettings()
        service = FetchService(
            domains=domains,
            objects=objects,
            clock=clock,
            settings=settings,
            cache=ObjectCache(settings.cache_bytes),
            offload=InlineOffload(),
        )
        asked = [PartitionRead(stream=stream, offset=0, max_bytes=MIB) for stream in topic.streams]
        offsets = dict.fromkeys(topic.streams, 0)
        for number, stream in enumerate(topic.streams):
            asked = [PartitionRead(stream=s, offset=offsets[s], max_bytes=MIB) for s in topic.streams]
            waiting = asyncio.create_task(service.fetch(asked, min_bytes=1, max_bytes=MIB, max_wait_ms=LONG_MS))
            await turns()
            assert not waiting.done()
            truth: dict = {}
            await write(domains.of(stream), objects, clock, truth, [(stream, batch(number))])
            answers = {answer.stream: answer for answer in await waiting}
            assert answers[stream].size == len(truth[stream][0].data)
            offsets[stream] = answers[stream].end
        await service.close()


@pytest.mark.parametrize("count", [1, 50])
async def test_a_consumer_that_leaves_leaves_nothing_behind(count):
    """A cancelled long poll is taken off every list."""
    async with world() as here:
        waiting = [
            asyncio.create_task(here.fetch(*[(s, 0, MIB) for s in here.streams], max_wait_ms=LONG_MS))
            for _ in range(count)
        ]
        await turns()
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert here.replica._wakeups.waiters == {}
