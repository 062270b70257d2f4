"""Who may do what is asked before anything is done."""

import pytest

from dray.api.v1 import heaps_pb2 as pb
from dray.clock import SystemClock
from dray.errors import DrayError
from dray.servers.grpc.gate import GrpcCaller
from dray.servers.grpc.heaps import HeapsApi
from dray.servers.grpc.methods import UNARY

CALLER = GrpcCaller(name="nobody", address="test")


class Refusal(DrayError):
    pass


class ClosedGate:
    """Nobody may do anything."""

    async def admit(self, metadata, address):
        return CALLER

    def check(self, caller, action, heap):
        raise Refusal(action)

    async def confirm(self, caller, action, heap, *, force, confirmation, options=""):
        raise Refusal(action)

    async def audited(self, caller, action, name, work):
        return await work()


REQUESTS = {
    "MakeHeap": pb.MakeHeapReq, "GetHeap": pb.HeapRef, "ListHeaps": pb.ListHeapsReq,
    "UpdateHeapConfig": pb.UpdateHeapConfigReq, "DeleteHeap": pb.DestroyReq, "Purge": pb.PurgeReq,
    "Stats": pb.StatsReq, "Peek": pb.PeekReq, "Enqueue": pb.EnqueueReq, "Pop": pb.PopReq, "Ack": pb.AckReq,
    "Nack": pb.NackReq, "Extend": pb.ExtendReq, "Settle": pb.SettleReq, "MoveToDLQ": pb.MoveToDlqReq,
    "DlqReplay": pb.DlqReplayReq, "DlqDelete": pb.DlqDeleteReq,
    "EnqueueBatch": lambda: pb.EnqueueBatchReq(items=[pb.EnqueueReq()]),
}  # fmt: skip


def test_every_call_is_tried():
    assert {one.name for one in UNARY} == set(REQUESTS)


@pytest.mark.parametrize("method", UNARY, ids=lambda one: one.name)
async def test_no_call_touches_a_heap_before_its_caller_was_let_through(method):
    """GT1"""
    api = HeapsApi(None, ClosedGate(), SystemClock(), "memory")  # there is no service: to touch it would fail
    with pytest.raises(Refusal):
        await method.answer(api, CALLER, REQUESTS[method.name]().SerializeToString())


async def test_each_message_of_a_list_is_refused():
    """GT1"""
    api = HeapsApi(None, ClosedGate(), SystemClock(), "memory")
    asked = pb.EnqueueMany(tag=7, items=[pb.EnqueueReq(topic="a"), pb.EnqueueReq(topic="b")])
    answer = await api.enqueue_many(CALLER, asked)
    assert answer.tag == 7
    assert [result.HasField("error") for result in answer.results] == [True, True]
