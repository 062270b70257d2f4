"""A commit of the delta log: one JSON file a version, as the specification has it.

    {"version": 11, "timestamp": "2026-11-17T18:15:02.883Z", "txn_id": "6f1c09d2:1730993702883:42",
     "operations": [{"type": "add", "origin_id": 7, "origin_seq": 78, "stream": 4294967297,
                     "offset_start": 420, "offset_end": 427,
                     "segment": "wal/v1/zone=z1/domain=1/date=2026/11/17/0f...wo", "position": 8192, "size": 384}],
     "checkpoint_hint": false, "entry": "<base64>", "crc": 1234}

`entry` is what counts: the bytes that the log was given, with the CRC32C of
them. `operations` say what the machine will make of it, for whoever reads the
log without one: an `add` for each batch that gets offsets, both ends counted.

Invariants
    LG40  Version v is position v + 1. A file that is no commit, names another
          version than its name or has another sum than its entry is `Corrupt`
          and never delivered.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, Protocol, TypeAlias, runtime_checkable

import msgspec
from crc32c import crc32c

from dray.buffers import Buffer
from dray.errors import Corrupt

_NAME_DIGITS: Final = 20
_SUFFIX: Final = ".json"


class CommitOperation(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that gets offsets."""

    type: str = "add"
    origin_id: int
    """The session that wrote the commit."""
    origin_seq: int
    """The number of the commit in it."""
    stream: int
    offset_start: int
    offset_end: int
    """The last offset, not the one behind it."""
    segment: str
    """The name of the object that holds the batch."""
    position: int
    size: int


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """One version of the log."""

    version: int
    timestamp: str
    txn_id: str
    operations: Sequence[CommitOperation]
    checkpoint_hint: bool = False
    entry: bytes
    crc: int


Operations: TypeAlias = Sequence[CommitOperation]


class Foreteller(Protocol):
    """A replica that knows what a commit will do."""

    @property
    def position(self) -> int:
        """The last one that it has applied."""
        ...

    def operations(self, entry: bytes) -> Operations:
        """What this entry does if it is the next one."""
        ...


@runtime_checkable
class TellsAhead(Protocol):
    """A log whose commits say what they do."""

    def foretells(self, replica: Foreteller) -> None:
        """From now on they do, as this replica tells."""
        ...


def encode(*, version: int, now_ms: int, txn_id: str, operations: Sequence[CommitOperation], entry: bytes) -> bytes:
    """The file of a commit."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    timestamp = f"{now:%Y-%m-%dT%H:%M:%S}.{now_ms % 1000:03d}Z"
    return msgspec.json.encode(
        Commit(
            version=version, timestamp=timestamp, txn_id=txn_id, operations=operations, entry=entry, crc=crc32c(entry)
        )
    )


def decode(body: Buffer, version: int) -> Commit:
    """The commit of a version (LG40)."""
    try:
        commit = msgspec.json.decode(body, type=Commit)
    except msgspec.DecodeError as error:
        raise Corrupt("this is no commit", version=version, reason=str(error)) from error
    if commit.version != version:
        raise Corrupt("the commit names another version", version=version, named=commit.version)
    if crc32c(commit.entry) != commit.crc:
        raise Corrupt("the entry of a commit is damaged", version=version)
    return commit


def commits_prefix(domain: int) -> str:
    """Where the commits of a domain are."""
    return f"log/v1/domain={domain}/_delta_log/"


def boundaries_prefix(domain: int) -> str:
    """Where it is said what was trimmed."""
    return f"log/v1/domain={domain}/_boundary/"


def commit_name(domain: int, version: int) -> str:
    return f"{commits_prefix(domain)}{version:0{_NAME_DIGITS}d}{_SUFFIX}"


def boundary_name(domain: int, position: int) -> str:
    return f"{boundaries_prefix(domain)}{position:0{_NAME_DIGITS}d}"


def parse_boundary(name: str) -> int | None:
    """The position that a boundary says; None: it is none."""
    digits = name.rsplit("/", 1)[-1]
    return int(digits) if len(digits) == _NAME_DIGITS and digits.isdecimal() else None
