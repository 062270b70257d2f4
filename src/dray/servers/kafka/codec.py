"""The runtime of the generated Kafka messages: primitive values to bytes and back.

A reader works on a memoryview of exactly one frame. Reading past its end
raises by itself; a slice would not, so every length is compared with the end
of the frame before it is used. Nothing is ever allocated because a peer
declared a number: lists grow by append, and only over bytes that arrived.

Invariants
    KP1  A declared length or count never exceeds the bytes that are left in
         the frame, nor ELEMENTS in one message (in an answer, which clients
         alone read, ANSWER_ELEMENTS).
    KP2  Reading raises `Malformed` and nothing else (through `decode`).
    KP3  Unknown tagged fields are skipped, at most TAGS in a section and
         TAG_BYTES in one of them.
    KP4  Records are views of the frame, never copies; all else is a copy and
         keeps no frame alive.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from dray.buffers import Buffer
from dray.errors import DrayError, Invalid

ELEMENTS: Final = 21_000
"""Array elements in one message, all arrays together: each takes up to 256 bytes and 1 us once decoded.

Enough for 10,000 partitions of as many topics; more would hold the loop.
"""
ANSWER_ELEMENTS: Final = 1_000_000
"""The same for answers: a client may ask for all topics of a large cluster, and has no loop that others wait for."""
TAGS: Final = 64
TAG_BYTES: Final = 64 * 1024
ZERO_UUID: Final = bytes(16)

Parts: TypeAlias = Sequence[Buffer]
"""Record bytes to send, piece by piece: all pieces are views of single bytes."""


class Malformed(Invalid):
    """The bytes are no message of this key and version; the connection cannot go on."""


class Unwritable(DrayError):
    """A message that its version cannot express, such as null where there is no null."""


class Message(msgspec.Struct, frozen=True, gc=False):
    """Base of the generated messages: values in slots. They form trees, so the collector need not see them."""


T = TypeVar("T")
M = TypeVar("M", bound=Message)
Req = TypeVar("Req", bound=Message)
Resp = TypeVar("Resp", bound=Message)

Reader: TypeAlias = Callable[[memoryview, int], tuple[M, int, int]]
"""Frame and position to message, next position and number of array elements."""
Writer: TypeAlias = Callable[[M], list[Buffer]]
"""Message to the parts of its body."""


@dataclass(frozen=True, slots=True)
class Codec(Generic[M]):
    """All versions of one message."""

    read: Mapping[int, Reader[M]]
    write: Mapping[int, Writer[M]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema(Generic[Req, Resp]):
    """One API: the versions the codec knows, and the codecs."""

    key: int
    name: str
    first: int
    last: int
    flexible: int | None
    request: Codec[Req]
    response: Codec[Resp]


def switched_reader(
    read: Callable[[int, memoryview, int], tuple[M, int, int]], first: int, last: int
) -> dict[int, Reader[M]]:
    """One reader for all versions, bound to each."""
    return {version: partial(read, version) for version in range(first, last + 1)}


def switched_writer(write: Callable[[int, M], list[Buffer]], first: int, last: int) -> dict[int, Writer[M]]:
    """One writer for all versions, bound to each."""
    return {version: partial(write, version) for version in range(first, last + 1)}


def decode(read: Reader[M], frame: memoryview, position: int) -> tuple[M, int, int]:
    """Read one message. Bytes after it are the caller's to ignore.

    Raises:
        Malformed: whatever is wrong with the bytes (KP2).
    """
    try:
        return read(frame, position)
    except (struct.error, IndexError) as error:
        raise Malformed("the frame ends inside a field", bytes=len(frame)) from error
    except UnicodeDecodeError as error:
        raise Malformed("a string is not UTF-8", at=error.start) from error


def encode(write: Writer[M], message: M) -> list[Buffer]:
    """Write one message.

    Raises:
        Unwritable: a value that this version cannot carry.
    """
    try:
        return write(message)
    except (struct.error, AttributeError, TypeError, UnicodeEncodeError) as error:
        raise Unwritable("the message does not fit its version", type=type(message).__name__) from error


def whole(out: list[Buffer]) -> list[Buffer]:
    """A body whose elements may have been written before: as one part, unless copying it would hold the loop."""
    return [b"".join(out)] if sum(map(len, out)) <= _COPIED_BYTES else out


_i16: Final = struct.Struct(">h").unpack_from
_i32: Final = struct.Struct(">i").unpack_from
_put_i16: Final = struct.Struct(">h").pack
_put_i32: Final = struct.Struct(">i").pack
_COPIED_BYTES: Final = 1 << 20
_BYTE: Final = [bytes((value,)) for value in range(128)]


def get_uvarint(frame: memoryview, position: int) -> tuple[int, int]:
    value = frame[position]
    if value < 0x80:
        return value, position + 1
    value &= 0x7F
    for count in range(1, 5):
        byte = frame[position + count]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, position + count + 1
    raise Malformed("a varint has more than five bytes")


def put_uvarint(value: int) -> bytes:
    if value < 0x80:
        return _BYTE[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _null() -> Malformed:
    return Malformed("null where the version has no null")


def _overrun(size: int, left: int) -> Malformed:
    return Malformed("a length is negative or beyond the end of the frame", declared=size, left=left)


def crowded() -> Malformed:
    return Malformed("too many array elements in one message: split the request")


def _span(size: int, start: int, frame: memoryview) -> int:
    end = start + size
    if size < 0 or end > len(frame):
        raise _overrun(size, len(frame) - start)  # KP1
    return end


def get_nullable_string(frame: memoryview, position: int) -> tuple[str | None, int]:
    (size,) = _i16(frame, position)
    if size == -1:
        return None, position + 2
    end = _span(size, position + 2, frame)
    return str(frame[position + 2 : end], "utf-8"), end


def get_string(frame: memoryview, position: int) -> tuple[str, int]:
    value, position = get_nullable_string(frame, position)
    if value is None:
        raise _null()
    return value, position


def get_compact_nullable_string(frame: memoryview, position: int) -> tuple[str | None, int]:
    size = frame[position]
    if size < 0x80:
        position += 1
    else:
        size, position = get_uvarint(frame, position)
    if size == 0:
        return None, position
    end = position + size - 1
    if end > len(frame):
        raise _overrun(size - 1, len(frame) - position)  # KP1
    return str(frame[position:end], "utf-8"), end


def get_compact_string(frame: memoryview, position: int) -> tuple[str, int]:
    value, position = get_compact_nullable_string(frame, position)
    if value is None:
        raise _null()
    return value, position


def get_nullable_records(frame: memoryview, position: int) -> tuple[memoryview | None, int]:
    (size,) = _i32(frame, position)
    if size == -1:
        return None, position + 4
    end = _span(size, position + 4, frame)
    return frame[position + 4 : end], end  # KP4


def get_compact_nullable_records(frame: memoryview, position: int) -> tuple[memoryview | None, int]:
    size, position = get_uvarint(frame, position)
    if size == 0:
        return None, position
    end = _span(size - 1, position, frame)
    return frame[position:end], end  # KP4


def get_nullable_bytes(frame: memoryview, position: int) -> tuple[bytes | None, int]:
    view, position = get_nullable_records(frame, position)
    return None if view is None else bytes(view), position


def get_bytes(frame: memoryview, position: int) -> tuple[bytes, int]:
    view, position = get_nullable_records(frame, position)
    if view is None:
        raise _null()
    return bytes(view), position


def get_compact_nullable_bytes(frame: memoryview, position: int) -> tuple[bytes | None, int]:
    view, position = get_compact_nullable_records(frame, position)
    return None if view is None else bytes(view), position


def get_compact_bytes(frame: memoryview, position: int) -> tuple[bytes, int]:
    view, position = get_compact_nullable_records(frame, position)
    if view is None:
        raise _null()
    return bytes(view), position


def get_nullable_count(frame: memoryview, position: int, smallest: int) -> tuple[int, int]:
    """Elements of an array whose elements take at least `smallest` bytes; -1 is null."""
    (count,) = _i32(frame, position)
    position += 4
    if count < -1 or count * smallest > len(frame) - position:
        raise _overrun(count, len(frame) - position)  # KP1
    return count, position


def get_count(frame: memoryview, position: int, smallest: int) -> tuple[int, int]:
    count, position = get_nullable_count(frame, position, smallest)
    if count < 0:
        raise _null()
    return count, position


def get_compact_nullable_count(frame: memoryview, position: int, smallest: int) -> tuple[int, int]:
    count, position = get_uvarint(frame, position)
    count -= 1
    if count * smallest > len(frame) - position:
        raise _overrun(count, len(frame) - position)  # KP1
    return count, position


def get_compact_count(frame: memoryview, position: int, smallest: int) -> tuple[int, int]:
    count, position = get_compact_nullable_count(frame, position, smallest)
    if count < 0:
        raise _null()
    return count, position


def get_tag_count(frame: memoryview, position: int) -> tuple[int, int]:
    count, position = get_uvarint(frame, position)
    if count > TAGS:
        raise Malformed("too many tagged fields in one section", declared=count, limit=TAGS)  # KP3
    return count, position


def get_tag(frame: memoryview, position: int) -> tuple[int, int, int]:
    """Number, start and end of a tagged field."""
    tag, position = get_uvarint(frame, position)
    size, position = get_uvarint(frame, position)
    return tag, position, _span(size, position, frame)


def skip_tag(start: int, end: int) -> int:
    if end - start > TAG_BYTES:
        raise Malformed("an unknown tagged field is too long", bytes=end - start, limit=TAG_BYTES)  # KP3
    return end


def check_tag(position: int, end: int) -> None:
    if position != end:
        raise Malformed("a tagged field does not have its declared size", ends_at=position, declared=end)


def skip_tags(frame: memoryview, position: int) -> int:
    if frame[position] == 0:
        return position + 1
    count, position = get_tag_count(frame, position)
    for _ in range(count):
        _, start, end = get_tag(frame, position)
        position = skip_tag(start, end)
    return position


def present(value: T | None) -> T:
    """The value, in a version where the field may not be null."""
    if value is None:
        raise Unwritable("null where the version has no null")
    return value


def put_string(value: str) -> bytes:
    raw = value.encode()
    return _put_i16(len(raw)) + raw


def put_nullable_string(value: str | None) -> bytes:
    return b"\xff\xff" if value is None else put_string(value)


def put_compact_string(value: str) -> bytes:
    raw = value.encode()
    return put_uvarint(len(raw) + 1) + raw


def put_compact_nullable_string(value: str | None) -> bytes:
    return b"\0" if value is None else put_compact_string(value)


def put_bytes(value: bytes) -> bytes:
    return _put_i32(len(value)) + value


def put_nullable_bytes(value: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if value is None else put_bytes(value)


def put_compact_bytes(value: bytes) -> bytes:
    return put_uvarint(len(value) + 1) + value


def put_compact_nullable_bytes(value: bytes | None) -> bytes:
    return b"\0" if value is None else put_compact_bytes(value)


def put_count(value: Sequence[object]) -> bytes:
    return _put_i32(len(value))


def put_nullable_count(value: Sequence[object] | None) -> bytes:
    return _put_i32(-1 if value is None else len(value))


def put_compact_count(value: Sequence[object]) -> bytes:
    return put_uvarint(len(value) + 1)


def put_compact_nullable_count(value: Sequence[object] | None) -> bytes:
    return put_uvarint(0 if value is None else len(value) + 1)


def put_nullable_size(value: Parts | None) -> bytes:
    """The length of records; the parts follow it."""
    return _put_i32(-1 if value is None else sum(map(len, value)))


def put_compact_nullable_size(value: Parts | None) -> bytes:
    if not value:
        return _BYTE[0 if value is None else 1]
    return put_uvarint(sum(map(len, value)) + 1)


def put_tags(tags: Sequence[tuple[int, Sequence[Buffer]]]) -> bytes:
    """A tagged section: number and content of each field, in order of number."""
    out = [put_uvarint(len(tags))]
    for tag, content in tags:
        value = b"".join(content)
        out += (put_uvarint(tag), put_uvarint(len(value)), value)
    return b"".join(out)
