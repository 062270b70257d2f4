"""The histories of heaps: what happened to each message, until it is a record of a topic.

A heap whose config names a topic writes down what its commands did, in the
order in which they were applied, each with a number of its own. What is
written waits here, in the state, until a broker has put some of it into an
object as records: one `Tell` gives those records their offsets and takes the
events out, in the same command. So the topic lies in the heap's domain.

    a command is applied --> events wait --> Tell: records of the topic, and no event any more

Renewals and extensions, and that a delay is over, are no events.

Invariants
    HI1  Every event becomes one record, in the order of the log: nothing is
         lost, doubled or overtaken, whoever tells it and whoever dies.
    HI2  What is not told is bounded: above `MAX_UNTOLD` nothing is enqueued,
         leased, replayed or deleted; settlements and ends of leases go on.
    HI3  A heap without a history writes nothing down.
"""

import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import ClassVar, Final, NamedTuple, Protocol

from dray.buffers import Buffer
from dray.machine.append import Appended
from dray.machine.append_if import AppendIf
from dray.machine.command import MAX_ROWS, BadCommand, Command
from dray.machine.keys import Shape
from dray.machine.names import SessionId, StreamId
from dray.machine.noun import Fields, Listing, stray
from dray.machine.packing import Reader, Writer
from dray.machine.step import Step
from dray.machine.verdict import Verdict, Why, refused

HISTORY_KEY: Final = Shape("histories/#")
MAX_UNTOLD: Final = 20_000
MAX_NOTE: Final = 200
"""Letters of an error that an event keeps."""
_HEAD: Final = struct.Struct("<QQH")
_READ_APPEND: Final = AppendIf.reader(2)


class EventKind(IntEnum):
    """What happened to a message, or to all of them."""

    ENQUEUED = 1
    LEASED = 2
    ACKED = 3
    NACKED = 4
    RELEASED = 5
    REJECTED = 6
    EXPIRED = 7
    """Its lease ran out."""
    BURIED = 8
    """An operator moved it to the dead."""
    DEAD = 9
    """It is a dead letter from here on."""
    DROPPED = 10
    """It would be one, but the heap keeps none."""
    REPLAYED = 11
    OUTDATED = 12
    """It was older than `message_ttl`."""
    FORGOTTEN = 13
    """It was dead for longer than the retention."""
    DELETED = 14
    """An operator deleted a dead letter."""
    PURGED = 15
    HEAP_DELETED = 16
    """With everything in it; the last event of a heap."""


class HistoryEvent(NamedTuple):
    """One event, in the order in which a checkpoint has its fields."""

    kind: int
    position: int
    """Of its entry in the log."""
    time_ms: int
    begun_ms: int = 0
    number: int = 0
    seq: int = 0
    priority: int = 0
    partition: int = 0
    attempts: int = 0
    """Failed deliveries, this one included."""
    span_ms: int = 0
    """How long the lease is, or until the message is ready."""
    who: str = ""
    note: str = ""


class Cause(NamedTuple):
    """Why a delivery ended, and whose word it was."""

    kind: int
    who: str = ""
    note: str = ""


