"""The calls of `dray.v1.Heaps` over a real wire: what they do, and what bad ones are told."""

import asyncio
import time

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from dray.api.v1 import heaps_pb2 as pb
from dray.heaps.ids import LeaseToken, format_token

from .wire import ANSWERS, Wire, counted, seconds, wire

LONG_S = 60.0
NOBODY = format_token(LeaseToken(7, 99, b"n" * 16))


async def make(dray: Wire, topic: str, **config) -> None:
    await dray.call("MakeHeap", pb.MakeHeapReq(topic=topic, config=pb.HeapConfig(**config)))


async def pop(dray: Wire, topic: str, **fields) -> list[pb.PopItem]:
    return list((await dray.call("Pop", pb.PopReq(topic=topic, wait=seconds(20), **fields))).items)


async def test_unary_calls_do_a_whole_cycle(dray: Wire, topic: str):
    """D-011, D-080, D-081, D-091, D-093, D-190, D-199, D-201, D-202, D-204"""
    await make(dray, topic)
    sent = await dray.call("Enqueue", pb.EnqueueReq(topic=topic, payload=b"\0\xff", priority=-3, headers={"a": "b"}))
    peeked = [await dray.call("Peek", pb.PeekReq(topic=topic, payload=True)) for _ in range(2)]
    assert peeked[0] == peeked[1]
    assert peeked[0].messages[0].message.message_id == sent.message_id
    assert not peeked[0].messages[0].message.lease_token
    (item,) = await pop(dray, topic, max=1, visibility=seconds(20), consumer="me")
    assert (item.payload, item.priority, dict(item.headers)) == (b"\0\xff", -3, {"a": "b"})
    assert 0 < item.lease_for.seconds <= 20
    leased = await dray.call("Peek", pb.PeekReq(topic=topic, state=pb.LEASED))
    assert leased.messages[0].holder == "me"
    extended = await dray.call("Extend", pb.ExtendReq(topic=topic, lease_token=item.lease_token, extension=seconds(10)))
    assert 20 < extended.lease_for.seconds <= 30
    nacked = pb.NackReq(topic=topic, message_id=item.message_id, lease_token=item.lease_token, error="why")
    nacked.backoff_override.CopyFrom(seconds(0))
    assert not (await dray.call("Nack", nacked)).dead
    (again,) = await pop(dray, topic)
    assert (again.message_id, again.attempts) == (item.message_id, 1)
    ack = pb.AckReq(topic=topic, message_id=again.message_id, lease_token=again.lease_token)
    await dray.call("Ack", ack)
    await dray.call("Ack", ack)  # again: its answer may have got lost
    stats = await dray.stats(topic)
    assert (stats.ready, stats.leased, stats.acked_total, stats.failed_total) == (0, 0, 1, 1)


