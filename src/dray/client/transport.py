"""How the SDK reaches brokers: a port. Adapters: `dray.client.grpc`, and one for tests in `dray.testing.heaps`.

Errors that come out of it are those of `dray.client.errors`.
"""

from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from dray.api.v1 import heaps_pb2 as pb

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)
_QIn = TypeVar("_QIn", bound=Message, contravariant=True)
_AOut = TypeVar("_AOut", bound=Message, covariant=True)


@dataclass(frozen=True, slots=True)
class Method(Generic[Q, A]):
    """One call of a service."""

    name: str
    request: type[Q]
    answer: type[A]
    service: str = "dray.v1.Heaps"

    @property
    def path(self) -> str:
        """As gRPC names it."""
        return f"/{self.service}/{self.name}"


class Stream(Protocol[_QIn, _AOut]):
    """A stream of both directions. One task writes, one reads."""

    async def write(self, message: _QIn) -> None: ...

    async def read(self) -> _AOut | None:
        """None: the broker has ended it, well."""
        ...

    async def done_writing(self) -> None: ...

    def cancel(self) -> None:
        """End it now; what waits raises."""
        ...


class Transport(Protocol):
    """Brokers, as calls and streams."""

    async def call(self, method: Method[Q, A], request: Q, timeout: float) -> A: ...

    def call_from_thread(self, method: Method[Q, A], request: Q, timeout: float) -> A:
        """The same, blocking, from a thread that is not the loop's."""
        ...

    def stream(self, method: Method[Q, A]) -> Stream[Q, A]: ...

    def move(self) -> None:
        """The next call or stream goes to the next broker."""
        ...

    async def close(self) -> None: ...


MAKE_HEAP: Final = Method("MakeHeap", pb.MakeHeapReq, pb.Heap)
GET_HEAP: Final = Method("GetHeap", pb.HeapRef, pb.Heap)
LIST_HEAPS: Final = Method("ListHeaps", pb.ListHeapsReq, pb.ListHeapsResp)
UPDATE_HEAP: Final = Method("UpdateHeapConfig", pb.UpdateHeapConfigReq, pb.Heap)
DELETE_HEAP: Final = Method("DeleteHeap", pb.DestroyReq, Empty)
PURGE: Final = Method("Purge", pb.PurgeReq, pb.CountResp)
STATS: Final = Method("Stats", pb.StatsReq, pb.StatsResp)
PEEK: Final = Method("Peek", pb.PeekReq, pb.PeekResp)
ENQUEUE_BATCH: Final = Method("EnqueueBatch", pb.EnqueueBatchReq, pb.EnqueueBatchResp)
ENQUEUE_STREAM: Final = Method("EnqueueStream", pb.EnqueueMany, pb.EnqueueManyResp)
POP_STREAM: Final = Method("PopStream", pb.PopOpen, pb.PopDelivery)
SETTLE: Final = Method("Settle", pb.SettleReq, pb.SettleResp)
MOVE_TO_DLQ: Final = Method("MoveToDLQ", pb.MoveToDlqReq, pb.CountResp)
DLQ_REPLAY: Final = Method("DlqReplay", pb.DlqReplayReq, pb.CountResp)
DLQ_DELETE: Final = Method("DlqDelete", pb.DlqDeleteReq, pb.CountResp)
_KEYS: Final = "dray.v1.Keys"
CREATE_KEY: Final = Method("CreateKey", pb.CreateKeyReq, pb.CreateKeyResp, _KEYS)
LIST_KEYS: Final = Method("ListKeys", pb.ListKeysReq, pb.ListKeysResp, _KEYS)
REVOKE_KEY: Final = Method("RevokeKey", pb.RevokeKeyReq, Empty, _KEYS)
