"""`AppendIf`: batches of one WAL object that get their offsets together, under conditions, once.

    conditions u16 | conditions x (stream u64, end u64) | txn length u8 | txn | an Append

Each stream of it has one batch and no producer. Either all batches get
offsets or none does. A stream remembers the transactions that it took last,
so a repeat is told where the first one lies.

Invariants
    AI1  All batches are taken, or none is: not if an end is another than
         expected, nor if one batch would be refused.
    AI2  A transaction that a stream remembers is not taken again: a repeat
         gets the first answer, whatever the ends are by then.
    AI3  A stream remembers its last `MAX_TRANSACTIONS` transactions.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from dray.buffers import Buffer
from dray.errors import Corrupt
from dray.machine.append import (
    CLOSED,
    FIRST_DUPLICATE,
    FULL,
    MALFORMED,
    UNKNOWN_STREAM,
    Append,
    Appended,
    AppendRow,
)
from dray.machine.command import MAX_ROWS, MAX_SIGNED, MAX_TIME_MS, BadCommand
from dray.machine.index import LENGTH_BYTES
from dray.machine.names import StreamId
from dray.machine.noun import Fields
from dray.machine.stream import Stream
from dray.machine.verdict import Verdict

TXN_BYTES: Final = 16
MAX_TRANSACTIONS: Final = 1_000
MAX_RECORDS: Final = (1 << 31) - 1
BATCH_HEADER_BYTES: Final = 61
_COUNT: Final = struct.Struct("<H")
_CONDITION: Final = struct.Struct("<QQ")
_KEPT: Final = struct.Struct("<16sQI")
_READ_APPEND: Final = Append.reader(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendIf:
    """Give the batches of one object their offsets, if the ends of streams are as expected."""

    number: ClassVar[int] = 101
    since: ClassVar[int] = 2

    append: Append
    expected: tuple[tuple[StreamId, int], ...] = ()
    """Streams, and where they have to end."""
    txn: bytes = b""
    """A name of 16 bytes for the whole; none: a repeat is another append."""

    def needs(self) -> int:
        return self.append.needs() + len(self.expected)

    def payload(self, version: int) -> bytes:
        conditions = b"".join(_CONDITION.pack(*condition) for condition in self.expected)
        txn = bytes([len(self.txn)]) + self.txn
        return b"".join((_COUNT.pack(len(self.expected)), conditions, txn, self.append.payload(version)))

    def shown(self) -> Fields:
        """For the listing of a log."""
        return {
            "wal_id": self.append.wal_id.hex(), "size": self.append.size, "created_ms": self.append.created_ms,
            "zone": self.append.zone, "txn": self.txn.hex(), "expected": [list(one) for one in self.expected],
            "rows": [dict(row._asdict()) for row in self.append.rows()],
        }  # fmt: skip

    @classmethod
    def reader(cls, version: int) -> "Callable[[Buffer], AppendIf]":
        return _decode


@dataclass(frozen=True, slots=True, kw_only=True)
class EndMoved(Verdict):
    """Nothing was taken: a stream ends elsewhere (AI1)."""

    stream: StreamId
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendTorn(Verdict):
    """Nothing was taken: this row would have been refused with this code (AI1)."""

    row: int
    code: int


def foresee(
    command: AppendIf,
    rows: Sequence[AppendRow],
    streams: Mapping[StreamId, Stream],
    is_closed: Callable[[StreamId], bool],
) -> Appended | EndMoved | AppendTorn | None:
    """What the answer is without taking anything; None: every row can be taken (AI1)."""
    before = _first_answer(command, rows, streams)
    if before is not None:
        return before
    for number, end in command.expected:
        stream = streams.get(number)
        if stream is None or stream.closed:
            return EndMoved(stream=number, end=0)
        if stream.end != end:
            return EndMoved(stream=number, end=stream.end)
    seen: set[int] = set()
    for at, row in enumerate(rows):
        code = _code(row, streams.get(row.stream), command.append.size, is_closed)
        if row.stream in seen:
            code = MALFORMED
        if code < 0:
            return AppendTorn(row=at, code=code)
        seen.add(row.stream)
    return None


def remember(stream: Stream, txn: bytes, base: int, records: int) -> None:
    """A stream took a transaction (AI3)."""
    if txn:
        stream.txns[txn] = (base, records)  # AI2
        if len(stream.txns) > MAX_TRANSACTIONS:
            del stream.txns[next(iter(stream.txns))]


def dump_txns(stream: Stream) -> bytes:
    """In the order in which they will be forgotten, which is state."""
    return b"".join(_KEPT.pack(txn, base, records) for txn, (base, records) in stream.txns.items())


def load_txns(packed: bytes | memoryview) -> dict[bytes, tuple[int, int]]:
    if len(packed) % _KEPT.size or len(packed) > MAX_TRANSACTIONS * _KEPT.size:
        raise Corrupt("transactions of a stream have another size", size=len(packed))
    return {txn: (base, records) for txn, base, records in _KEPT.iter_unpack(packed)}


def _first_answer(
    command: AppendIf, rows: Sequence[AppendRow], streams: Mapping[StreamId, Stream]
) -> Appended | AppendTorn | None:
    """Of a transaction that was taken before (AI2); under its name nothing else is taken."""
    if not command.txn:
        return None
    given: list[int] = []
    strange = -1
    for at, row in enumerate(rows):
        stream = streams.get(row.stream)
        known = None if stream is None else stream.txns.get(command.txn)
        if known is None or known[1] != row.records:
            strange = at if strange < 0 else strange
            given.append(-1 if known is None else 0)
        else:
            given.append(FIRST_DUPLICATE - known[0])
    if all(code == -1 for code in given):
        return None
    return Appended(given) if strange < 0 else AppendTorn(row=strange, code=MALFORMED)


def _code(row: AppendRow, stream: Stream | None, object_size: int, is_closed: Callable[[StreamId], bool]) -> int:
    """Why a row cannot be taken; 0: it can."""
    if stream is None or stream.closed:
        return CLOSED if stream is not None or is_closed(row.stream) else UNKNOWN_STREAM
    fits = (
        0 < row.records <= MAX_RECORDS
        and row.size > BATCH_HEADER_BYTES
        and LENGTH_BYTES <= row.position <= object_size - row.size
        and -1 <= row.max_timestamp_ms <= MAX_TIME_MS
        and row.producer_id == -1
    )
    if not fits:
        return MALFORMED
    total = stream.index.size + row.size + LENGTH_BYTES
    return FULL if stream.end + row.records > MAX_SIGNED or total > MAX_SIGNED else 0


def _decode(payload: Buffer) -> AppendIf:
    size = len(payload)
    if size < _COUNT.size:
        raise BadCommand("a conditional append is shorter than its head", size=size)
    (count,) = _COUNT.unpack_from(payload)
    at = _COUNT.size + count * _CONDITION.size
    if count > MAX_ROWS or size <= at:  # M2
        raise BadCommand("a conditional append has fewer conditions than it says", count=count)
    expected = tuple(
        (StreamId(number), end) for number, end in _CONDITION.iter_unpack(bytes(payload[_COUNT.size : at]))
    )
    length = payload[at]
    start = at + 1 + length
    if length not in (0, TXN_BYTES) or size < start:
        raise BadCommand("the name of a transaction has another size", size=length)
    append = _READ_APPEND(payload[start:])
    return AppendIf(append=append, expected=expected, txn=bytes(payload[at + 1 : start]))
