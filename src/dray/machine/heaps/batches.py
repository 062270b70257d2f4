"""Batches over several shards, and so over domains: all of it is taken, or nothing.

    Prepare in each shard -> Decide in the home domain -> Finish in each shard -> Decide(SETTLED) at home

What is prepared has its place, its body and its id, and nobody sees it. The
first decision in the log of the home domain counts, whoever wrote it: a
commit is written by the broker that prepared all parts and by nobody else, an
abort by any broker once a batch was in doubt for long enough. A commit stays
known until every shard has heard of it; an abort for two hours, while a
commit that is older than one is refused: so a broker that slept over its own
batch cannot undo what others did meanwhile.

Invariants
    BA1  The first decision about a batch is the only one.
    BA2  What is prepared is not granted, shown or counted as there.
    BA3  While a batch is undecided, a repeat of one of its messages is
         neither taken nor called a duplicate.
    BA4  After an abort nothing of a batch is left: no row, no body, and a
         repeat is a new message.
    BA5  A commit is forgotten only when told that every shard has finished.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice
from typing import Annotated, ClassVar, Final, NamedTuple

from msgspec import Meta

from dray.buffers import Buffer
from dray.machine.command import BadCommand, Command, Count, Limit, Nonce, Packed, StreamField
from dray.machine.heaps.packets import Enqueue
from dray.machine.keys import Shape
from dray.machine.names import SessionId, StreamId
from dray.machine.noun import Fields, Listing, stray
from dray.machine.packing import Reader, Writer
from dray.machine.step import Step
from dray.machine.timeline import Timeline
from dray.machine.verdict import DONE, Verdict, Why, refused

BATCH_KEY: Final = Shape("batches/%")
COMMIT_MS: Final = 3_600_000
"""A commit that comes so long after the batch was begun is refused."""
ABORT_MS: Final = 2 * COMMIT_MS
"""An abort is known for so long."""
MAX_DECISIONS: Final = 100_000
MAX_SHARDS: Final = 1_000
_SWEEP: Final = 64
_HEAD: Final = struct.Struct("<16sHq")


class BatchWord(IntEnum):
    """What is said of a batch at its home."""

    ABORT = 0
    COMMIT = 1
    SETTLED = 2
    """Every shard has finished: a commit may be forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare:
    """The part of a batch that one shard gets: taken whole or not at all, and not there until it is finished."""

    number: ClassVar[int] = 80
    since: ClassVar[int] = 2

    batch: bytes
    home: int
    """The domain that decides."""
    begun_ms: int
    """Running time of the home domain when the batch was begun, or before."""
    part: Enqueue

    @property
    def shard(self) -> StreamId:
        return self.part.shard

    def needs(self) -> int:
        return self.part.needs()

    def payload(self, version: int) -> bytes:
        return _HEAD.pack(self.batch, self.home, self.begun_ms) + self.part.payload(version)

    @classmethod
    def reader(cls, version: int) -> "Callable[[Buffer], Prepare]":
        return _read_prepare

    def shown(self) -> Fields:
        """For people: no body is shown (HB2)."""
        return {"batch": self.batch.hex(), "home": self.home, "begunRunningMs": self.begun_ms, **self.part.shown()}


class Decide(Packed, frozen=True, kw_only=True):
    """In the home domain: what becomes of a batch. The first word counts (BA1)."""

    number = 81
    since = 2

    batch: Nonce
    begun_ms: Count
    word: BatchWord
    shards: Annotated[tuple[StreamField, ...], Meta(max_length=MAX_SHARDS)] = ()
    """Of a commit: where it is prepared."""


class Finish(Packed, frozen=True, kw_only=True):
    """In a shard: the batch is decided, and so are its messages here. Again is harmless."""

    number = 82
    since = 2

    shard: StreamField
    batch: Nonce
    commit: bool
    rows: Limit
    """At least as many as are prepared here."""

    def needs(self) -> int:
        return self.rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided(Verdict):
    """The first decision about the batch."""

    commit: bool


class PreparedBatch(NamedTuple):
    """What a shard holds of a batch that it has not heard the end of."""

    home: int
    begun_ms: int
    since_ms: int
    """Running time of this domain."""
    slots: tuple[int, ...]
    names: tuple[tuple[bytes, int], ...]
    """Key and sequence of those that have them."""