@pytest.mark.parametrize(
    ("method", "request_of", "code"),
    [
        ("Enqueue", lambda t: pb.EnqueueReq(topic="nowhere"), "NOT_FOUND"),
        ("Enqueue", lambda t: pb.EnqueueReq(topic=t, payload=b"x" * 1_001), "INVALID_ARGUMENT"),
        ("Enqueue", lambda t: pb.EnqueueReq(topic=t, dedup_key="x" * (1 << 20)), "INVALID_ARGUMENT"),
        ("Enqueue", lambda t: pb.EnqueueReq(topic=t, producer_id="p", epoch=1), "INVALID_ARGUMENT"),
        ("Enqueue", lambda t: pb.EnqueueReq(topic=t, producer_id="p", epoch=1, seq=1 << 36), "INVALID_ARGUMENT"),
        ("Enqueue", lambda t: pb.EnqueueReq(topic=t, producer_id="p", seq=1, dedup_key="k"), "INVALID_ARGUMENT"),
        ("Enqueue", lambda t: pb.EnqueueReq(topic=t, delay=seconds(1 << 40)), "INVALID_ARGUMENT"),
        ("Enqueue", lambda t: pb.EnqueueReq(topic=t, not_before=Timestamp(seconds=-1)), "INVALID_ARGUMENT"),
        ("Enqueue", lambda t: pb.EnqueueReq(topic=t, max_retries=1 << 31), "INVALID_ARGUMENT"),
        ("Enqueue", lambda t: pb.EnqueueReq(topic=t, payload=b"{", payload_format=pb.JSON), "INVALID_ARGUMENT"),
        ("EnqueueBatch", lambda t: pb.EnqueueBatchReq(), "INVALID_ARGUMENT"),
        ("EnqueueBatch", lambda t: pb.EnqueueBatchReq(items=[pb.EnqueueReq(topic=t), pb.EnqueueReq(topic="no")]),
         "NOT_FOUND"),
        ("Pop", lambda t: pb.PopReq(topic="nowhere"), "NOT_FOUND"),
        ("Pop", lambda t: pb.PopReq(topic=t, max=1 << 31), "INVALID_ARGUMENT"),
        ("Pop", lambda t: pb.PopReq(topic=t, wait=seconds(3_600)), "INVALID_ARGUMENT"),
        ("Pop", lambda t: pb.PopReq(topic=t, visibility=seconds(0)), "INVALID_ARGUMENT"),
        ("Pop", lambda t: pb.PopReq(topic=t, consumer="c" * 300), "INVALID_ARGUMENT"),
        ("Ack", lambda t: pb.AckReq(topic=t, lease_token=""), "INVALID_ARGUMENT"),
        ("Ack", lambda t: pb.AckReq(topic=t, lease_token="!" * 36), "INVALID_ARGUMENT"),
        ("Ack", lambda t: pb.AckReq(topic=t, lease_token=NOBODY), "NOT_FOUND"),
        ("Nack", lambda t: pb.NackReq(topic=t, lease_token=NOBODY, kind=pb.ACK), "INVALID_ARGUMENT"),
        ("Extend", lambda t: pb.ExtendReq(topic=t, lease_token=NOBODY), "INVALID_ARGUMENT"),
        ("Extend", lambda t: pb.ExtendReq(topic=t, lease_token=NOBODY, extension=seconds(5)), "NOT_FOUND"),
        ("Peek", lambda t: pb.PeekReq(topic=t, limit=1 << 31), "INVALID_ARGUMENT"),
        ("Peek", lambda t: pb.PeekReq(topic=t, page_token="zzz"), "INVALID_ARGUMENT"),
        ("Peek", lambda t: pb.PeekReq(topic=t, message_id="zzz"), "INVALID_ARGUMENT"),
        ("MakeHeap", lambda t: pb.MakeHeapReq(topic=t), "ALREADY_EXISTS"),
        ("MakeHeap", lambda t: pb.MakeHeapReq(topic="../up"), "INVALID_ARGUMENT"),
        ("MakeHeap", lambda t: pb.MakeHeapReq(topic="other", mode=7), "INVALID_ARGUMENT"),
        ("MakeHeap", lambda t: pb.MakeHeapReq(topic="other", replication_factor=4), "INVALID_ARGUMENT"),
        ("MakeHeap", lambda t: pb.MakeHeapReq(topic="other", partitions=0), "INVALID_ARGUMENT"),
        ("MakeHeap", lambda t: pb.MakeHeapReq(topic="other", spread=True), "UNIMPLEMENTED"),
        ("MakeHeap", lambda t: pb.MakeHeapReq(topic="other", config=pb.HeapConfig(visibility_timeout=seconds(0.5))),
         "INVALID_ARGUMENT"),
        ("UpdateHeapConfig", lambda t: pb.UpdateHeapConfigReq(topic=t, expected_revision=9), "ABORTED"),
        ("DeleteHeap", lambda t: pb.DestroyReq(topic=t), "FAILED_PRECONDITION"),
        ("Purge", lambda t: pb.PurgeReq(topic=t), "FAILED_PRECONDITION"),
        ("DlqDelete", lambda t: pb.DlqDeleteReq(topic=t, all=True), "FAILED_PRECONDITION"),
        ("DlqDelete", lambda t: pb.DlqDeleteReq(topic=t), "INVALID_ARGUMENT"),
        ("DlqReplay", lambda t: pb.DlqReplayReq(topic=t, all=True, message_ids=["0" * 26]), "INVALID_ARGUMENT"),
        ("MoveToDLQ", lambda t: pb.MoveToDlqReq(topic=t, message_ids=["0" * 26]), "NOT_FOUND"),
        ("Settle", lambda t: pb.SettleReq(topic="nowhere"), "NOT_FOUND"),
    ],
)  # fmt: skip
async def test_a_bad_request_gets_its_code_and_changes_nothing(dray: Wire, topic: str, method, request_of, code):
    """D-021, D-022, D-032, D-035, D-096, D-140, D-212, D-220, D-221, D-222, D-223, D-225: GF1, GH1"""
    await make(dray, topic, max_payload_bytes=1_000)
    await dray.fill(topic, 1)
    assert (await dray.refused(method, request_of(topic)))[0] == code
    stats = await dray.stats(topic)
    assert (stats.ready, stats.enqueued_total, stats.granted_total) == (1, 1, 0)


