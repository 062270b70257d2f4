"""No request holds the loop for long: every API at what one request may name, and beyond it."""

import asyncio
import sys
import threading
import traceback
from asyncio.events import Handle
from collections.abc import Iterator
from types import FrameType

import pytest

from dray.servers.kafka.codec import Message
from dray.servers.kafka.handler import PARTITIONS
from dray.servers.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from dray.servers.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from dray.servers.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from dray.servers.kafka.messages.find_coordinator import FindCoordinatorRequest
from dray.servers.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from dray.servers.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from dray.servers.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dray.servers.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from dray.servers.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dray.testing import TestBroker, broker
from tests.golden.asking import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    FETCH,
    FIND_COORDINATOR,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    PRODUCE,
    Asker,
    batch,
    schema,
)
from tests.hostile.admin_sizes import largest_admin_requests, too_large_admin_requests

pytestmark = pytest.mark.slow

MOST_CALLS = 400_000
"""Of functions, in one callback of the loop: about 50 ms of a usual machine, and as many on a slow or a busy one."""
TOPICS = [f"wide-{n}" for n in range(4)]
WIDE = PARTITIONS // len(TOPICS)
NAMES = [f"nobody-{n}" for n in range(PARTITIONS)]
PLACES = [(name, number) for name in TOPICS for number in range(WIDE)]


class Holds:
    """The most calls of functions that one callback made on the broker's loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most = 0
        self.where = ""
        run = Handle._run

        def counted(handle: Handle) -> None:
            if threading.current_thread().name != "dray-broker":
                run(handle)
                return
            calls, where = 0, ""

            def count(frame: FrameType, event: str, _: object) -> None:
                nonlocal calls, where
                if event == "call" or event == "c_call":
                    calls += 1
                    if calls == MOST_CALLS:
                        where = "".join(traceback.format_stack(frame)[-4:])

            sys.setprofile(count)
            try:
                run(handle)
            finally:
                sys.setprofile(None)
            if calls > self.most:
                self.most, self.where = calls, where

        monkeypatch.setattr(Handle, "_run", counted)

    def take(self) -> tuple[int, str]:
        found = self.most, self.where
        self.most, self.where = 0, ""
        return found


@pytest.fixture(scope="module")
def holds() -> Iterator[Holds]:
    with pytest.MonkeyPatch.context() as context:
        yield Holds(context)


@pytest.fixture(scope="module")
def wide(holds: Holds) -> Iterator[TestBroker]:
    """A broker on asyncio's own loop, whose callbacks can be watched, with 10,000 partitions."""
    with broker() as running:
        asyncio.run(make_topics(running.bootstrap))
        yield running


async def make_topics(bootstrap: str) -> None:
    async with Asker(bootstrap) as ask:
        for name in TOPICS:
            await ask.create(name, WIDE)


def by_topic(make) -> dict[str, list]:
    return {name: [make(number) for number in range(WIDE)] for name in TOPICS}


def fetch_of(topics: list[FetchTopic]) -> FetchRequest:
    return FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, topics=topics)


def at(number: int, offset: int = 0) -> FetchPartition:
    return FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)


