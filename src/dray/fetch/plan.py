"""Which batches answer a fetch, told by the offset index alone.

What a plan says of a stream comes from one state of the machine: nothing is
awaited and nothing is read, because the index knows every length. A plan of
many streams is made in slices, so that others have the loop between them. Batches are cut out
by their rows, never by scanning an object: an object may hold batches that
were refused, and no row names those.

Invariants
    F3  A plan names whole batches in offset order without a gap, from the one
        that holds the asked offset on: within the limits, except that the
        first batch of a response may be larger than any of them. What comes
        from a file whose batches are rebuilt ends it: how many bytes they take
        is known when they are made, so they get what room is left.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from dray.errors import DrayError
from dray.fetch.errors import DamagedObject, NotHere, OffsetOutOfRange, StreamGone
from dray.machine.index import IndexRow
from dray.machine.machine import Machine
from dray.machine.names import ObjectId, StreamId, domain_of
from dray.machine.stream import Stream
from dray.objects.paths import ObjectKind
from dray.pace import Pace
from dray.replica.domains import Domains
from dray.replica.replica import Replica

MAX_BATCHES: Final = 4_000
"""Of one response: the loop is not held for longer than tiny batches of this number take."""

_PLACES_MAX: Final = 16_384
_PLENTY: Final = 1 << 62


class PartitionRead(NamedTuple):
    """What a consumer wants of one stream. A request may name thousands: a tuple is made in half the time."""

    stream: StreamId
    offset: int
    max_bytes: int


class Place(NamedTuple):
    """An object of the store."""

    path: str
    size: int
    created_ms: int
    kind: ObjectKind
    footer_crc: int = 0
    """Of a file alone; 0: not known."""


class Run(NamedTuple):
    """Neighbouring rows of one stream that name one object."""

    place: Place
    rows: list[IndexRow]
    offset: int
    """The first that is wanted: a source whose rows hold many batches begins with the one that has it."""
    room: int
    """Bytes that the answer has left for it (F3)."""
    oversize: bool = True
    """Its first batch may be larger than that: it is the first of its response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Batches to be sent; none where a limit is used up."""

    start: int
    end: int
    runs: list[Run]
    size: int
    batches: int
    next_offset: int


class AtEnd(NamedTuple):
    """Nothing is behind the asked offset, as far as this replica knows."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why there are no batches, as far as this replica knows."""

    error: DrayError


Look: TypeAlias = Rows | AtEnd | Refusal


class Backlog(NamedTuple):
    """Batches that wait for a consumer."""

    bytes: int
    batches: int


