"""The envelope of an entry: who wrote it, when, and which commands it carries.

    head (44 B, little-endian) | command*          command = type u8 | length u32 | payload

This module knows the layout; what a command means is in `dray.machine`. The
log id is not in the head: it is in Genesis and in the seed of the digest (Q6).
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dray.errors import Corrupt

HEAD: Final = struct.Struct("<BBHQQqQQ")
assert HEAD.size == 44, "the head size is part of the format"
COMMAND: Final = struct.Struct("<BI")
MAX_COMMANDS: Final = 0xFFFF


class BadEntry(Corrupt):
    """The bytes are not an entry; every replica says so alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryHead:
    """Everything about an entry but its commands."""

    version: int
    flags: int
    count: int
    session: int
    n: int
    time_ms: int
    seen_position: int
    seen_digest: int


def encode(
    commands: Sequence[tuple[int, bytes]],
    *,
    session: int,
    n: int,
    time_ms: int,
    seen_position: int,
    seen_digest: int,
    version: int,
) -> bytes:
    """One entry from (type, payload) pairs."""
    parts = [HEAD.pack(version, 0, len(commands), session, n, time_ms, seen_position, seen_digest)]
    for kind, payload in commands:
        parts.append(COMMAND.pack(kind, len(payload)))
        parts.append(payload)
    return b"".join(parts)


def decode_head(entry: bytes) -> EntryHead:
    """The head alone, whatever version follows."""
    if len(entry) < HEAD.size:
        raise BadEntry("entry is shorter than its head", size=len(entry))
    version, flags, count, session, n, time_ms, position, digest = HEAD.unpack_from(entry)
    return EntryHead(
        version=version, flags=flags, count=count, session=session, n=n,
        time_ms=time_ms, seen_position=position, seen_digest=digest,
    )  # fmt: skip


def decode_commands(entry: bytes, count: int) -> list[tuple[int, memoryview]]:
    """The (type, payload) pairs; every length is bounded by the bytes that are there."""
    view = memoryview(entry)
    at = HEAD.size
    commands = []
    for _ in range(count):
        if at + COMMAND.size > len(entry):
            raise BadEntry("entry ends inside a command", at=at, size=len(entry))
        kind, length = COMMAND.unpack_from(entry, at)
        at += COMMAND.size
        if length > len(entry) - at:
            raise BadEntry("command is longer than its entry", at=at, length=length)
        commands.append((kind, view[at : at + length]))
        at += length
    if at != len(entry):
        raise BadEntry("bytes after the last command", at=at, size=len(entry))
    return commands
