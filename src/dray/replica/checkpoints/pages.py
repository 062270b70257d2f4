"""A large checkpoint as pages that are named by their content: what did not change is not written again.

    N.made, N.checkpoint   magic 8 | u64 size | (hash 16 B | u32 size) of each page | blake2b-128 of all before
    pages/HASH             a page, under the hash of its bytes

Pages are cut where a run of bytes begins that the writer told apart (a large
column) and every 256 KiB behind that, so that a column that grew does not move
the pages of the next.

Invariants
    CK7  A checkpoint gets its name when every page of it is durable under its
         own.
    CK8  A page goes only when no checkpoint that is kept names it.
"""

import struct
from collections.abc import Iterator, Sequence, Set
from hashlib import blake2b
from pathlib import Path
from typing import Final

from dray.disk import Disk
from dray.errors import Corrupt, NotFound

PAGES: Final = "pages"
LARGE: Final = 1 << 20
"""Smaller checkpoints are one file."""
PAGE: Final = 256 << 10
MAGIC: Final = b"DRAYPGS\x01"
_HEAD: Final = struct.Struct("<8sQ")
_ENTRY: Final = struct.Struct("<16sI")
_HASH_BYTES: Final = 16
_PART: Final = ".part"
_DAMAGED: Final = ".damaged"


class Pages:
    """The pages of one directory of checkpoints."""

    def __init__(self, directory: Path, disk: Disk, maker: str) -> None:
        self._directory = directory / PAGES
        self._disk = disk
        self._maker = maker

    def write(self, runs: Sequence[bytes | bytearray]) -> bytes:
        """Make every page durable (CK7); what the checkpoint's own file is to hold."""
        self._disk.make_dir(self._directory)
        there = set(self._disk.list(self._directory))
        listed = []
        for page in _cut(runs):
            name = _hash(page)
            if name.hex() not in there:
                self._write_page(name.hex(), page)
                there.add(name.hex())
            listed.append(_ENTRY.pack(name, len(page)))
        # Also of pages that were there: whoever wrote them may have been killed before this.
        self._disk.sync_dir(self._directory)
        told = b"".join((_HEAD.pack(MAGIC, sum(map(len, runs))), *listed))
        return told + _hash(told)

    def _write_page(self, name: str, page: memoryview) -> None:
        temporary = self._directory / f"{name}{_PART}{self._maker}"
        self._disk.remove(temporary)
        file = self._disk.create(temporary)
        try:
            file.write([page])
            file.sync()
        finally:
            file.close()
        self._disk.rename(temporary, self._directory / name)

    def each(self, listing: bytes) -> Iterator[bytes]:
        """The pages of the checkpoint that a file lists; `Corrupt` if one is missing or damaged."""
        told, entries = _parse(listing)
        size = sum(length for _, length in entries)
        if size != told:
            raise Corrupt("the pages of a checkpoint have another size than it says", size=size, told=told)
        for name, length in entries:
            yield self._read_page(name, length)

    def read(self, listing: bytes) -> bytearray:
        """The checkpoint that a file lists. Put together page by page: nobody else waits for all of it (Q8)."""
        data = bytearray()
        for page in self.each(listing):
            data += page
        return data

    def _read_page(self, name: bytes, length: int) -> bytes:
        try:
            page = self._disk.read(self._directory / name.hex())
        except NotFound as gone:
            raise Corrupt("a page of a checkpoint is missing", page=name.hex()) from gone
        if len(page) != length or _hash(page) != name:
            raise Corrupt("a page of a checkpoint is damaged", page=name.hex())
        return page

    def set_aside(self, listing: bytes) -> None:
        """Get damaged pages out of the way, so that they are written anew; they are kept for an operator."""
        for name, length in _parse(listing)[1]:
            try:
                self._read_page(name, length)
            except Corrupt:
                if name.hex() in self._disk.list(self._directory):
                    aside = self._directory / f"{name.hex()}{_DAMAGED}"
                    self._disk.rename(self._directory / name.hex(), aside)

    def sweep(self, named: Set[str]) -> None:
        """Take away what nobody names (CK8), and what is half-written: nobody is at work."""
        for name in self._disk.list(self._directory):
            if name not in named and not name.endswith(_DAMAGED):
                self._disk.remove(self._directory / name)


def named_in(listing: bytes) -> set[str]:
    """The pages of a checkpoint; `Corrupt` if the list is damaged."""
    return {name.hex() for name, _ in _parse(listing)[1]}


def is_listing(content: bytes) -> bool:
    return content.startswith(MAGIC)


def _parse(listing: bytes) -> tuple[int, list[tuple[bytes, int]]]:
    end = len(listing) - _HASH_BYTES
    if end < _HEAD.size or _hash(listing[:end]) != listing[end:] or (end - _HEAD.size) % _ENTRY.size:
        raise Corrupt("the list of a checkpoint's pages is damaged", size=len(listing))
    magic, size = _HEAD.unpack_from(listing)
    if magic != MAGIC:
        raise Corrupt("these bytes list no pages")
    entries: list[tuple[bytes, int]] = list(_ENTRY.iter_unpack(listing[_HEAD.size : end]))
    return size, entries


def _cut(runs: Sequence[bytes | bytearray]) -> Iterator[memoryview]:
    for run in runs:
        for at in range(0, len(run), PAGE):
            yield memoryview(run)[at : at + PAGE]


def _hash(content: bytes | memoryview) -> bytes:
    return blake2b(content, digest_size=_HASH_BYTES).digest()
