"""The server over real sockets: negotiation, order, errors, endings."""

import asyncio
import struct

import pytest
import structlog
from kio.schema.api_versions.v3.response import ApiVersionsResponse as KioApiVersionsResponse
from kio.serial import entity_reader

from dray.errors import Invalid, Unavailable, Unknown
from dray.servers.kafka import telemetry
from dray.servers.kafka.apis import api_versions
from dray.servers.kafka.error_codes import ErrorCode
from dray.servers.kafka.handler import Context, Disconnect, Peer, Turn
from dray.servers.kafka.messages.api_versions import SCHEMA as API_VERSIONS
from dray.servers.kafka.messages.api_versions import ApiVersion, ApiVersionsRequest
from dray.servers.kafka.messages.fetch import SCHEMA as FETCH
from dray.servers.kafka.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from dray.servers.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from dray.servers.kafka.messages.produce import ProduceRequest, ProduceResponse
from dray.servers.kafka.server import CannotListen, Listening
from dray.servers.kafka.support import Matrix
from tests.kafka.wire import (
    HEARTBEAT,
    NO_SERVICES,
    PRODUCE,
    api_row,
    eventually,
    heartbeat,
    heartbeat_api,
    produce,
    produce_api,
    request_bytes,
    running,
)

SOFTWARE = ApiVersionsRequest(client_software_name="test-client", client_software_version="1.0")


