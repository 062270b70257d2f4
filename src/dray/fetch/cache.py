"""Objects in memory: those this broker wrote, and what it read from the store.

A piece is a stretch of one object. A written object is one piece of many
parts, as the produce service had them: nothing is joined or copied, and since
a batch never crosses two parts, a batch is always a view of one. What is
smaller than a batch header (lengths, the CRC) is not kept. What was read is a
piece of one part.

A view keeps the whole buffer alive that it looks into: a batch of 100 bytes
may hold a connection's slab. So buffers are counted, each once for all objects
that look into it, and a small object that would hold much more than its own
size is copied after all; so is one of many small parts.

Invariants
    F1  The pieces held never count more than the limit: the buffers that
        they keep alive, and an overhead for each part. The least recently
        used go first.
    F2  No piece of an object lies within another, so the last one that
        starts at or before a byte is the only one that can hold it.
"""

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from dray.buffers import Buffer
from dray.fetch import telemetry
from dray.records import HEADER_SIZE

PART_OVERHEAD_BYTES: Final = 256
"""What Python needs for a view and its place in the lists."""

COPY_ABOVE: Final = 2
"""Copy a small written object if its views keep more than this many times its size alive."""

COPIED_BYTES_MAX: Final = 64 * 1024

MANY_PARTS: Final = 32
SMALL_PART_BYTES: Final = 1024
GATHERED_BYTES_MAX: Final = 512 * 1024
"""An object of many parts that are small is copied in less time than its parts are looked at."""


class Piece:
    """The bytes [start, end) of an object, where they lie in memory."""

    __slots__ = ("_parts", "_starts", "end", "own_bytes", "path", "shared", "start", "trusted")

    def __init__(
        self,
        path: str,
        start: int,
        end: int,
        parts: list[memoryview],
        starts: "array[int]",
        *,
        trusted: bool,
        own_bytes: int = 0,
        shared: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        self.path = path
        self.start = start
        self.end = end
        self.trusted = trusted
        """Validated by this process when it was produced; what came from the store is checked at each use."""
        self.own_bytes = own_bytes + PART_OVERHEAD_BYTES * len(parts)
        self.shared = shared
        """Sizes of the buffers that its views keep alive, by identity; other pieces may, too."""
        self._parts = parts
        self._starts = starts

    def cut(self, start: int, end: int) -> memoryview | None:
        """A view of a range that lies in one part; None if it is not here."""
        at = bisect_right(self._starts, start) - 1
        if at < 0:
            return None
        part, base = self._parts[at], self._starts[at]
        return part[start - base : end - base] if end - base <= len(part) else None


def fetched_piece(path: str, start: int, content: memoryview) -> Piece:
    """What one read of the store gave."""
    size = len(content)
    return Piece(path, start, start + size, [content], array("Q", [start]), trusted=False, own_bytes=size)


def written_piece(path: str, parts: Sequence[Buffer]) -> Piece:
    """An object as it was written."""
    if len(parts) >= MANY_PARTS:
        total = sum(map(len, parts))
        if total <= min(GATHERED_BYTES_MAX, SMALL_PART_BYTES * len(parts)):
            return _copied(path, total, parts)
    kept: list[memoryview] = []
    starts: array[int] = array("Q")
    at = 0
    for part in parts:
        size = len(part)
        if size >= HEADER_SIZE:
            kept.append(part if isinstance(part, memoryview) else memoryview(part))
            starts.append(at)
        at += size
    buffers = {id(part.obj): part.obj for part in kept}
    shared = {identity: memoryview(buffer).nbytes for identity, buffer in buffers.items()}
    if at <= COPIED_BYTES_MAX and sum(shared.values()) > COPY_ABOVE * at:
        return _copied(path, at, parts)
    return Piece(path, 0, at, kept, starts, trusted=True, shared=shared)


def _copied(path: str, size: int, parts: Sequence[Buffer]) -> Piece:
    return Piece(path, 0, size, [memoryview(b"".join(parts))], array("Q", [0]), trusted=True, own_bytes=size)


class ObjectCache:
    """Pieces of objects, bounded by bytes (F1)."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.bytes = 0
        self._used: OrderedDict[Piece, None] = OrderedDict()
        self._by_path: dict[str, list[Piece]] = {}
        self._holders: dict[int, int] = {}
        """How many pieces look into a buffer, by its identity; while one does, no other buffer can have it."""

    def add(self, path: str, parts: Sequence[Buffer], size: int) -> None:
        """Keep an object that this process wrote: valid batches, in the parts that were put."""
        if size <= self.limit_bytes:
            self.keep(written_piece(path, parts))

    def keep(self, piece: Piece) -> None:
        """Hold a piece, unless what is held says the same."""
        if piece.own_bytes + sum(piece.shared.values()) > self.limit_bytes:
            return
        pieces = self._by_path.setdefault(piece.path, [])
        at = bisect_right(pieces, piece.start, key=_start)
        if at and pieces[at - 1].end >= piece.end:
            self._used.move_to_end(pieces[at - 1])
            return  # F2
        first = at - 1 if at and pieces[at - 1].start == piece.start else at
        last = first
        while last < len(pieces) and pieces[last].end <= piece.end:
            last += 1
        for nested in pieces[first:last]:
            self._uncount(nested)
        pieces[first:last] = [piece]  # F2
        self._count(piece)
        self._shrink()

    def find(self, path: str, start: int) -> Piece | None:
        """The only piece that can hold the byte at `start` (F2); it counts as used."""
        pieces = self._by_path.get(path)
        if not pieces:
            return None
        at = bisect_right(pieces, start, key=_start)
        if not at or pieces[at - 1].end <= start:
            return None
        self._used.move_to_end(pieces[at - 1])
        return pieces[at - 1]

    def forget(self, path: str) -> None:
        """Drop what is held of an object."""
        for piece in self._by_path.pop(path, ()):
            self._uncount(piece)
        telemetry.CACHED.set(self.bytes)

    def _shrink(self) -> None:
        while self.bytes > self.limit_bytes:  # F1
            piece = next(iter(self._used))
            self._uncount(piece)
            pieces = self._by_path[piece.path]
            pieces.remove(piece)
            if not pieces:
                del self._by_path[piece.path]
        telemetry.CACHED.set(self.bytes)

    def _count(self, piece: Piece) -> None:
        self._used[piece] = None
        self.bytes += piece.own_bytes
        for identity, size in piece.shared.items():
            holders = self._holders.get(identity, 0)
            self._holders[identity] = holders + 1
            if not holders:
                self.bytes += size

    def _uncount(self, piece: Piece) -> None:
        del self._used[piece]
        self.bytes -= piece.own_bytes
        for identity, size in piece.shared.items():
            self._holders[identity] -= 1
            if not self._holders[identity]:
                del self._holders[identity]
                self.bytes -= size


def _start(piece: Piece) -> int:
    return piece.start
