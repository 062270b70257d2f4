"""Streams: opened, appended to, cut from the front, closed.

A stream is a log with a start that only rises and an end that only grows.
`Append` brings the batches of one WAL object; each is judged for itself and
either gets the next offsets of its stream or a reason. What the log start has
passed is dropped in slices, and so is a closed stream. H4, about batches, is
kept by `dray.machine.stream`.

Invariants
    H5  The log start only rises, never passes the end, and may lie inside a
        row; rows go only when they lie wholly below it.
    H6  A closed stream takes no batch and is never opened again.
"""

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Final, Protocol

from dray.errors import Corrupt
from dray.machine import producers
from dray.machine.append import CLOSED, MALFORMED, ROW, UNKNOWN_STREAM, Append, Appended
from dray.machine.append_if import BATCH_HEADER_BYTES as BATCH_HEADER_BYTES
from dray.machine.append_if import MAX_RECORDS as MAX_RECORDS
from dray.machine.append_if import AppendIf, dump_txns, foresee, load_txns, remember
from dray.machine.command import (
    MAX_ROWS,
    MAX_TIME_MS,
    Command,
    Count,
    Limit,
    Millis,
    Packed,
    Partition,
    StreamField,
    TopicField,
)
from dray.machine.garbage import Objects
from dray.machine.head import Head
from dray.machine.index import LENGTH_BYTES, ROW_BYTES, Index
from dray.machine.kernel import take_plain
from dray.machine.names import ObjectId, SessionId, StreamId, TopicId, WalId, domain_of, is_made_by, parse_wal_id
from dray.machine.noun import Listing, stray
from dray.machine.packing import Reader, Writer
from dray.machine.sessions import Session, Sessions
from dray.machine.step import Step
from dray.machine.stream import Stream
from dray.machine.timeline import Timeline
from dray.machine.verdict import DONE, Refused, Verdict, Why, refused
from dray.objects.paths import ObjectKind

MINUTE_MS: Final = 60_000
WAL: Final = ObjectKind.WAL
TXNS_SINCE: Final = 2
"""The first version of the rules in whose checkpoints streams remember transactions."""
TXN_BYTES_EACH: Final = 300


class FloorReason(IntEnum):
    """Why a log start rises, and so what `RaiseFloor.bound` means."""

    TIME = 0
    """Bound: the retention in ms of machine time. Refused while time is paused (Q7)."""
    SIZE = 1
    """Bound: the bytes to keep at least."""
    DELETE_RECORDS = 2
    """Bound: the new log start."""


class OpenStream(Packed, frozen=True, kw_only=True):
    """Make a stream in its own domain; again is harmless."""

    number = 14

    stream: StreamField
    topic_id: TopicField
    partition: Partition
    name_existed_before: bool = False
    producer_floor: Count = 0
    """The catalog's next producer id when the topic was created."""


class CloseStream(Packed, frozen=True, kw_only=True):
    """Take no more batches; drop at most `limit` rows. A slice: ask again while rows are left."""

    number = 15

    stream: StreamField
    limit: Limit = MAX_ROWS


class RaiseFloor(Packed, frozen=True, kw_only=True):
    """Let the log start rise, and drop at most `limit` rows below it. A slice."""

    number = 17

    stream: StreamField
    reason: FloorReason
    bound: Count
    limit: Limit = MAX_ROWS


class ExpireProducers(Packed, frozen=True, kw_only=True):
    """Look at `limit` producer states from id `start` on; drop the ones idle for `idle_ms`. A slice."""

    number = 19

    stream: StreamField
    idle_ms: Millis
    start: Count = 0
    limit: Limit = MAX_ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamClosed(Verdict):
    """`left` rows remain to be dropped; at 0 the stream is forgotten."""

    left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorRaised(Verdict):
    """`left` rows below the log start remain to be dropped: ask again. By time, more may be due even at 0."""

    start: int
    left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducersExpired(Verdict):
    """How many went, and the id to go on from; -1: all were looked at."""

    expired: int
    next_start: int


