"""What the codec does with bytes that are wrong, cut, hostile or newer than we are."""

import os
import random
import struct
import tracemalloc

import pytest

from dray.servers.kafka.codec import (
    ELEMENTS,
    TAG_BYTES,
    TAGS,
    Malformed,
    Unwritable,
    decode,
    encode,
    get_uvarint,
    put_uvarint,
)
from dray.servers.kafka.messages.fetch import SCHEMA as FETCH
from dray.servers.kafka.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from dray.servers.kafka.messages.index import MODULES
from dray.servers.kafka.messages.metadata import SCHEMA as METADATA
from dray.servers.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from dray.servers.kafka.messages.produce import SCHEMA as PRODUCE
from dray.servers.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dray.servers.kafka.messages.request_header import CODEC as HEADER
from dray.servers.kafka.messages.request_header import RequestHeader
from tests.kafka.oracle import cases, kio_encode, random_message

SEED = int(os.environ.get("DRAY_TEST_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
CASES = list(cases())
HOSTILE = (
    b"\xff\xff\xff\xfe",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x7f",
    b"\x80\0",
    b"\xff\xfe",
)


def mutate(raw: bytes, dice: random.Random) -> bytes:
    """Cut the bytes, flip some, or write a hostile length over some."""
    out = bytearray(raw)
    for _ in range(dice.choice((1, 1, 2, 4))):
        at = dice.randrange(len(out) + 1)
        match dice.randrange(5):
            case 0:
                del out[at:]
            case 1 if out:
                out[at % len(out)] ^= 1 << dice.randrange(8)
            case 2:
                value = dice.choice(HOSTILE)
                out[at : at + len(value)] = value
            case 3:
                out[at:at] = dice.randbytes(dice.randrange(1, 9))
            case 4:
                del out[at : at + dice.randrange(1, 9)]
    return bytes(out)


def fuzz(rounds: int) -> int:
    print("seed", SEED)
    dice = random.Random(SEED)
    refused = 0
    pool = [(case, kio_encode(random_message(case.kio_type, dice))) for case in CASES for _ in range(3)]
    for _ in range(rounds):
        case, raw = dice.choice(pool)
        mutant = mutate(raw, dice)
        try:
            decode(case.codec.read[case.version], memoryview(mutant), 0)
        except Malformed:
            refused += 1
    return refused


@pytest.mark.slow
def test_mutated_frames_are_read_or_refused_as_malformed() -> None:
    """R-075, KP2: 20,000 mutants over all message versions; any other exception fails the test."""
    assert fuzz(20_000) > 5_000


@pytest.mark.slow
def test_many_mutated_frames_need_little_memory() -> None:
    """R-075, KP1, KP2: 100,000 mutants; no step allocates for a number that a peer declared."""
    tracemalloc.start()
    try:
        assert fuzz(100_000) > 25_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024 * 1024


@pytest.mark.parametrize("module", sorted({case.module for case in CASES}))
def test_a_request_cut_at_any_byte_is_malformed(module: str) -> None:
    """R-075, KP2: every cut, not a sample."""
    print("seed", SEED)
    for case in (case for case in CASES if case.module == module and case.role != "response"):
        dice = random.Random(f"{SEED}/{case}")
        raw = kio_encode(random_message(case.kio_type, dice))[:1_500]
        read = case.codec.read[case.version]
        try:
            _, whole, _ = decode(read, memoryview(raw), 0)
        except Malformed:
            whole = len(raw)
        for end in range(whole):
            with pytest.raises(Malformed):
                decode(read, memoryview(raw)[:end], 0)


@pytest.mark.parametrize("length", [-2, -(1 << 31), (1 << 31) - 1, 1000])
def test_a_lying_length_or_count_allocates_nothing(length: int) -> None:
    """R-075, KP1."""
    topics = struct.pack(">i", length)
    name = struct.pack(">ih", 1, max(-(1 << 15), min(length, (1 << 15) - 1)))
    tracemalloc.start()
    try:
        for raw in (topics, topics + b"\0" * 8, name):
            with pytest.raises(Malformed, match="beyond the end of the frame"):
                decode(METADATA.request.read[1], memoryview(raw), 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_elements_are_counted_over_all_arrays_of_a_message() -> None:
    """KP1: 100 MiB of two-byte elements would be gigabytes of objects."""
    many = MetadataRequest(topics=[MetadataRequestTopic(name="")] * ELEMENTS)
    raw = b"".join(encode(METADATA.request.write[1], many))
    _, _, elements = decode(METADATA.request.read[1], memoryview(raw), 0)
    assert elements == ELEMENTS

    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData()] * (ELEMENTS // 2))
    split = ProduceRequest(topic_data=[topic, topic])  # the topics themselves count too
    raw = b"".join(encode(PRODUCE.request.write[9], split))
    with pytest.raises(Malformed, match="too many array elements"):
        decode(PRODUCE.request.read[9], memoryview(raw), 0)


def test_bytes_after_the_body_are_left_alone() -> None:
    """R-074: librdkafka sends three surplus bytes behind Metadata v13."""
    raw = b"".join(encode(METADATA.request.write[13], MetadataRequest(topics=None)))
    message, end, _ = decode(METADATA.request.read[13], memoryview(raw + b"\0\0\0"), 0)
    assert message.topics is None
    assert end == len(raw)


def test_unknown_tagged_fields_are_skipped_in_header_and_body() -> None:
    """R-074, KP3."""
    unknown = b"\x02\x07\x03abc\xc8\x01\x00"  # tag 7 with three bytes, tag 200 with none
    header = struct.pack(">hhih", 3, 13, 77, -1) + unknown
    message, end, _ = decode(HEADER.read[2], memoryview(header), 0)
    assert message == RequestHeader(request_api_key=3, request_api_version=13, correlation_id=77, client_id=None)
    assert end == len(header)

    body = b"\x02" + bytes(16) + b"\x02t" + unknown + b"\x01\x00" + unknown
    request, end, _ = decode(METADATA.request.read[13], memoryview(body), 0)
    assert request == MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    assert end == len(body)


def test_unknown_tags_stand_beside_known_ones() -> None:
    """R-074: tags 0 and 1 of Fetch v15 are known, 9 is not."""
    plain = b"".join(encode(FETCH.request.write[15], FetchRequest()))
    assert plain.endswith(b"\0")
    tagged = b"\x03" + b"\0\x02\x02x" + b"\x01\x0d" + struct.pack(">iq", 5, 6) + b"\0" + b"\x09\x01z"
    message, _, _ = decode(FETCH.request.read[15], memoryview(plain[:-1] + tagged), 0)
    assert message.replica_state.replica_id == 5
    assert message.cluster_id == "x"


@pytest.mark.parametrize(
    "section",
    [
        put_uvarint(TAGS + 1) + b"\x07\0" * (TAGS + 1),
        b"\x01\x07" + put_uvarint(TAG_BYTES + 1) + bytes(TAG_BYTES + 1),
        b"\x01\x07\xff\xff\xff\xff\x0f",
    ],
    ids=["count", "size", "beyond the frame"],
)
def test_tagged_sections_are_bounded(section: bytes) -> None:
    """R-075, KP3."""
    header = struct.pack(">hhih", 3, 13, 77, -1) + section
    with pytest.raises(Malformed):
        decode(HEADER.read[2], memoryview(header), 0)


def test_a_known_tag_must_have_its_declared_size() -> None:
    plain = b"".join(encode(FETCH.request.write[15], FetchRequest()))
    wrong = b"\x01\x01\x0e" + struct.pack(">iq", 5, 6) + b"\0\0"
    with pytest.raises(Malformed, match="declared size"):
        decode(FETCH.request.read[15], memoryview(plain[:-1] + wrong), 0)


def test_fields_that_a_version_lacks_get_their_defaults() -> None:
    """R-074."""
    message, _, _ = decode(METADATA.request.read[0], memoryview(b"\0\0\0\0"), 0)
    assert message.allow_auto_topic_creation is True
    fetch, _, _ = decode(FETCH.request.read[4], memoryview(bytes(4 * 4 + 1 + 4)), 0)
    assert (fetch.session_epoch, fetch.rack_id, fetch.max_bytes) == (-1, "", 0)
    assert FetchRequest().max_bytes == 0x7FFFFFFF


def test_null_is_refused_where_a_version_has_none() -> None:
    with pytest.raises(Malformed, match="null"):
        decode(METADATA.request.read[0], memoryview(b"\xff\xff\xff\xff"), 0)
    with pytest.raises(Unwritable):
        encode(METADATA.request.write[0], MetadataRequest(topics=None))
    with pytest.raises(Unwritable):
        encode(METADATA.request.write[9], MetadataRequest(topics=[MetadataRequestTopic(name=None)]))


def test_a_string_that_is_not_utf8_is_malformed() -> None:
    with pytest.raises(Malformed, match="UTF-8"):
        decode(METADATA.request.read[1], memoryview(b"\0\0\0\x01\0\x02\xc3\x28"), 0)


def test_produced_records_are_views_of_the_frame() -> None:
    """KP4: no byte of a record is copied on the way in."""
    batch = bytes(range(256)) * 4
    request = ProduceRequest(
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(records=batch)])]
    )
    frame = bytearray(b"".join(encode(PRODUCE.request.write[12], request)))
    message, _, _ = decode(PRODUCE.request.read[12], memoryview(frame), 0)
    records = message.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame
    assert records == batch


