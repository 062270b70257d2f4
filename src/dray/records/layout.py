"""Record batch v2 as it lies in bytes.

    0 base offset i64        21 attributes i16           43 producer id i64
    8 length i32 (from 12)   23 last offset delta i32    51 producer epoch i16
    12 leader epoch i32      27 base timestamp i64       53 base sequence i32
    16 magic i8 (2)          35 max timestamp i64        57 record count i32
    17 CRC-32C u32 (21..)                                61 records

All big-endian. The CRC begins at the attributes, so base offset and leader
epoch may be written without touching it. The records are compressed as a
whole, the header never.

A record, every number a zigzag varint except the one-byte attributes:

    length | attributes | timestamp delta | offset delta | key | value | header count | headers
"""

import struct
from enum import IntEnum
from typing import Final

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = 61
assert HEADER.size == HEADER_SIZE, "the header size is part of the format"

PREFIX: Final = struct.Struct(">qii")
"""Base offset, length, leader epoch: what may change without a new CRC."""

AFTER_CRC: Final = struct.Struct(">hiqqqhii")
"""Attributes to record count: the part of the header that the CRC covers."""

MAGIC: Final = 2
LENGTH_FROM: Final = 12
"""The length field counts the bytes after itself."""
CRC_FROM: Final = 21
MAGIC_AT: Final = 16

CODEC_BITS: Final = 0x07
APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20

NO_TIMESTAMP: Final = -1
MAX_TIMESTAMP: Final = 253_402_300_799_999
"""The last millisecond of the year 9999: what a table's timestamp column can hold (E-15)."""


class Codec(IntEnum):
    """How the records of a batch are compressed; the low three attribute bits."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODECS: Final = tuple(Codec)
"""The codec by its number; a dearer `Codec(n)` is kept off the produce path."""
