"""WAL object v1: bytes to chunks and back.

One object carries batches of many streams of one domain:

    header (49 B) | chunk bodies | chunk index (44 B each, by stream id) | CRC32C (4 B)
    chunk body = (length u32, batch bytes)*                              all big-endian

Batches are Kafka's own bytes, as received, and not the rows that the Ursa
paper keeps in its write-ahead objects: a fetch sends them as they lie, the CRC
that the producer computed goes on protecting them, and base offsets, which are
known only after the commit, are patched on read. The price is that whoever
wants rows parses batches. Held by
`test_batches_are_stored_as_received_and_not_as_rows`.

This module knows the layout and nothing else: which batches share an object is
decided in `dray.produce`, where the object lies in `dray.objects.paths`, and
which of its batches count in `dray.machine`.

Invariants
    W2  A record batch never crosses a chunk boundary.
    W3  Batches are stored byte for byte as given; no record byte is copied.
    W4  A reader accepts exactly what a writer writes: chunks tile the space
        between header and index, batches tile their chunk, the CRC covers all.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from crc32c import crc32c

from dray.buffers import Buffer
from dray.errors import Corrupt, Invalid
from dray.wal.ids import WalId

MAGIC: Final = b"DRAYWO1"
VERSION: Final = 1
HEADER: Final = struct.Struct(">7sH16sIqIQ")
CHUNK: Final = struct.Struct(">QQIIIqq")
LENGTH: Final = struct.Struct(">I")
CRC: Final = struct.Struct(">I")
assert HEADER.size == 49, "the header size is part of the format"
assert CHUNK.size == 44, "the size of an index entry is part of the format"
_U32_MAX: Final = 0xFFFFFFFF
_LENGTH_PACK: Final = LENGTH.pack
_CHUNK_PACK: Final = CHUNK.pack


class BadWalObject(Corrupt):
    """The bytes are not a whole WAL object of a version we know."""


class Batch(NamedTuple):
    """One record batch on its way into an object."""

    data: Buffer
    records: int
    min_timestamp_ms: int
    max_timestamp_ms: int


Fields: TypeAlias = tuple[Buffer, int, int, int]
"""A `Batch`, or what is like it: produce cuts one out of every batch that it was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedObject:
    """An object as a list of buffers, ready for `Objects.put`."""

    parts: list[Buffer]
    size: int
    positions: list[list[int]]
    """Per chunk, in the order given, where each batch's first byte lies in the object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What the first 49 bytes say."""

    wal_id: WalId
    domain: int
    created_ms: int
    chunk_count: int
    index_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One stream's part of an object, as the chunk index tells it."""

    stream: int
    start: int
    end: int
    records: int
    batch_count: int
    min_timestamp_ms: int
    max_timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedObject:
    """A whole, checked object."""

    header: Header
    chunks: list[Chunk]
    data: memoryview

    def batches(self, chunk: Chunk) -> Iterator[tuple[int, memoryview]]:
        """Position and bytes of each batch of a chunk."""
        at = chunk.start
        for _ in range(chunk.batch_count):
            (length,) = LENGTH.unpack_from(self.data, at)
            at += LENGTH.size
            yield at, self.data[at : at + length]
            at += length


def encode(
    wal_id: WalId, domain: int, created_ms: int, chunks: Sequence[tuple[int, Sequence[Fields]]]
) -> EncodedObject:
    """Lay out one object. `chunks` are (stream id, batches), stream ids strictly ascending."""
    parts: list[Buffer] = [b""]
    index = []
    positions = []
    at = HEADER.size
    previous = -1
    for stream, batches in chunks:
        if stream <= previous or not batches:
            raise Invalid("chunks need ascending stream ids and at least one batch", stream=stream)
        previous = stream
        start = at
        places = []
        total, low, high = 0, batches[0][2], batches[0][3]
        for data, records, min_timestamp_ms, max_timestamp_ms in batches:
            size = len(data)
            parts += (_LENGTH_PACK(size), data)
            places.append(at + 4)
            at += 4 + size
            total += records
            if min_timestamp_ms < low:
                low = min_timestamp_ms
            if max_timestamp_ms > high:
                high = max_timestamp_ms
        positions.append(places)
        if at - start > _U32_MAX:
            raise Invalid("a chunk is larger than 4 GiB", stream=stream, length=at - start)
        index.append(_CHUNK_PACK(stream, start, at - start, total, len(places), low, high))
    parts[0] = HEADER.pack(MAGIC, VERSION, wal_id, domain, created_ms, len(positions), at)
    parts.append(b"".join(index))
    crc = 0
    for part in parts:  # W3: the CRC walks the buffers where they are
        crc = crc32c(part, crc)
    parts.append(CRC.pack(crc))
    return EncodedObject(parts=parts, size=at + len(index) * CHUNK.size + CRC.size, positions=positions)


