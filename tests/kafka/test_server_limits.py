"""The server against clients that lie, stall, flood or do not read."""

import asyncio
import struct
from datetime import timedelta

import psutil
import pytest
import structlog

from dray.clock import ManualClock
from dray.servers.kafka.handler import Context
from dray.servers.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from dray.servers.kafka.messages.produce import NodeEndpoint, ProduceRequest, ProduceResponse
from dray.servers.kafka.settings import KIB, MIB, Limits
from dray.servers.kafka.telemetry import ENDED
from tests.kafka.wire import (
    HEARTBEAT,
    PRODUCE,
    Client,
    Running,
    eventually,
    heartbeat,
    heartbeat_api,
    produce,
    produce_api,
    request_bytes,
    running,
)

LIES = (-2, -(1 << 31), (1 << 31) - 1, 100 * MIB + 1, 9, 100 * MIB, 100 * MIB - 1, 8 * MIB)


async def echo(request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
    return HeartbeatResponse(throttle_time_ms=len(request.group_id))


async def taken(request: ProduceRequest, context: Context) -> ProduceResponse:
    size = sum(len(p.records or b"") for topic in request.topic_data for p in topic.partition_data)
    return ProduceResponse(throttle_time_ms=size)


class Held:
    """A handler whose requests all wait for one gate."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.begun = 0

    async def handle(self, request: ProduceRequest, context: Context) -> ProduceResponse:
        self.begun += 1
        await self.gate.wait()
        return ProduceResponse()


async def tick(clock: ManualClock, run: Running, ms: int) -> None:
    """Let time pass in steps of the sweep."""
    for _ in range(0, ms, 1000):
        await eventually(lambda: bool(clock._sleepers))
        clock.advance(1000)
        await asyncio.sleep(0)


async def test_two_hundred_liars_cost_little_memory_and_disturb_nobody() -> None:
    """R-075, KP1, KP12: declared lengths allocate nothing, impossible ones close their connection."""
    limits = Limits(first_frame_bytes=100 * MIB)
    async with running(heartbeat_api(echo), produce_api(taken), limits=limits) as run:
        honest = await run.connect()
        await honest.ask(HEARTBEAT, 4, heartbeat())
        process = psutil.Process()
        before = process.memory_info().rss
        liars = []
        for n in range(200):
            liar = await run.connect()
            length = LIES[n % len(LIES)]
            liar.writer.write(struct.pack(">ihhih", length, 0, 12, n, -1))
            liars.append((length, liar))
        for length, liar in liars:
            if not 10 <= length <= 100 * MIB:
                assert await liar.closed()
        patient = [liar for length, liar in liars if 10 <= length <= 100 * MIB]
        await eventually(lambda: sum(c._buffer.unread == 14 for c in run.core.connections) == len(patient) == 75)
        for liar in patient:  # a second read is what would take memory for the declared length
            liar.writer.write(bytes(2_000))
        await eventually(lambda: sum(c._buffer.unread == 2_014 for c in run.core.connections) == len(patient))
        assert (await honest.ask(HEARTBEAT, 4, heartbeat("xyz"))).throttle_time_ms == 3
        assert process.memory_info().rss - before <= 64 * MIB
        assert run.core.budget.held_bytes <= 201 * 16 * KIB


async def test_four_zero_bytes_close_their_connection_at_once() -> None:
    """R-075: as by Kafka; nobody waits for the rest of a request that cannot be one."""
    async with running(heartbeat_api(echo)) as run:
        stranger, known = await run.connect(), await run.connect()
        stranger.writer.write(bytes(4))
        assert await stranger.closed()
        await known.ask(HEARTBEAT, 4, heartbeat())
        known.writer.write(bytes(4))
        assert await known.closed()


async def test_a_frame_with_more_elements_than_bytes_closes_its_connection_only() -> None:
    """R-075: counts beyond the bytes that are left."""
    async with running(heartbeat_api(echo), produce_api(taken)) as run:
        client, other = await run.connect(), await run.connect()
        body = struct.pack(">hhih", 0, 12, 1, -1) + b"\0" + b"\0" + struct.pack(">hi", -1, 0) + b"\xff\xff\xff\xff\x0f"
        client.writer.write(struct.pack(">i", len(body)) + body)
        assert await client.closed()
        await other.ask(HEARTBEAT, 4, heartbeat())


async def test_a_stranger_may_send_less_than_a_known_client() -> None:
    """The first request is small; with records it may be as large as a batch at once, as some clients begin so."""
    limits = Limits(first_request_bytes=10_000, request_bytes=50_000, first_frame_bytes=2 * MIB)
    async with running(heartbeat_api(echo), produce_api(taken), limits=limits) as run:
        stranger = await run.connect()
        stranger.send(HEARTBEAT, 0, heartbeat("x" * 20_000))
        assert await stranger.closed()

        known = await run.connect()
        await known.ask(HEARTBEAT, 0, heartbeat())
        assert (await known.ask(HEARTBEAT, 0, heartbeat("x" * 20_000))).error_code == 0
        known.writer.write(struct.pack(">ihh", 50_001, 12, 0))
        assert await known.closed()

        producer, greedy = await run.connect(), await run.connect()
        assert (await producer.ask(PRODUCE, 12, produce(bytes(1 * MIB)))).throttle_time_ms == 1 * MIB
        assert (await producer.ask(PRODUCE, 12, produce(bytes(3 * MIB)))).throttle_time_ms == 3 * MIB
        greedy.writer.write(struct.pack(">ihhih", 2 * MIB + 1, 0, 12, 1, -1))
        assert await greedy.closed()


async def test_large_requests_arrive_whole_and_repeatedly() -> None:
    async with running(produce_api(taken)) as run:
        client = await run.connect()
        for n in (1, 100, 70 * KIB, 3 * MIB, 20 * MIB, 5, 1 * MIB, 1 * MIB, 1 * MIB):
            assert (await client.ask(PRODUCE, 9, produce(bytes(n)))).throttle_time_ms == n


async def test_a_request_that_does_not_complete_ends_its_connection() -> None:
    """A slow sender keeps its place only at the slowest rate; time in which we do not read does not count."""
    clock = ManualClock()
    async with running(heartbeat_api(echo), produce_api(taken), clock=clock) as run:
        stuck, other = await run.connect(), await run.connect()
        await asyncio.gather(stuck.ask(HEARTBEAT, 4, heartbeat()), other.ask(HEARTBEAT, 4, heartbeat()))
        stuck.writer.write(request_bytes(HEARTBEAT, 4, heartbeat(), 1)[:-1])
        await eventually(lambda: any(c._buffer.unread for c in run.core.connections))
        await tick(clock, run, 25_000)
        assert not stuck.reader.at_eof()
        await tick(clock, run, 10_000)
        assert await stuck.closed()
        await other.ask(HEARTBEAT, 4, heartbeat())


async def test_a_large_request_may_take_as_long_as_its_bytes_do() -> None:
    clock = ManualClock()
    async with running(produce_api(taken), clock=clock, limits=Limits(slowest_rate=64 * KIB)) as run:
        client = await run.connect()
        await client.ask(PRODUCE, 12, produce())
        whole = request_bytes(PRODUCE, 12, produce(bytes(4 * MIB)), 1)
        half = len(whole) // 2
        client.writer.write(whole[:half])
        await eventually(lambda: any(c._buffer.unread == half for c in run.core.connections))
        await tick(clock, run, 55_000)  # 30 s, and 32 s for two MiB
        client.writer.write(whole[half:])
        assert (await client.answer(PRODUCE, 12))[1].throttle_time_ms == 4 * MIB


async def test_an_idle_connection_ends_and_a_waiting_one_does_not() -> None:
    clock, held = ManualClock(), Held()
    limits = Limits(idle_timeout=timedelta(seconds=20))
    async with running(produce_api(held.handle), clock=clock, limits=limits) as run:
        idle, waiting = await run.connect(), await run.connect()
        waiting.send(PRODUCE, 12, produce())
        await eventually(lambda: held.begun == 1)
        await tick(clock, run, 40_000)
        assert await idle.closed()
        held.gate.set()
        await waiting.answer(PRODUCE, 12)
        await waiting.ask(PRODUCE, 12, produce())


async def test_resting_connections_hold_no_buffer() -> None:
    clock = ManualClock()
    async with running(heartbeat_api(echo), clock=clock) as run:
        clients = [await run.connect() for _ in range(20)]
        for client in clients:
            await client.ask(HEARTBEAT, 4, heartbeat())
        assert run.core.budget.held_bytes == 20 * 16 * KIB
        await tick(clock, run, 3_000)
        assert run.core.budget.held_bytes == 0
        for client in clients:
            await client.ask(HEARTBEAT, 4, heartbeat())


@pytest.mark.parametrize("limits", [Limits(max_connections=3), Limits(max_connections_per_address=3)])
async def test_a_connection_too_many_is_closed_and_a_place_is_free_again_later(limits: Limits) -> None:
    async with running(heartbeat_api(echo), limits=limits) as run:
        clients = [await run.connect() for _ in range(3)]
        for client in clients:
            await client.ask(HEARTBEAT, 4, heartbeat())
        assert await (await run.connect()).closed()
        clients[0].close()
        await eventually(lambda: len(run.core.connections) == 2)
        await (await run.connect()).ask(HEARTBEAT, 4, heartbeat())


@pytest.mark.parametrize(
    "limits",
    [Limits(connection_inflight_requests=10), Limits(connection_inflight_bytes=100 * KIB)],
    ids=["count", "bytes"],
)
async def test_a_flooding_client_is_read_no_further_than_its_limit(limits: Limits) -> None:
    """KP14: what is not taken stays in the client's own buffers; all is answered in the end."""
    held = Held()
    async with running(produce_api(held.handle), heartbeat_api(echo), limits=limits) as run:
        client, other = await run.connect(), await run.connect()
        for n in range(300):
            client.send(PRODUCE, 12, produce(bytes(10 * KIB)), n)
        await eventually(lambda: not all(connection._reading for connection in run.core.connections))
        await other.ask(HEARTBEAT, 4, heartbeat())
        assert 9 <= held.begun <= 11
        assert run.core.budget.held_bytes < 5 * MIB
        held.gate.set()
        for n in range(300):
            assert (await client.answer(PRODUCE, 12))[0] == n


class Fat:
    """A handler with large answers: each of them so many times 300 kB."""

    def __init__(self, answers: int = 1) -> None:
        self.begun = 0
        self.answers = answers

    async def handle(self, request: ProduceRequest, context: Context) -> ProduceResponse:
        self.begun += 1
        return ProduceResponse(node_endpoints=[NodeEndpoint(host="x" * 30_000)] * 10 * self.answers)


@pytest.mark.parametrize("overlaps", [False, True])
async def test_a_client_that_does_not_read_is_not_worked_for(overlaps: bool) -> None:
    """KP14: answers in memory stay bounded, and after a while the connection is cut."""
    clock, fat = ManualClock(), Fat()
    limits = Limits(connection_inflight_requests=50)
    async with running(produce_api(fat.handle, overlaps=overlaps), clock=clock, limits=limits) as run:
        client = await run.connect()
        client.writer.transport.pause_reading()
        for n in range(2_000):
            client.send(PRODUCE, 12, produce(), n)
        (connection,) = run.core.connections
        await eventually(lambda: not connection._writable)
        for _ in range(50):
            await asyncio.sleep(0)
        assert fat.begun < (150 if overlaps else 60)
        assert run.core.line.unsent_bytes < (20 if overlaps else 2) * MIB
        assert not connection._reading
        if overlaps:  # all that was taken has started; what came later is not taken
            assert run.core.budget.requests == 0
        so_far = fat.begun
        await tick(clock, run, 30_000)
        assert fat.begun == so_far
        await tick(clock, run, 40_000)
        await eventually(lambda: not run.core.connections)
        assert (run.core.budget.held_bytes, run.core.line.unsent_bytes) == (0, 0)


async def sleeper(run: Running) -> Client:
    """A client with a large answer that it does not read."""
    client = await run.connect()
    client.writer.transport.pause_reading()
    for n in range(20):
        client.send(PRODUCE, 12, produce(), n)
    return client


@pytest.mark.slow
async def test_a_slow_reader_is_not_cut_however_much_others_owe() -> None:
    """KP16: answers of all together are far beyond the limit, and each client takes some bytes now and then."""
    clock, fat = ManualClock(), Fat(answers=20)
    limits = Limits(unsent_bytes=1 * MIB)
    async with running(produce_api(fat.handle, overlaps=False), clock=clock, limits=limits) as run:
        slow = [await sleeper(run) for _ in range(8)]
        await eventually(lambda: sum(not c._writable for c in run.core.connections) == 8)
        await eventually(lambda: run.core.line.unsent_bytes > limits.unsent_bytes)
        for _ in range(5):
            for connection, client in zip(list(run.core.connections), slow, strict=True):
                before = connection._out.taken_bytes
                client.writer.transport.resume_reading()
                await eventually(lambda c=connection, b=before: c._out.taken_bytes > b)
                client.writer.transport.pause_reading()
                client.reader._buffer.clear()
            await tick(clock, run, 50_000)
        assert len(run.core.connections) == 8


async def test_while_a_fetch_waits_for_memory_who_takes_nothing_is_cut_and_who_reads_is_not() -> None:
    """KP16, F15."""
    clock, fat, granted = ManualClock(), Fat(), []

    async def plan(request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
        granted.append(await context.peer.account.reserve(8 * MIB))
        return HeartbeatResponse()

    limits = Limits(unsent_bytes=1 * MIB)
    rows = produce_api(fat.handle, overlaps=False), heartbeat_api(plan)
    async with running(*rows, clock=clock, limits=limits) as run:
        fat.answers = 20
        dead = await sleeper(run)
        await eventually(lambda: run.core.line.unsent_bytes > limits.unsent_bytes)
        fetching = await run.connect()
        fetching.send_heartbeat()
        await eventually(lambda: run.core.line.waiting == 1)
        await tick(clock, run, 10_000)
        assert granted == []
        await tick(clock, run, 10_000)
        dead.writer.transport.resume_reading()
        await dead.reader.read()  # all that was sent before it was cut
        await fetching.answer(HEARTBEAT, 4)
        assert granted == [1 * MIB]
        assert run.core.line.unsent_bytes == 0


async def test_the_process_limit_holds_over_all_connections_and_everyone_goes_on_later() -> None:
    """KP9: twenty producers, each within its own limit, are together held to the limit of the process."""
    held = Held()
    limits = Limits(process_inflight_bytes=8 * MIB)
    async with running(produce_api(held.handle), limits=limits) as run:
        clients = [await run.connect() for _ in range(20)]
        for client in clients:
            for n in range(2):
                client.send(PRODUCE, 12, produce(bytes(1 * MIB)), n)
        await eventually(lambda: run.core.budget.waiting > 0)
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert held.begun < 12
        assert run.core.budget.held_bytes < 3 * limits.process_inflight_bytes
        held.gate.set()
        for client in clients:
            assert [(await client.answer(PRODUCE, 12))[0] for _ in range(2)] == [0, 1]
        await eventually(lambda: run.core.budget.waiting == 0)


async def test_half_requests_alone_cannot_stop_the_process() -> None:
    """KP10: the budget is full of frames that are not complete; one after the other completes."""
    limits = Limits(process_inflight_bytes=1 * MIB)
    async with running(produce_api(taken), limits=limits) as run:
        clients = [await run.connect() for _ in range(8)]
        whole = request_bytes(PRODUCE, 12, produce(bytes(900 * KIB)), 1)
        for client in clients:
            client.writer.write(whole[: 600 * KIB])
        await eventually(lambda: run.core.budget.held_bytes >= limits.process_inflight_bytes)
        for client in clients:
            client.writer.write(whole[600 * KIB :])
        for client in clients:
            assert (await client.answer(PRODUCE, 12))[1].throttle_time_ms == 900 * KIB


async def halves(run: Running, count: int, whole: bytes) -> list[Client]:
    """Clients that have shown that they speak the protocol, and then send most of a large request and no more."""
    clients = [await run.connect() for _ in range(count)]
    for client in clients:
        await client.ask(PRODUCE, 12, produce())
        client.writer.write(whole[: len(whole) * 9 // 10])
    return clients


async def test_half_requests_stop_nobody_who_sends_small_ones_and_the_quietest_of_them_go() -> None:
    """KP18, KP19: and who goes on sending gets through, though another request waits all the time."""
    clock, waits = ManualClock(), asyncio.Event()

    async def handle(request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
        if request.group_id == "wait":
            await waits.wait()
        return await echo(request, context)

    whole = request_bytes(PRODUCE, 12, produce(bytes(3 * MIB)), 1)
    limits = Limits(process_inflight_bytes=16 * MIB, frame_bytes=4 * MIB)
    async with running(heartbeat_api(handle), produce_api(taken), clock=clock, limits=limits) as run:
        patient, small = await run.connect(), await run.connect()
        await small.ask(HEARTBEAT, 4, heartbeat())
        patient.send_heartbeat("wait")
        silent = await halves(run, 5, whole)
        await eventually(lambda: run.core.budget.is_over)
        honest = await run.connect()
        await honest.ask(PRODUCE, 12, produce())
        honest.writer.write(whole)
        await eventually(lambda: run.core.budget.waiting > 0)
        for n in range(20):
            assert (await small.ask(HEARTBEAT, 4, heartbeat("x" * n))).throttle_time_ms == n
            stranger = await run.connect()
            await stranger.ask(HEARTBEAT, 4, heartbeat())
            assert (await stranger.ask(PRODUCE, 12, produce(b"12345"))).throttle_time_ms == 5
            stranger.close()
        assert run.core.budget.is_over
        await tick(clock, run, 6_000)
        assert (await honest.answer(PRODUCE, 12))[1].throttle_time_ms == 3 * MIB
        assert not run.core.budget.is_over
        assert len(run.core.connections) >= 3 + 3, "no more of them than was needed"
        await small.ask(HEARTBEAT, 4, heartbeat())
        waits.set()
        for client in silent:
            client.close()


async def test_a_connection_without_a_valid_request_ends_after_a_while() -> None:
    clock = ManualClock()
    async with running(heartbeat_api(echo), clock=clock) as run:
        silent, slow, known = await run.connect(), await run.connect(), await run.connect()
        await known.ask(HEARTBEAT, 4, heartbeat())
        whole = request_bytes(HEARTBEAT, 4, heartbeat("x" * 100), 1)
        for n in range(28):
            slow.writer.write(whole[n : n + 1])
            await tick(clock, run, 1_000)
        assert len(run.core.connections) == 3
        await tick(clock, run, 5_000)
        assert await silent.closed()
        assert await slow.closed()
        await known.ask(HEARTBEAT, 4, heartbeat())


async def test_a_stop_cuts_what_does_not_finish_in_time() -> None:
    clock, held = ManualClock(), Held()
    async with running(produce_api(held.handle), clock=clock) as run:
        client, gone = await run.connect(), await run.connect()
        client.send(PRODUCE, 12, produce())
        gone.send(PRODUCE, 12, produce())
        await eventually(lambda: held.begun == 2)
        gone.close()
        stop = asyncio.create_task(run.server.stop())
        await eventually(lambda: any(entry[0] > 9e9 for entry in clock._sleepers))
        assert not stop.done()
        clock.advance(11_000)
        assert await client.closed()
        await stop
        assert (run.core.budget.requests, run.core.budget.held_bytes) == (0, 0)


async def test_a_flood_of_bad_frames_is_counted_and_takes_two_lines_a_second() -> None:
    clock = ManualClock()
    counted = ENDED.labels("malformed request")
    before = counted._value.get()
    with structlog.testing.capture_logs() as lines:
        async with running(heartbeat_api(echo), clock=clock) as run:
            for _ in range(50):
                liar = await run.connect()
                liar.writer.write(struct.pack(">ihhih", 10, 12, 4, 1, 99))
                assert await liar.closed()
            await eventually(lambda: not run.core.connections)
            await tick(clock, run, 1_000)
            await eventually(lambda: any(line["event"] == "kafka.more_connections_ended" for line in lines))
    told = [line for line in lines if line.get("reason") == "malformed request"]
    assert [line["event"] for line in told] == ["kafka.connection_ended", "kafka.more_connections_ended"]
    assert told[1]["count"] == 49
    assert counted._value.get() - before == 50
