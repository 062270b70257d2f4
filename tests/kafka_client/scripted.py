"""A Kafka broker that says what a test tells it to, in the versions that a test wants; a thread of its own."""

import asyncio
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module

from dray.servers.kafka.codec import Message, Schema, decode, encode
from dray.servers.kafka.messages.api_versions import ApiVersion, ApiVersionsResponse
from dray.servers.kafka.messages.find_coordinator import FindCoordinatorResponse
from dray.servers.kafka.messages.index import MODULES
from dray.servers.kafka.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from dray.servers.kafka.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from dray.servers.kafka.messages.request_header import CODEC as REQUEST_HEADER
from dray.servers.kafka.messages.response_header import CODEC as RESPONSE_HEADER
from dray.servers.kafka.messages.response_header import ResponseHeader

LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 2, 3, 8, 9, 10
DESCRIBE_GROUPS, LIST_GROUPS, API_VERSIONS, DELETE_GROUPS, CONSUMER_GROUP_DESCRIBE = 15, 16, 18, 42, 69

Say = Callable[[Message], Message | None]
"""None: the connection is closed instead."""


def schema(key: int) -> Schema:
    return import_module(f"dray.servers.kafka.messages.{MODULES[key]}").SCHEMA


@dataclass
class Scripted:
    """Topics with their first and next offsets, and what is said to each API of groups."""

    says: Mapping[int, Say]
    topics: Mapping[str, list[tuple[int, int]]] = field(default_factory=dict)
    versions: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    asked: list[tuple[int, int, Message]] = field(default_factory=list)
    """(API, version, request)"""
    port: int = 0

    def __enter__(self) -> "Scripted":
        ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._serving: set[asyncio.Task[None]] = set()

        async def serve() -> None:
            server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
            self._stop = asyncio.Event()
            ready.set()
            async with server:
                await self._stop.wait()
            serving = list(self._serving)
            for task in serving:
                task.cancel()
            await asyncio.gather(*serving, return_exceptions=True)

        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(serve(),))
        self._thread.start()
        assert ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            while True:
                (length,) = struct.unpack(">i", await reader.readexactly(4))
                answer = self._answer(memoryview(await reader.readexactly(length)))
                if answer is None:
                    break
                writer.write(struct.pack(">i", len(answer)) + answer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            self._serving.discard(task)

    def _answer(self, frame: memoryview) -> bytes | None:
        key, version = struct.unpack_from(">hh", frame)
        api = schema(key)
        flexible = api.flexible is not None and version >= api.flexible
        header, at, _ = decode(REQUEST_HEADER.read[2 if flexible else 1], frame, 0)
        request, _, _ = decode(api.request.read[version], frame, at)
        self.asked.append((key, version, request))
        response = self._say(key, request)
        if response is None:
            return None
        form = 1 if flexible and key != API_VERSIONS else 0
        head = encode(RESPONSE_HEADER.write[form], ResponseHeader(header.correlation_id))
        return b"".join([*head, *encode(api.response.write[version], response)])

    def _say(self, key: int, request: Message) -> Message | None:
        if key in self.says:
            return self.says[key](request)
        match key:
            case 18:
                keys = {*self.says, LIST_OFFSETS, METADATA, FIND_COORDINATOR}
                rows = [(one, *self.versions.get(one, (schema(one).first, schema(one).last))) for one in sorted(keys)]
                return ApiVersionsResponse(api_keys=[ApiVersion(*row) for row in rows])
            case 10:
                return FindCoordinatorResponse(host="127.0.0.1", port=self.port)
            case 3:
                return self._metadata(
                    [*self.topics] if request.topics is None else [one.name for one in request.topics]
                )
            case 2:
                return self._offsets(request)
        return None

    def _metadata(self, names: list[str]) -> MetadataResponse:
        topics = [
            MetadataResponseTopic(
                name=name,
                error_code=0 if name in self.topics else 3,
                partitions=[
                    MetadataResponsePartition(partition_index=number, leader_id=1)
                    for number in range(len(self.topics.get(name, ())))
                ],
            )
            for name in names
        ]
        broker = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)
        return MetadataResponse(brokers=[broker], topics=topics)

    def _offsets(self, request: Message) -> ListOffsetsResponse:
        """EARLIEST, LATEST, or a time that is an offset here: a record each millisecond from 0 on."""
        topics = []
        for topic in request.topics:
            rows = []
            for one in topic.partitions:
                start, end = self.topics[topic.name][one.partition_index]
                at = one.timestamp
                offset = {-2: start, -1: end}.get(at, max(at, start) if at < end else -1)
                rows.append(ListOffsetsPartitionResponse(partition_index=one.partition_index, offset=offset))
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=rows))
        return ListOffsetsResponse(topics=topics)
