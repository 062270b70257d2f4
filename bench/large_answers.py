"""Answers about many partitions: Metadata of 1,000 topics with 10 partitions each, and a fetch of 1,000 partitions.

Asked on one connection, one request at a time, of Dray and of Apache Kafka in
turns. The fetches are whole ones, outside of a fetch session: what a client
sends first, and what each client of Dray sends always. A client of Kafka that
has a session leaves out of its next request what has not changed; the last
case asks Kafka so.
"""

import socket
import statistics
import struct
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # exported without saying so

from bench._brokers import BadRun, cpu_seconds, interleaved
from bench._targets import Running, Target, peer, running, subject
from bench._wire import produce_request, produce_response, record_batch
from bench.harness import Case, Report
from dray.servers.kafka.codec import Message, Schema, decode, encode
from dray.servers.kafka.messages import fetch, metadata
from dray.servers.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from dray.servers.kafka.messages.metadata import MetadataRequest
from dray.servers.kafka.messages.request_header import CODEC as REQUEST_HEADER
from dray.servers.kafka.messages.request_header import RequestHeader
from dray.servers.kafka.messages.response_header import CODEC as RESPONSE_HEADER

TOPICS: Final = 1_000
PARTITIONS: Final = 10
FETCHED_TOPICS: Final = 100
RUNS: Final = 3
REQUESTS: Final = 20
VERSION: Final = 12
_AT_ONCE: Final = 100
_LENGTH: Final = struct.Struct(">i")
_READY_S: Final = 300.0
_PREFIX: Final = "large-"
_NAMES: Final = [f"{_PREFIX}{number:04}" for number in range(TOPICS)]


def cases() -> list[Case]:
    def sides(run: Callable[[Target], Mapping[str, float]]) -> Mapping[str, Callable[[], Mapping[str, float]]]:
        return {"dray": lambda: run(subject()), "kafka": lambda: run(peer())}

    return [
        Report(
            f"metadata of {TOPICS:,} topics x {PARTITIONS} partitions",
            run=lambda: interleaved(RUNS, sides(_all_metadata)),
            note="all topics, version 12",
        ),
        Report(
            f"fetch of {FETCHED_TOPICS * PARTITIONS:,} partitions with a record each",
            run=lambda: interleaved(RUNS, sides(lambda target: _fetch(target, 0))),
            note="version 12, without a session",
        ),
        Report(
            f"fetch of {FETCHED_TOPICS * PARTITIONS:,} partitions without anything new",
            run=lambda: interleaved(RUNS, sides(lambda target: _fetch(target, 1))),
            note="version 12, without a session, no wait",
        ),
        Report(
            "the same fetch in a session of Kafka",
            run=lambda: interleaved(RUNS, {"kafka": lambda: _fetch_in_session(peer())}),
            note="the request names nothing, the answer is empty",
        ),
    ]


def _all_metadata(target: Target) -> Mapping[str, float]:
    request, broker = MetadataRequest(topics=None, allow_auto_topic_creation=False), _filled(target)
    end = time.monotonic() + _READY_S
    with _connected(broker) as connection:
        while (told := _partitions_in(_ask(connection, metadata.SCHEMA, request))) != TOPICS * PARTITIONS:
            if time.monotonic() > end:
                raise BadRun(f"{told} partitions are told")
            time.sleep(0.1)  # Kafka acknowledges topics before it tells of them
        return _timed(broker, connection, metadata.SCHEMA, lambda: request)


def _partitions_in(answer: Message) -> int:
    assert isinstance(answer, metadata.MetadataResponse)
    topics = [topic for topic in answer.topics if isinstance(topic, metadata.MetadataResponseTopic)]
    return sum(len(topic.partitions) for topic in topics if (topic.name or "").startswith(_PREFIX))


def _fetch(target: Target, offset: int) -> Mapping[str, float]:
    broker, request = _filled(target), _fetch_request(offset)
    with _connected(broker) as connection:
        _check_fetch(_ask(connection, fetch.SCHEMA, request), offset)
        return _timed(broker, connection, fetch.SCHEMA, lambda: request)


def _check_fetch(answer: Message, offset: int) -> None:
    assert isinstance(answer, fetch.FetchResponse)
    parts = [part for topic in answer.responses for part in topic.partitions]
    holding = sum(any(map(len, part.records or ())) for part in parts)
    wanted = FETCHED_TOPICS * PARTITIONS
    if len(parts) != wanted or any(part.error_code for part in parts) or holding != (0 if offset else wanted):
        raise BadRun(f"{len(parts)} partitions, {holding} with records")


