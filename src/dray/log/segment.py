"""One segment file of a local log: bytes to records and back.

    header (24 B) | record*
    record = length u32 | CRC32C u32 | position u64 | place in its batch u32 | entry

Little-endian throughout. The checksum of a record covers all that follows it;
an entry has at least one byte, so a run of zeros is never a record. A batch is
what one sync made durable. The file is named after its first position, and
the header says it again. The header keeps its layout in every version, so that
an older reader can name the newer version it met.

Invariants
    LG5  A record is valid at one place only: its checksum covers its position,
         and positions are dense.
    LG6  A record that fails its checksum while a later batch has a valid one
         is damage, never a torn tail: it was durable before that batch began.
"""

import re
import struct
from typing import Final

from crc32c import crc32c

from dray.errors import Corrupt, Invalid

MAGIC: Final = b"DRAYLOG\n"
VERSION: Final = 1
HEADER: Final = struct.Struct("<8sHHQI")
assert HEADER.size == 24, "the header size is part of the format"
RECORD: Final = struct.Struct("<IIQI")
assert RECORD.size == 20, "the record head is part of the format"
MAX_LENGTH: Final = 16 << 20
"""No entry is longer; a longer length is damage, and is not believed by readers."""

SHORT: Final = -1
BAD: Final = -2

_PLACE: Final = struct.Struct("<QI")
_NAME: Final = re.compile(r"[0-9]{20}\.log")
_SUM_BEGINS: Final = 8
_POSITION_ENDS: Final = 16
_SEARCHED: Final = 1 << 23
"""More records than a segment holds; few enough that their positions differ in the lower three bytes."""


class BadHeader(Corrupt):
    """The file does not begin as a segment does."""


class NewerFormat(Invalid):
    """The log was written by a newer Dray: use that one."""


def segment_name(first: int) -> str:
    """The name of the segment that begins with this position."""
    return f"{first:020d}.log"


def first_of(name: str) -> int | None:
    """The first position of a segment with this name; None if no segment has such a name."""
    return int(name[:20]) if _NAME.fullmatch(name) and int(name[:20]) > 0 else None


def encode_header(first: int) -> bytes:
    """The 24 bytes at the start of a segment."""
    head = HEADER.pack(MAGIC, VERSION, 0, first, 0)[:-4]
    return head + crc32c(head).to_bytes(4, "little")


def check_header(header: bytes, first: int) -> None:
    """`BadHeader` unless these bytes begin the segment of `first`; `NewerFormat` if we cannot read on."""
    if len(header) < HEADER.size:
        raise BadHeader("the file ends inside its header", size=len(header))
    magic, version, _, position, checksum = HEADER.unpack_from(header)
    if magic != MAGIC or checksum != crc32c(header[: HEADER.size - 4]):
        raise BadHeader("the header is not that of a log segment")
    if version > VERSION:
        raise NewerFormat("the log was written by a newer version", found=version, supported=VERSION)
    if position != first:
        raise BadHeader("the file has the name of another segment", header=position, name=first)


def encode_record(position: int, place: int, entry: bytes) -> tuple[bytes, bytes]:
    """Head and entry of one record, to be written behind each other; `place` counts from 0 in its batch."""
    checksum = crc32c(entry, crc32c(_PLACE.pack(position, place)))
    return RECORD.pack(len(entry), checksum, position, place), entry


def record_end(buffer: bytes, at: int, position: int) -> int:
    """Where the valid record of `position` that begins at `at` ends (LG5).

    `SHORT` if the buffer ends before the record does, `BAD` if it is none.
    """
    left = len(buffer) - at
    if left < RECORD.size:
        return SHORT
    length, checksum, found, _ = RECORD.unpack_from(buffer, at)
    if found != position or not 0 < length <= MAX_LENGTH:
        return BAD
    if left < RECORD.size + length:
        return SHORT
    end: int = at + RECORD.size + length
    return end if crc32c(memoryview(buffer)[at + _SUM_BEGINS : end]) == checksum else BAD


def record_bytes(buffer: bytes) -> int:
    """How long the record at the start of the buffer says it is; never longer than a record may be."""
    length = RECORD.unpack_from(buffer)[0] if len(buffer) >= RECORD.size else 0
    return RECORD.size + min(length, MAX_LENGTH)


def proof_of_damage(buffer: bytes, expected: int) -> int | None:
    """A position whose valid record proves that the bytes where `expected` should begin are no torn tail (LG6).

    That is a record of a later batch anywhere, or a record of another position
    in the very place. Records of the same batch prove nothing: the sectors of
    an unsynced write reach the disk in any order. The search goes byte by byte,
    for the length that would lead to the next record is not to be trusted; it
    looks for the upper bytes of the positions that can follow, so that it runs
    at the speed of `bytes.find`.
    """
    if (found := _place_at(buffer, 0, 1, (1 << 64) - 1)) is not None and found[0] != expected:
        return found[0]
    low, high = expected + 1, expected + _SEARCHED  # bytes may be missing: the rest's length bounds no position
    stop = len(buffer.rstrip(b"\0"))  # a record does not begin in the zeros at the end
    for upper in sorted({low >> 24, high >> 24}):
        pattern = upper.to_bytes(5, "little")
        hit = buffer.find(pattern, _POSITION_ENDS - 5)
        while hit >= 0 and (at := hit + 5 - _POSITION_ENDS) < stop:
            found = _place_at(buffer, at, low, high)
            if found is not None and found[0] - found[1] > expected:
                return found[0]
            hit = buffer.find(pattern, hit + 1)
    return None


def _place_at(buffer: bytes, at: int, low: int, high: int) -> tuple[int, int] | None:
    """Position and place in its batch of the valid record at `at`, if its position lies in [low, high]."""
    if len(buffer) - at < RECORD.size:
        return None
    _, _, position, place = RECORD.unpack_from(buffer, at)
    if not low <= position <= high:
        return None
    return (position, place) if record_end(buffer, at, position) > 0 else None