def largest_requests() -> Iterator[tuple[str, int, int, object]]:
    """Name, key, version and message of requests that name as much as one may."""
    small, large = batch(b"v"), batch(bytes(900_000))
    records = by_topic(lambda number: PartitionProduceData(index=number, records=small))
    yield "produce", PRODUCE, 9, produce_of([TopicProduceData(name=k, partition_data=v) for k, v in records.items()])
    big = [PartitionProduceData(index=number, records=large) for number in range(40)]
    yield "produce 36 MB", PRODUCE, 9, produce_of([TopicProduceData(name=TOPICS[0], partition_data=big)])
    unknown = [TopicProduceData(name=name, partition_data=[PartitionProduceData(records=small)]) for name in NAMES]
    yield "produce to nobody", PRODUCE, 9, produce_of(unknown)
    yield "fetch", FETCH, 12, fetch_of([FetchTopic(topic=k, partitions=v) for k, v in by_topic(at).items()])
    ends = by_topic(lambda number: at(number, 1))
    yield "fetch at the end", FETCH, 12, fetch_of([FetchTopic(topic=k, partitions=v) for k, v in ends.items()])
    yield "fetch of nobody", FETCH, 12, fetch_of([FetchTopic(topic=name, partitions=[at(0)]) for name in NAMES])
    beyond = [at(WIDE + number) for number in range(PARTITIONS)]
    yield "fetch beyond", FETCH, 12, fetch_of([FetchTopic(topic=TOPICS[0], partitions=beyond)])
    for name, timestamp in (("ends", -1), ("times", 1), ("newest", -3)):
        asked = by_topic(lambda number, when=timestamp: ListOffsetsPartition(partition_index=number, timestamp=when))
        topics = [ListOffsetsTopic(name=k, partitions=v[:200] if timestamp != -1 else v) for k, v in asked.items()]
        yield f"offsets: {name}", LIST_OFFSETS, 10, ListOffsetsRequest(replica_id=-1, topics=topics)
    nobody = [ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(timestamp=-1)]) for name in NAMES]
    yield "offsets of nobody", LIST_OFFSETS, 10, ListOffsetsRequest(replica_id=-1, topics=nobody)
    named = [MetadataRequestTopic(name=name) for name in NAMES]
    yield "metadata", METADATA, 12, MetadataRequest(topics=named, allow_auto_topic_creation=False)
    yield "metadata of all", METADATA, 12, MetadataRequest(topics=None, allow_auto_topic_creation=False)
    rows = by_topic(lambda number: OffsetCommitRequestPartition(partition_index=number, committed_offset=1))
    commits = [OffsetCommitRequestTopic(name=k, partitions=v) for k, v in rows.items()]
    yield "commit", OFFSET_COMMIT, 8, OffsetCommitRequest(group_id="g", topics=commits)
    wanted = [OffsetFetchRequestTopics(name=name, partition_indexes=list(range(WIDE))) for name in TOPICS]
    one = OffsetFetchRequestGroup(group_id="g", topics=wanted)
    yield "committed", OFFSET_FETCH, 9, OffsetFetchRequest(groups=[one])
    yield "all committed", OFFSET_FETCH, 9, OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)])
    groups = [OffsetFetchRequestGroup(name, topics=None) for name in NAMES]
    yield "many groups", OFFSET_FETCH, 9, OffsetFetchRequest(groups=groups)
    yield "coordinators", FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=NAMES)
    new = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in NAMES]
    yield "would create", CREATE_TOPICS, 7, CreateTopicsRequest(topics=new, validate_only=True)
    twice = [*new[: PARTITIONS // 2], *new[: PARTITIONS // 2]]
    yield "create twice", CREATE_TOPICS, 7, CreateTopicsRequest(topics=twice)
    gone = [DeleteTopicState(name=name) for name in NAMES]
    yield "delete", DELETE_TOPICS, 6, DeleteTopicsRequest(topics=gone)
    yield from largest_admin_requests(TOPICS, WIDE, NAMES)


def produce_of(topics: list[TopicProduceData]) -> ProduceRequest:
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics)


async def say_all(bootstrap: str, holds: Holds) -> dict[str, tuple[int, str]]:
    found = {}
    async with Asker(bootstrap) as ask:
        await ask.metadata()
        for name, key, version, message in largest_requests():
            holds.take()
            async with asyncio.timeout(120):
                ask.send(schema(key), version, message)
                await ask.frame()
            found[name] = holds.take()
    return found


def test_no_request_holds_the_loop(wide: TestBroker, holds: Holds) -> None:
    """KP20: what one request may name is answered in slices."""
    found = asyncio.run(say_all(wide.bootstrap, holds))
    for name, (calls, where) in found.items():
        print(f"{name}: {calls:,} calls {where}")
    assert max(calls for calls, _ in found.values()) < MOST_CALLS


async def refusals(bootstrap: str) -> list[set[int]]:
    many = PARTITIONS + 1
    async with Asker(bootstrap) as ask:
        await ask.metadata()
        fetched = await ask.call(FETCH, 12, fetch_of([FetchTopic(topic=TOPICS[0], partitions=[at(0)] * many)]))
        asked = [ListOffsetsPartition(partition_index=0, timestamp=-1)] * many
        listed = await ask.call(
            LIST_OFFSETS, 10, ListOffsetsRequest(-1, topics=[ListOffsetsTopic(TOPICS[0], partitions=asked)])
        )
        rows = [PartitionProduceData(index=0, records=b"")] * many
        produced = await ask.call(PRODUCE, 9, produce_of([TopicProduceData(TOPICS[0], partition_data=rows)]))
        wanted = [CreatableTopic(name=f"new-{n}", num_partitions=2_501, replication_factor=1) for n in range(4)]
        made = await ask.call(CREATE_TOPICS, 7, CreateTopicsRequest(topics=wanted))
        return [
            {fetched.error_code, *(one.error_code for one in fetched.responses[0].partitions)},
            {one.error_code for one in listed.topics[0].partitions},
            {one.error_code for one in produced.responses[0].partition_responses},
            {one.error_code for one in made.topics},
        ]


def test_a_request_that_names_too_much_is_refused(wide: TestBroker, holds: Holds) -> None:
    """KP20: with 42; too many new partitions with 44, as by Kafka."""
    holds.take()
    assert asyncio.run(refusals(wide.bootstrap)) == [{42}, {42}, {42}, {44}]
    calls, where = holds.take()
    print(f"{calls:,} calls at most {where}")
    assert calls < MOST_CALLS


def codes_in(answer: object) -> set[int]:
    """Every error code of an answer, wherever it stands."""
    if isinstance(answer, list | tuple):
        return {code for one in answer for code in codes_in(one)}
    if not isinstance(answer, Message):
        return set()
    found = {code for name in answer.__struct_fields__ for code in codes_in(getattr(answer, name))}
    return found | ({answer.error_code} if "error_code" in answer.__struct_fields__ else set())


async def admin_refusals(bootstrap: str, holds: Holds) -> dict[str, tuple[set[int], int, str]]:
    found = {}
    async with Asker(bootstrap) as ask:
        await ask.metadata()
        for name, key, version, message in too_large_admin_requests(TOPICS[0], PARTITIONS):
            holds.take()
            found[name] = codes_in(await ask.call(key, version, message)), *holds.take()
    return found


def test_an_administrator_who_names_too_much_is_refused_without_any_work(wide: TestBroker, holds: Holds) -> None:
    """KP20: each with 42 in its place, and nobody waits for it."""
    found = asyncio.run(admin_refusals(wide.bootstrap, holds))
    for name, (codes, calls, where) in found.items():
        print(f"{name}: {codes} {calls:,} calls {where}")
    assert {name: codes - {0} for name, (codes, _, _) in found.items()} == {name: {42} for name in found}
    assert max(calls for _, calls, _ in found.values()) < MOST_CALLS


async def crowd(bootstrap: str) -> None:
    request = fetch_of([FetchTopic(topic=TOPICS[0], partitions=[at(0, 1)] * 99_000)])
    async with Asker(bootstrap) as ask, asyncio.timeout(60):
        await ask.metadata()
        for _ in range(3):
            ask.send(schema(FETCH), 12, request)
        assert await ask.closed()


def test_a_frame_of_99000_entries_is_not_even_decoded(wide: TestBroker, holds: Holds) -> None:
    """KP1: it held the loop for 5 s; eight of them cost the broker its session."""
    holds.take()
    asyncio.run(crowd(wide.bootstrap))
    calls, where = holds.take()
    print(f"{calls:,} calls at most {where}")
    assert calls < MOST_CALLS
