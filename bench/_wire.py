"""Kafka frames for load: requests built once, answers read as little as a check needs.

Produce v9 and Fetch v12 are the oldest flexible versions: topics go by name,
so a frame depends on nothing that the broker says. A request's correlation id
is the same every time, because a broker answers a connection in order.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import crc32c

CORRELATION: Final = 7
PRODUCE: Final = 0
FETCH: Final = 1
OFFSET_COMMIT: Final = 8
API_VERSIONS: Final = 18

_BATCH: Final = struct.Struct(">qiibIhiqqqhii")
BATCH_HEADER_BYTES: Final = _BATCH.size
assert BATCH_HEADER_BYTES == 61, "the header size is part of the format"
_CRC_FROM: Final = 21
_PRODUCED: Final = struct.Struct(">ihq")
_COMMITTED: Final = struct.Struct(">ih")
_FETCHED: Final = struct.Struct(">ihqqq")
_FETCH_HEAD: Final = struct.Struct(">iBihi")


class Refused(RuntimeError):
    """The broker answered with an error, or with something that is no answer to the request."""


def record_batch(values: Sequence[bytes], timestamp_ms: int) -> bytes:
    """An uncompressed batch without a producer id."""
    records = b"".join(_record(delta, value) for delta, value in enumerate(values))
    last = len(values) - 1
    after_crc = struct.pack(">hiqqqhii", 0, last, timestamp_ms, timestamp_ms, -1, -1, -1, len(values)) + records
    head = struct.pack(">qiibI", 0, len(after_crc) + 9, -1, 2, crc32c.crc32c(after_crc))
    return head + after_crc


def produce_request(topic: str, batches: Iterable[tuple[int, bytes]], acks: int = -1) -> bytes:
    """A Produce v9 frame with one batch per partition."""
    partitions = [
        struct.pack(">i", partition) + uvarint(len(batch) + 1) + batch + b"\0" for partition, batch in batches
    ]
    data = b"\x02" + _name(topic) + uvarint(len(partitions) + 1) + b"".join(partitions) + b"\0"
    return _frame(PRODUCE, 9, b"\0" + struct.pack(">hi", acks, 30_000) + data + b"\0")


def fetch_request(topic: str, partition: int, offset: int, max_bytes: int, max_wait_ms: int = 500) -> bytes:
    """A Fetch v12 frame for one partition, outside of any fetch session."""
    where = struct.pack(">iiqiqi", partition, -1, offset, -1, -1, max_bytes) + b"\0"
    head = struct.pack(">iiiibii", -1, max_wait_ms, 1, max_bytes, 0, 0, -1)
    return _frame(FETCH, 12, head + b"\x02" + _name(topic) + b"\x02" + where + b"\0" + b"\x01" + b"\x01" + b"\0")


def commit_request(group: str, topic: str, partition: int, offset: int) -> bytes:
    """An OffsetCommit v8 frame for one partition of a group without members."""
    where = struct.pack(">iqi", partition, offset, -1) + b"\x01" + b"\0"
    head = _name(group) + struct.pack(">i", -1) + b"\x01" + b"\0"
    return _frame(OFFSET_COMMIT, 8, head + b"\x02" + _name(topic) + b"\x02" + where + b"\0" + b"\0")


def commit_response(frame: bytes | memoryview) -> int:
    """The error of the only partition of an OffsetCommit v8 answer, without the length in front."""
    at = _expect_one_topic(frame, 9)
    _, at = _read_uvarint(frame, at)
    return int(_COMMITTED.unpack_from(frame, at)[1])


def api_versions_request() -> bytes:
    """An ApiVersions v0 frame: what every client sends first."""
    return _framed(struct.pack(">hhih", API_VERSIONS, 0, CORRELATION, -1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    """The answer for one partition of a Produce."""

    partition: int
    error: int
    base_offset: int


def produce_response(frame: bytes | memoryview) -> list[Produced]:
    """The partitions of a Produce v9 answer, without the length in front."""
    at = _expect_one_topic(frame, 5)
    count, at = _read_uvarint(frame, at)
    produced = []
    for _ in range(count - 1):
        partition, error, base_offset = _PRODUCED.unpack_from(frame, at)
        produced.append(Produced(partition=partition, error=error, base_offset=base_offset))
        at = _skip_record_errors(frame, at + _PRODUCED.size + 16)
    return produced


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The answer for the one partition of a Fetch."""

    error: int
    high_watermark: int
    records: memoryview


