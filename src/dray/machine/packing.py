"""The bytes of a checkpoint's body: rows of small values, and columns as they lie.

    row     u32 length | MessagePack array of integers, text, bytes
    column  u64 length | items, little-endian

Equal values give equal bytes: integers take their shortest form, maps are
written by their owners as sorted rows, and nothing depends on the machine.
"""

import struct
import sys
from array import array
from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from dray.errors import Corrupt

Plain: TypeAlias = int | str | bytes
Small: TypeAlias = Plain | Sequence[Plain]

SEAM_BYTES: Final = 64 << 10
"""A part of this size has its own pages."""
_ROW: Final = struct.Struct("<I")
_COLUMN: Final = struct.Struct("<Q")
_BIG_ENDIAN: Final = sys.byteorder == "big"
_DECODER: Final = msgspec.msgpack.Decoder(list[object])
_ENCODER: Final = msgspec.msgpack.Encoder()


class Writer:
    """Collects the body of a checkpoint."""

    def __init__(self) -> None:
        self._parts: list[bytes | bytearray] = []

    def values(self, row: Sequence[Small]) -> None:
        packed = _ENCODER.encode(row)
        self._parts.append(_ROW.pack(len(packed)))
        self._parts.append(packed)

    def blob(self, column: bytes | bytearray) -> None:
        """As it lies: it must not change before `runs` was made use of."""
        self._parts.append(_COLUMN.pack(len(column)))
        self._parts.append(column)

    def column(self, items: "array[int]") -> None:
        if _BIG_ENDIAN:
            items = items[:]
            items.byteswap()
        self.blob(items.tobytes())

    def section(self, section: "Writer") -> None:
        """What another writer collected, behind its length."""
        self._parts.append(_COLUMN.pack(section.size()))
        self._parts.extend(section._parts)

    def body(self) -> bytes:
        return b"".join(self._parts)

    def size(self) -> int:
        return sum(map(len, self._parts))

    def runs(self) -> list[bytes | bytearray]:
        """The body: large parts as they are, and what lies between two of them as one."""
        found: list[bytes | bytearray] = []
        small: list[bytes | bytearray] = []
        for part in self._parts:
            if len(part) < SEAM_BYTES:
                small.append(part)
                continue
            if small:
                found.append(b"".join(small))
                small = []
            found.append(part)
        return [*found, b"".join(small)]


class Row:
    """The values of one row, taken in order."""

    def __init__(self, values: list[object]) -> None:
        self._values = values
        self._at = 0

    def number(self) -> int:
        value = self._next()
        if not isinstance(value, int):
            raise Corrupt("checkpoint has another value where a number belongs")
        return value

    def text(self) -> str:
        value = self._next()
        if not isinstance(value, str):
            raise Corrupt("checkpoint has another value where text belongs")
        return value

    def raw(self) -> bytes:
        value = self._next()
        if not isinstance(value, bytes):
            raise Corrupt("checkpoint has another value where bytes belong")
        return value

    def texts(self) -> list[str]:
        return [Row([item]).text() for item in self._list()]

    def raws(self) -> list[bytes]:
        return [Row([item]).raw() for item in self._list()]

    def numbers(self) -> list[int]:
        return [Row([item]).number() for item in self._list()]

    def _list(self) -> list[object]:
        value = self._next()
        if not isinstance(value, list):
            raise Corrupt("checkpoint has another value where a list belongs")
        return value

    def _next(self) -> object:
        if self._at >= len(self._values):
            raise Corrupt("checkpoint row is too short", values=len(self._values))
        self._at += 1
        return self._values[self._at - 1]


class Reader:
    """Takes the body of a checkpoint apart; whatever does not fit is `Corrupt`."""

    def __init__(self, body: memoryview) -> None:
        self._body = body
        self._at = 0

    def row(self) -> Row:
        try:
            return Row(_DECODER.decode(self._take(_ROW)))
        except (msgspec.DecodeError, UnicodeDecodeError) as broken:
            raise Corrupt("checkpoint row does not decode", at=self._at) from broken

    def ints(self, count: int) -> list[int]:
        row = self.row()
        return [row.number() for _ in range(count)]

    def blob(self) -> memoryview:
        return self._take(_COLUMN)

    def column(self, typecode: str) -> "array[int]":
        items: array[int] = array(typecode)
        column = self.blob()
        if len(column) % items.itemsize:
            raise Corrupt("checkpoint column ends inside an item", size=len(column))
        items.frombytes(column)
        if _BIG_ENDIAN:
            items.byteswap()
        return items

    def finish(self) -> None:
        if self._at != len(self._body):
            raise Corrupt("bytes after the end of a checkpoint", at=self._at, size=len(self._body))

    def _take(self, prefix: struct.Struct) -> memoryview:
        if self._at + prefix.size > len(self._body):
            raise Corrupt("checkpoint ends too early", at=self._at)
        (size,) = prefix.unpack_from(self._body, self._at)
        start = self._at + prefix.size
        if size > len(self._body) - start:
            raise Corrupt("checkpoint ends too early", at=self._at, length=size)
        self._at = start + size
        return self._body[start : self._at]
