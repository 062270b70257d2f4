"""Objects and their end: alive, dead, deleting, gone.

    rows > 0 --the last row goes--> dead --grace over, no older pin--> deleting --deleted in the store--> gone

The machine counts the rows that name each object, so whether one is alive is
exact at every position and needs no listing of a bucket. Each step is a
command, so any broker goes on where a crashed one stopped.

A file that a table may name counts one more: the table's own, which ends when
a compactor has seen that no snapshot reaches it. Brokers know nothing of the
catalog, and need not.

What is known of an object besides is in `dray.machine.objects`.

Invariants
    X1  An object is dead exactly when no row names it: at the position and
        machine time at which its last row went, or at once if none was
        accepted; of a file, when its table has let go of it besides. The dead
        do not come back.
    X2  `MarkDeleting` takes only objects that are dead, whose grace is over
        by machine time, and that no live pin may still need; never while
        time is paused, and never hastier than the domain's minimum.
    X3  A pin keeps every object that died at or after its position; it ends
        with its session. A hold does the same and ends by machine time (X9).
    X4  Only what was marked deleting may be gone; to say so again is harmless.
    X7  A table lets go only of files that no row and no task names: whatever
        the index still shows, the table may show as well.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import merge
from typing import Annotated, ClassVar, Final, Protocol

from msgspec import Meta

from dray.machine.command import MAX_ROWS, Command, Millis, Name, ObjectField, Packed
from dray.machine.head import Head
from dray.machine.keys import Shape
from dray.machine.names import ObjectId, SessionId
from dray.machine.noun import Fields, Listing, stray
from dray.machine.objects import BLOCK, BLOCK_BITS, ObjectTable, StoredObject
from dray.machine.packing import Reader, Writer
from dray.machine.step import Step
from dray.machine.timeline import Timeline
from dray.machine.verdict import DONE, Verdict, Why, refused

PIN_KEY: Final = Shape("sessions/#/pins/$")
OBJECT_KEY: Final = Shape("wal/objects/#/%")
GARBAGE_KEY: Final = Shape("wal/gc/#/%")

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


class ReleaseFiles(Packed, frozen=True, kw_only=True):
    """No snapshot of their table reaches these files, and none ever will: only a compactor can know."""

    number = 54
    since = 2

    objects: Annotated[tuple[ObjectField, ...], Meta(max_length=MAX_ROWS)]

    def needs(self) -> int:
        return max(1, len(self.objects))


class HoldFiles(Packed, frozen=True, kw_only=True):
    """A table is about to name these files, which it did not have before: it is made anew."""

    number = 60
    since = 2

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
class FilesReleased(Verdict):
    """The files that died by it; the others are named by a row or a task, or were no longer the table's (X7)."""

    objects: tuple[ObjectId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesHeld(Verdict):
    """The files that the table may name now; the others are dead, or no files."""

    objects: tuple[ObjectId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """Since when an object is dead, and whether its deletion has begun."""

    position: int
    time_ms: int
    deleting: bool


class OldestHold(Protocol):
    """What is asked about readers that no session stands for."""

    def oldest(self) -> int | None: ...


class Objects(ObjectTable):
    """The objects of a domain, and their end."""

    name: ClassVar[str] = "objects"
    since: ClassVar[int] = 1
    commands: ClassVar[tuple[type[Command], ...]] = (
        Pin, Unpin, MarkDeleting, Gone, ReleaseFiles, HoldFiles,
    )  # fmt: skip

    def __init__(self, head: Head, timeline: Timeline, holds: OldestHold) -> None:
        super().__init__(head)
        self._holds = holds
        self.min_grace_ms = 0
        self.dead: dict[ObjectId, Death] = {}
        """In order of death."""
        self.pins: dict[tuple[SessionId, str], int] = {}
        self._timeline = timeline

    def release(self, step: Step, owners: Iterable[int]) -> None:
        """Rows went: `owners` names the object of each (X1)."""
        blocks = self._blocks
        for number in owners:
            rows = blocks[number >> BLOCK_BITS].rows
            slot = number & (BLOCK - 1)
            left = rows[slot] - 1
            rows[slot] = left
            if not left:
                self.die(step, ObjectId(number))

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
            case ReleaseFiles():
                return self._release_files(step, command)
            case HoldFiles():
                return self._hold_files(command)
            case _:
                return stray(command)

    def session_ended(self, step: Step, session: SessionId) -> None:
        """Pins end with their session (X3)."""
        for key in [key for key in self.pins if key[0] == session]:
            del self.pins[key]

    def oldest_pin(self) -> int | None:
        """What died at or after this position stays: somebody may read it (X3)."""
        held = self._holds.oldest()
        return min((*self.pins.values(), *(() if held is None else (held,))), default=None)

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

    def pass_files(self, owners: Iterable[int]) -> None:
        """The log start has passed these: those of them that are files are remembered as such."""
        for number in owners:
            file = self.files.get(ObjectId(number))
            if file is not None:
                self.files[ObjectId(number)] = replace(file, passed=True)

    def only_in_table(self) -> Iterator[ObjectId]:
        """Files that no row and no task names any more: to be taken out of their table, and then released."""
        return (number for number, file in self.files.items() if file.held and self.rows(number) == 1)

    def die(self, step: Step, number: ObjectId) -> None:
        """No row names an object (X1)."""
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

    def _release_files(self, step: Step, command: ReleaseFiles) -> Verdict:
        released = []
        for number in command.objects:
            file = self.files.get(number)
            if file is not None and file.held and self.rows(number) == 1:  # X7
                self.files[number] = replace(file, held=False)
                self.release(step, (number,))  # X1
                released.append(number)
        return FilesReleased(objects=tuple(released))

    def _hold_files(self, command: HoldFiles) -> Verdict:
        held = []
        for number in command.objects:
            file = self.files.get(number)
            if file is None or (not file.held and not self.rows(number)):
                continue  # X1: the dead do not come back
            if not file.held:
                self.files[number] = replace(file, held=True)
                self.hold(number)
            held.append(number)
        return FilesHeld(objects=tuple(held))

    def dump(self, out: Writer, version: int) -> None:
        out.values([self.next, self.min_grace_ms, len(self._origins), len(self.dead), len(self.pins)])
        self._dump_origins(out, version)
        for number, death in sorted(self.dead.items(), key=lambda item: (item[1].position, item[0])):
            out.values([number, death.position, death.time_ms, int(death.deleting)])
        for (session, pin), position in sorted(self.pins.items()):
            out.values([session, pin, position])
        self._dump_blocks(out, version)
        self._dump_files(out, version)

    def load(self, source: Reader, version: int) -> None:
        following, self.min_grace_ms, origins, dead, pins = source.ints(5)
        self.next = ObjectId(following)
        self._load_origins(source, origins, version)
        for _ in range(dead):
            number, position, time_ms, deleting = source.ints(4)
            self.dead[ObjectId(number)] = Death(position=position, time_ms=time_ms, deleting=bool(deleting))
        for _ in range(pins):
            row = source.row()
            key = SessionId(row.number()), row.text()
            self.pins[key] = row.number()
        self._load_blocks(source, version)
        self._load_files(source, version)

    def show(self, prefix: str) -> Listing:
        pins: Listing = (
            (PIN_KEY.build(session, pin), {"position": position}) for (session, pin), position in self.pins.items()
        )
        dead: Listing = ((GARBAGE_KEY.build(self._head.domain, owner.wal_id), fields) for owner, fields in self._dead())
        kept: Listing = ((OBJECT_KEY.build(self._head.domain, owner.wal_id), _fields(owner)) for owner in self.all())
        return merge(*(sorted(part, key=lambda item: item[0]) for part in (pins, dead, kept)), key=lambda item: item[0])

    def _dead(self) -> Iterator[tuple[StoredObject, Fields]]:
        for identity, death in self.dead.items():
            owner = self.find(identity)
            if owner is not None:
                yield owner, {
                    "deadSinceMs": death.time_ms, "deadAtPosition": death.position, "deleting": death.deleting,
                    "object": owner.id,
                }  # fmt: skip


def _fields(owner: StoredObject) -> Fields:
    fields: Fields = {
        "walId": owner.wal_id.hex(), "object": owner.id, "sizeBytes": owner.size, "createdAt": owner.created_ms,
        "zone": owner.zone, "rows": owner.rows,
    }  # fmt: skip
    if owner.file is not None:
        fields |= {
            "fileType": owner.kind.name, "parquetPath": owner.path(), "streamId": owner.file.stream,
            "startOffset": owner.file.start, "endOffset": owner.file.end, "recordCount": owner.file.records,
            "minTimestampMs": owner.file.min_timestamp_ms, "maxTimestampMs": owner.file.max_timestamp_ms,
            "inTable": owner.file.held,
        }  # fmt: skip
    return fields