class Planner:
    """Looks into the machines of this process."""

    def __init__(self, domains: Domains) -> None:
        self._domains = domains
        self._places: dict[tuple[int, ObjectId], Place] = {}

    def replica_of(self, stream: StreamId) -> Replica:
        """The replica that knows a stream."""
        try:
            return self._domains.of(stream)
        except KeyError:
            raise NotHere("this process does not follow the domain", domain=domain_of(stream)) from None

    def find_replica(self, stream: StreamId) -> Replica | None:
        """The same, or None."""
        try:
            return self._domains.of(stream)
        except KeyError:
            return None

    def open_stream(self, stream: StreamId) -> Stream:
        """An open stream of the machine, as it is now; `StreamGone` means nothing without a sync."""
        found = self.replica_of(stream).machine.streams.find(stream)
        if found is None or found.closed:
            raise StreamGone("no such stream: its topic was deleted, or never made", stream=stream)
        return found

    async def look(self, requests: Sequence[PartitionRead], max_bytes: int, *, oversize: bool = True) -> list[Look]:
        """The plan of a response, in the order of the requests (F3); not even one batch too large unless `oversize`."""
        looks: list[Look] = []
        left, batches, first, pace = max_bytes, MAX_BATCHES, oversize, Pace()
        for request in requests:
            if pace.is_due():
                await asyncio.sleep(0)
            limit = request.max_bytes if request.max_bytes < left else left
            look = self.look_at(request.stream, request.offset, limit, batches, oversize=first)
            if isinstance(look, Rows) and look.batches:
                left -= look.size
                batches -= look.batches
                first = False
            looks.append(look)
        return looks

    def look_at(self, stream: StreamId, offset: int, limit: int, batches: int, *, oversize: bool) -> Look:
        """The batches of one stream from an offset on: at most `limit` bytes, or one batch if `oversize` (F3)."""
        try:
            found = self.open_stream(stream)
            start, end = found.start, found.end
            if offset == end:
                return AtEnd(start=start, end=end)
            if not start <= offset < end:
                raise OffsetOutOfRange("offset is out of range", stream=stream, offset=offset, start=start, end=end)
            runs, size, count = self._runs(found, offset, limit, batches, oversize)
        except DrayError as error:
            return Refusal(error=error)
        following = runs[-1].rows[-1].end if runs else offset
        return Rows(start=start, end=end, runs=runs, size=size, batches=count, next_offset=following)

    def backlog(self, stream: StreamId, offset: int) -> Backlog | None:
        """What lies behind an offset; None: a look at it would be a refusal."""
        found = self.replica_of(stream).machine.streams.find(stream)
        if found is None or found.closed or not found.start <= offset <= found.end:
            return None
        first = found.index.find(offset) if offset < found.end else None
        if first is None:
            return Backlog(0, 0)
        row, last = found.index.row(first), found.index.row(len(found.index) - 1)
        if self.replica_of(stream).machine.objects.kind(row.object) is ObjectKind.PARQUET:
            return Backlog(_PLENTY, len(found.index) - first)  # F20: a plan would fill the answer with it
        return Backlog(last.cumulative_size - row.cumulative_size + row.size, len(found.index) - first)

    def bytes_between(self, stream: StreamId, start: int, end: int) -> int:
        """Bytes of the batches from the one that holds `start` to the one before `end`; 0 if either is not there."""
        found = self.replica_of(stream).machine.streams.find(stream)
        if found is None or start >= end:
            return 0
        first, last = found.index.find(start), found.index.find(end - 1)
        if first is None or last is None:
            return 0
        row = found.index.row(first)
        return found.index.row(last).cumulative_size - row.cumulative_size + row.size

    def run_at(self, stream: StreamId, row: IndexRow) -> Run:
        """One batch."""
        return Run(self._place(self.replica_of(stream).machine, row.object), [row], row.start, row.size)

    def _runs(
        self, stream: Stream, offset: int, limit: int, batches: int, oversize: bool
    ) -> tuple[list[Run], int, int]:
        runs: list[Run] = []
        rows: list[IndexRow] = []
        size, owner = 0, -1
        index = stream.index
        first = index.find(offset)
        if first is None or batches <= 0:
            return runs, 0, 0
        machine = self.replica_of(stream.id).machine
        for number in range(first, min(len(index), first + batches)):
            row = index.row(number)
            place = self._place(machine, row.object) if row.object != owner else None
            if place is not None and place.kind is ObjectKind.PARQUET:
                if size < limit or (oversize and not size):
                    room = max(0, limit - size)
                    runs.append(Run(place, [row], max(offset, row.start), room, oversize and not size))
                    return runs, size + max(1, room), number - first + 1
                return runs, size, number - first
            if size + row.size > limit and (size or not oversize):
                return runs, size, number - first
            if place is not None:
                owner, rows = row.object, []
                runs.append(Run(place, rows, max(offset, row.start), limit - size))
            rows.append(row)
            size += row.size
        return runs, size, min(len(index) - first, batches)

    def _place(self, machine: Machine, number: ObjectId) -> Place:
        """Where an object lies; it never moves, so it is worked out once."""
        key = machine.domain, number
        place = self._places.get(key)
        if place is None:
            found = machine.objects.find(number)
            if found is None:
                raise DamagedObject("the index names an object that the machine has forgotten", object=number)
            footer_crc = 0 if found.file is None else found.file.footer_crc
            place = Place(found.path(), found.size, found.created_ms, found.kind, footer_crc)
            if len(self._places) >= _PLACES_MAX:
                del self._places[next(iter(self._places))]
            self._places[key] = place
        return place
