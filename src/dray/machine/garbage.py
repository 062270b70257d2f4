"""Objects and their end: alive, dead, deleting, gone.

    rows > 0 --the last row goes--> dead --grace over, no older pin--> deleting --deleted in the store--> gone

The machine counts the rows that name each object, so whether one is alive is
exact at every position and needs no listing of a bucket. Each step is a
command, so any broker goes on where a crashed one stopped.

Records are packed in blocks of 64, about 26 bytes each: on a local disk every
small produce request may be an object of its own. A block goes when the last
of its objects is gone; one object that lives on keeps its block.

Invariants
    X1  An object is dead exactly when no row names it: at the position and
        machine time at which its last row went, or at once if none was
        accepted. The dead do not come back.
    X2  `MarkDeleting` takes only objects that are dead, whose grace is over
        by machine time, and that no live pin may still need; never while
        time is paused, and never hastier than the domain's minimum.
    X3  A pin keeps every object that died at or after its position; it ends
        with its session.
    X4  Only what was marked deleting may be gone; to say so again is harmless.
    X5  A WAL id is committed at most once, so no two records share an object.
"""

from array import array
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from typing import Annotated, ClassVar, Final, NamedTuple

from msgspec import Meta

from dray.errors import Corrupt
from dray.machine.command import MAX_ROWS, Command, Millis, Name, ObjectField, Packed
from dray.machine.head import Head
from dray.machine.keys import Shape
from dray.machine.names import LogId, ObjectId, SessionId, WalId, wal_id
from dray.machine.noun import Fields, Listing, stray
from dray.machine.packing import Reader, Writer
from dray.machine.step import Step
from dray.machine.timeline import Timeline
from dray.machine.verdict import DONE, Verdict, Why, refused

PIN_KEY: Final = Shape("sessions/#/pins/$")
OBJECT_KEY: Final = Shape("wal/objects/#/%")
GARBAGE_KEY: Final = Shape("wal/gc/#/%")

BLOCK_BITS: Final = 6
BLOCK: Final = 1 << BLOCK_BITS
DENSE: Final = 16
"""Objects asked for in each block, from where on it is faster to copy blocks whole."""
MAX_ORIGINS: Final = 0xFFFF
MAX_PINS: Final = 1_000
"""Of one session."""


class Pin(Packed, frozen=True, kw_only=True):
    """Keep every object that dies from here on, while the entry's session lives."""

    number = 22

    pin: Name


class Unpin(Packed, frozen=True, kw_only=True):
    number = 23

    pin: Name


class MarkDeleting(Packed, frozen=True, kw_only=True):
    """Dead objects whose grace is over may now be deleted from the store."""

    number = 24

    objects: Annotated[tuple[ObjectField, ...], Meta(max_length=MAX_ROWS)]
    grace_ms: Millis

    def needs(self) -> int:
        return max(1, len(self.objects))