async def echo(request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
    return HeartbeatResponse(throttle_time_ms=len(request.group_id))


class Gates:
    """Handlers that wait until the test opens them, by the group id of the request."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self._events: dict[str, asyncio.Event] = {}

    def event(self, name: str) -> asyncio.Event:
        return self._events.setdefault(name, asyncio.Event())

    async def handle(self, request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
        self.begun.append(request.group_id)
        await self.event(request.group_id).wait()
        return HeartbeatResponse()


async def test_every_version_of_api_versions_is_answered_with_the_old_header() -> None:
    """R-076, R-078: the correlation id is followed by the error code at once, also in flexible versions."""
    async with running(heartbeat_api(echo)) as run:
        client = await run.connect()
        for version in range(5):
            client.send(API_VERSIONS, version, SOFTWARE, 1000 + version, client_id=None)
            frame = await client.frame()
            assert struct.unpack_from(">ih", frame) == (1000 + version, 0)
        response = await client.ask(API_VERSIONS, 4, SOFTWARE, 7)
    assert list(response.api_keys) == [
        ApiVersion(api_key=12, min_version=0, max_version=4),
        ApiVersion(api_key=18, min_version=0, max_version=4),
    ]


async def test_a_handler_needs_no_socket() -> None:
    """R-084: request, context, response."""
    peer = Peer(address="10.0.0.1", port=1, listener="client")
    context = Context(version=3, client_id=None, peer=peer, services=NO_SERVICES, matrix=Matrix(), turn=Turn())
    response = await api_versions.handle(SOFTWARE, context)
    assert [entry.api_key for entry in response.api_keys] == [api.key for api in Matrix().apis]
    assert (peer.software_name, peer.software_version) == ("test-client", "1.0")


async def test_another_implementation_reads_our_versions() -> None:
    async with running() as run:
        client = await run.connect()
        client.send(API_VERSIONS, 3, SOFTWARE, 1)
        frame = await client.frame()
    response, _ = entity_reader(KioApiVersionsResponse)(frame, 4)
    assert [(entry.api_key, entry.min_version, entry.max_version) for entry in response.api_keys] == [(18, 0, 4)]
    assert response.supported_features == ()


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
async def test_an_unknown_version_of_api_versions_is_told_ours(version: int) -> None:
    """R-082: error 35 in the form of version 0, and the connection goes on."""
    async with running(heartbeat_api(echo)) as run:
        client = await run.connect()
        body = struct.pack(">hhih", 18, version, 4242, 4) + b"java" + b"\0\x09whatever"
        client.writer.write(struct.pack(">i", len(body)) + body)
        correlation, response = await client.answer(API_VERSIONS, 0)
        assert (correlation, response.error_code) == (4242, 35)
        assert list(response.api_keys) == [ApiVersion(api_key=18, min_version=0, max_version=4)]
        assert (await client.ask(API_VERSIONS, 3, SOFTWARE, 5)).error_code == 0


@pytest.mark.parametrize("name", ["", "a b", "-a", "a.", "é"])
async def test_a_client_with_an_impossible_name_is_told_so(name: str) -> None:
    async with running() as run:
        client = await run.connect()
        asked = ApiVersionsRequest(client_software_name=name, client_software_version="1")
        assert (await client.ask(API_VERSIONS, 3, asked)).error_code == ErrorCode.INVALID_REQUEST
        assert (await client.ask(API_VERSIONS, 3, SOFTWARE)).error_code == 0


@pytest.mark.parametrize(("key", "version"), [(3, 1), (12, 5), (12, -1), (24, 0), (0x4845, 0x4C4C)])
async def test_what_was_not_offered_ends_the_connection_with_one_line(key: int, version: int) -> None:
    """R-082, R-081."""
    async with running(heartbeat_api(echo)) as run:
        client, other = await run.connect(), await run.connect()
        body = struct.pack(">hhih", key, version, 1, 3) + b"bad"
        with structlog.testing.capture_logs() as lines:
            client.writer.write(struct.pack(">i", len(body)) + body)
            assert await client.closed()
        (line,) = lines
        assert line["event"] == telemetry.REQUEST_UNSUPPORTED
        assert (line["key"], line["version"], line["client_id"]) == (key, version, "bad")
        assert (await other.ask(HEARTBEAT, 4, heartbeat("abc"))).throttle_time_ms == 3


async def test_headers_of_both_kinds_and_surplus_bytes_are_understood() -> None:
    """R-076, R-074."""
    async with running(heartbeat_api(echo)) as run:
        client = await run.connect()
        for version in range(5):
            for client_id in (None, "", "zone_id=a,é"):
                client.writer.write(request_bytes(HEARTBEAT, version, heartbeat(), 9, client_id, surplus=b"\0\0\0"))
                assert (await client.answer(HEARTBEAT, version))[0] == 9


async def test_requests_may_arrive_byte_by_byte_and_many_at_once() -> None:
    async with running(heartbeat_api(echo)) as run:
        client = await run.connect()
        stream = b"".join(request_bytes(HEARTBEAT, 4, heartbeat("x" * n), n) for n in range(40))
        for at in range(200):
            client.writer.write(stream[at : at + 1])
            await client.writer.drain()
            await asyncio.sleep(0)
        client.writer.write(stream[200:])
        for n in range(40):
            correlation, response = await client.answer(HEARTBEAT, 4)
            assert (correlation, response.throttle_time_ms) == (n, n)


async def test_a_hundred_pipelined_requests_are_answered_in_order() -> None:
    """R-077, KP13: overlapping ones finish in reverse, others are mixed in."""
    gates = Gates()

    async def slow(request: ProduceRequest, context: Context) -> ProduceResponse:
        name = str(request.timeout_ms)
        gates.begun.append(name)
        await gates.event(name).wait()
        return ProduceResponse(throttle_time_ms=request.timeout_ms)

    async with running(heartbeat_api(echo), produce_api(slow)) as run:
        client = await run.connect()
        for n in range(100):
            if n % 10 == 9:
                client.send(HEARTBEAT, 4, heartbeat("x" * n), n)
            else:
                client.send(PRODUCE, 12, produce(timeout_ms=n), n)

        async def open_backwards() -> None:
            for start in range(0, 100, 10):
                names = [str(n) for n in range(start, start + 9)]
                await eventually(lambda names=names: set(names) <= set(gates.begun))
                for name in reversed(names):
                    gates.event(name).set()
                    await asyncio.sleep(0)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(open_backwards())
            for n in range(100):
                schema, version = (HEARTBEAT, 4) if n % 10 == 9 else (PRODUCE, 12)
                correlation, response = await client.answer(schema, version)
                assert (correlation, response.throttle_time_ms) == (n, n)
    assert gates.begun == [str(n) for n in range(100) if n % 10 != 9]


async def test_requests_overlap_only_where_their_api_says_so() -> None:
    """KP7: what follows a write on one connection sees it."""
    gates = Gates()
    async with running(heartbeat_api(gates.handle)) as run:
        client = await run.connect()
        for name in ("a", "b", "c"):
            client.send_heartbeat(name)
        await eventually(lambda: gates.begun == ["a"])
        gates.event("b").set()
        gates.event("c").set()
        for _ in range(10):
            await asyncio.sleep(0)
        assert gates.begun == ["a"]
        gates.event("a").set()
        for _ in range(3):
            await client.answer(HEARTBEAT, 4)
        assert gates.begun == ["a", "b", "c"]


async def test_turns_come_in_order_whatever_came_before_them() -> None:
    """KP8: produce requests checked in any order are taken in the order of arrival."""
    gates, taken = Gates(), []

    async def handle(request: ProduceRequest, context: Context) -> ProduceResponse:
        gates.begun.append(str(request.timeout_ms))
        await gates.event(str(request.timeout_ms)).wait()
        if request.timeout_ms == 1:
            raise Unavailable("fails before its turn")
        await context.turn.wait()
        taken.append(request.timeout_ms)
        context.turn.pass_on()
        return ProduceResponse()

    async with running(produce_api(handle)) as run:
        client = await run.connect()
        for n in range(5):
            client.send(PRODUCE, 12, produce(timeout_ms=n), n)
        await eventually(lambda: len(gates.begun) == 5)
        for n in (4, 1, 3, 2):
            gates.event(str(n)).set()
            for _ in range(10):
                await asyncio.sleep(0)
            assert taken == []
        gates.event("0").set()
        for n in range(5):
            assert (await client.answer(PRODUCE, 12))[0] == n
    assert taken == [0, 2, 3, 4]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RuntimeError("bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (Unavailable("store"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (Unknown("maybe"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (Invalid("bad"), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_an_error_in_a_handler_takes_the_place_of_its_answer(error: Exception, code: ErrorCode) -> None:
    """R-085, KP15: the connection lives, and so do the requests around it."""

    async def handle(request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
        if request.group_id == "bad":
            raise error
        return HeartbeatResponse()

    async with running(heartbeat_api(handle)) as run:
        client = await run.connect()
        for n, name in enumerate(("good", "bad", "good")):
            client.send_heartbeat(name, n)
        answers = [await client.answer(HEARTBEAT, 4) for _ in range(3)]
    assert [(correlation, answer.error_code) for correlation, answer in answers] == [(0, 0), (1, code), (2, 0)]


async def test_an_answer_that_cannot_be_written_becomes_an_error() -> None:
    """KP15: a handler's mistake is no silence."""

    async def handle(request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
        return HeartbeatResponse(throttle_time_ms=1 << 40)

    async with running(heartbeat_api(handle)) as run:
        client = await run.connect()
        assert (await client.ask(HEARTBEAT, 4, heartbeat())).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_a_connection_ends_when_not_even_an_error_can_be_answered() -> None:
    """KP15."""

    def refuse(request: HeartbeatRequest, code: ErrorCode) -> HeartbeatResponse:
        raise ValueError("worse")

    async def handle(request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
        raise ValueError("bad")

    async with running(heartbeat_api(handle, refuse=refuse)) as run:
        client = await run.connect()
        client.send_heartbeat()
        assert await client.closed()


@pytest.mark.parametrize("broken", ["an answer with a farewell", "a part that is no buffer"])
async def test_no_answer_of_a_handler_can_stop_the_server(broken: str) -> None:
    """KP15: such a handler costs its connection, and nobody else's."""

    async def handle(request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
        if request.group_id == "fine":
            return HeartbeatResponse()
        raise Disconnect("farewell", HeartbeatResponse(throttle_time_ms=1 << 40))

    async def fetch(request: FetchRequest, context: Context) -> FetchResponse:
        partition = PartitionData(records=[b"12345678", "no buffer"])
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])

    def refuse(request: FetchRequest, code: ErrorCode) -> FetchResponse:
        return FetchResponse(error_code=code)

    async with running(heartbeat_api(handle), api_row(1, "Fetch", (4, 16), 12, fetch, refuse)) as run:
        client, other = await run.connect(), await run.connect()
        if broken == "a part that is no buffer":
            client.send(FETCH, 12, FetchRequest())
        else:
            client.send_heartbeat("broken")
        assert await client.closed()
        await other.ask(HEARTBEAT, 4, heartbeat("fine"))


async def test_a_handler_cancelled_from_inside_ends_the_connection() -> None:
    """KP15: the client would else wait for an answer that nobody gives."""

    async def handle(request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
        raise asyncio.CancelledError

    async with running(heartbeat_api(handle)) as run:
        client = await run.connect()
        client.send_heartbeat()
        assert await client.closed()


async def test_a_request_without_answer_leaves_no_gap() -> None:
    """R-089: acks=0 gets no byte, the next request is answered; an error closes the connection."""

    async def handle(request: ProduceRequest, context: Context) -> ProduceResponse | None:
        if request.timeout_ms == 666:
            raise Unavailable("store")
        return None if request.acks == 0 else ProduceResponse(throttle_time_ms=request.timeout_ms)

    async with running(produce_api(handle)) as run:
        client = await run.connect()
        for n in range(6):
            client.send(PRODUCE, 12, produce(acks=0 if n % 2 else -1, timeout_ms=n), n)
        for n in (0, 2, 4):
            correlation, response = await client.answer(PRODUCE, 12)
            assert (correlation, response.throttle_time_ms) == (n, n)
        client.send(PRODUCE, 12, produce(acks=0, timeout_ms=666), 7)
        assert await client.closed()


async def test_a_handler_may_answer_and_hang_up() -> None:
    async def handle(request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
        raise Disconnect("not welcome", HeartbeatResponse(error_code=58))

    async with running(heartbeat_api(handle)) as run:
        client = await run.connect()
        client.send_heartbeat()
        assert (await client.answer(HEARTBEAT, 4))[1].error_code == 58
        assert await client.closed()


async def test_answers_that_are_owed_come_before_a_malformed_request_ends_the_connection() -> None:
    """R-075: and another connection does not notice."""
    gates = Gates()
    async with running(heartbeat_api(gates.handle)) as run:
        client, other = await run.connect(), await run.connect()
        client.send_heartbeat("slow", 1)
        client.writer.write(struct.pack(">i", 14) + struct.pack(">hhihi", 12, 0, 2, -1, -2))
        await eventually(lambda: gates.begun == ["slow"])
        gates.event("slow").set()
        assert (await client.answer(HEARTBEAT, 4))[0] == 1
        assert await client.closed()
        gates.event("g").set()
        await other.ask(HEARTBEAT, 4, heartbeat())


async def test_a_client_that_stops_sending_still_gets_its_answers() -> None:
    gates = Gates()
    async with running(heartbeat_api(gates.handle)) as run:
        client = await run.connect()
        for n, name in enumerate(("a", "b")):
            client.send_heartbeat(name, n)
        client.writer.write_eof()
        await eventually(lambda: gates.begun == ["a"])
        gates.event("a").set()
        gates.event("b").set()
        assert [(await client.answer(HEARTBEAT, 4))[0] for _ in range(2)] == [0, 1]
        assert await client.closed()
        await eventually(lambda: not run.core.connections)


async def test_work_for_nobody_is_cancelled_and_other_work_is_finished() -> None:
    """A fetch ends with its client; a produce without acks does not."""
    ended: list[str] = []
    gate = asyncio.Event()

    async def wait(request: object, context: Context) -> None:
        name = "produce" if isinstance(request, ProduceRequest) else "heartbeat"
        try:
            await gate.wait()
            ended.append(f"{name} finished")
        except asyncio.CancelledError:
            ended.append(f"{name} cancelled")
            raise

    async with running(produce_api(wait), heartbeat_api(wait, abandoned=True)) as run:
        client = await run.connect()
        client.send_heartbeat()
        await eventually(lambda: run.core.budget.requests == 1)
        client.close()
        await eventually(lambda: not run.core.connections)
        client = await run.connect()
        client.send(PRODUCE, 12, produce(acks=0))
        await eventually(lambda: run.core.budget.requests == 1)
        client.close()
        await eventually(lambda: all(connection._eof for connection in run.core.connections))
        gate.set()
        await eventually(lambda: not run.core.connections)
        assert ended == ["heartbeat cancelled", "produce finished"]
        assert (run.core.budget.requests, run.core.budget.held_bytes) == (0, 0)


async def test_a_stop_answers_what_was_taken_and_accepts_no_more() -> None:
    gates = Gates()
    async with running(heartbeat_api(gates.handle)) as run:
        busy, idle = await run.connect(), await run.connect()
        busy.send_heartbeat("a", 5)
        await eventually(lambda: gates.begun == ["a"])
        stop = asyncio.create_task(run.server.stop())
        assert await idle.closed()
        with pytest.raises(ConnectionError):
            await run.connect()
        gates.event("a").set()
        assert (await busy.answer(HEARTBEAT, 4))[0] == 5
        assert await busy.closed()
        await stop
        assert not run.core.connections


async def test_a_stop_does_not_wait_for_who_only_waits_for_something_new() -> None:
    """A fetch at the end of a log is cut at once, and those behind it; a produce is waited for."""
    gates = Gates()
    stored = asyncio.Event()

    async def store(request: ProduceRequest, context: Context) -> ProduceResponse:
        await stored.wait()
        return ProduceResponse()

    async with running(heartbeat_api(gates.handle, abandoned=True), produce_api(store)) as run:
        consumer, producer = await run.connect(), await run.connect()
        consumer.send_heartbeat("a", 1)
        consumer.send_heartbeat("b", 2)
        producer.send(PRODUCE, 12, produce(), 3)
        await eventually(lambda: gates.begun == ["a"] and run.core.budget.requests == 3)
        stop = asyncio.create_task(run.server.stop())
        assert await consumer.closed()
        await eventually(lambda: len(run.core.connections) == 1)
        stored.set()
        assert (await producer.answer(PRODUCE, 12))[0] == 3
        await stop
        assert gates.begun == ["a"]
        assert (run.core.budget.requests, run.core.budget.held_bytes) == (0, 0)


async def test_an_address_that_is_taken_is_named_in_the_error() -> None:
    async with running() as run:
        with pytest.raises(CannotListen, match=f"port={run.port}"):
            await run.server.listen(Listening(name="second", host="127.0.0.1", port=run.port))


async def test_what_the_block_raises_goes_on_as_itself() -> None:
    """Not as a group: whoever catches it knows what to tell the user."""

    async def block() -> None:
        async with running() as run:
            await run.connect()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await block()