@dataclass(slots=True)
class ShardHistory:
    """The events of one shard that no record tells yet."""

    topic: str = ""
    heap: str = ""
    first: int = 0
    """The number of the first event that is not told."""
    closed: bool = False
    events: deque[HistoryEvent] = field(default_factory=deque)
    prepared: dict[bytes, tuple[str, ...]] = field(default_factory=dict)
    """Who enqueued the messages of batches that are not decided."""
    position: int = 0
    time_ms: int = 0

    @property
    def room(self) -> int:
        """How many more events there may be (HI2)."""
        return MAX_UNTOLD - len(self.events)

    def begin(self, position: int, time_ms: int) -> None:
        """What is written down next happens here and now."""
        self.position, self.time_ms = position, time_ms

    def add(
        self, kind: int, row: tuple[int, ...] = (), *, attempts: int | None = None, span_ms: int = 0, who: str = "",
        note: str = "",
    ) -> None:  # fmt: skip
        """Write down what happened to the message of a row, in the order of `MessageRow`."""
        if not row:
            self.events.append(HistoryEvent(kind, self.position, self.time_ms))
            return
        (_, _, partition, failed, _, _, _, number, priority, _, _, _, _, seq, begun_ms) = row
        self.events.append(
            HistoryEvent(
                kind, self.position, self.time_ms, begun_ms, number, seq, priority, partition,
                failed if attempts is None else attempts, span_ms, who, note[:MAX_NOTE],
            )
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """Events of a shard lie in an object as records: give these their offsets, and let the events go."""

    number: ClassVar[int] = 85
    since: ClassVar[int] = 2

    shard: StreamId
    first: int
    """The number of the first of them."""
    count: int
    append: AppendIf

    def needs(self) -> int:
        return self.count + self.append.needs()

    def payload(self, version: int) -> bytes:
        return _HEAD.pack(self.shard, self.first, self.count) + self.append.payload(version)

    @classmethod
    def reader(cls, version: int) -> "Callable[[Buffer], Tell]":
        return _read_tell

    def shown(self) -> Fields:
        return {"shard": self.shard, "first": self.first, "count": self.count, **self.append.shown()}


class AppendsTogether(Protocol):
    """What histories ask of streams."""

    def apply(self, step: Step, command: Command) -> Verdict: ...


class HeapHistories:
    """The histories of a domain, by shard."""

    name: ClassVar[str] = "histories"
    since: ClassVar[int] = 2
    commands: ClassVar[tuple[type[Command], ...]] = (Tell,)

    def __init__(self, streams: AppendsTogether) -> None:
        self.all: dict[StreamId, ShardHistory] = {}
        """Also of shards that are closed, until everything is told."""
        self.loaded: Callable[[StreamId, ShardHistory], None] | None = None
        """Who is shown each history that comes out of a checkpoint."""
        self._streams = streams

    def configure(self, shard: StreamId, topic: str, heap: str) -> ShardHistory | None:
        """A shard is told its config: where its history goes, if it has one (HI3)."""
        if not topic:
            return None  # what is not told still goes where it was to go
        history = self.all.setdefault(shard, ShardHistory())
        history.topic, history.heap = topic, heap or history.heap
        return history

    def close(self, shard: StreamId, position: int, time_ms: int, *, written: bool) -> None:
        """A shard is deleted: its history ends, if it has one; `written`: it is kept at the moment."""
        history = self.all.get(shard)
        if history is None:
            return
        history.closed = True
        history.prepared.clear()
        if written:
            history.begin(position, time_ms)
            history.add(EventKind.HEAP_DELETED)
        self._forget(shard, history)

    def apply(self, step: Step, command: Command) -> Verdict:
        if not isinstance(command, Tell):
            return stray(command)
        history = self.all.get(command.shard)
        if history is None:
            return refused(Why.NOT_FOUND, "no such history")
        if history.first != command.first or len(history.events) < command.count:
            return refused(Why.STALE, "these events were told, or are not there")  # HI1
        records = sum(row.records for row in command.append.append.rows())
        if records != command.count:
            return refused(Why.MALFORMED, "an event is one record")
        verdict = self._streams.apply(step, command.append)
        if isinstance(verdict, Appended) and all(base >= 0 for base in verdict.given):
            for _ in range(command.count):  # HI1: with their offsets, in one command
                history.events.popleft()
            history.first += command.count
            self._forget(command.shard, history)
        return verdict

    def _forget(self, shard: StreamId, history: ShardHistory) -> None:
        if history.closed and not history.events:
            del self.all[shard]

    def session_ended(self, step: Step, session: SessionId) -> None:
        """Histories belong to no session."""

    def cap_times(self, latest_ms: int) -> None:
        """Let nothing be younger than a time: for a log that begins anew."""
        for history in self.all.values():
            history.events = deque(
                event._replace(time_ms=min(event.time_ms, latest_ms)) for event in history.events
            )  # fmt: skip

    def dump(self, out: Writer, version: int) -> None:
        out.values([len(self.all)])
        for shard, history in sorted(self.all.items()):
            out.values([
                shard, history.topic, history.heap, history.first, int(history.closed), len(history.events),
                len(history.prepared),
            ])  # fmt: skip
            for event in history.events:
                out.values([*event])
            for batch, names in sorted(history.prepared.items()):
                out.values([batch, list(names)])

    def load(self, source: Reader, version: int) -> None:
        (count,) = source.ints(1)
        for _ in range(count):
            row = source.row()
            shard = StreamId(row.number())
            history = ShardHistory(row.text(), row.text(), row.number(), bool(row.number()))
            events, prepared = row.number(), row.number()
            history.events.extend(_load_event(source) for _ in range(events))
            for _ in range(prepared):
                row = source.row()
                batch = row.raw()
                history.prepared[batch] = tuple(row.texts())
            self.all[shard] = history
            if self.loaded is not None:
                self.loaded(shard, history)

    def show(self, prefix: str) -> Listing:
        for shard, history in sorted(self.all.items()):
            yield HISTORY_KEY.build(shard), {
                "topic": history.topic, "heap": history.heap, "told": history.first, "untold": len(history.events),
                "state": "CLOSED" if history.closed else "OPEN",
            }  # fmt: skip


def _load_event(source: Reader) -> HistoryEvent:
    row = source.row()
    return HistoryEvent(
        row.number(), row.number(), row.number(), row.number(), row.number(), row.number(), row.number(),
        row.number(), row.number(), row.number(), row.text(), row.text(),
    )  # fmt: skip


def _read_tell(payload: Buffer) -> Tell:
    if len(payload) < _HEAD.size:
        raise BadCommand("tell is shorter than its head", size=len(payload))
    shard, first, count = _HEAD.unpack_from(payload)
    if not 0 < count <= MAX_ROWS:  # M2
        raise BadCommand("tell names no events, or too many", count=count)
    return Tell(shard=StreamId(shard), first=first, count=count, append=_READ_APPEND(payload[_HEAD.size :]))
