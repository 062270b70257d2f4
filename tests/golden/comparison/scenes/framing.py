"""ApiVersions, and frames that are none."""

import struct

from dray.servers.kafka.messages.api_versions import ApiVersionsRequest
from dray.servers.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from dray.servers.kafka.messages.metadata import MetadataRequest
from tests.golden.asking import API_VERSIONS, LIST_OFFSETS, METADATA, PRODUCE, schema
from tests.golden.comparison.talking import Talk, produce_request
from tests.kafka.wire import request_bytes


async def api_versions(talk: Talk) -> None:
    for version in range(5):
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0-x")
        await talk.ask(f"version {version}", API_VERSIONS, version, request)
    for name, software in (("", ""), ("-a", "1"), ("a b", "1"), ("a", "1-")):
        request = ApiVersionsRequest(client_software_name=name, client_software_version=software)
        await talk.ask(f"a client called {name!r} {software!r}", API_VERSIONS, 3, request)


async def api_versions_too_new(talk: Talk) -> None:
    frame = await talk.ask_raw("version 99", struct.pack(">ihhih", 11, API_VERSIONS, 99, 5, -1) + b"\0")
    assert frame is not None
    talk.keep("its error code", {"error_code": struct.unpack_from(">h", frame, 4)[0]}, API_VERSIONS)
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    answer = await talk.call(API_VERSIONS, 3, request)
    talk.keep("the next request", {"error_code": answer.error_code if answer else None}, API_VERSIONS)


async def frames_that_are_none(talk: Talk) -> None:
    await talk.ask_raw("an unknown key", struct.pack(">ihhih", 10, 999, 0, 1, -1))
    await talk.ask_raw("a negative length", struct.pack(">i", -1) + b"xxxx")
    await talk.ask_raw("a length of 2 GiB", struct.pack(">ihhi", 2**31 - 1, 0, 9, 1))
    await talk.ask_raw("a body that is cut short", struct.pack(">ihhih", 10, METADATA, 9, 1, -1))
    await talk.ask_raw("Metadata in version 99", struct.pack(">ihhih", 10, METADATA, 99, 1, -1))
    await talk.ask_raw("lengths of 0", struct.pack(">iii", 0, 0, 0))
    surplus = request_bytes(schema(METADATA), 9, MetadataRequest(topics=[]), 1, surplus=b"\0\0\0")
    await talk.ask_raw("bytes behind the body", surplus)


async def requests_in_a_row(talk: Talk) -> None:
    topic = await talk.topic()
    asker = await talk.connected()
    for number in range(6):
        asker.send(schema(PRODUCE), 9, produce_request((topic, [(0, talk.batch())])), number)
    ends = [ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])]
    asker.send(schema(LIST_OFFSETS), 6, ListOffsetsRequest(topics=ends), 6)
    seen = []
    for _ in range(6):
        number, answer = await asker.answer(schema(PRODUCE), 9)
        seen.append((number, answer.responses[0].partition_responses[0].base_offset))
    number, answer = await asker.answer(schema(LIST_OFFSETS), 6)
    told = {"produced": str(seen), "end": answer.topics[0].partitions[0].offset}
    talk.keep("six Produce and a ListOffsets", told, PRODUCE)


SCENES = (api_versions, api_versions_too_new, frames_that_are_none, requests_in_a_row)
