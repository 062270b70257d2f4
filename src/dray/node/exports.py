"""The metadata of a cluster as one file: the state of every domain at a moment, and nothing of its log.

    magic 8 | length of the header u32 | header (JSON) | a checkpoint for each domain | blake2b-256 of all before

Invariants
    MV1  A file is taken whole and unchanged, or refused; so is each checkpoint in it, which has a hash of its own.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec

from dray.disk import Disk
from dray.errors import Corrupt, Invalid
from dray.machine import checkpoint
from dray.machine.machine import Machine

MAGIC: Final = b"DRAYEXP\x01"
FORMAT: Final = 1
_HEAD: Final = struct.Struct("<8sI")
_HASH_BYTES: Final = 32


class ExportedDomain(msgspec.Struct, frozen=True, kw_only=True):
    """One domain of a file."""

    domain: int
    position: int
    """Of the log that it was made of."""
    size: int
    """Of its checkpoint."""


class ExportHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What a file says of itself."""

    format: int
    cluster_id: str
    made_ms: int
    domains: list[ExportedDomain]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterExport:
    """The state of a cluster."""

    cluster_id: str
    made_ms: int
    checkpoints: Mapping[int, bytes]
    """By domain."""

    def machines(self) -> dict[int, Machine]:
        """The state of each domain (MV1)."""
        return {domain: checkpoint.load(data) for domain, data in self.checkpoints.items()}


def pack_export(export: ClusterExport) -> list[bytes]:
    """A file, as parts that lie behind each other."""
    domains = [
        ExportedDomain(domain=domain, position=checkpoint.summary(data).position, size=len(data))
        for domain, data in sorted(export.checkpoints.items())
    ]
    header = msgspec.json.encode(
        ExportHeader(format=FORMAT, cluster_id=export.cluster_id, made_ms=export.made_ms, domains=domains)
    )
    parts = [_HEAD.pack(MAGIC, len(header)), header, *(export.checkpoints[one.domain] for one in domains)]
    return [*parts, _hash(parts)]


def unpack_export(data: bytes) -> ClusterExport:
    """The state that a file holds (MV1).

    Raises:
        Invalid: it is no such file, or a newer Dray made it.
        Corrupt: it was cut off or changed.
    """
    view = memoryview(data)
    if len(view) < _HEAD.size + _HASH_BYTES or not data.startswith(MAGIC):
        raise Invalid("this is no file that `drayd admin meta export` has written", size=len(view))
    if _hash([view[:-_HASH_BYTES]]) != view[-_HASH_BYTES:]:
        raise Corrupt("the file was cut off or changed: use another copy of it", size=len(view))
    _, length = _HEAD.unpack_from(view)
    at = _HEAD.size + length
    try:
        header = msgspec.json.decode(view[_HEAD.size : at], type=ExportHeader)
    except msgspec.DecodeError as bad:
        raise Invalid("a newer Dray has written this file: use that one", reason=str(bad)) from bad
    if header.format > FORMAT:
        raise Invalid("a newer Dray has written this file: use that one", format=header.format, known=FORMAT)
    checkpoints = {}
    for one in header.domains:
        checkpoints[one.domain] = bytes(view[at : at + one.size])
        at += one.size
    return ClusterExport(cluster_id=header.cluster_id, made_ms=header.made_ms, checkpoints=checkpoints)


def write_export(path: Path, export: ClusterExport, disk: Disk) -> int:
    """Put a file into its place, whole and durable; its size. A file that is there already is not touched."""
    if path.name in disk.list(path.parent):
        raise Invalid("there is a file of this name: choose another one", path=path)
    parts = pack_export(export)
    temporary = path.with_name(path.name + ".part")
    disk.remove(temporary)
    file = disk.create(temporary)
    try:
        file.write(parts)
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_dir(path.parent)
    return sum(len(part) for part in parts)


def _hash(parts: "list[bytes] | list[memoryview]") -> bytes:
    digest = blake2b(digest_size=_HASH_BYTES)
    for part in parts:
        digest.update(part)
    return digest.digest()
