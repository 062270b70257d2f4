"""The body of a message: what is read with the message alone, as bytes.

    MessagePack [format 1, payload, headers, partition key, producer, epoch, sequence] | CRC32C (4 B, big-endian)

The machine does not look into it. Small fresh ones travel in the log; large
or many ones lie in objects, each as one batch of its shard's chunk.

Invariants
    HB3  What is unpacked was packed so: anything else is `UnreadableBody`.
"""

import struct
from typing import Annotated, Final

import msgspec
from crc32c import crc32c
from msgspec import Meta

from dray.buffers import Buffer
from dray.heaps.errors import UnreadableBody
from dray.heaps.policy import HeapPolicy

FORMAT: Final = 1
_CRC: Final = struct.Struct(">I")


class Body(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What a client sent besides what the machine needs to know."""

    format: Annotated[int, Meta(ge=FORMAT, le=FORMAT)] = FORMAT
    payload: bytes
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    partition_key: str = ""
    producer: str = ""
    epoch: int | None = None
    seq: int | None = None


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Body)


def pack_body(body: Body) -> bytes:
    packed = _ENCODER.encode(body)
    return packed + _CRC.pack(crc32c(packed))


def unpack_body(packed: Buffer) -> Body:
    """Raises `UnreadableBody` (HB3)."""
    at = len(packed) - _CRC.size
    if at < 0 or crc32c(packed[:at]) != _CRC.unpack_from(packed, at)[0]:
        raise UnreadableBody("the bytes of a body are damaged", size=len(packed))
    try:
        return _DECODER.decode(packed[:at])
    except (msgspec.DecodeError, UnicodeDecodeError) as broken:
        raise UnreadableBody("a body does not decode", size=len(packed)) from broken


def is_inline(size: int, turn_bytes: int, used: int, policy: HeapPolicy) -> bool:
    """May a body travel in an entry that has `turn_bytes` of them, in a domain that holds `used`?"""
    return (
        size <= policy.inline_max_bytes
        and turn_bytes + size <= policy.inline_turn_bytes
        and used + turn_bytes + size < policy.inline_most_bytes
    )
