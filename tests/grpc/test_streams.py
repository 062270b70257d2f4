"""Streams over a real wire: credits, settlements, stops, and clients that ignore the protocol."""

import asyncio
from contextlib import ExitStack, suppress

import grpc
import pytest

from dray.api.v1 import heaps_pb2 as pb
from dray.heaps.ids import LeaseToken, format_token
from dray.heaps.lane import MAX_GRANT
from dray.testing import broker

from .test_calls import make, pop
from .wire import Wire, seconds, wire

LONG_S = 60.0


async def items_of(stream, count: int) -> list[pb.PopItem]:
    found: list[pb.PopItem] = []
    async with asyncio.timeout(LONG_S):
        while len(found) < count:
            found += (await stream.read()).items
    return found


async def settled(stream, tag: int) -> list[pb.Settled]:
    async with asyncio.timeout(LONG_S):
        while True:
            told = await stream.read()
            if told.HasField("settled") and told.settled.tag == tag:
                return list(told.settled.results)


async def ended(stream) -> str:
    """Read to its end; the status."""
    with suppress(grpc.aio.AioRpcError):
        async with asyncio.timeout(LONG_S):
            while await stream.read() is not grpc.aio.EOF:
                pass
    return (await stream.code()).name


async def until(dray: Wire, topic: str, **counts: int) -> pb.HeapStats:
    """Wait for what the broker does by itself."""
    async with asyncio.timeout(LONG_S):
        while True:
            stats = await dray.stats(topic)
            if all(getattr(stats, name) == count for name, count in counts.items()):
                return stats
            await asyncio.sleep(0.02)


async def test_credits_add_up_and_are_spent_by_delivery_alone(dray: Wire, topic: str):
    """D-100, D-101, D-102, D-103, D-104: GW2, HL1"""
    await make(dray, topic)
    await dray.fill(topic, 20)
    stream = await dray.popping(topic)
    assert (await dray.stats(topic)).leased == 0
    for credits in (2, 3):
        await stream.write(pb.PopOpen(fc=pb.FlowControl(credits=credits)))
    first = await items_of(stream, 5)
    await stream.write(
        pb.PopOpen(settle=pb.SettleMany(tag=1, items=[pb.SettleOne(lease_token=first[0].lease_token, kind=pb.ACK)]))
    )
    assert (await settled(stream, 1))[0].done
    stats = await dray.stats(topic)
    assert (stats.leased, stats.acked_total, stats.ready) == (4, 1, 15)
    await stream.write(pb.PopOpen(fc=pb.FlowControl(credits=1)))
    assert len(await items_of(stream, 1)) == 1
    stream.cancel()


async def test_credits_may_come_with_settlements_and_what_they_bring_goes_with_the_answer(dray: Wire, topic: str):
    """D-102, D-104: GW2. The broker says that it takes them so."""
    await make(dray, topic)
    await dray.fill(topic, 10)
    stream = await dray.popping(topic, 2)
    async with asyncio.timeout(LONG_S):
        first = await stream.read()
    assert first.takes_credits
    held = list(first.items) or await items_of(stream, 2)
    while len(held) < 2:
        held += await items_of(stream, 1)
    acks = [pb.SettleOne(lease_token=item.lease_token, kind=pb.ACK) for item in held]
    await stream.write(pb.PopOpen(settle=pb.SettleMany(tag=1, items=acks, credits=3)))
    answered, brought = 0, 0
    async with asyncio.timeout(LONG_S):
        while not answered or brought < 3:
            told = await stream.read()
            answered += len(told.settled.results)
            brought += len(told.items)
    stats = await dray.stats(topic)
    assert (answered, brought, stats.leased, stats.acked_total, stats.ready) == (2, 3, 3, 2, 5)
    await stream.write(pb.PopOpen(settle=pb.SettleMany(tag=2, credits=10_001)))
    assert await ended(stream) == "RESOURCE_EXHAUSTED"


async def test_credits_and_filters_may_come_before_the_start_and_at_any_time(dray: Wire, topic: str):
    """D-199"""
    await make(dray, topic)
    for priority in range(6):
        await dray.call("Enqueue", pb.EnqueueReq(topic=topic, priority=priority))
    stream = dray.stream("PopStream")
    await stream.write(pb.PopOpen(fc=pb.FlowControl(credits=4)))
    await stream.write(pb.PopOpen(filter=pb.PopFilter(worst_priority=1)))
    await stream.write(pb.PopOpen(start=pb.PopStart(topic=topic)))
    assert [item.priority for item in await items_of(stream, 2)] == [0, 1]
    assert (await dray.stats(topic)).leased == 2
    await stream.write(pb.PopOpen(filter=pb.PopFilter()))
    assert [item.priority for item in await items_of(stream, 2)] == [2, 3]
    stream.cancel()


