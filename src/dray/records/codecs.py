"""Compression of records, with a hard cap on what comes out.

Output goes into a buffer of the cap's size that is reused and that the
operating system fills page by page, so a batch costs only what it expands to.
No size that the compressed bytes claim is ever allocated.

Raw snappy (librdkafka) and the framing of xerial's library (Java) are both in
use under one codec number; the framing is known by its first bytes.

Invariants
    B4  No more than the cap is ever written, whatever the input claims.
"""

import mmap
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import cramjam

from dray.buffers import Buffer
from dray.records.errors import BadCompression, ExpandsTooFar
from dray.records.layout import Codec

DEFAULT_CAP_BYTES: Final = 64 * 2**20
SANE_BYTES: Final = 16 * 2**20
SANE_RATIO: Final = 100
"""Text compresses to a tenth, the most regular of it to a fiftieth."""
KEPT_BYTES: Final = 4 * 2**20
"""How much of an idle scratch buffer may stay in memory."""

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = struct.Struct(">8sii")
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_BLOCK_LENGTH: Final = struct.Struct(">i")
_LZ4_HEADER: Final = bytes.fromhex("04224d18604082")
"""Version 1, independent blocks of at most 64 KiB, no checksums, and the checksum of these two bytes."""
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_LZ4_LENGTH: Final = struct.Struct("<I")
_LZ4_STORED: Final = 0x8000_0000
_BUFFER_IS_FULL: Final = "failed to write whole buffer"

Decompress = Callable[[Buffer, memoryview], int]


class Scratch:
    """A buffer of the cap's size, for one use at a time."""

    def __init__(self, cap_bytes: int) -> None:
        # Private: the pages of a shared mapping would outlive the advice below.
        self._pages = mmap.mmap(-1, cap_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.output = memoryview(self._pages)
        self.touched_bytes = 0

    def rest(self) -> None:
        """Let the operating system have the pages of a large batch or a bomb again."""
        if self.touched_bytes > KEPT_BYTES:
            self._pages.madvise(mmap.MADV_DONTNEED)
            self.touched_bytes = 0


class ScratchPool:
    """Scratch buffers for whoever decompresses, on any thread; `keep` of them are reused."""

    def __init__(self, cap_bytes: int = DEFAULT_CAP_BYTES, keep: int = 4) -> None:
        self.cap_bytes = cap_bytes
        self._keep = keep
        self._idle: list[Scratch] = []  # append and pop are atomic, so threads may share it

    @contextmanager
    def lend(self) -> Iterator[Scratch]:
        try:
            scratch = self._idle.pop()
        except IndexError:
            scratch = Scratch(self.cap_bytes)
        try:
            yield scratch
        finally:
            scratch.rest()
            if len(self._idle) < self._keep:
                self._idle.append(scratch)


def sane_size(compressed: Buffer) -> int:
    """What sent records may expand to: a small batch that would become a thousand times larger is no batch."""
    return max(SANE_BYTES, SANE_RATIO * len(compressed))


def decompress(codec: Codec, compressed: Buffer, scratch: Scratch, most_bytes: int | None = None) -> memoryview:
    """The records, in the scratch buffer: they are gone when it is used again.

    Raises:
        ExpandsTooFar: the output passes the cap, or `most_bytes` (B4).
        BadCompression: the bytes are not what the codec writes.
    """
    if codec is Codec.NONE:
        return memoryview(compressed)
    output, before = scratch.output[:most_bytes], scratch.touched_bytes
    scratch.touched_bytes = max(before, len(output))  # unless it succeeds, nobody knows how much
    try:
        size = _DECOMPRESS[codec](compressed, output)
    except cramjam.DecompressionError as error:
        if _BUFFER_IS_FULL in str(error):
            raise _too_far(len(output)) from None
        raise BadCompression("compressed records cannot be read", codec=codec.name, cause=str(error)) from None
    scratch.touched_bytes = max(before, size)
    return output[:size]


def expand(codec: Codec, compressed: Buffer, cap_bytes: int = DEFAULT_CAP_BYTES) -> memoryview:
    """`decompress` into memory of its own; uncompressed records are not copied."""
    if codec is Codec.NONE:
        return memoryview(compressed)
    return memoryview(bytes(decompress(codec, compressed, Scratch(cap_bytes))))


def compress(codec: Codec, records: Buffer) -> bytes:
    """Compress records; snappy as a raw block, which every client reads."""
    match codec:
        case Codec.NONE:
            return bytes(records)
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(records))
        case Codec.SNAPPY:
            return bytes(cramjam.snappy.compress_raw(records))
        case Codec.LZ4:
            return _compress_lz4(records)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(records))


def compress_xerial(records: Buffer, block_bytes: int = _XERIAL_BLOCK_BYTES) -> bytes:
    """Snappy in the framing that Java producers write."""
    source = memoryview(records)
    parts = [_XERIAL_HEADER.pack(XERIAL_MAGIC, 1, 1)]
    for start in range(0, len(source), block_bytes):
        block = bytes(cramjam.snappy.compress_raw(source[start : start + block_bytes]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _compress_lz4(records: Buffer) -> bytes:
    # Framed here because cramjam links the blocks to each other, which Java clients refuse to read.
    source = memoryview(records)
    parts = [_LZ4_HEADER]
    for start in range(0, len(source), _LZ4_BLOCK_BYTES):
        plain = source[start : start + _LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            parts += (_LZ4_LENGTH.pack(len(block)), block)
        else:
            parts += (_LZ4_LENGTH.pack(len(plain) | _LZ4_STORED), bytes(plain))
    parts.append(_LZ4_LENGTH.pack(0))
    return b"".join(parts)


def _snappy(compressed: Buffer, output: memoryview) -> int:
    source = memoryview(compressed)
    if source[: len(XERIAL_MAGIC)].tobytes() != XERIAL_MAGIC:
        return _raw_snappy(source, output)
    if len(source) < _XERIAL_HEADER.size:
        raise BadCompression("xerial header is cut short", received=len(source))
    at, written = _XERIAL_HEADER.size, 0
    while at < len(source):
        if len(source) - at < _BLOCK_LENGTH.size:
            raise BadCompression("xerial block length is cut short", position=at)
        (length,) = _BLOCK_LENGTH.unpack_from(source, at)
        at += _BLOCK_LENGTH.size
        if not 0 < length <= len(source) - at:
            raise BadCompression("xerial block length does not fit", length=length, position=at)
        written += _raw_snappy(source[at : at + length], output[written:])
        at += length
    return written


def _raw_snappy(block: memoryview, output: memoryview) -> int:
    claimed = int(cramjam.snappy.decompress_raw_len(block))
    if claimed > len(output):
        raise _too_far(len(output), claimed=claimed)
    return int(cramjam.snappy.decompress_raw_into(block, output))


def _too_far(cap_bytes: int, **facts: int) -> ExpandsTooFar:
    return ExpandsTooFar("records expand beyond the cap: send smaller batches", cap_bytes=cap_bytes, **facts)


_DECOMPRESS: Final[dict[Codec, Decompress]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}