def _fetch_in_session(target: Target) -> Mapping[str, float]:
    broker = _filled(target)
    with _connected(broker) as connection:
        first = _ask(connection, fetch.SCHEMA, _fetch_request(1, session_epoch=0))
        assert isinstance(first, fetch.FetchResponse)
        session, epoch = first.session_id, 0
        if not session:
            raise BadRun("there is no session")

        def following() -> FetchRequest:
            nonlocal epoch
            epoch += 1
            return FetchRequest(max_wait_ms=0, min_bytes=0, session_id=session, session_epoch=epoch)

        return _timed(broker, connection, fetch.SCHEMA, following)


def _fetch_request(offset: int, session_epoch: int = -1) -> FetchRequest:
    parts = [FetchPartition(partition=n, fetch_offset=offset, partition_max_bytes=1 << 20) for n in range(PARTITIONS)]
    topics = [FetchTopic(topic=name, partitions=parts) for name in _NAMES[:FETCHED_TOPICS]]
    return FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 26, session_epoch=session_epoch, topics=topics)


def _timed(
    broker: Running, connection: socket.socket, schema: Schema[Message, Message], request: Callable[[], Message]
) -> Mapping[str, float]:
    frames = [_frame(schema, request()) for _ in range(REQUESTS)]
    spent_s, took_ms, size = cpu_seconds(broker.pid), [], 0
    for frame in frames:
        begun = time.perf_counter()
        connection.sendall(frame)
        size = len(_answer(connection))
        took_ms.append((time.perf_counter() - begun) * 1000)
    spent_s = cpu_seconds(broker.pid) - spent_s
    return {
        "ms": statistics.median(took_ms),
        "broker CPU ms": spent_s / REQUESTS * 1000,
        "answer bytes": float(size),
        "request bytes": float(len(frames[0])),
    }


@cache
def _filled(target: Target) -> Running:
    """The broker with its topics, and a record in each partition that is fetched."""
    broker = running(target)
    admin = AdminClient({"bootstrap.servers": broker.address})
    for first in range(0, TOPICS, _AT_ONCE):
        for made in admin.create_topics(
            [NewTopic(name, PARTITIONS, 1) for name in _NAMES[first : first + _AT_ONCE]], request_timeout=_READY_S
        ).values():
            made.result(_READY_S)
    batch = record_batch([b"x" * 100], int(time.time() * 1000))
    with _connected(broker) as connection:
        for name in _NAMES[:FETCHED_TOPICS]:
            _produce(connection, name, batch)
    return broker


def _produce(connection: socket.socket, topic: str, batch: bytes) -> None:
    """A record into each partition: Kafka acknowledges a topic before its last partition has a leader."""
    end, left = time.monotonic() + _READY_S, list(range(PARTITIONS))
    while left:
        connection.sendall(produce_request(topic, [(number, batch) for number in left]))
        left = [one.partition for one in produce_response(_answer(connection)) if one.error]
        if time.monotonic() > end:
            raise BadRun(f"{len(left)} partitions of {topic} took no record")
        time.sleep(0.1 if left else 0)


def _connected(broker: Running) -> socket.socket:
    host, port = broker.address.split(",")[0].rsplit(":", 1)
    connection = socket.create_connection((host, int(port)), timeout=_READY_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _ask(connection: socket.socket, schema: Schema[Message, Message], request: Message) -> Message:
    connection.sendall(_frame(schema, request))
    answer = memoryview(_answer(connection))
    _, at, _ = decode(RESPONSE_HEADER.read[1], answer, 0)
    message, _, _ = decode(schema.response.read[VERSION], answer, at)
    return message


def _frame(schema: Schema[Message, Message], request: Message) -> bytes:
    header = encode(REQUEST_HEADER.write[2], RequestHeader(schema.key, VERSION, 7, "bench"))
    body = b"".join([*header, *encode(schema.request.write[VERSION], request)])
    return _LENGTH.pack(len(body)) + body


def _answer(connection: socket.socket) -> bytes:
    return _exactly(connection, _LENGTH.unpack(_exactly(connection, 4))[0])


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = bytearray(count)
    view, got = memoryview(data), 0
    while got < count:
        read = connection.recv_into(view[got:])
        if not read:
            raise BadRun("the broker closed the connection")
        got += read
    return bytes(data)