async def test_a_stop_ends_deliveries_and_settlements_are_still_answered(dray: Wire, topic: str):
    """D-105, A-16: GW3"""
    await make(dray, topic)
    await dray.fill(topic, 10)
    stream = await dray.popping(topic, 3)
    items = await items_of(stream, 3)
    await stream.write(pb.PopOpen(stop=pb.PopStop(release=True)))
    await stream.write(pb.PopOpen(fc=pb.FlowControl(credits=5)))
    acks = [pb.SettleOne(lease_token=item.lease_token, kind=pb.ACK) for item in items]
    await stream.write(pb.PopOpen(settle=pb.SettleMany(tag=7, items=acks)))
    assert all(result.done for result in await settled(stream, 7))
    await stream.done_writing()
    assert await ended(stream) == "OK"
    stats = await dray.stats(topic)
    assert (stats.ready, stats.leased, stats.acked_total) == (7, 0, 3)


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ([pb.PopOpen()], "INVALID_ARGUMENT"),
        ([pb.PopOpen(start=pb.PopStart(topic="nowhere"))], "NOT_FOUND"),
        ([pb.PopOpen(fc=pb.FlowControl(credits=(1 << 32) - 1))], "RESOURCE_EXHAUSTED"),
        ([pb.PopOpen(fc=pb.FlowControl(credits=10_000)), pb.PopOpen(fc=pb.FlowControl(credits=1))],
         "RESOURCE_EXHAUSTED"),
    ],
)  # fmt: skip
async def test_a_stream_that_breaks_the_rules_is_ended_with_the_reason(dray: Wire, messages, code):
    """D-283, HL1"""
    stream = dray.stream("PopStream")
    for message in messages:
        await stream.write(message)
    assert await ended(stream) == code


async def test_a_stream_is_started_once_and_a_visibility_that_makes_no_sense_is_refused(dray: Wire, topic: str):
    await make(dray, topic)
    stream = await dray.popping(topic)
    await stream.write(pb.PopOpen(start=pb.PopStart(topic=topic)))
    assert await ended(stream) == "INVALID_ARGUMENT"
    assert await ended(await dray.popping(topic, visibility=seconds(0.1))) == "INVALID_ARGUMENT"


async def test_wrong_tokens_in_a_stream_are_told_and_harm_nobody(dray: Wire, topic: str):
    """L2"""
    await make(dray, topic)
    await dray.fill(topic, 1)
    stream = await dray.popping(topic, 1)
    (item,) = await items_of(stream, 1)
    wrong = format_token(LeaseToken(0, 1, b"w" * 16))
    items = [pb.SettleOne(lease_token=text, kind=pb.ACK) for text in (wrong, "", "x" * 36)] * 100
    await stream.write(pb.PopOpen(settle=pb.SettleMany(tag=1, items=items)))
    assert not any(result.done for result in await settled(stream, 1))
    many = [pb.SettleOne(lease_token=wrong, kind=pb.ACK)] * 1_001
    await stream.write(pb.PopOpen(settle=pb.SettleMany(tag=2, items=many)))
    assert {result.error.kind for result in await settled(stream, 2)} == {"INVALID_ARGUMENT"}
    await stream.write(
        pb.PopOpen(settle=pb.SettleMany(tag=3, items=[pb.SettleOne(lease_token=item.lease_token, kind=pb.ACK)]))
    )
    assert (await settled(stream, 3))[0].done
    stream.cancel()


@pytest.mark.slow
async def test_a_consumer_that_never_acks_loses_its_messages_and_they_go_to_others(dray: Wire, topic: str):
    """D-087, D-092"""
    await make(dray, topic, visibility_timeout=seconds(1), backoff=pb.Backoff(base=seconds(0), cap=seconds(0)))
    await dray.fill(topic, 3)
    silent = await dray.popping(topic, 3)
    taken = {item.message_id for item in await items_of(silent, 3)}
    other = await dray.popping(topic, 3)
    again = await items_of(other, 3)
    assert {item.message_id for item in again} == taken
    assert all(item.attempts == 1 for item in again)
    for stream in (silent, other):
        stream.cancel()


