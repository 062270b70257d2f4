"""A broker that is about to stop: what was taken is answered, and who comes after it is sent elsewhere."""

import asyncio

from dray.servers.kafka.apis import fetch as fetch_api
from dray.servers.kafka.apis import list_offsets as offsets_api
from dray.servers.kafka.apis import produce as produce_module
from dray.servers.kafka.dispatch import Routes
from dray.servers.kafka.handler import Context
from dray.servers.kafka.leaving import LED, sent_elsewhere
from dray.servers.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from dray.servers.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from dray.servers.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from dray.servers.kafka.messages.produce import ProduceRequest, ProduceResponse
from dray.servers.kafka.support import Matrix
from tests.kafka.wire import HEARTBEAT, PRODUCE, heartbeat, heartbeat_api, produce, produce_api, running

NOT_LEADER = 6


async def test_what_was_taken_is_finished_and_the_next_is_sent_to_the_new_leader() -> None:
    """SV4: also on a connection that is open already; what is not asked of leaders is served as ever."""
    begun, go_on, handled = asyncio.Event(), asyncio.Event(), []

    async def store(request: ProduceRequest, context: Context) -> ProduceResponse | None:
        handled.append(request.acks)
        begun.set()
        await go_on.wait()
        return None if request.acks == 0 else ProduceResponse(throttle_time_ms=99)

    async def beat(request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
        return HeartbeatResponse(throttle_time_ms=7)

    rows = produce_api(store, refuse=produce_module.refuse), heartbeat_api(beat)
    async with asyncio.timeout(60), running(*rows) as run:
        client = await run.connect()
        client.send(PRODUCE, 9, produce(b"first"), 1)
        await begun.wait()
        run.server.leave()
        client.send(PRODUCE, 9, produce(b"second"), 2)
        go_on.set()
        number, stored = await client.answer(PRODUCE, 9)
        assert (number, stored.throttle_time_ms) == (1, 99)
        number, refused = await client.answer(PRODUCE, 9)
        assert (number, refused.responses[0].partition_responses[0].error_code) == (2, NOT_LEADER)
        assert handled == [-1], "the second was not begun"
        assert (await client.ask(HEARTBEAT, 4, heartbeat(), 3)).throttle_time_ms == 7
        client.send(PRODUCE, 9, produce(b"nobody waits for this", acks=0), 4)
        assert (await client.ask(HEARTBEAT, 4, heartbeat(), 5)).throttle_time_ms == 7
        assert handled == [-1, 0], "who gets no answer cannot be sent anywhere"


def test_each_partition_is_told_and_the_answer_as_a_whole_has_no_error() -> None:
    """SV4: a code of a whole Fetch would mean its session, and no client would look for a leader."""
    fetch = FetchRequest(topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=n) for n in range(3)])])
    wanted = [ListOffsetsPartition(partition_index=n, timestamp=-1) for n in range(3)]
    offsets = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=wanted)])
    routes = Routes(Matrix())
    route = routes.find(1, 12)
    assert route is not None
    assert route.endpoint is fetch_api.ENDPOINT
    answer = sent_elsewhere(route, fetch)
    assert answer.error_code == 0
    assert [one.error_code for one in answer.responses[0].partitions] == [NOT_LEADER] * 3
    route = routes.find(2, 9)
    assert route is not None
    assert route.endpoint is offsets_api.ENDPOINT
    answer = sent_elsewhere(route, offsets)
    assert [one.error_code for one in answer.topics[0].partitions] == [NOT_LEADER] * 3


def test_only_what_leaders_are_asked_is_sent_elsewhere() -> None:
    routes = Routes(Matrix())
    route = routes.find(12, 4)
    assert route is not None
    assert 12 not in LED
    assert sent_elsewhere(route, heartbeat()) is None
