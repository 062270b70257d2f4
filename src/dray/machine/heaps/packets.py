"""The hot commands of a heap: fixed-width rows, so that one length check validates all of them.

    Enqueue  head | zone | keys x 16 B | rows x 39 B | bodies, back to back | who, if it is told
    Lease    head | holder
    Settle   head | rows x 37 B | notes (row u16, length u16, text)
    Spill    head | zone | rows x 20 B

The bodies of an `Enqueue` lie in the packet, or in the WAL object that it
names: then each row says where. A key is the 16-byte hash of a producer and
its epoch, or of a dedup string. Who enqueues is told where a heap has a
history: names u16 | (length u16, text) each | the name of each row, u16 from 1 on.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import starmap
from typing import ClassVar, Final, NamedTuple

from dray.buffers import Buffer
from dray.machine.command import MAX_ROWS, MAX_TIME_MS, BadCommand
from dray.machine.names import StreamId, WalId
from dray.machine.noun import Fields

ENQUEUE_HEAD: Final = struct.Struct("<QB16sIqBHHI")
ENQUEUE_ROW: Final = struct.Struct("<qqHhBHQII")
LEASE_HEAD: Final = struct.Struct("<QIHq16sB")
SETTLE_HEAD: Final = struct.Struct("<QHH")
SETTLE_ROW: Final = struct.Struct("<BIQ16sq")
SPILL_HEAD: Final = struct.Struct("<Q16sIqBH")
SPILL_ROW: Final = struct.Struct("<IQII")
_NOTE: Final = struct.Struct("<HH")
_U16: Final = struct.Struct("<H")
assert (ENQUEUE_ROW.size, SETTLE_ROW.size, SPILL_ROW.size) == (39, 37, 20), "the row sizes are part of the format"

KEY_BYTES: Final = 16
NO_OBJECT: Final = WalId(bytes(16))
MAX_NOTE_BYTES: Final = 1_024
MAX_SEQ: Final = (1 << 36) - 1

# Of an Enqueue as a whole.
ATOMIC: Final = 1
IN_OBJECT: Final = 2
NAMED: Final = 4
"""It is told who enqueues."""
MAX_WHO_BYTES: Final = 1_024

# Of one of its rows; the first two stay with the message.
JSON: Final = 1
BY_STRING: Final = 2
RELATIVE: Final = 4
"""`wait` counts from when the row is applied; without it, it is a moment."""
STAYS: Final = JSON | BY_STRING


class Settlement(IntEnum):
    """How a delivery ends or goes on. There is no 0: a forgotten field must not delete."""

    ACK = 1
    NACK = 2
    RELEASE = 3
    REJECT = 4
    EXTEND = 5
    RENEW = 6


class EnqueueRow(NamedTuple):
    """One message of an `Enqueue`, in the order of its packed form."""

    priority: int
    wait: int = 0
    partition: int = 0
    retries: int = -1
    flags: int = 0
    key: int = 0
    """Which of the keys, from 1 on; 0: the message has none."""
    seq: int = 0
    position: int = 0
    """Of the body in its object."""
    length: int = 0


class SettleRow(NamedTuple):
    """One settlement, in the order of its packed form."""

    kind: int
    slot: int
    arrival: int
    nonce: bytes
    argument: int = 0


class SpillRow(NamedTuple):
    """One body that lies in an object, in the order of its packed form."""

    slot: int
    arrival: int
    position: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueue:
    """Messages for one shard."""

    number: ClassVar[int] = 71
    since: ClassVar[int] = 2

    shard: StreamId
    packed: bytes
    """The rows, as `pack_messages` makes them."""
    bodies: Buffer = b""
    keys: tuple[bytes, ...] = ()
    flags: int = 0
    wal_id: WalId = NO_OBJECT
    size: int = 0
    created_ms: int = 0
    zone: str = ""
    by: tuple[str, ...] = ()
    """Who enqueues each row; none: it is not told."""

    def needs(self) -> int:
        return max(1, len(self.packed) // ENQUEUE_ROW.size)

    def payload(self, version: int) -> bytes:
        zone = self.zone.encode()
        head = ENQUEUE_HEAD.pack(
            self.shard, self.flags | (NAMED if self.by else 0), self.wal_id, self.size, self.created_ms,
            len(zone), len(self.packed) // ENQUEUE_ROW.size, len(self.keys), len(self.bodies),
        )  # fmt: skip
        return b"".join((head, zone, *self.keys, self.packed, self.bodies, *_pack_names(self.by)))

    @classmethod
    def reader(cls, version: int) -> "Callable[[Buffer], Enqueue]":
        return _read_enqueue

    def shown(self) -> Fields:
        """For people: no body is shown (HB2)."""
        return {
            "shard": self.shard, "flags": self.flags, "walId": self.wal_id.hex(), "sizeBytes": self.size,
            "rows": len(self.packed) // ENQUEUE_ROW.size, "bodyBytes": len(self.bodies),
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Give the best ready messages to one consumer."""

    number: ClassVar[int] = 72
    since: ClassVar[int] = 2

    shard: StreamId
    visibility_ms: int
    limit: int
    nonce: bytes
    """Drawn for this one proposal, and never used again."""
    holder: str
    worst: int
    """The last priority that it wants, in the heap's order."""

    def needs(self) -> int:
        return self.limit

    def payload(self, version: int) -> bytes:
        holder = self.holder.encode()
        head = LEASE_HEAD.pack(self.shard, self.visibility_ms, self.limit, self.worst, self.nonce, len(holder))
        return head + holder

    @classmethod
    def reader(cls, version: int) -> "Callable[[Buffer], Lease]":
        return _read_lease

    def shown(self) -> Fields:
        """For people: no nonce is shown (HB2)."""
        return {
            "shard": self.shard, "visibilityMs": self.visibility_ms, "limit": self.limit, "worst": self.worst,
            "holder": self.holder,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle:
    """End or prolong deliveries."""

    number: ClassVar[int] = 73
    since: ClassVar[int] = 2

    shard: StreamId
    packed: bytes
    """The rows, as `pack_settlements` makes them."""
    notes: Mapping[int, str] = field(default_factory=dict)
    """By row: why it failed."""

    def needs(self) -> int:
        return max(1, len(self.packed) // SETTLE_ROW.size)

    def payload(self, version: int) -> bytes:
        texts = ((row, text.encode()) for row, text in self.notes.items())
        notes = [_NOTE.pack(row, len(text)) + text for row, text in texts]
        head = SETTLE_HEAD.pack(self.shard, len(self.packed) // SETTLE_ROW.size, len(notes))
        return b"".join((head, self.packed, *notes))

    @classmethod
    def reader(cls, version: int) -> "Callable[[Buffer], Settle]":
        return _read_settle

    def shown(self) -> Fields:
        """For people: no nonce is shown (HB2)."""
        rows = starmap(SettleRow, SETTLE_ROW.iter_unpack(self.packed))
        return {
            "shard": self.shard,
            "rows": [{"kind": row.kind, "slot": row.slot, "arrival": row.arrival} for row in rows],
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Spill:
    """Bodies that were copied into an object lie there from now on."""

    number: ClassVar[int] = 75
    since: ClassVar[int] = 2

    shard: StreamId
    packed: bytes
    """The rows, as `pack_spilled` makes them."""
    wal_id: WalId
    size: int
    created_ms: int
    zone: str = ""

    def needs(self) -> int:
        return max(1, len(self.packed) // SPILL_ROW.size)

    def payload(self, version: int) -> bytes:
        zone = self.zone.encode()
        rows = len(self.packed) // SPILL_ROW.size
        head = SPILL_HEAD.pack(self.shard, self.wal_id, self.size, self.created_ms, len(zone), rows)
        return b"".join((head, zone, self.packed))

    @classmethod
    def reader(cls, version: int) -> "Callable[[Buffer], Spill]":
        return _read_spill

    def shown(self) -> Fields:
        return {
            "shard": self.shard, "walId": self.wal_id.hex(), "sizeBytes": self.size,
            "rows": len(self.packed) // SPILL_ROW.size,
        }  # fmt: skip


def pack_messages(rows: Iterable[tuple[int, int, int, int, int, int, int, int, int]]) -> bytes:
    """The packed form of rows in the order of `EnqueueRow`."""
    return b"".join(starmap(ENQUEUE_ROW.pack, rows))


def pack_settlements(rows: Iterable[tuple[int, int, int, bytes, int]]) -> bytes:
    """The packed form of rows in the order of `SettleRow`."""
    return b"".join(starmap(SETTLE_ROW.pack, rows))


def pack_spilled(rows: Iterable[tuple[int, int, int, int]]) -> bytes:
    """The packed form of rows in the order of `SpillRow`."""
    return b"".join(starmap(SPILL_ROW.pack, rows))


def _read_enqueue(payload: Buffer) -> Enqueue:
    start = ENQUEUE_HEAD.size
    if len(payload) < start:
        raise BadCommand("enqueue is shorter than its head", size=len(payload))
    shard, flags, wal_id, size, created_ms, zone_size, rows, keys, inline = ENQUEUE_HEAD.unpack_from(payload)
    keys_at = start + zone_size
    rows_at = keys_at + keys * KEY_BYTES
    bodies_at = rows_at + rows * ENQUEUE_ROW.size
    end = bodies_at + inline
    if not 0 < rows <= MAX_ROWS or len(payload) < end:  # M2
        raise BadCommand("enqueue has another size than its head says", size=len(payload), rows=rows)
    by: tuple[str, ...] = ()
    if flags & NAMED:
        by = _read_names(payload[end:], rows)
    elif len(payload) != end:
        raise BadCommand("bytes follow the last body", size=len(payload))
    flags &= ~NAMED
    if flags > ATOMIC | IN_OBJECT or (inline and flags & IN_OBJECT) or not 0 <= created_ms <= MAX_TIME_MS:
        raise BadCommand("enqueue makes no sense", flags=flags, created_ms=created_ms)
    raw = bytes(payload[keys_at:rows_at])
    return Enqueue(
        shard=shard, packed=bytes(payload[rows_at:bodies_at]), bodies=payload[bodies_at:end],
        keys=tuple(raw[at : at + KEY_BYTES] for at in range(0, len(raw), KEY_BYTES)), flags=flags,
        wal_id=wal_id, size=size, created_ms=created_ms, zone=str(payload[start:keys_at], "utf-8"), by=by,
    )  # fmt: skip


def _pack_names(by: tuple[str, ...]) -> list[bytes]:
    if not by:
        return []
    names = {name: at for at, name in enumerate(dict.fromkeys(name for name in by if name), 1)}
    texts = [name.encode() for name in names]
    parts = [_U16.pack(len(texts))]
    for text in texts:
        parts += [_U16.pack(len(text)), text]
    return [*parts, *(_U16.pack(names.get(name, 0)) for name in by)]


def _read_names(packed: Buffer, rows: int) -> tuple[str, ...]:
    names, at = [""], _U16.size
    (count,) = _U16.unpack_from(packed) if len(packed) >= at else (0,)
    for _ in range(count):
        if at + _U16.size > len(packed):
            raise BadCommand("enqueue ends inside a name")
        (size,) = _U16.unpack_from(packed, at)
        at += _U16.size
        if size > min(len(packed) - at, MAX_WHO_BYTES):
            raise BadCommand("a name is too long, or enqueue ends inside it", size=size)
        names.append(str(packed[at : at + size], "utf-8"))
        at += size
    if count > rows or len(packed) - at != rows * _U16.size:
        raise BadCommand("enqueue has another number of names than rows", rows=rows)
    chosen = [index for (index,) in _U16.iter_unpack(packed[at:])]
    if max(chosen) > count:
        raise BadCommand("a row has a name that is not there", count=count)
    return tuple(names[index] for index in chosen)


def _read_lease(payload: Buffer) -> Lease:
    start = LEASE_HEAD.size
    if len(payload) < start:
        raise BadCommand("lease is shorter than its head", size=len(payload))
    shard, visibility_ms, limit, worst, nonce, holder_size = LEASE_HEAD.unpack_from(payload)
    if len(payload) != start + holder_size or not 0 < limit <= MAX_ROWS:  # M2
        raise BadCommand("lease has another size than its head says", size=len(payload), limit=limit)
    holder = str(payload[start:], "utf-8")
    return Lease(shard=shard, visibility_ms=visibility_ms, limit=limit, nonce=nonce, holder=holder, worst=worst)


def _read_settle(payload: Buffer) -> Settle:
    if len(payload) < SETTLE_HEAD.size:
        raise BadCommand("settle is shorter than its head", size=len(payload))
    shard, rows, count = SETTLE_HEAD.unpack_from(payload)
    at = SETTLE_HEAD.size + rows * SETTLE_ROW.size
    if not 0 < rows <= MAX_ROWS or at > len(payload):  # M2
        raise BadCommand("settle has another size than its head says", size=len(payload), rows=rows)
    packed = bytes(payload[SETTLE_HEAD.size : at])
    notes = {}
    for _ in range(count):
        if at + _NOTE.size > len(payload):
            raise BadCommand("settle ends inside a note")
        row, size = _NOTE.unpack_from(payload, at)
        at += _NOTE.size
        if size > min(len(payload) - at, MAX_NOTE_BYTES):
            raise BadCommand("a note is too long, or settle ends inside it", size=size)
        notes[row] = str(payload[at : at + size], "utf-8")
        at += size
    if at != len(payload):
        raise BadCommand("bytes follow the last note")
    return Settle(shard=shard, packed=packed, notes=notes)


def _read_spill(payload: Buffer) -> Spill:
    start = SPILL_HEAD.size
    if len(payload) < start:
        raise BadCommand("spill is shorter than its head", size=len(payload))
    shard, wal_id, size, created_ms, zone_size, rows = SPILL_HEAD.unpack_from(payload)
    rows_at = start + zone_size
    if len(payload) != rows_at + rows * SPILL_ROW.size or not 0 < rows <= MAX_ROWS:  # M2
        raise BadCommand("spill has another size than its head says", size=len(payload), rows=rows)
    if not 0 <= created_ms <= MAX_TIME_MS:
        raise BadCommand("creation time is out of range", created_ms=created_ms)
    return Spill(
        shard=shard, packed=bytes(payload[rows_at:]), wal_id=wal_id, size=size, created_ms=created_ms,
        zone=str(payload[start:rows_at], "utf-8"),
    )  # fmt: skip