@pytest.mark.slow
async def test_a_stream_that_never_reads_holds_a_bounded_part_and_nobody_else(dray: Wire, address: str, topic: str):
    """D-106: HL5, GW1, GW3"""
    await make(dray, topic)
    await dray.fill(topic, 3_000, b"x" * 8_000)
    async with wire(address) as hostile:
        deaf = await hostile.popping(topic, 10_000)
        async with asyncio.timeout(LONG_S):
            while (await dray.stats(topic)).leased < 100:
                await asyncio.sleep(0.02)
        good = await dray.popping(topic, 500)
        assert len(await items_of(good, 500)) == 500
        stats = await dray.stats(topic)
        assert stats.leased < 500 + 2_600, "what the deaf one holds is bounded"
        deaf.cancel()
    good.cancel()
    await dray.confirmed("Purge", pb.PurgeReq(topic=topic, force=True, include_leased=True))


@pytest.mark.slow
async def test_a_heap_that_is_deleted_ends_its_streams(dray: Wire, topic: str):
    """D-192, D-223"""
    await make(dray, topic)
    stream = await dray.popping(topic, 5)
    await dray.confirmed("DeleteHeap", pb.DestroyReq(topic=topic, force=True))
    assert await ended(stream) == "NOT_FOUND"


async def test_one_stream_too_many_is_refused_and_the_others_go_on(topic: str):
    """D-283"""
    with broker(grpc__max_streams=3) as running:
        async with wire(running.grpc) as dray:
            await make(dray, topic)
            await dray.fill(topic, 3)
            streams = [await dray.popping(topic, 1) for _ in range(3)]
            for stream in streams:
                await items_of(stream, 1)  # each of them is open
            assert await ended(dray.stream("PopStream")) == "RESOURCE_EXHAUSTED"
            await dray.fill(topic, 1)
            await streams[1].write(pb.PopOpen(fc=pb.FlowControl(credits=1)))
            await items_of(streams[1], 1)
            for stream in streams:
                stream.cancel()


async def test_connections_that_say_nothing_or_rubbish_harm_nobody(dray: Wire, address: str, topic: str):
    host, port = address.split(":")
    crowd = []
    for said in (b"", b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\xff" * 10_000) * 5:
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(said)
        crowd.append(writer)
    await make(dray, topic)
    await dray.fill(topic, 1)
    assert len(await pop(dray, topic)) == 1
    for writer in crowd:
        writer.close()


async def test_what_a_client_that_vanished_was_never_sent_goes_back_without_an_attempt(dray: Wire, topic: str):
    """D-106: GW3. gRPC holds back what is not read: most of 30 MB was never written."""
    await make(dray, topic)
    for _ in range(10):
        items = [pb.EnqueueReq(topic=topic, payload=b"x" * 100_000) for _ in range(30)]
        await dray.call("EnqueueBatch", pb.EnqueueBatchReq(items=items))
    deaf = await dray.popping(topic, credits=300)
    await until(dray, topic, leased=MAX_GRANT)
    deaf.cancel()
    async with asyncio.timeout(LONG_S):
        while (stats := await dray.stats(topic)).ready < 100:
            await asyncio.sleep(0.05)
    assert stats.failed_total == 0
    (again,) = await items_of(await dray.popping(topic, credits=1), 1)
    assert again.attempts == 0


async def test_a_broker_that_stops_tells_its_streams_and_gives_back_what_they_were_never_sent():
    """D-105: GG1, GW3"""
    with ExitStack() as stack:
        running = stack.enter_context(broker())
        async with wire(running.grpc) as dray:
            await make(dray, "jobs")
            stream = await dray.popping("jobs", 5)
            await dray.fill("jobs", 1)
            (item,) = await items_of(stream, 1)
            began = asyncio.get_running_loop().time()
            stopping = asyncio.create_task(asyncio.to_thread(stack.close))
            async with asyncio.timeout(LONG_S):
                while not (await stream.read()).status.stopping:
                    pass
            ack = pb.SettleOne(lease_token=item.lease_token, kind=pb.ACK)
            await stream.write(pb.PopOpen(settle=pb.SettleMany(tag=1, items=[ack])))
            assert (await settled(stream, 1))[0].done
            await stream.done_writing()
            assert await ended(stream) == "OK"
            await stopping
            assert asyncio.get_running_loop().time() - began < LONG_S