async def test_payloads_at_the_limit_and_priorities_at_their_ends_are_taken(dray: Wire, topic: str):
    """D-022, D-032"""
    await make(dray, topic)
    for priority in (0, (1 << 63) - 1, -(1 << 63), 1, -1):
        await dray.call("Enqueue", pb.EnqueueReq(topic=topic, priority=priority))
    await dray.call("Enqueue", pb.EnqueueReq(topic=topic, payload=b"x" * (1 << 20), priority=5))
    assert (await dray.refused("Enqueue", pb.EnqueueReq(topic=topic, payload=b"x" * ((1 << 20) + 1))))[0] == (
        "INVALID_ARGUMENT"
    )
    found = await pop(dray, topic, max=10)
    assert [item.priority for item in found] == [-(1 << 63), -1, 0, 1, 5, (1 << 63) - 1]


async def test_tokens_of_other_messages_old_tokens_and_replayed_tokens_settle_nothing(dray: Wire, topic: str):
    """D-082, D-088, D-201, D-221: L2, L4"""
    await make(dray, topic)
    await dray.fill(topic, 2)
    one, other = await pop(dray, topic, max=2)
    mixed = pb.AckReq(topic=topic, message_id=one.message_id, lease_token=other.lease_token)
    assert (await dray.refused("Ack", mixed))[0] == "FAILED_PRECONDITION"
    nack = pb.NackReq(topic=topic, lease_token=one.lease_token)
    nack.backoff_override.CopyFrom(seconds(0))
    await dray.call("Nack", nack)
    (again,) = await pop(dray, topic)
    for old in (pb.AckReq(topic=topic, lease_token=one.lease_token),):
        assert (await dray.refused("Ack", old))[0] == "FAILED_PRECONDITION"
    answer = await dray.call(
        "Settle",
        pb.SettleReq(topic=topic, items=[
            pb.SettleOne(lease_token=again.lease_token),  # what it is was forgotten: that must not delete
            pb.SettleOne(lease_token=one.lease_token, kind=pb.ACK),
            pb.SettleOne(lease_token="rubbish", kind=pb.ACK),
            pb.SettleOne(lease_token=again.lease_token, kind=pb.RENEW),
            pb.SettleOne(lease_token=other.lease_token, kind=pb.ACK),
            pb.SettleOne(lease_token=other.lease_token, kind=pb.ACK),
        ]),
    )  # fmt: skip
    assert [result.error.kind for result in answer.results] == [
        "INVALID_ARGUMENT", "FAILED_PRECONDITION", "INVALID_ARGUMENT", "INVALID_ARGUMENT", "", "",
    ]  # fmt: skip
    stats = await dray.stats(topic)
    assert (stats.leased, stats.acked_total) == (1, 1)


async def test_a_stream_of_enqueues_answers_each_message_for_itself(dray: Wire, topic: str):
    """D-110, D-119, D-141: GE1"""
    await make(dray, topic, max_payload_bytes=10)
    stream = dray.stream("EnqueueStream")
    items = [
        pb.EnqueueReq(topic=topic, payload=b"ok", producer_id="p", epoch=1, seq=0),
        pb.EnqueueReq(topic=topic, payload=b"x" * 11),
        pb.EnqueueReq(topic="nowhere"),
        pb.EnqueueReq(topic=topic, payload=b"ok", producer_id="p", epoch=1, seq=0),
    ]
    for tag in (1, 2):
        await stream.write(pb.EnqueueMany(tag=tag, items=items))
    answers = [await stream.read() for _ in range(2)]
    await stream.done_writing()
    assert sorted(answer.tag for answer in answers) == [1, 2]
    for answer in answers:
        assert [result.error.kind for result in answer.results] == ["", "INVALID_ARGUMENT", "NOT_FOUND", ""]
    assert len({result.message_id for answer in answers for result in answer.results if result.message_id}) == 1
    assert (await dray.stats(topic)).ready == 1
    assert await stream.code() is grpc.StatusCode.OK


@pytest.mark.slow
async def test_a_message_above_the_limit_of_the_port_is_refused_and_the_connection_lives(dray: Wire, topic: str):
    """D-283"""
    await make(dray, topic)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await dray.call("Enqueue", pb.EnqueueReq(topic=topic, payload=b"x" * (17 << 20)))
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (await dray.stats(topic)).ready == 0