class Catalog(Protocol):
    """What a stream asks about the topic that it is to belong to."""

    def has_stream(self, topic_id: TopicId, partition: int, stream: StreamId) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What the index and its companions hold, for budgets."""

    streams: int
    rows: int
    objects: int
    producer_states: int
    txns: int = 0

    @property
    def bytes(self) -> int:
        """An estimate of memory, growth of the columns included."""
        columns = self.rows * (ROW_BYTES + 6) + self.objects * 36 + self.producer_states * 92
        return self.streams * 1_400 + columns + self.txns * TXN_BYTES_EACH


class Streams:
    """The streams of a domain."""

    name: ClassVar[str] = "streams"
    since: ClassVar[int] = 1
    commands: ClassVar[tuple[type[Command], ...]] = (
        Append, AppendIf, OpenStream, CloseStream, RaiseFloor, ExpireProducers,
    )  # fmt: skip

    def __init__(self, head: Head, timeline: Timeline, sessions: Sessions, objects: Objects) -> None:
        self.catalog: Catalog | None = None
        """Where the catalog is at hand, it says which streams there are."""
        self.open: dict[StreamId, Stream] = {}
        """Open streams, and closed ones that still have rows."""
        self.rows = 0
        self._closed: array[int] = array("Q")
        """Forgotten streams, sorted: 8 bytes each, so that none is opened twice (H6)."""
        self._head = head
        self._timeline = timeline
        self._sessions = sessions
        self._objects = objects

    def find(self, number: StreamId) -> Stream | None:
        return self.open.get(number)

    def is_known(self, number: StreamId) -> bool:
        return number in self.open

    def is_open(self, number: StreamId) -> bool:
        stream = self.open.get(number)
        return stream is not None and not stream.closed

    def all(self) -> Iterator[Stream]:
        for _, stream in sorted(self.open.items()):
            yield stream

    def footprint(self) -> Footprint:
        """Counts every stream: ask now and then, not for each request."""
        states = sum(len(stream.producers) for stream in self.open.values()) // producers.SIZE
        return Footprint(
            streams=len(self.open), rows=self.rows, objects=self._objects.count, producer_states=states,
            txns=sum(len(stream.txns) for stream in self.open.values()),
        )  # fmt: skip

    def is_closed(self, number: StreamId) -> bool:
        at = bisect_left(self._closed, number)
        return at < len(self._closed) and self._closed[at] == number

    def closed_before(self, other: "Streams") -> None:
        """The streams that another one has forgotten are not opened here either; for who only asks."""
        self._closed = other._closed

    def _append(self, step: Step, command: Append) -> Verdict:
        """Judge every batch of an object; the object is recorded whatever becomes of them (X1)."""
        writer = self._sessions.live[step.session]
        name = parse_wal_id(command.wal_id)
        denied = self._deny(step, command, writer, name.counter)
        if denied is not None:
            return denied
        owner, now_min, size = self._objects.next, self._timeline.time_ms // MINUTE_MS, command.size
        packed, streams, touched, before = command.packed, self.open, step.streams, len(step.streams)
        rows, given = len(packed) // ROW.size, list[int]()
        at = take_plain(packed, 0, streams, owner, size, now_min, given, touched)
        while at < rows:
            given.append(self._take(packed, at, owner, size, now_min, touched))
            at = take_plain(packed, at + 1, streams, owner, size, now_min, given, touched)
        accepted = len(touched) - before
        self._commit(step, command, writer, name.counter, accepted)
        step.given.extend(given)
        return Appended(given)

    def _take(
        self, packed: bytes, at: int, owner: ObjectId, object_size: int, now_min: int, touched: list[StreamId]
    ) -> int:
        """Judge the batch of one row: its base offset, or why it gets none."""
        number, stamp, _, producer, sequence, records, size, position, epoch = ROW.unpack_from(packed, at * ROW.size)
        stream = self.open.get(number)
        if stream is None or stream.closed:
            return CLOSED if stream is not None or self.is_closed(number) else UNKNOWN_STREAM  # H6
        if not (
            # Nothing behind this check can overflow a column.
            0 < records <= MAX_RECORDS
            and size > BATCH_HEADER_BYTES
            and LENGTH_BYTES <= position <= object_size - size
            and -1 <= stamp <= MAX_TIME_MS
            and (producer == -1 or (producer >= 0 and epoch >= 0 and sequence >= 0))
        ):
            return MALFORMED
        answer = stream.take(owner, stamp, producer, sequence, records, size, position, epoch, now_min)
        if answer >= 0:
            touched.append(number)
        return answer

    def _append_if(self, step: Step, command: AppendIf) -> Verdict:
        """All batches of an object or none of them; the object is recorded whatever becomes of them (X1)."""
        append = command.append
        writer = self._sessions.live[step.session]
        counter = parse_wal_id(append.wal_id).counter
        denied = self._deny(step, append, writer, counter)
        if denied is not None:
            return denied
        rows = list(append.rows())
        refusal = foresee(command, rows, self.open, self.is_closed)
        if refusal is not None:
            self._commit(step, append, writer, counter, 0)
            return refusal
        owner, now_min = self._objects.next, self._timeline.time_ms // MINUTE_MS
        given: list[int] = []
        for row in rows:
            stream = self.open[row.stream]
            base = stream.take(
                owner, row.max_timestamp_ms, -1, -1, row.records, row.size, row.position, -1, now_min
            )  # fmt: skip
            remember(stream, command.txn, base, row.records)
            given.append(base)
            step.streams.append(row.stream)
        self._commit(step, append, writer, counter, len(rows))
        step.given.extend(given)
        return Appended(given)

    def _commit(self, step: Step, command: Append, writer: Session, counter: int, accepted: int) -> None:
        """An object is in the log, with so many rows that name it."""
        owner = self._objects.next
        writer.commit_wal(counter)
        self._objects.record(
            WAL, log_id=self._head.log_id, session=step.session, counter=counter, size=command.size,
            created_ms=command.created_ms, zone=command.zone, rows=accepted,
        )  # fmt: skip
        if not accepted:
            self._objects.die(step, owner)  # X1
        self.rows += accepted

    def owns(self, name: WalId, session: SessionId) -> bool:
        """Did this session of this log write the object? An older one's may be deleted already (H4)."""
        return is_made_by(name, self._head.log_id, session)

    def first_hot(self, stream: Stream) -> int:
        """The number of the first row that is a batch as it was received: files are in front of all of them."""
        index, kind = stream.index, self._objects.kind
        return bisect_left(range(len(index)), True, key=lambda number: kind(index.row(number).object) is WAL)

    def put_file(self, stream: Stream, first: int, end: int, file: ObjectId) -> None:
        """Let a file stand for the rows [first, end); it is named by a row from here on (H7)."""
        stream.index.replace(first, end, file)
        self.rows -= end - first - 1

    def apply(self, step: Step, command: Command) -> Verdict:
        if isinstance(command, Append):  # most of what there is comes first
            return self._append(step, command)
        if isinstance(command, AppendIf):
            return self._append_if(step, command)
        if not isinstance(command, OpenStream | CloseStream | RaiseFloor | ExpireProducers):
            return stray(command)
        if domain_of(command.stream) != self._head.domain:
            return refused(Why.FOREIGN, "the stream belongs to another domain")  # T1
        if isinstance(command, OpenStream):
            return self._open(step, command)
        if isinstance(command, CloseStream):
            return self._close(step, command)
        stream = self.open.get(command.stream)
        if stream is None:
            return refused(Why.NOT_FOUND, "no such stream")
        if isinstance(command, ExpireProducers):
            return self._expire_producers(step, stream, command)
        return self._raise(step, stream, command)

    def session_ended(self, step: Step, session: SessionId) -> None:
        """Streams belong to no session."""

    def _deny(self, step: Step, command: Append, writer: Session, counter: int) -> Refused | None:
        if not self.owns(command.wal_id, step.session):
            return refused(Why.FOREIGN, "the object was written by another session or log")
        if not command.packed:
            return refused(Why.MALFORMED, "an append has at least one batch")
        if not writer.may_commit_wal(counter):
            return refused(Why.EXISTS, "the object was committed before, or is too old to know")  # X5
        if not self._objects.has_room(WAL, self._head.log_id, command.zone):
            return refused(Why.LIMIT, "too many zones")
        return None

    def _open(self, step: Step, command: OpenStream) -> Verdict:
        if self._head.catalog_has_streams and self._head.is_catalog and not self._is_wanted(command):
            return refused(Why.NOT_FOUND, "the topic is gone, or has no such stream")
        if self.is_closed(command.stream):
            return refused(Why.STATE, "the stream was closed")  # H6
        stream = self.open.get(command.stream)
        if stream is not None:
            same = (stream.topic_id, stream.partition) == (command.topic_id, command.partition)
            if stream.closed or not same:
                return refused(Why.EXISTS, "the stream is closed or belongs to another partition")
            return DONE
        stream = Stream(command.stream, command.topic_id, command.partition, self._timeline.time_ms)
        if command.name_existed_before:
            stream.producer_floor = command.producer_floor  # P2
        self.open[command.stream] = stream
        step.streams.append(command.stream)
        return DONE

    def _is_wanted(self, command: OpenStream) -> bool:
        return self.catalog is None or self.catalog.has_stream(command.topic_id, command.partition, command.stream)

    def _close(self, step: Step, command: CloseStream) -> Verdict:
        if self.is_closed(command.stream):
            return StreamClosed(left=0)
        stream = self.open.get(command.stream)
        if stream is None:
            # The saga that would open it may still be under way: it comes too late (H6).
            insort(self._closed, command.stream)
            return StreamClosed(left=0)
        if not stream.closed:
            stream.closed = True
            stream.start = stream.end
            stream.producers = bytearray()
            stream.txns = {}
            step.streams.append(stream.id)
        limit = self.shed(step, stream, command.limit)
        self._drop(step, stream, min(limit, step.spare, len(stream.index)))
        left = len(stream.index) + stream.index.shed_rows
        if not left:
            del self.open[stream.id]
            insort(self._closed, stream.id)
        return StreamClosed(left=left)

    def _raise(self, step: Step, stream: Stream, command: RaiseFloor) -> Verdict:
        if stream.closed:
            return refused(Why.STATE, "the stream is closed")
        match command.reason:
            case FloorReason.TIME:
                if self._timeline.paused:
                    return refused(Why.PAUSED, "retention waits after a jump of time")  # Q7
                floor = stream.index.end_of(self._count_expired(step, stream, command))
            case FloorReason.SIZE:
                spare = stream.index.size - command.bound
                floor = stream.index.end_of(stream.index.count_within(spare) if spare > 0 else 0)
            case FloorReason.DELETE_RECORDS:
                if command.bound > stream.end:
                    return refused(Why.STATE, "the new log start is beyond the end")  # H5
                floor = command.bound
        if floor > stream.start:
            stream.start = floor  # H5
            step.streams.append(stream.id)
        limit = self.shed(step, stream, command.limit)
        below = stream.index.count_below(stream.start)
        dropped = min(limit, step.spare, below)
        self._drop(step, stream, dropped)
        return FloorRaised(start=stream.start, left=below - dropped + stream.index.shed_rows)

    def _count_expired(self, step: Step, stream: Stream, command: RaiseFloor) -> int:
        """Rows at the front that are too old; one without a timestamp is as old as its object."""
        cutoff = self._timeline.time_ms - command.bound
        stamps = stream.index.stamps(min(command.limit, step.spare))
        for count, stamp in enumerate(stamps):
            if stamp < 0:
                stamp = self._objects.arrived_ms(stream.index.row(count).object)
            if stamp >= cutoff:
                return count
        return len(stamps)

    def shed(self, step: Step, stream: Stream, limit: int) -> int:
        """Let go of what replaced rows named, as far as a slice reaches; what is left of the slice."""
        owners = stream.index.shed(min(limit, step.spare))
        step.spare -= len(owners)  # M7
        self._objects.release(step, owners)  # X1
        return limit - len(owners)

    def _drop(self, step: Step, stream: Stream, count: int) -> None:
        owners = stream.index.drop(count)
        step.spare -= count  # M7
        self.rows -= len(owners)
        if self._objects.files:
            self._objects.pass_files(owners)
        self._objects.release(step, owners)  # X1

    def _expire_producers(self, step: Step, stream: Stream, command: ExpireProducers) -> Verdict:
        if self._timeline.paused:
            return refused(Why.PAUSED, "expiry waits after a jump of time")  # Q7
        cutoff_min = max(0, self._timeline.time_ms - command.idle_ms) // MINUTE_MS
        limit = min(command.limit, step.spare, len(stream.producers) // producers.SIZE)
        gone, following = producers.expire(stream.producers, command.start, limit, cutoff_min)
        step.spare -= limit  # M7
        if gone:
            stream.producer_floor = max(stream.producer_floor, gone[-1] + 1)  # P5
        return ProducersExpired(expired=len(gone), next_start=following)

    def dump(self, out: Writer, version: int) -> None:
        out.values([len(self.open)])
        out.column(self._closed)
        for stream in self.all():
            out.values([
                stream.id, stream.topic_id, stream.partition, stream.opened_ms,
                int(stream.closed), stream.start, stream.producer_floor,
            ])  # fmt: skip
            out.blob(stream.producers)
            if version >= TXNS_SINCE:
                out.blob(dump_txns(stream))
            stream.index.dump(out, version)

    def load(self, source: Reader, version: int) -> None:
        (count,) = source.ints(1)
        self._closed = source.column("Q")
        for _ in range(count):
            row = source.row()
            stream = Stream(StreamId(row.number()), TopicId(row.raw()), row.number(), row.number())
            stream.closed = bool(row.number())
            stream.start, stream.producer_floor = row.number(), row.number()
            stream.producers = producers.check_loaded(bytearray(source.blob()))
            if version >= TXNS_SINCE:
                stream.txns = load_txns(source.blob())
            stream.index = Index.load(source, version)
            if not stream.index.first_start <= stream.start <= stream.end:
                raise Corrupt("log start lies outside its stream", stream=stream.id)
            self.open[stream.id] = stream
            self.rows += len(stream.index)

    def show(self, prefix: str) -> Listing:
        for stream in self.all():
            yield from stream.show(prefix, self._objects)