def fetch_response(frame: memoryview) -> Fetched:
    """The only partition of a Fetch v12 answer, without the length in front."""
    _, _, _, error, _ = _FETCH_HEAD.unpack_from(frame)
    if error:
        raise Refused(f"the fetch was answered with error {error}")
    at = _expect_one_topic(frame, _FETCH_HEAD.size)
    count, at = _read_uvarint(frame, at)
    if count != 2:
        raise Refused(f"asked for one partition, answered with {count - 1}")
    _, error, high_watermark, _, _ = _FETCHED.unpack_from(frame, at)
    aborted, at = _read_uvarint(frame, at + _FETCHED.size)
    if aborted > 1:
        raise Refused("there are aborted transactions in a topic that has none")
    size, at = _read_uvarint(frame, at + 4)
    end = at + max(size - 1, 0)
    if end > len(frame):
        raise Refused(f"{size - 1} bytes of records in a frame of {len(frame)}")
    return Fetched(error=error, high_watermark=high_watermark, records=frame[at:end])


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One whole batch of a fetch answer."""

    base_offset: int
    records: int
    size: int


def batches(records: memoryview) -> Iterator[Batch]:
    """The whole batches, each with its checksum checked; a broker may cut the last one."""
    at = 0
    while len(records) - at >= BATCH_HEADER_BYTES:
        base_offset, length, _, _, crc, _, _, _, _, _, _, _, count = _BATCH.unpack_from(records, at)
        end = at + 12 + length
        if end > len(records):
            return
        if crc32c.crc32c(records[at + _CRC_FROM : end]) != crc:
            raise Refused(f"the batch at offset {base_offset} has a wrong checksum")
        yield Batch(base_offset=base_offset, records=count, size=end - at)
        at = end


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varint(value: int) -> bytes:
    return uvarint(value << 1 if value >= 0 else ~value << 1 | 1)


def _record(delta: int, value: bytes) -> bytes:
    body = b"\0\0" + _varint(delta) + _varint(-1) + _varint(len(value)) + value + b"\0"
    return _varint(len(body)) + body


def _name(topic: str) -> bytes:
    encoded = topic.encode()
    return uvarint(len(encoded) + 1) + encoded


def _frame(api: int, version: int, body: bytes) -> bytes:
    return _framed(struct.pack(">hhihB", api, version, CORRELATION, -1, 0) + body)


def _framed(request: bytes) -> bytes:
    return struct.pack(">i", len(request)) + request


def _expect_one_topic(frame: bytes | memoryview, at: int) -> int:
    """The place after the topic's name."""
    if struct.unpack_from(">i", frame)[0] != CORRELATION:
        raise Refused("the answer is to another request")
    count, at = _read_uvarint(frame, at)
    if count != 2:
        raise Refused(f"asked for one topic, answered with {count - 1}")
    name, at = _read_uvarint(frame, at)
    return at + name - 1


def _skip_record_errors(frame: bytes | memoryview, at: int) -> int:
    errors, at = _read_uvarint(frame, at)
    for _ in range(errors - 1):
        text, at = _read_uvarint(frame, at + 4)
        at += max(text - 1, 0) + 1
    message, at = _read_uvarint(frame, at)
    tags, at = _read_uvarint(frame, at + max(message - 1, 0))
    for _ in range(tags):
        _, at = _read_uvarint(frame, at)
        size, at = _read_uvarint(frame, at)
        at += size
    return at


def _read_uvarint(frame: bytes | memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