class PreparedBatches:
    """The undecided batches of a shard."""

    __slots__ = ("all", "named")

    def __init__(self) -> None:
        self.all: dict[bytes, PreparedBatch] = {}
        self.named: dict[tuple[bytes, int], bytes] = {}
        """Key and sequence of each prepared message, and its batch (BA3)."""

    def add(self, batch: bytes, prepared: PreparedBatch) -> None:
        self.all[batch] = prepared
        self.named.update(dict.fromkeys(prepared.names, batch))

    def take(self, batch: bytes) -> PreparedBatch:
        prepared = self.all.pop(batch)
        for name in prepared.names:
            del self.named[name]
        return prepared

    def clear(self) -> None:
        self.all.clear()
        self.named.clear()

    def dump(self, out: Writer) -> None:
        out.values([len(self.all)])
        for batch, one in self.all.items():
            keys, seqs = [key for key, _ in one.names], [seq for _, seq in one.names]
            out.values([batch, one.home, one.begun_ms, one.since_ms, one.slots, keys, seqs])

    def load(self, source: Reader) -> None:
        (count,) = source.ints(1)
        for _ in range(count):
            row = source.row()
            batch, home, begun_ms, since_ms = row.raw(), row.number(), row.number(), row.number()
            slots, keys, seqs = tuple(row.numbers()), row.raws(), row.numbers()
            names = tuple(zip(keys, seqs, strict=True))
            self.add(batch, PreparedBatch(home, begun_ms, since_ms, slots, names))


class BatchCommit(NamedTuple):
    """A commit that some shard may not have heard of."""

    since_ms: int
    shards: tuple[StreamId, ...]


class BatchDecisions:
    """What was decided in this domain."""

    name: ClassVar[str] = "batches"
    since: ClassVar[int] = 2
    commands: ClassVar[tuple[type[Command], ...]] = (Decide,)

    def __init__(self, timeline: Timeline) -> None:
        self.committed: dict[bytes, BatchCommit] = {}
        self.aborted: dict[bytes, int] = {}
        """When, in running time; the oldest first."""
        self._timeline = timeline

    def apply(self, step: Step, command: Command) -> Verdict:
        if not isinstance(command, Decide):
            return stray(command)
        if command.word is BatchWord.SETTLED:
            self.committed.pop(command.batch, None)  # BA5
            return DONE
        verdict = self._decide(command)
        if isinstance(verdict, Decided):
            step.given.append(int(verdict.commit))
        self._forget(step)
        return verdict

    def _decide(self, command: Decide) -> Verdict:
        known = command.batch in self.committed
        if known or command.batch in self.aborted:
            return Decided(commit=known)  # BA1
        now_ms = self._timeline.running_ms
        if len(self.committed) >= MAX_DECISIONS or len(self.aborted) >= MAX_DECISIONS:
            return refused(Why.LIMIT, "too many batches are not finished")
        if command.word is BatchWord.ABORT:
            self.aborted[command.batch] = now_ms
            return Decided(commit=False)
        if not command.begun_ms <= now_ms < command.begun_ms + COMMIT_MS:
            return refused(Why.STALE, "the batch was begun too long ago")  # BA1: an abort may be forgotten by now
        self.committed[command.batch] = BatchCommit(now_ms, command.shards)
        return Decided(commit=True)

    def _forget(self, step: Step) -> None:
        edge_ms = self._timeline.running_ms - ABORT_MS
        for batch, at_ms in list(islice(self.aborted.items(), min(_SWEEP, step.spare))):
            if at_ms > edge_ms:
                break
            del self.aborted[batch]
            step.spare -= 1  # M7

    def session_ended(self, step: Step, session: SessionId) -> None:
        """A batch outlives the broker that began it: another one ends it."""

    def dump(self, out: Writer, version: int) -> None:
        out.values([len(self.committed), len(self.aborted)])
        for batch, commit in self.committed.items():
            out.values([batch, commit.since_ms, commit.shards])
        for batch, at_ms in self.aborted.items():
            out.values([batch, at_ms])

    def load(self, source: Reader, version: int) -> None:
        committed, aborted = source.ints(2)
        for _ in range(committed):
            row = source.row()
            batch, since_ms = row.raw(), row.number()
            self.committed[batch] = BatchCommit(since_ms, tuple(StreamId(shard) for shard in row.numbers()))
        for _ in range(aborted):
            row = source.row()
            batch = row.raw()
            self.aborted[batch] = row.number()

    def show(self, prefix: str) -> Listing:
        both = {batch: ("COMMITTED", one.since_ms, list(one.shards)) for batch, one in self.committed.items()}
        both |= {batch: ("ABORTED", at_ms, []) for batch, at_ms in self.aborted.items()}
        for batch, (state, at_ms, shards) in sorted(both.items()):
            yield BATCH_KEY.build(batch), {"state": state, "sinceRunningMs": at_ms, "shards": [*shards]}


def _read_prepare(payload: Buffer) -> Prepare:
    if len(payload) < _HEAD.size:
        raise BadCommand("prepare is shorter than its head", size=len(payload))
    batch, home, begun_ms = _HEAD.unpack_from(payload)
    if begun_ms < 0:
        raise BadCommand("prepare makes no sense", begun_ms=begun_ms)
    return Prepare(batch=batch, home=home, begun_ms=begun_ms, part=Enqueue.reader(2)(payload[_HEAD.size :]))
