"""The envelope of an entry: who wrote it, when, and which commands it carries.

    head (44 B, little-endian) | command*          command = type u8 | length u32 | payload

This module knows the layout; what a command means is in `dray.machine`. The
log id is not in the head: it is in Genesis and in the seed of the digest (Q6).
"""

import struct
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from dray.errors import Corrupt

HEAD: Final = struct.Struct("<BBHQQqQQ")
assert HEAD.size == 44, "the head size is part of the format"
COMMAND: Final = struct.Struct("<BI")
MAX_COMMANDS: Final = 0xFFFF
# At hand: every replica takes every entry apart.
_FIRST_COMMAND: Final = HEAD.size
_COMMAND_HEAD: Final = COMMAND.size
_unpack_command: Final = COMMAND.unpack_from


class BadEntry(Corrupt):
    """The bytes are not an entry; every replica says so alike."""


class EntryHead(Struct, frozen=True, kw_only=True):
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
    view, size = memoryview(entry), len(entry)
    at = _FIRST_COMMAND
    commands = []
    for _ in range(count):
        start = at + _COMMAND_HEAD
        if start > size:
            raise BadEntry("entry ends inside a command", at=at, size=size)
        kind, length = _unpack_command(entry, at)
        at = start + length
        if at > size:
            raise BadEntry("command is longer than its entry", at=start, length=length)
        commands.append((kind, view[start:at]))
    if at != size:
        raise BadEntry("bytes after the last command", at=at, size=size)
    return commands