class Gone(Packed, frozen=True, kw_only=True):
    """These objects are no longer in the store: forget them."""

    number = 25

    objects: Annotated[tuple[ObjectField, ...], Meta(max_length=MAX_ROWS)]

    def needs(self) -> int:
        return max(1, len(self.objects))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned(Verdict):
    """Whatever was alive at `position` stays in the store while the pin lives."""

    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked(Verdict):
    """The objects that may be deleted now; the others named were not due."""

    objects: tuple[ObjectId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WalObject:
    """The record of one object, unpacked."""

    id: ObjectId
    wal_id: WalId
    size: int
    created_ms: int
    zone: str
    rows: int


class ObjectColumns(NamedTuple):
    """What the names of many objects are made of."""

    origins: "array[int]"
    """Numbers; `Objects.origin` tells what they mean."""
    sessions: "array[int]"
    counters: "array[int]"
    created_ms: "array[int]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """Since when an object is dead, and whether its deletion has begun."""

    position: int
    time_ms: int
    deleting: bool


class _Block:
    """The records of 64 objects in a row. `rows` of a gone object is 0, as are its other columns."""

    __slots__ = ("counters", "created", "kept", "origins", "rows", "sessions", "sizes")

    def __init__(self) -> None:
        self.sessions: array[int] = array("I")
        self.counters: array[int] = array("I")
        self.sizes: array[int] = array("I")
        self.created: array[int] = array("q")
        self.origins: array[int] = array("H")
        self.rows: array[int] = array("H")
        self.kept = 0

    def columns(self) -> "tuple[array[int], ...]":
        return self.sessions, self.counters, self.sizes, self.created, self.origins, self.rows


class Objects:
    """The WAL objects of a domain."""

    name: ClassVar[str] = "objects"
    since: ClassVar[int] = 1
    commands: ClassVar[tuple[type[Command], ...]] = (Pin, Unpin, MarkDeleting, Gone)

    def __init__(self, head: Head, timeline: Timeline) -> None:
        self._head = head
        self.next = ObjectId(0)
        self.min_grace_ms = 0
        self.dead: dict[ObjectId, Death] = {}
        """In order of death."""
        self.pins: dict[tuple[SessionId, str], int] = {}
        self.count = 0
        self._blocks: dict[int, _Block] = {}
        self._origins: list[tuple[LogId, str]] = []
        self._origin_numbers: dict[tuple[LogId, str], int] = {}
        self._timeline = timeline

    def has_room(self, log_id: LogId, zone: str) -> bool:
        return len(self._origins) < MAX_ORIGINS or (log_id, zone) in self._origin_numbers

    def add(
        self, step: Step, *, log_id: LogId, session: SessionId, counter: int, size: int, created_ms: int, zone: str,
        rows: int,
    ) -> None:  # fmt: skip
        """Record the object `self.next`, named by `rows` rows; by none: it is dead at once (X1)."""
        number = self.next
        self.next = ObjectId(number + 1)
        block = self._blocks.get(number >> BLOCK_BITS)
        if block is None:
            block = self._blocks[number >> BLOCK_BITS] = _Block()
        block.sessions.append(session)
        block.counters.append(counter)
        block.sizes.append(size)
        block.created.append(created_ms)
        block.origins.append(self._origin(log_id, zone))
        block.rows.append(rows)
        block.kept += 1
        self.count += 1
        if not rows:
            self._die(step, number)

    def release(self, step: Step, owners: Iterable[int]) -> None:
        """Rows went: `owners` names the object of each (X1)."""
        blocks = self._blocks
        for number in owners:
            rows = blocks[number >> BLOCK_BITS].rows
            slot = number & (BLOCK - 1)
            left = rows[slot] - 1
            rows[slot] = left
            if not left:
                self._die(step, ObjectId(number))

    def apply(self, step: Step, command: Command) -> Verdict:
        match command:
            case Pin():
                return self._pin(step, command)
            case Unpin():
                self.pins.pop((step.session, command.pin), None)
                return DONE
            case MarkDeleting():
                return self._mark(command)
            case Gone():
                return self._forget(command)
            case _:
                return stray(command)

    def session_ended(self, step: Step, session: SessionId) -> None:
        """Pins end with their session (X3)."""
        for key in [key for key in self.pins if key[0] == session]:
            del self.pins[key]

    def oldest_pin(self) -> int | None:
        return min(self.pins.values(), default=None)

    def find(self, number: ObjectId) -> WalObject | None:
        """The record of an object that is not gone."""
        block = self._blocks.get(number >> BLOCK_BITS)
        slot = number & (BLOCK - 1)
        if block is None or slot >= len(block.rows) or not (block.rows[slot] or number in self.dead):
            return None
        log_id, zone = self._origins[block.origins[slot]]
        return WalObject(
            id=number, wal_id=wal_id(log_id, SessionId(block.sessions[slot]), block.counters[slot]),
            size=block.sizes[slot], created_ms=block.created[slot], zone=zone, rows=block.rows[slot],
        )  # fmt: skip

    def columns(self, numbers: Collection[int]) -> ObjectColumns:
        """The same for many objects, packed: for whoever plans over millions.

        Raises:
            Corrupt: one of them is gone.
        """
        if not numbers:
            return ObjectColumns(array("H"), array("I"), array("I"), array("q"))
        first, end = min(numbers) >> BLOCK_BITS, (max(numbers) >> BLOCK_BITS) + 1
        if (end - first) * DENSE > len(numbers):
            columns = self._picked(numbers)
        else:
            slots = [number - (first << BLOCK_BITS) for number in numbers]
            columns = [array(column.typecode, map(column.__getitem__, slots)) for column in self._joined(first, end)]
        sessions, counters, _, created, origins, rows = columns
        if 0 in rows:
            for number, named in zip(numbers, rows, strict=True):
                if not named and number not in self.dead:
                    raise Corrupt("a row names an object that the machine has forgotten", object=number)
        return ObjectColumns(origins, sessions, counters, created)

    def _joined(self, first: int, end: int) -> "list[array[int]]":
        """The columns of neighbouring blocks; where nothing is, zeros."""
        columns = [array(column.typecode) for column in _Block().columns()]
        nothing = _Block()
        for number in range(first, end):
            block = self._blocks.get(number, nothing)
            missing = BLOCK - len(block.rows)
            for whole, part in zip(columns, block.columns(), strict=True):
                whole.extend(part)
                if missing:
                    whole.frombytes(bytes(whole.itemsize * missing))
        return columns

    def _picked(self, numbers: Iterable[int]) -> "list[array[int]]":
        """The columns of these objects alone, zeros for unknown ones."""
        columns = [array(column.typecode) for column in _Block().columns()]
        nothing = _Block()
        for number in numbers:
            block, slot = self._blocks.get(number >> BLOCK_BITS, nothing), number & (BLOCK - 1)
            known = slot < len(block.rows)
            for whole, part in zip(columns, block.columns(), strict=True):
                whole.append(part[slot] if known else 0)
        return columns

    def origin(self, number: int) -> tuple[LogId, str]:
        """The log id and the zone of objects."""
        return self._origins[number]

    def created_ms(self, number: int) -> int:
        """When a known object was written."""
        return self._blocks[number >> BLOCK_BITS].created[number & (BLOCK - 1)]

    def all(self) -> Iterator[WalObject]:
        """Every object that is not gone, by number."""
        for base in sorted(self._blocks):
            for slot in range(len(self._blocks[base].rows)):
                found = self.find(ObjectId(base << BLOCK_BITS | slot))
                if found is not None:
                    yield found

    def counters_of(self, log_id: LogId, session: SessionId) -> set[int]:
        """The WAL counters of a session that the machine knows: what a sweep must leave alone."""
        own = {number for (origin, _), number in self._origin_numbers.items() if origin == log_id}
        return {
            block.counters[slot]
            for base, block in self._blocks.items()
            if session in block.sessions  # most blocks are of other sessions, and this is one call
            for slot in range(len(block.rows))
            if block.sessions[slot] == session and block.origins[slot] in own
            and (block.rows[slot] or ObjectId(base << BLOCK_BITS | slot) in self.dead)
        }  # fmt: skip

    def due(self, grace_ms: int, limit: int) -> list[ObjectId]:
        """Dead objects that `MarkDeleting` would take now, oldest death first."""
        found: list[ObjectId] = []
        grace_ms, oldest = max(grace_ms, self.min_grace_ms), self.oldest_pin()
        for number in self.dead:
            if len(found) >= limit:
                break
            if self._is_due(number, grace_ms, oldest):
                found.append(number)
        return found

    def deleting(self, limit: int) -> list[ObjectId]:
        """Objects whose deletion was begun and not yet reported."""
        return [number for number, death in self.dead.items() if death.deleting][:limit]

    def _origin(self, log_id: LogId, zone: str) -> int:
        number = self._origin_numbers.get((log_id, zone))
        if number is None:
            number = self._origin_numbers[log_id, zone] = len(self._origins)
            self._origins.append((log_id, zone))
        return number

    def _die(self, step: Step, number: ObjectId) -> None:
        self.dead[number] = Death(position=step.position, time_ms=self._timeline.time_ms, deleting=False)

    def _pin(self, step: Step, command: Pin) -> Verdict:
        key = step.session, command.pin
        if key not in self.pins:
            if sum(1 for session, _ in self.pins if session == step.session) >= MAX_PINS:
                return refused(Why.LIMIT, "the session holds too many pins")
            self.pins[key] = step.position  # X3
        return Pinned(position=self.pins[key])

    def _is_due(self, number: ObjectId, grace_ms: int, oldest_pin: int | None) -> bool:
        """X2"""
        death = self.dead.get(number)
        if death is None or death.deleting or death.time_ms + grace_ms > self._timeline.time_ms:
            return False
        return oldest_pin is None or death.position < oldest_pin  # X3

    def _mark(self, command: MarkDeleting) -> Verdict:
        if self._timeline.paused:
            return refused(Why.PAUSED, "garbage waits after a jump of time")  # X2
        grace_ms = max(command.grace_ms, self.min_grace_ms)
        oldest = self.oldest_pin()
        marked = []
        for number in command.objects:
            if self._is_due(number, grace_ms, oldest):
                death = self.dead[number]
                self.dead[number] = Death(position=death.position, time_ms=death.time_ms, deleting=True)
                marked.append(number)
        return Marked(objects=tuple(marked))

    def _forget(self, command: Gone) -> Verdict:
        for number in command.objects:
            death = self.dead.get(number)
            if number >= self.next or (death is None and self.find(number) is not None):
                return refused(Why.STATE, "an object that is not dead cannot be gone")
            if death is not None and not death.deleting:
                return refused(Why.STATE, "the object was not marked deleting")  # X4
        for number in command.objects:
            if self.dead.pop(number, None) is not None:
                self._clear(number)
        return DONE

    def _clear(self, number: ObjectId) -> None:
        block = self._blocks[number >> BLOCK_BITS]
        for column in block.columns():
            column[number & (BLOCK - 1)] = 0
        block.kept -= 1
        self.count -= 1
        if not block.kept and len(block.rows) == BLOCK:
            del self._blocks[number >> BLOCK_BITS]

    def dump(self, out: Writer, version: int) -> None:
        out.values([self.next, self.min_grace_ms, len(self._origins), len(self.dead), len(self.pins)])
        for log_id, zone in self._origins:
            out.values([log_id, zone])
        for number, death in sorted(self.dead.items(), key=lambda item: (item[1].position, item[0])):
            out.values([number, death.position, death.time_ms, int(death.deleting)])
        for (session, pin), position in sorted(self.pins.items()):
            out.values([session, pin, position])
        whole = _Block()
        numbers: array[int] = array("Q")
        kept: array[int] = array("H")
        for base, block in sorted(self._blocks.items()):
            numbers.append(base)
            kept.append(block.kept)
            for column, part in zip(whole.columns(), block.columns(), strict=True):
                column.extend(part)
        for column in (numbers, kept, *whole.columns()):
            out.column(column)

    def load(self, source: Reader, version: int) -> None:
        following, self.min_grace_ms, origins, dead, pins = source.ints(5)
        self.next = ObjectId(following)
        for _ in range(origins):
            row = source.row()
            self._origin(LogId(row.raw()), row.text())
        for _ in range(dead):
            number, position, time_ms, deleting = source.ints(4)
            self.dead[ObjectId(number)] = Death(position=position, time_ms=time_ms, deleting=bool(deleting))
        for _ in range(pins):
            row = source.row()
            key = SessionId(row.number()), row.text()
            self.pins[key] = row.number()
        numbers, kept = source.column("Q"), source.column("H")
        columns = [source.column(code) for code in "IIIqHH"]
        self._load_blocks(numbers, kept, columns)

    def _load_blocks(self, numbers: "array[int]", kept: "array[int]", columns: "list[array[int]]") -> None:
        at = 0
        for number, count in zip(numbers, kept, strict=True):
            block = self._blocks[number] = _Block()
            size = min(BLOCK, self.next - (number << BLOCK_BITS))
            for column, whole in zip(block.columns(), columns, strict=True):
                column.extend(whole[at : at + size])
            block.kept = count
            self.count += count
            at += size
        if any(len(column) != at for column in columns):
            raise Corrupt("columns of the objects differ in length")

    def show(self, prefix: str) -> Listing:
        pins: Listing = (
            (PIN_KEY.build(session, pin), {"position": position}) for (session, pin), position in self.pins.items()
        )
        dead: Listing = ((GARBAGE_KEY.build(self._head.domain, owner.wal_id), fields) for owner, fields in self._dead())
        kept: Listing = ((OBJECT_KEY.build(self._head.domain, owner.wal_id), _fields(owner)) for owner in self.all())
        return merge(*(sorted(part, key=lambda item: item[0]) for part in (pins, dead, kept)), key=lambda item: item[0])

    def _dead(self) -> Iterator[tuple[WalObject, Fields]]:
        for identity, death in self.dead.items():
            owner = self.find(identity)
            if owner is not None:
                yield owner, {
                    "deadSinceMs": death.time_ms, "deadAtPosition": death.position, "deleting": death.deleting,
                    "object": owner.id,
                }  # fmt: skip


def _fields(owner: WalObject) -> Fields:
    return {
        "walId": owner.wal_id.hex(), "object": owner.id, "sizeBytes": owner.size, "createdAt": owner.created_ms,
        "zone": owner.zone, "rows": owner.rows,
    }  # fmt: skip
