"""`Append`: the batches of one WAL object, and what became of each.

Fixed-width rows, so that one length check validates all of them and a native
kernel can read them as they lie:

    walId 16 | size u32 | created_ms i64 | rows u16 | zone length u8 | zone | rows x 50 B
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import starmap
from typing import ClassVar, Final, NamedTuple, TypeAlias

from msgspec import Struct

from dray.buffers import Buffer
from dray.machine.command import MAX_ROWS, MAX_TIME_MS, BadCommand
from dray.machine.names import ProducerId, StreamId, WalId
from dray.machine.verdict import Verdict


class AppendRow(NamedTuple):
    """One batch of an `Append`, in the order of its packed form."""

    stream: StreamId
    max_timestamp_ms: int
    min_timestamp_ms: int
    producer_id: ProducerId
    base_sequence: int
    records: int
    size: int
    """Bytes of the batch, without the 4 bytes of its length."""
    position: int
    """Of the first byte of the batch in its object."""
    epoch: int


ROW: Final = struct.Struct("<QqqqiIIIh")
assert ROW.size == 50, "the row size is part of the format"
APPEND_HEAD: Final = struct.Struct("<16sIqHB")


class Append(Struct, frozen=True, kw_only=True):
    """The batches of one WAL object, to be given offsets."""

    number: ClassVar[int] = 16
    since: ClassVar[int] = 1

    wal_id: WalId
    size: int
    created_ms: int
    zone: str
    packed: bytes
    """The rows, as `pack_rows` makes them."""

    def rows(self) -> Iterator[AppendRow]:
        return starmap(AppendRow, ROW.iter_unpack(self.packed))

    def needs(self) -> int:
        return max(1, len(self.packed) // ROW.size)

    def payload(self, version: int) -> bytes:
        zone = self.zone.encode()
        rows = len(self.packed) // ROW.size
        head = APPEND_HEAD.pack(self.wal_id, self.size, self.created_ms, rows, len(zone))
        return b"".join((head, zone, self.packed))

    @classmethod
    def reader(cls, version: int) -> "Callable[[Buffer], Append]":
        return _decode


def pack_rows(rows: Iterable[tuple[int, int, int, int, int, int, int, int, int]]) -> bytes:
    """The packed form of rows in the order of `AppendRow`."""
    return b"".join(starmap(ROW.pack, rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    base: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """The batch is there already, at `base`."""

    base: int


class Rejected(Enum):
    """Why a batch got no offsets."""

    GAP = "the sequence does not follow the last one"
    FENCED = "the producer has a newer epoch"
    CLOSED = "the stream is closed"
    UNKNOWN_STREAM = "there is no such stream here"
    MALFORMED = "the row makes no sense"
    FULL = "an offset or a size would overflow"


BatchVerdict: TypeAlias = Accepted | Duplicate | Rejected

GAP: Final = -1
FENCED: Final = -2
CLOSED: Final = -3
UNKNOWN_STREAM: Final = -4
MALFORMED: Final = -5
FULL: Final = -6
FIRST_DUPLICATE: Final = -16
_REJECTED: Final = {
    GAP: Rejected.GAP,
    FENCED: Rejected.FENCED,
    CLOSED: Rejected.CLOSED,
    UNKNOWN_STREAM: Rejected.UNKNOWN_STREAM,
    MALFORMED: Rejected.MALFORMED,
    FULL: Rejected.FULL,
}


def batch_verdict(given: int) -> BatchVerdict:
    """The meaning of one packed answer: a base offset, a code, or FIRST_DUPLICATE - base."""
    if given >= 0:
        return Accepted(base=given)
    if given <= FIRST_DUPLICATE:
        return Duplicate(base=FIRST_DUPLICATE - given)
    return _REJECTED[given]


@dataclass(frozen=True, slots=True)
class Appended(Verdict):
    """One packed answer for each row of an `Append`; iterate for their meaning."""

    given: list[int]

    def __iter__(self) -> Iterator[BatchVerdict]:
        return map(batch_verdict, self.given)

    def __len__(self) -> int:
        return len(self.given)


def _decode(payload: Buffer) -> Append:
    size = len(payload)
    if size < APPEND_HEAD.size:
        raise BadCommand("append is shorter than its head", size=size)
    wal_id, object_size, created_ms, rows, zone_size = APPEND_HEAD.unpack_from(payload)
    start = APPEND_HEAD.size + zone_size
    if size != start + rows * ROW.size or rows > MAX_ROWS:  # M2
        raise BadCommand("append has another size than its head says", size=size, rows=rows)
    try:
        zone = str(payload[APPEND_HEAD.size : start], "utf-8")
    except UnicodeDecodeError as broken:
        raise BadCommand("zone is not text") from broken
    if not 0 <= created_ms <= MAX_TIME_MS:
        raise BadCommand("creation time is out of range", created_ms=created_ms)
    return Append(wal_id=wal_id, size=object_size, created_ms=created_ms, zone=zone, packed=bytes(payload[start:]))
