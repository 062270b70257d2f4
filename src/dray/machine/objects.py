"""The objects that rows name: what each is, how large, and what its name is made of.

Records are packed in blocks of 64, about 30 bytes each: on a local disk every
small produce request may be an object of its own. A block goes when the last
of its objects is gone; one object that lives on keeps its block.

What many objects share is kept once and is their *origin*: kind, log id and
zone. So a kind costs no byte of a record, and a name is put together from the
origin, the session and counter that made the object, and its creation time.
When an object may be deleted is decided in `dray.machine.garbage`; what is
known of a file of one stream besides is in `dray.machine.table_files`.

Invariants
    X5  A WAL id is committed at most once, and so is the id of a file as long
        as it is known: no two records share an object.
    X6  What a record says of its object never changes until it is gone, and
        then says nothing: its number is never given again.
"""

from array import array
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from dray.errors import Corrupt
from dray.machine.head import Head
from dray.machine.names import LogId, ObjectId, SessionId, WalId, parse_wal_id, wal_id
from dray.machine.packing import Reader, Writer
from dray.machine.table_files import TableFile, dump_files, load_files
from dray.objects.paths import ObjectKind, object_path

BLOCK_BITS: Final = 6
BLOCK: Final = 1 << BLOCK_BITS
DENSE: Final = 16
"""Objects asked for in each block, from where on it is faster to copy blocks whole."""
MAX_ORIGINS: Final = 0xFFFF
FIRST_WITH_KINDS: Final = 2
"""The version of the rules; before it everything is a WAL object of less than 4 GiB, and a checkpoint says so."""
_LONG_SIZES: Final = "IIQqHH"
_SHORT_SIZES: Final = "IIIqHH"


class Origin(NamedTuple):
    """What many objects share."""

    kind: ObjectKind
    log_id: LogId
    zone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """The record of one object, unpacked."""

    id: ObjectId
    kind: ObjectKind
    domain: int
    wal_id: WalId
    """Log id, session and counter: who made it, whatever its kind."""
    size: int
    created_ms: int
    zone: str
    rows: int
    """That name it; a task and a table that hold a file count as one each."""
    file: TableFile | None = None
    """Of a file of one stream alone."""

    def path(self) -> str:
        """Its name in the store."""
        return object_path(
            self.kind, zone=self.zone, domain=self.domain, created_ms=self.created_ms, object_id=self.wal_id,
            topic_id=b"" if self.file is None else self.file.topic_id,
            partition=0 if self.file is None else self.file.partition,
        )  # fmt: skip


class ObjectColumns(NamedTuple):
    """What the names of many objects are made of."""

    origins: "array[int]"
    """Numbers; `ObjectTable.origin` tells what they mean."""
    sessions: "array[int]"
    counters: "array[int]"
    created_ms: "array[int]"


class _Block:
    """The records of 64 objects in a row. Of a gone object all columns are 0; of any other the session is not (X6)."""

    __slots__ = ("counters", "created", "kept", "origins", "rows", "sessions", "sizes")

    def __init__(self) -> None:
        self.sessions: array[int] = array("I")
        self.counters: array[int] = array("I")
        self.sizes: array[int] = array("Q")
        self.created: array[int] = array("q")
        self.origins: array[int] = array("H")
        self.rows: array[int] = array("H")
        self.kept = 0

    def columns(self) -> "tuple[array[int], ...]":
        return self.sessions, self.counters, self.sizes, self.created, self.origins, self.rows