async def test_bytes_that_are_no_message_are_refused(dray: Wire):
    calling = dray.channel.unary_unary("/dray.v1.Heaps/Enqueue", lambda raw: raw, lambda raw: raw)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await calling(b"\xff\xff\xff\xff")
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_health_is_served_and_reflection_names_every_method(dray: Wire):
    """D-190"""
    health = health_pb2_grpc.HealthStub(dray.channel)
    for service in ("", "dray.v1.Heaps"):
        answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    asked = reflection_pb2.ServerReflectionRequest(file_containing_symbol="dray.v1.Heaps")
    reflecting = reflection_pb2_grpc.ServerReflectionStub(dray.channel).ServerReflectionInfo(iter([asked]))
    answer = await reflecting.read()
    files = [FileDescriptorProto.FromString(raw) for raw in answer.file_descriptor_response.file_descriptor_proto]
    (heaps,) = (service for file in files for service in file.service if service.name == "Heaps")
    assert {method.name for method in heaps.method} == set(ANSWERS)


async def test_lists_are_cut_into_pages(dray: Wire, topic: str):
    """D-194, D-202"""
    for n in range(5):
        await make(dray, f"{topic}.{n}")
    await dray.fill(f"{topic}.0", 25)
    names, token = [], ""
    while True:
        page = await dray.call("ListHeaps", pb.ListHeapsReq(prefix=f"{topic}.", page_size=2, page_token=token))
        names += [heap.topic for heap in page.heaps]
        if not (token := page.next_page_token):
            break
    assert names == [f"{topic}.{n}" for n in range(5)]
    seen, token = [], ""
    while True:
        page = await dray.call("Peek", pb.PeekReq(topic=f"{topic}.0", limit=10, page_token=token))
        seen += [one.message.message_id for one in page.messages]
        if not (token := page.next_page_token):
            break
    assert len(seen) == len(set(seen)) == 25


async def test_two_clients_with_one_connection_each_see_the_same(address: str, topic: str):
    async with wire(address) as one, wire(address) as other:
        await make(one, topic)
        await one.fill(topic, 1)
        assert len(await pop(other, topic)) == 1


async def test_what_happens_to_one_heap_is_nothing_to_another(dray: Wire, topic: str):
    """D-024: one that is full, paused, purged and deleted; D-033: and when a message came the broker says."""
    other = f"{topic}-other"
    await make(dray, topic, max_messages=3)
    await make(dray, other)
    began_s = time.time()
    await dray.fill(topic, 3)
    for priority in (3, 1, 2):
        await dray.call("Enqueue", pb.EnqueueReq(topic=other, payload=b"kept", priority=priority))
    (held,) = await pop(dray, other, max=1)
    assert abs(held.enqueued_time.seconds - began_s) < LONG_S
    assert (await dray.refused("Enqueue", pb.EnqueueReq(topic=topic)))[0] == "RESOURCE_EXHAUSTED"
    await dray.call("UpdateHeapConfig", pb.UpdateHeapConfigReq(topic=topic, config=pb.HeapConfig(paused=True)))
    await dray.confirmed("Purge", pb.PurgeReq(topic=topic, force=True, include_leased=True, include_dlq=True))
    await dray.confirmed("DeleteHeap", pb.DestroyReq(topic=topic, force=True))
    assert [item.priority for item in await pop(dray, other, max=3)] == [2, 3]
    await dray.call("Ack", pb.AckReq(topic=other, message_id=held.message_id, lease_token=held.lease_token))
    stats = await dray.stats(other)
    assert (stats.ready, stats.leased, stats.acked_total, stats.enqueued_total) == (0, 2, 1, 3)


async def test_a_heap_may_be_compressed_on_the_wire_and_gives_the_same_bytes(dray: Wire, topic: str, address: str):
    """D-023"""
    payload = b"the same again " * 20_000
    sizes = []
    for compressed in (False, True):
        name = f"{topic}-{compressed}"
        await make(dray, name, compression=compressed)
        await dray.call("Enqueue", pb.EnqueueReq(topic=name, payload=payload))
        async with counted(address) as (through, passed), wire(through) as counting:
            stream = await counting.popping(name, 1)
            async with asyncio.timeout(LONG_S):
                (item,) = (await stream.read()).items
            assert item.payload == payload
            stream.cancel()
        sizes.append(sum(passed))
    assert sizes[1] < sizes[0] / 10
