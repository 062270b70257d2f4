"""A raw client: calls and streams of `dray.v1.Heaps` without the SDK."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.empty_pb2 import Empty

from dray.api.v1 import heaps_pb2 as pb

ANSWERS = {
    "MakeHeap": pb.Heap, "GetHeap": pb.Heap, "ListHeaps": pb.ListHeapsResp, "UpdateHeapConfig": pb.Heap,
    "DeleteHeap": Empty, "Purge": pb.CountResp, "Stats": pb.StatsResp, "Peek": pb.PeekResp,
    "Enqueue": pb.EnqueueResp, "EnqueueBatch": pb.EnqueueBatchResp, "EnqueueStream": pb.EnqueueManyResp,
    "Pop": pb.PopResp, "PopStream": pb.PopDelivery, "Ack": Empty, "Nack": pb.NackResp, "Extend": pb.ExtendResp,
    "Settle": pb.SettleResp, "MoveToDLQ": pb.CountResp, "DlqReplay": pb.CountResp, "DlqDelete": pb.CountResp,
}  # fmt: skip


class Wire:
    """One connection."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel

    async def call(self, method: str, request, timeout: float = 30.0):
        calling = self.channel.unary_unary(
            f"/dray.v1.Heaps/{method}", type(request).SerializeToString, ANSWERS[method].FromString
        )
        return await calling(request, timeout=timeout)

    async def confirmed(self, method: str, request):
        """A call that cannot be undone: asked, and asked again with what the broker wants to hear."""
        try:
            return await self.call(method, request)
        except grpc.aio.AioRpcError as error:
            request.confirmation = dict(error.trailing_metadata())["dray-confirmation"]
        return await self.call(method, request)

    async def refused(self, method: str, request) -> tuple[str, str]:
        """The status code and what was said; it must be refused."""
        try:
            answer = await self.call(method, request)
        except grpc.aio.AioRpcError as error:
            kind = dict(error.trailing_metadata()).get("dray-kind")
            return (error.code().name, error.details()) if kind else ("not told by a broker", str(error))
        raise AssertionError(f"{method} was not refused: {answer}")

    def stream(self, method: str):
        calling = self.channel.stream_stream(
            f"/dray.v1.Heaps/{method}", lambda message: message.SerializeToString(), ANSWERS[method].FromString
        )
        return calling()

    async def popping(self, topic: str, credits: int = 0, **fields):
        stream = self.stream("PopStream")
        await stream.write(pb.PopOpen(start=pb.PopStart(topic=topic, credits=credits, **fields)))
        return stream

    async def fill(self, topic: str, count: int, payload: bytes = b"x") -> None:
        for start in range(0, count, 100):
            items = [pb.EnqueueReq(topic=topic, payload=payload) for _ in range(min(100, count - start))]
            await self.call("EnqueueBatch", pb.EnqueueBatchReq(items=items))

    async def stats(self, topic: str) -> pb.HeapStats:
        return (await self.call("Stats", pb.StatsReq(topic=topic))).heaps[0]


@asynccontextmanager
async def wire(address: str, **options: int) -> AsyncIterator[Wire]:
    channel = grpc.aio.insecure_channel(
        address, [("grpc.max_send_message_length", -1), *((f"grpc.{key}", value) for key, value in options.items())]
    )
    try:
        yield Wire(channel)
    finally:
        await channel.close()


def seconds(value: float) -> Duration:
    return Duration(seconds=int(value), nanos=int(value % 1 * 1e9))


@asynccontextmanager
async def counted(address: str) -> AsyncIterator[tuple[str, list[int]]]:
    """Another address of a broker, and how many bytes it has sent through that so far, piece by piece."""
    host, _, port = address.rpartition(":")
    passed: list[int] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sizes: list[int]) -> None:
        while piece := await reader.read(65_536):
            sizes.append(len(piece))
            writer.write(piece)
            await writer.drain()
        writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection(host, int(port))
        await asyncio.gather(pump(reader, inner_writer, []), pump(inner_reader, writer, passed), return_exceptions=True)

    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", passed
