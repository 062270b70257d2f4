"""A plan as bytes, for a driver that does not sit on the broker's machine: MessagePack, columns as they lie.

    [2, address, pin, [[piece ...] ...]]
    piece   its fields in order; a column is [type code, bytes], little-endian

Invariants
    SP10  What is not a whole plan of a known form is refused: columns of a
          piece have one length for its objects and one for its rows, every row
          names an object of its piece, and every file has its checksum.
"""

import sys
from array import array
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from dray.errors import Corrupt
from dray.machine.names import LogId
from dray.machine.objects import Origin
from dray.objects.paths import ObjectKind
from dray.pipeline.plan import Piece, Plan

FORM: Final = 2
MEDIA_TYPE: Final = "application/vnd.dray.plan"
_SWAPPED: Final = sys.byteorder == "big"
_SIZES: Final = {"H": 2, "I": 4, "Q": 8, "q": 8}


class PlanBytes(Corrupt):
    """These bytes are no plan that this build knows: driver and broker may be of different builds."""


class _Column(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    code: str
    content: bytes

    @classmethod
    def of(cls, items: "array[int]") -> "_Column":
        if items.typecode not in _SIZES or items.itemsize != _SIZES[items.typecode]:
            raise PlanBytes("a column of another type", code=items.typecode)
        if _SWAPPED:
            items = items[:]
            items.byteswap()
        return cls(items.typecode, items.tobytes())

    def items(self) -> "array[int]":
        if self.code not in _SIZES or len(self.content) % _SIZES[self.code]:
            raise PlanBytes("a column of another type, or one that is cut", code=self.code[:9])
        items = array(self.code, self.content)
        if _SWAPPED:
            items.byteswap()
        return items


class _Origin(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    kind: int
    log_id: Annotated[bytes, Meta(min_length=8, max_length=8)]
    zone: str


class _Piece(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    topic: str
    partition: int
    stream: int
    domain: int
    topic_id: Annotated[bytes, Meta(min_length=16, max_length=16)]
    start: int
    end: int
    origins: list[_Origin]
    object_origins: _Column
    sessions: _Column
    counters: _Column
    created_ms: _Column
    footers: _Column
    owners: _Column
    bases: _Column
    counts: _Column
    positions: _Column
    sizes: _Column

    def piece(self) -> Piece:
        origins = tuple(Origin(ObjectKind(one.kind), LogId(one.log_id), one.zone) for one in self.origins)
        of_objects = [one.items() for one in (self.object_origins, self.sessions, self.counters, self.created_ms)]
        of_rows = [one.items() for one in (self.owners, self.bases, self.counts, self.positions, self.sizes)]
        objects, rows = len(of_objects[0]), len(of_rows[0])
        whole = {len(one) for one in of_objects} == {objects} and {len(one) for one in of_rows} == {rows}
        footers = self.footers.items()
        files = objects if origins and origins[0].kind is ObjectKind.PARQUET else 0
        whole = whole and len(footers) == files
        if not whole or not rows or max(of_rows[0]) >= objects or max(of_objects[0]) >= len(origins):
            raise PlanBytes("the columns of a piece do not fit together", topic=self.topic, partition=self.partition)
        object_origins, sessions, counters, created_ms = of_objects
        owners, bases, counts, positions, sizes = of_rows
        return Piece(
            topic=self.topic, partition=self.partition, stream=self.stream, domain=self.domain,
            topic_id=self.topic_id, start=self.start, end=self.end, origins=origins, object_origins=object_origins,
            sessions=sessions, counters=counters, created_ms=created_ms, footers=footers, owners=owners,
            bases=bases, counts=counts, positions=positions, sizes=sizes,
        )  # fmt: skip


class _Plan(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    form: int
    address: str
    pin: str | None
    tasks: list[list[_Piece]]


def pack_plan(plan: Plan) -> bytes:
    tasks = [[_packed(piece) for piece in pieces] for pieces in plan.tasks]
    return msgspec.msgpack.encode(_Plan(FORM, plan.address, plan.pin, tasks))


def unpack_plan(content: bytes) -> Plan:
    """The plan in these bytes.

    Raises:
        PlanBytes: they are none (SP10).
    """
    try:
        found = msgspec.msgpack.decode(content, type=_Plan)
        if found.form != FORM:
            raise PlanBytes("a plan of another form: driver and broker must be of the same build", form=found.form)
        tasks = [[piece.piece() for piece in pieces] for pieces in found.tasks]
    except (msgspec.DecodeError, ValueError) as error:
        raise PlanBytes("the answer is no plan", reason=str(error)[:200]) from error
    return Plan(address=found.address, tasks=tasks, pin=found.pin)


def _packed(piece: Piece) -> _Piece:
    return _Piece(
        topic=piece.topic, partition=piece.partition, stream=piece.stream, domain=piece.domain,
        topic_id=piece.topic_id, start=piece.start, end=piece.end,
        origins=[_Origin(origin.kind.value, origin.log_id, origin.zone) for origin in piece.origins],
        object_origins=_Column.of(piece.object_origins), sessions=_Column.of(piece.sessions),
        counters=_Column.of(piece.counters), created_ms=_Column.of(piece.created_ms),
        footers=_Column.of(piece.footers), owners=_Column.of(piece.owners), bases=_Column.of(piece.bases),
        counts=_Column.of(piece.counts), positions=_Column.of(piece.positions), sizes=_Column.of(piece.sizes),
    )  # fmt: skip
