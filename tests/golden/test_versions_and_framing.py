"""What a connection may send and what it is told, byte by byte."""

import asyncio
import struct

import pytest

from dray.servers.kafka.messages.api_versions import ApiVersionsRequest
from dray.servers.kafka.messages.heartbeat import HeartbeatRequest
from dray.servers.kafka.messages.metadata import MetadataRequest
from tests.golden.asking import (
    API_VERSIONS,
    FETCH,
    METADATA,
    PRODUCE,
    Asker,
    batch,
    fetch_request,
    produce_request,
    schema,
)
from tests.kafka.wire import request_bytes

HELLO = ApiVersionsRequest(client_software_name="golden", client_software_version="1.0")


async def raw(ask: Asker, frame: bytes) -> bytes:
    ask.writer.write(frame)
    async with asyncio.timeout(10):
        return await ask.frame()


@pytest.mark.parametrize("version", range(5))
async def test_versions_are_told_in_the_form_of_each_version(ask: Asker, version: int) -> None:
    """R-076, R-078: header v0 in every version; the throttle time from version 1 on."""
    frame = await raw(ask, request_bytes(schema(API_VERSIONS), version, HELLO, 77))
    correlation, error = struct.unpack_from(">ih", frame)
    assert (correlation, error) == (77, 0)
    if version < 3:
        [count] = struct.unpack_from(">i", frame, 6)
        assert len(frame) == 10 + 6 * count + (4 if version else 0)


async def test_a_version_from_the_future_is_answered_in_the_oldest_form(ask: Asker) -> None:
    """R-082: error 35, our own range, and the connection goes on."""
    frame = await raw(ask, struct.pack(">ihhih", 11, API_VERSIONS, 99, 5, -1) + b"\0")
    assert struct.unpack(">ihihhh", frame) == (5, 35, 1, API_VERSIONS, 0, 4)
    assert (await ask.call(API_VERSIONS, 3, HELLO)).error_code == 0


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("a b", "1"), ("a", ""), ("-a", "1"), ("a", "1\n")])
async def test_software_names_that_are_none_are_refused(ask: Asker, name: str, version: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    assert (await ask.call(API_VERSIONS, 3, request)).error_code == 42


async def test_what_is_advertised_is_what_clients_need_and_no_more(ask: Asker) -> None:
    """R-078: no transactions, no telemetry, no share groups; Produce from 0 as Kafka has it."""
    answer = await ask.call(API_VERSIONS, 3, HELLO)
    keys = [one.api_key for one in answer.api_keys]
    assert keys == sorted(set(keys))
    assert not set(keys) & ({*range(24, 29), 65, 66, 71, 72} | set(range(76, 100)))
    assert next(one.min_version for one in answer.api_keys if one.api_key == PRODUCE) == 0
    assert {PRODUCE, FETCH, 2, METADATA, 8, 9, 10, API_VERSIONS, 19, 20, 22} <= set(keys)
    assert not [one for one in answer.supported_features if one.min_version == 0]


async def test_answers_come_in_the_order_of_the_requests_whatever_they_cost(ask: Asker, name: str) -> None:
    """R-077: a fetch that waits, then produce, metadata and versions, a hundred in all."""
    await ask.create(name)
    slow = fetch_request([(name, 0, 0)], max_wait_ms=200, min_bytes=1 << 20)
    kinds = [
        (FETCH, 12, slow),
        (PRODUCE, 9, produce_request(name, {0: batch(b"x" * 5000)})),
        (METADATA, 9, MetadataRequest(topics=None)),
        (API_VERSIONS, 3, HELLO),
        (PRODUCE, 9, produce_request(name, {0: batch()})),
    ]
    sent = [kinds[0], *(kinds[1 + n % 4] for n in range(99))]
    for correlation, (key, version, message) in enumerate(sent):
        ask.send(schema(key), version, message, correlation)
    async with asyncio.timeout(30):
        for correlation, (key, version, _) in enumerate(sent):
            got, _ = await ask.answer(schema(key), version)
            assert got == correlation


@pytest.mark.parametrize("length", [-1, -(1 << 31), 0, 9, 100 * 1024 * 1024 + 1, (1 << 31) - 1])
async def test_a_length_that_cannot_be_closes_this_connection_only(ask: Asker, dray, length: int) -> None:
    """R-075."""
    async with Asker(dray.bootstrap) as liar, asyncio.timeout(10):
        liar.writer.write(struct.pack(">ihhih", length, PRODUCE, 9, 1, -1))
        assert await liar.closed()
    assert (await ask.call(API_VERSIONS, 3, HELLO)).error_code == 0


@pytest.mark.parametrize(("key", "version"), [(999, 0), (-1, 0), (12, 4), (PRODUCE, 2), (PRODUCE, 13), (FETCH, 17)])
async def test_a_request_that_is_not_advertised_closes_the_connection(ask: Asker, key: int, version: int) -> None:
    """R-082. 12 is Heartbeat: a message that the codec knows and no handler serves."""
    frame = request_bytes(schema(12), 0, HeartbeatRequest(group_id="g"), 1)
    ask.writer.write(frame[:4] + struct.pack(">hh", key, version) + frame[8:])
    async with asyncio.timeout(10):
        assert await ask.closed()


async def test_unknown_tagged_fields_surplus_bytes_and_no_client_id_are_taken(ask: Asker) -> None:
    """R-074, R-076: tags in the header and in the body are skipped; bytes after the body are ignored."""
    tagged = b"\x01\x63\x03abc"
    header = struct.pack(">hhih", API_VERSIONS, 3, 9, -1) + tagged
    body = b"\x02a" + b"\x021" + tagged + b"surplus"
    frame = await raw(ask, struct.pack(">i", len(header + body)) + header + body)
    assert struct.unpack_from(">ih", frame) == (9, 0)
