"""A relay that speaks gRPC, between a client and etcd: it loses an answer, or events of a watch, when told to."""

import asyncio

import grpc
import grpc.aio

from dray.log.etcd import etcd_pb2 as pb


class EtcdRelay(grpc.GenericRpcHandler):
    def __init__(self, target: str) -> None:
        self.lose_next_answer = False
        self.deaf = False
        self.asked: list[tuple[str, bytes]] = []
        """Methods and requests of all calls but watches."""
        self.dropped = asyncio.Event()
        self._channel = grpc.aio.insecure_channel(target, options=[("grpc.max_receive_message_length", -1)])
        self._server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
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
        if method.endswith("/Watch"):
            return grpc.stream_stream_rpc_method_handler(self._watch)

        async def call(request: bytes, context) -> bytes:
            self.asked.append((method.rpartition("/")[2], request))
            try:
                answer = await self._channel.unary_unary(method)(request, metadata=_own(context), timeout=60)
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), error.details())
            if self.lose_next_answer:
                self.lose_next_answer = False
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the answer was lost on its way")
            return answer

        return grpc.unary_unary_rpc_method_handler(call)

    async def _watch(self, requests, context):
        there = self._channel.stream_stream("/etcdserverpb.Watch/Watch")(metadata=_own(context))
        try:
            await there.write(await anext(requests))
            while (answer := await there.read()) is not grpc.aio.EOF:
                if self.deaf and pb.WatchResponse.FromString(answer).events:
                    self.dropped.set()
                    continue
                yield answer
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details())
        finally:
            there.cancel()


def _own(context) -> list[tuple[str, str]]:
    return [(key, value) for key, value in context.invocation_metadata() if key in ("hasleader", "token")]