class ObjectTable:
    """The objects of a domain, by number."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self.next = ObjectId(0)
        self.count = 0
        self.files: dict[ObjectId, TableFile] = {}
        """What is known of files besides; thousands, where rows are millions."""
        self._file_ids: set[tuple[LogId, SessionId, int]] = set()
        self._blocks: dict[int, _Block] = {}
        self._origins: list[Origin] = []
        self._origin_numbers: dict[tuple[ObjectKind, LogId, str], int] = {}

    def has_room(self, kind: ObjectKind, log_id: LogId, zone: str) -> bool:
        return len(self._origins) < MAX_ORIGINS or (kind, log_id, zone) in self._origin_numbers

    def record(
        self, kind: ObjectKind, *, log_id: LogId, session: SessionId, counter: int, size: int, created_ms: int,
        zone: str, rows: int,
    ) -> ObjectId:  # fmt: skip
        """Record the object `self.next`, named by `rows` rows."""
        number = self.next
        self.next = ObjectId(number + 1)
        block = self._blocks.get(number >> BLOCK_BITS)
        if block is None:
            block = self._blocks[number >> BLOCK_BITS] = _Block()
        block.sessions.append(session)
        block.counters.append(counter)
        block.sizes.append(size)
        block.created.append(created_ms)
        block.origins.append(self._origin(kind, log_id, zone))
        block.rows.append(rows)
        block.kept += 1
        self.count += 1
        return number

    def record_file(
        self, file: TableFile, *, session: SessionId, counter: int, size: int, created_ms: int, rows: int
    ) -> ObjectId:
        """The same for a file of one stream, written by a session of this log (X5)."""
        number = self.record(
            ObjectKind.PARQUET, log_id=self._head.log_id, session=session, counter=counter, size=size,
            created_ms=created_ms, zone="", rows=rows,
        )  # fmt: skip
        self.files[number] = file
        self._file_ids.add((self._head.log_id, session, counter))
        return number

    def has_file(self, session: SessionId, counter: int) -> bool:
        """Is a file of this id known (X5)?"""
        return (self._head.log_id, session, counter) in self._file_ids

    def kind(self, number: int) -> ObjectKind:
        """How the records lie in a known object."""
        block = self._blocks[number >> BLOCK_BITS]
        return self._origins[block.origins[number & (BLOCK - 1)]].kind

    def rows(self, number: int) -> int:
        """How many name a known object."""
        return self._blocks[number >> BLOCK_BITS].rows[number & (BLOCK - 1)]

    def hold(self, number: ObjectId) -> None:
        """One more names a known object that somebody names already."""
        self._blocks[number >> BLOCK_BITS].rows[number & (BLOCK - 1)] += 1

    def find(self, number: ObjectId) -> StoredObject | None:
        """The record of an object that is not gone."""
        block = self._blocks.get(number >> BLOCK_BITS)
        slot = number & (BLOCK - 1)
        if block is None or slot >= len(block.rows) or not block.sessions[slot]:
            return None
        kind, log_id, zone = self._origins[block.origins[slot]]
        return StoredObject(
            id=number, kind=kind, domain=self._head.domain,
            wal_id=wal_id(log_id, SessionId(block.sessions[slot]), block.counters[slot]),
            size=block.sizes[slot], created_ms=block.created[slot], zone=zone, rows=block.rows[slot],
            file=self.files.get(number),
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
        sessions, counters, _, created, origins, _ = columns
        if 0 in sessions:
            gone = next(number for number, session in zip(numbers, sessions, strict=True) if not session)
            raise Corrupt("a row names an object that the machine has forgotten", object=gone)
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

    def origin(self, number: int) -> Origin:
        """What the objects of an origin share."""
        return self._origins[number]

    def arrived_ms(self, number: int) -> int:
        """When the records of a known object came: a file of many is as old as what it was made from."""
        file = self.files.get(ObjectId(number))
        if file is not None:
            return file.arrived_ms
        return self._blocks[number >> BLOCK_BITS].created[number & (BLOCK - 1)]

    def all(self) -> Iterator[StoredObject]:
        """Every object that is not gone, by number."""
        for base in sorted(self._blocks):
            for slot in range(len(self._blocks[base].rows)):
                found = self.find(ObjectId(base << BLOCK_BITS | slot))
                if found is not None:
                    yield found

    def counters_of(self, log_id: LogId, session: SessionId) -> set[int]:
        """The counters of a session that the machine knows: what a sweep must leave alone."""
        own = {number for (_, origin, _), number in self._origin_numbers.items() if origin == log_id}
        return {
            block.counters[slot]
            for block in self._blocks.values()
            if session in block.sessions  # most blocks are of other sessions, and this is one call
            for slot in range(len(block.rows))
            if block.sessions[slot] == session and block.origins[slot] in own
        }

    def _origin(self, kind: ObjectKind, log_id: LogId, zone: str) -> int:
        number = self._origin_numbers.get((kind, log_id, zone))
        if number is None:
            number = self._origin_numbers[kind, log_id, zone] = len(self._origins)
            self._origins.append(Origin(kind, log_id, zone))
        return number

    def _clear(self, number: ObjectId) -> None:
        block = self._blocks[number >> BLOCK_BITS]
        if self.files.pop(number, None) is not None:
            slot = number & (BLOCK - 1)
            log_id = self._origins[block.origins[slot]].log_id
            self._file_ids.discard((log_id, SessionId(block.sessions[slot]), block.counters[slot]))
        for column in block.columns():
            column[number & (BLOCK - 1)] = 0
        block.kept -= 1
        self.count -= 1
        if not block.kept and len(block.rows) == BLOCK:
            del self._blocks[number >> BLOCK_BITS]

    def _dump_origins(self, out: Writer, version: int) -> None:
        for kind, log_id, zone in self._origins:
            out.values([log_id, zone] if version < FIRST_WITH_KINDS else [log_id, zone, kind])

    def _load_origins(self, source: Reader, count: int, version: int) -> None:
        for _ in range(count):
            row = source.row()
            log_id, zone = LogId(row.raw()), row.text()
            self._origin(ObjectKind.WAL if version < FIRST_WITH_KINDS else ObjectKind(row.number()), log_id, zone)

    def _dump_files(self, out: Writer, version: int) -> None:
        if version >= FIRST_WITH_KINDS:
            dump_files(self.files, out)

    def _load_files(self, source: Reader, version: int) -> None:
        if version < FIRST_WITH_KINDS:
            return
        for number, file in load_files(source).items():
            found = self.find(number)
            if found is None:
                raise Corrupt("a file is told of that is no object", object=number)
            self.files[number] = file
            self._file_ids.add(parse_wal_id(found.wal_id))

    def _dump_blocks(self, out: Writer, version: int) -> None:
        whole = _Block()
        numbers: array[int] = array("Q")
        kept: array[int] = array("H")
        for base, block in sorted(self._blocks.items()):
            numbers.append(base)
            kept.append(block.kept)
            for column, part in zip(whole.columns(), block.columns(), strict=True):
                column.extend(part)
        codes = _SHORT_SIZES if version < FIRST_WITH_KINDS else _LONG_SIZES
        out.column(numbers)
        out.column(kept)
        for column, code in zip(whole.columns(), codes, strict=True):
            out.column(column if column.typecode == code else array(code, column))

    def _load_blocks(self, source: Reader, version: int) -> None:
        numbers, kept = source.column("Q"), source.column("H")
        codes = _SHORT_SIZES if version < FIRST_WITH_KINDS else _LONG_SIZES
        columns = [source.column(code) for code in codes]
        if codes != _LONG_SIZES:
            columns = [array(code, column) for code, column in zip(_LONG_SIZES, columns, strict=True)]
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