def test_fetched_records_go_out_as_the_parts_they_came_in() -> None:
    """KP4, R-119: the response's parts are the very objects the handler gave, in order, with nothing between."""
    base, rest = b"\0" * 8, memoryview(bytearray(500))
    partition = PartitionData(partition_index=3, high_watermark=9, records=[base, rest])
    topic = FetchableTopicResponse(topic="t", topic_id=bytes(range(16)), partitions=[partition, PartitionData()])
    for version in FETCH.response.write:
        parts = encode(FETCH.response.write[version], FetchResponse(responses=[topic]))
        assert [type(part) for part in parts] == [bytes, bytes, memoryview, bytes]
        assert parts[1] is base
        assert parts[2] is rest
        message, _, _ = decode(FETCH.response.read[version], memoryview(b"".join(parts)), 0)
        assert b"".join(message.responses[0].partitions[0].records or ()) == b"".join((base, rest))
        assert b"".join(message.responses[0].partitions[1].records or ()) == b""


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16383, 16384, 2**31 - 1, 2**32 - 1])
def test_varints_round_trip(value: int) -> None:
    raw = put_uvarint(value)
    assert get_uvarint(memoryview(raw + b"\xff"), 0) == (value, len(raw))


def test_a_varint_ends_after_five_bytes() -> None:
    with pytest.raises(Malformed):
        get_uvarint(memoryview(b"\xff" * 9), 0)


def test_the_index_names_the_messages_of_every_api_we_speak_or_will() -> None:
    assert set(MODULES) == {
        *(0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 29, 30, 31, 32, 33),
        *(35, 36, 37, 42, 44, 47, 60, 61, 68, 69, 75),
    }
