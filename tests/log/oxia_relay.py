"""A relay that speaks gRPC, between a client and Oxia: it loses an answer, or what followers are told, when told to."""

import grpc
import grpc.aio

from dray.log.oxia import oxia_pb2 as pb

UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class OxiaRelay(grpc.GenericRpcHandler):
    """Clients come to it for everything: it says of itself that it leads."""

    def __init__(self, target: str) -> None:
        self.lose_next_answer = False
        self.deaf = False
        self.advertised = ""
        self.scans = 0
        self._channel = grpc.aio.insecure_channel(target, options=UNLIMITED)
        self._server = grpc.aio.server(options=UNLIMITED)
        self._server.add_generic_rpc_handlers([self])

    async def listen(self) -> int:
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        return port

    async def close(self) -> None:
        await self._server.stop(None)
        await self._channel.close()

    def service(self, handler_call_details):
        method = handler_call_details.method
        if not method.endswith("/Write"):
            return grpc.unary_stream_rpc_method_handler(self._stream_of(method))

        async def call(request: bytes, context) -> bytes:
            try:
                answer = await self._channel.unary_unary(method)(request, timeout=60)
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), error.details())
            if self.lose_next_answer:
                self.lose_next_answer = False
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the answer was lost on its way")
            return answer

        return grpc.unary_unary_rpc_method_handler(call)

    def _stream_of(self, method: str):
        async def stream(request: bytes, context):
            self.scans += method.endswith("/RangeScan")
            there = self._channel.unary_stream(method)(request)
            try:
                async for answer in there:
                    if method.endswith("/GetShardAssignments"):
                        yield self._led_by_us(answer)
                    elif not (self.deaf and method.endswith("/GetSequenceUpdates")):
                        yield answer
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), error.details())
            finally:
                there.cancel()

        return stream

    def _led_by_us(self, answer: bytes) -> bytes:
        found = pb.Assignments.FromString(answer)
        for namespace in found.namespaces.values():
            for shard in namespace.shards:
                shard.leader = shard.leader and self.advertised
        return found.SerializeToString()
