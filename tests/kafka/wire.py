"""A raw client and test handlers for the Kafka server."""

import asyncio
import itertools
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import ModuleType, SimpleNamespace
from typing import cast

from dray.clock import Clock, SystemClock
from dray.replica.domains import Domains
from dray.servers.kafka.admission.relief import Pressure
from dray.servers.kafka.codec import Message, decode, encode
from dray.servers.kafka.error_codes import ErrorCode, Family
from dray.servers.kafka.handler import Context, Endpoint, Services
from dray.servers.kafka.messages.heartbeat import SCHEMA as HEARTBEAT
from dray.servers.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from dray.servers.kafka.messages.produce import SCHEMA as PRODUCE
from dray.servers.kafka.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from dray.servers.kafka.messages.request_header import CODEC as REQUEST_HEADER
from dray.servers.kafka.messages.request_header import RequestHeader
from dray.servers.kafka.messages.response_header import CODEC as RESPONSE_HEADER
from dray.servers.kafka.server import KafkaServer, Listening
from dray.servers.kafka.settings import Limits
from dray.servers.kafka.support import APIS, Api, Matrix, Operation, Resource

__all__ = ["HEARTBEAT", "PRODUCE"]  # the schemas of the two test APIs

_names = itertools.count()
Handle = Callable[[Message, Context], Awaitable[Message | None]]
API_VERSIONS_ROW = next(api for api in APIS if api.key == 18)
NO_SERVICES = cast(Services, SimpleNamespace(domains=Domains({})))
"""Handlers of these tests use none."""


def api_row(key: int, name: str, versions: tuple[int, int], flexible: int, handle: Handle, refuse, **options) -> Api:
    module = ModuleType(f"kafka_test_api_{next(_names)}")
    module.ENDPOINT = Endpoint(handle=handle, refuse=refuse)
    sys.modules[module.__name__] = module
    fields = {
        "key": key,
        "name": name,
        "advertised": versions,
        "served": versions,
        "flexible": flexible,
        "access": ((Operation.READ, Resource.GROUP),),
        "family": Family.GROUP,
        "module": module.__name__,
        "note": "",
    }
    return Api(**{**fields, **options})


def heartbeat_api(handle: Handle, **options) -> Api:
    """A small API without records: the group id says what the handler should do."""

    def refuse(request: HeartbeatRequest, code: ErrorCode) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=code)

    return api_row(12, "Heartbeat", (0, 4), 4, handle, options.pop("refuse", refuse), **options)


def produce_api(handle: Handle, **options) -> Api:
    """A bulk API whose requests overlap."""

    def refuse(request: ProduceRequest, code: ErrorCode) -> ProduceResponse | None:
        return None if request.acks == 0 else ProduceResponse(throttle_time_ms=int(code) & 0xFF)

    defaults = {"bulk": True, "overlaps": True, "family": Family.DATA}
    return api_row(0, "Produce", (3, 12), 9, handle, options.pop("refuse", refuse), **{**defaults, **options})


def heartbeat(group: str = "g") -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group)


def produce(records: bytes = b"", acks: int = -1, timeout_ms: int = 0) -> ProduceRequest:
    partition = PartitionProduceData(records=records)
    return ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=[TopicProduceData(name="t", partition_data=[partition])]
    )


def request_bytes(
    schema, version: int, message: Message, correlation: int, client_id: str | None = "test", *, surplus: bytes = b""
) -> bytes:
    """A whole frame, with its length."""
    flexible = schema.flexible is not None and version >= schema.flexible
    header = RequestHeader(schema.key, version, correlation, client_id)
    body = b"".join(
        [*encode(REQUEST_HEADER.write[2 if flexible else 1], header), *encode(schema.request.write[version], message)]
    )
    return struct.pack(">i", len(body) + len(surplus)) + body + surplus


class Client:
    """One connection; requests and answers are matched by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(
        self, schema, version: int, message: Message, correlation: int = 0, client_id: str | None = "test"
    ) -> None:
        self.writer.write(request_bytes(schema, version, message, correlation, client_id))

    def send_heartbeat(self, group: str = "g", correlation: int = 0) -> None:
        self.send(HEARTBEAT, 4, heartbeat(group), correlation)

    async def frame(self) -> bytes:
        (length,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(length)

    async def answer(self, schema, version: int) -> tuple[int, Message]:
        """Correlation id and response."""
        frame = memoryview(await self.frame())
        flexible = schema.flexible is not None and version >= schema.flexible and schema.key != 18
        header, position, _ = decode(RESPONSE_HEADER.read[1 if flexible else 0], frame, 0)
        message, end, _ = decode(schema.response.read[version], frame, position)
        assert end == len(frame)
        return header.correlation_id, message

    async def ask(self, schema, version: int, message: Message, correlation: int = 0) -> Message:
        self.send(schema, version, message, correlation)
        got, response = await self.answer(schema, version)
        assert got == correlation
        return response

    async def closed(self) -> bool:
        """Wait for the end of the stream; False if bytes came instead."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.writer.close()


class Running:
    """A server under test."""

    def __init__(self, server: KafkaServer, port: int) -> None:
        self.server = server
        self.core = server.core
        self.port = port
        self._clients: list[Client] = []

    async def connect(self) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24))
        self._clients.append(client)
        return client

    def disconnect(self) -> None:
        for client in self._clients:
            client.close()


@asynccontextmanager
async def running(
    *rows: Api, limits: Limits | None = None, clock: Clock | None = None, pressure: Pressure | None = None
) -> AsyncIterator[Running]:
    matrix = Matrix([API_VERSIONS_ROW, *rows])
    server = KafkaServer(
        services=NO_SERVICES, clock=clock or SystemClock(), limits=limits, matrix=matrix, pressure=pressure
    )
    async with server:
        _, port = await server.listen(Listening(name="client", host="127.0.0.1", port=0))
        run = Running(server, port)
        try:
            yield run
        finally:
            run.disconnect()


async def eventually(condition: Callable[[], bool]) -> None:
    """Let the loop run until the condition holds; the test's own timeout is the limit."""
    while not condition():
        await asyncio.sleep(0.001)
