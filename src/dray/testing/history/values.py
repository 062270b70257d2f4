"""Payloads that say where they belong: so that misrouting and damage show.

    magic (4) | head length (2) | head (JSON) | filler | CRC-32 of all before (4)

The head names producer, sequence number and partition. The filler brings the
payload to a chosen size and is made from the value id, so that bytes of one
value in the middle of another break the checksum. The CRC is not CRC-32C, the
polynomial of Kafka's batches: a broker cannot make it right by accident.
"""

import struct
import zlib
from typing import Final

import msgspec

from dray.buffers import Buffer
from dray.errors import Corrupt, Invalid
from dray.testing.history.events import Partition, ValueId

MAGIC: Final = b"DHV1"
_HEAD: Final = struct.Struct(">4sH")
_CRC: Final = struct.Struct(">I")
_MAX_HEAD_BYTES: Final = 0xFFFF


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """What a payload says about itself."""

    producer: str
    seq: int
    tp: Partition

    @property
    def id(self) -> ValueId:
        return ValueId(f"{self.producer}:{self.seq}")


_DECODER: Final = msgspec.json.Decoder(Value)


def encode_value(value: Value, size_bytes: int = 0) -> bytes:
    """A payload of `size_bytes`, or of the least size that holds the head if that is more."""
    head = msgspec.json.encode(value)
    if len(head) > _MAX_HEAD_BYTES:
        raise Invalid("the names in a value are too long", head_bytes=len(head))
    front = _HEAD.pack(MAGIC, len(head)) + head
    room = max(0, size_bytes - len(front) - _CRC.size)
    seed = value.id.encode() + b"|"
    body = front + (seed * (room // len(seed) + 1))[:room]
    return body + _CRC.pack(zlib.crc32(body))


def decode_value(payload: Buffer) -> Value:
    """What a payload says about itself.

    Raises:
        Corrupt: the bytes are not a whole payload as it was made.
    """
    view = memoryview(payload)
    if len(view) < _HEAD.size + _CRC.size:
        raise Corrupt("a payload is too short", size_bytes=len(view))
    magic, head_bytes = _HEAD.unpack_from(view)
    if magic != MAGIC or _HEAD.size + head_bytes + _CRC.size > len(view):
        raise Corrupt("a payload does not begin as one", size_bytes=len(view))
    if zlib.crc32(view[: -_CRC.size]) != _CRC.unpack_from(view, len(view) - _CRC.size)[0]:
        raise Corrupt("the checksum of a payload is wrong", size_bytes=len(view))
    try:
        return _DECODER.decode(view[_HEAD.size : _HEAD.size + head_bytes])
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise Corrupt("the head of a payload is damaged", size_bytes=len(view)) from problem


def checksum(payload: Buffer) -> int:
    """The CRC-32 that a sender and every reader write into the history."""
    return zlib.crc32(payload)