def decode(data: Buffer) -> CheckedObject:
    """A whole object, checked to the last byte (W4)."""
    view = memoryview(data)
    header = decode_header(view)
    index_end = header.index_at + header.chunk_count * CHUNK.size
    if index_end + CRC.size != len(view):
        raise BadWalObject(
            "WAL object is cut or has bytes behind its end", size=len(view), expected=index_end + CRC.size
        )
    (expected,) = CRC.unpack_from(view, index_end)
    actual = crc32c(view[:index_end])
    if actual != expected:
        raise BadWalObject("CRC32C of the WAL object does not match", expected=expected, actual=actual)
    chunks = _decode_index(view, header)
    for chunk in chunks:
        _check_batches(view, chunk)
    return CheckedObject(header=header, chunks=chunks, data=view)


def decode_header(view: memoryview) -> Header:
    """The first 49 bytes; says clearly what a foreign or newer file is."""
    if len(view) < HEADER.size:
        raise BadWalObject("file is shorter than the header of a WAL object", size=len(view))
    magic, version, wal_id, domain, created_ms, count, index_at = HEADER.unpack_from(view)
    if magic != MAGIC:
        raise BadWalObject("not a WAL object of Dray", magic=magic.hex(), expected=MAGIC.hex())
    if version != VERSION:
        raise BadWalObject("WAL object of another version: read it with a newer Dray", version=version, known=VERSION)
    if index_at < HEADER.size:
        raise BadWalObject("chunk index overlaps the header", index_at=index_at)
    return Header(wal_id=WalId(wal_id), domain=domain, created_ms=created_ms, chunk_count=count, index_at=index_at)


def _decode_index(view: memoryview, header: Header) -> list[Chunk]:
    chunks = []
    previous, at = -1, HEADER.size
    for entry in CHUNK.iter_unpack(view[header.index_at : len(view) - CRC.size]):
        stream, start, length, records, batch_count, min_ts, max_ts = entry
        if stream <= previous:
            raise BadWalObject("chunk index is not sorted by stream", stream=stream)
        if start != at:
            raise BadWalObject("chunks overlap or leave a gap", stream=stream, start=start, expected=at)
        previous, at = stream, start + length
        chunks.append(
            Chunk(
                stream=stream,
                start=start,
                end=at,
                records=records,
                batch_count=batch_count,
                min_timestamp_ms=min_ts,
                max_timestamp_ms=max_ts,
            )
        )
    if at != header.index_at:
        raise BadWalObject("chunks do not reach the chunk index", end=at, index_at=header.index_at)
    return chunks


def _check_batches(view: memoryview, chunk: Chunk) -> None:
    at = chunk.start
    for _ in range(chunk.batch_count):
        if chunk.end - at < LENGTH.size:
            raise BadWalObject("chunk ends inside a batch length", stream=chunk.stream, at=at)
        (length,) = LENGTH.unpack_from(view, at)
        at += LENGTH.size
        if length > chunk.end - at:
            raise BadWalObject("batch crosses the end of its chunk", stream=chunk.stream, at=at, length=length)
        at += length
    if at != chunk.end:
        raise BadWalObject("chunk has bytes behind its last batch", stream=chunk.stream, at=at, end=chunk.end)
