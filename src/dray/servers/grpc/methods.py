"""Which method of `HeapsApi` answers which call."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from google.protobuf.message import Message

from dray.api.v1 import heaps_pb2 as pb
from dray.servers.grpc.gate import GrpcCaller
from dray.servers.grpc.heaps import HeapsApi

_Q = TypeVar("_Q", bound=Message)
AnswerCall: TypeAlias = Callable[[HeapsApi, GrpcCaller, bytes], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class Unary:
    """A call with one request and one answer, both as bytes."""

    name: str
    answer: AnswerCall


def _unary(name: str, request: type[_Q], handle: Callable[[HeapsApi, GrpcCaller, _Q], Awaitable[Message]]) -> Unary:
    async def answer(api: HeapsApi, caller: GrpcCaller, packed: bytes) -> bytes:
        return (await handle(api, caller, request.FromString(packed))).SerializeToString()

    return Unary(name, answer)


UNARY: Final = (
    _unary("MakeHeap", pb.MakeHeapReq, HeapsApi.make_heap),
    _unary("GetHeap", pb.HeapRef, HeapsApi.get_heap),
    _unary("ListHeaps", pb.ListHeapsReq, HeapsApi.list_heaps),
    _unary("UpdateHeapConfig", pb.UpdateHeapConfigReq, HeapsApi.update_heap_config),
    _unary("DeleteHeap", pb.DestroyReq, HeapsApi.delete_heap),
    _unary("Purge", pb.PurgeReq, HeapsApi.purge),
    _unary("Stats", pb.StatsReq, HeapsApi.stats),
    _unary("Peek", pb.PeekReq, HeapsApi.peek),
    _unary("Enqueue", pb.EnqueueReq, HeapsApi.enqueue),
    _unary("EnqueueBatch", pb.EnqueueBatchReq, HeapsApi.enqueue_batch),
    _unary("Pop", pb.PopReq, HeapsApi.pop),
    _unary("Ack", pb.AckReq, HeapsApi.ack),
    _unary("Nack", pb.NackReq, HeapsApi.nack),
    _unary("Extend", pb.ExtendReq, HeapsApi.extend),
    _unary("Settle", pb.SettleReq, HeapsApi.settle),
    _unary("MoveToDLQ", pb.MoveToDlqReq, HeapsApi.move_to_dlq),
    _unary("DlqReplay", pb.DlqReplayReq, HeapsApi.dlq_replay),
    _unary("DlqDelete", pb.DlqDeleteReq, HeapsApi.dlq_delete),
)
