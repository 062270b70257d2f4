"""The LZ4 frames that every Kafka client reads.

    magic 4 | flags 1 | block size 1 | content size 8? | checksum 1 | blocks | end mark 4 | checksum 4?
    block: length 4 (top bit: stored) | bytes | checksum 4?

The format allows much more than Java's client reads: linked blocks and
dictionaries end it with an exception, and whatever follows the first frame is
left out in silence, as is what follows a stored block of no bytes, which it
takes for the end. A batch that was acknowledged with such a frame would stop
its consumers at that offset for ever, so its form is checked here; the
library checks the sums and what the blocks expand to.

Invariants
    B7  LZ4 that is stored is one frame of version 1 with independent blocks
        and no dictionary, and ends with its end mark and checksum.
"""

import struct
from typing import Final

import cramjam

from dray.buffers import Buffer
from dray.records.errors import BadCompression

_MAGIC: Final = bytes.fromhex("04224d18")
_FLAGS_AT: Final = 4
_SHORTEST_HEADER: Final = 7
_VERSION_AND_INDEPENDENT: Final = 0b0110_0000
_MUST_BE: Final = 0b1110_0011
"""Version, independence, the reserved bit and the dictionary's: any other value is one that Java cannot read."""
_BLOCK_SUMS: Final = 0b0001_0000
_CONTENT_SIZE: Final = 0b0000_1000
_CONTENT_SUM: Final = 0b0000_0100
_SUM_BYTES: Final = 4
_LENGTH: Final = struct.Struct("<I")
_STORED: Final = 0x8000_0000
_HEADER: Final = bytes.fromhex("04224d18604082")
"""Version 1, independent blocks of at most 64 KiB, no checksums, and the checksum of these two bytes."""
_BLOCK_BYTES: Final = 64 * 1024


def compress_lz4(records: Buffer) -> bytes:
    """One frame (B7). Written here because cramjam links the blocks to each other."""
    source = memoryview(records)
    parts = [_HEADER]
    for start in range(0, len(source), _BLOCK_BYTES):
        plain = source[start : start + _BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            parts += (_LENGTH.pack(len(block)), block)
        else:
            parts += (_LENGTH.pack(len(plain) | _STORED), bytes(plain))
    parts.append(_LENGTH.pack(0))
    return b"".join(parts)


def check_frame(compressed: Buffer) -> None:
    """Raise `BadCompression` unless it is a frame that may be stored (B7). What was stored earlier is read as ever."""
    source = memoryview(compressed)
    end = _end_of_frame(source)
    if end != len(source):
        raise BadCompression("lz4 must be one frame with nothing behind it", size=len(source), frame_end=end)  # B7


def _end_of_frame(source: memoryview) -> int:
    """Where the frame that begins the source ends; it may lie behind the source's own end."""
    if len(source) < _SHORTEST_HEADER or source[:_FLAGS_AT] != _MAGIC:
        raise BadCompression("lz4 does not begin with a frame", received=len(source))
    flags = source[_FLAGS_AT]
    if flags & _MUST_BE != _VERSION_AND_INDEPENDENT:  # B7
        raise BadCompression("lz4 must be version 1 with independent blocks and no dictionary", flags=flags)
    at = _SHORTEST_HEADER + (8 if flags & _CONTENT_SIZE else 0)
    behind = _SUM_BYTES if flags & _BLOCK_SUMS else 0
    size, read = len(source), _LENGTH.unpack_from
    while at + _LENGTH.size <= size:
        (length,) = read(source, at)
        at += _LENGTH.size
        if length == 0:
            return at + (_SUM_BYTES if flags & _CONTENT_SUM else 0)
        if length == _STORED:
            raise BadCompression("lz4 has a stored block of no bytes", position=at)  # B7
        at += (length & ~_STORED) + behind
    raise BadCompression("lz4 ends before its end mark", received=size)
