"""What an entry would do if it came next: the offsets that `apply` will give, without changing anything.

The rules are those of `apply`, and they are run, not told again: a machine
that has only what appends look at (the writer's session, the time, the ends of
the streams that the entry names and what these remember of its producers, all
copied) judges the entry as the real one would. Other commands do nothing in
it, because nothing that they do decides about an append; the few that would,
if they stand in front of one, are judged on a copy of the whole.

Invariants
    M20  What is foreseen for an entry is what `apply` gives it at the next
         position, and the machine is the same before and after.
"""

from collections import deque
from collections.abc import Sequence
from copy import copy
from hashlib import blake2b
from typing import ClassVar, Final, NamedTuple

from dray.log.envelope import HEAD
from dray.machine import checkpoint, producers
from dray.machine.append import Append, Appended, AppendRow
from dray.machine.append_if import AppendIf
from dray.machine.command import Command
from dray.machine.garbage import Objects
from dray.machine.head import Activate
from dray.machine.heaps.history import HeapHistories, ShardHistory, Tell
from dray.machine.machine import Machine
from dray.machine.names import NOBODY, LogId, ObjectId, SessionId, StreamId
from dray.machine.noun import Listing
from dray.machine.packing import Reader, Writer
from dray.machine.sessions import Close, Expire, Sessions
from dray.machine.step import Outcome, Step
from dray.machine.stream import Stream
from dray.machine.streams import CloseStream, ExpireProducers, OpenStream, Streams
from dray.machine.verdict import DONE, Refused, Verdict
from dray.objects.paths import ObjectKind


class Foreseen(NamedTuple):
    """A batch that would get offsets."""

    append: Append
    row: AppendRow
    base: int


_ENDS_ALL: Final = (Close, Expire, Activate)
_OF_ONE_STREAM: Final = (OpenStream, CloseStream, ExpireProducers)


def foresee(machine: Machine, entry: bytes) -> list[Foreseen]:
    """The batches that get offsets if this entry is the next one, in its order (M20)."""
    if len(entry) < HEAD.size or not 0 < machine.head.version <= machine.supported:
        return []
    version, flags, count, session, n, _, _, _ = HEAD.unpack_from(entry)
    entry_hash = blake2b(entry, digest_size=16).digest()
    if session == NOBODY or machine.sessions.judge(session, n, entry_hash) is not Outcome.EXECUTED:
        return []
    commands = machine.decode(entry, count) if flags == 0 and 0 < version <= machine.version else None
    if commands is None or not any(isinstance(command, Append | AppendIf | Tell) for command in commands):
        return []
    if _is_unsettled(commands) or not all(_knows_events(machine, command) for command in commands):
        judge = _whole(machine)
    else:
        judge = _part(machine, session, commands)
    verdicts = judge.judge(entry, entry_hash)
    return [] if verdicts is None else list(_given(commands, verdicts))


def _given(commands: Sequence[Command | Refused], verdicts: Sequence[Verdict]) -> "Sequence[Foreseen]":
    found = []
    for command, verdict in zip(commands, verdicts, strict=True):
        append = _append_of(command)
        if append is not None and isinstance(verdict, Appended):
            given = zip(append.rows(), verdict.given, strict=True)
            found += [Foreseen(append, row, base) for row, base in given if base >= 0]
    return found


def _append_of(command: Command | Refused) -> Append | None:
    match command:
        case Append():
            return command
        case AppendIf():
            return command.append
        case Tell():
            return command.append.append
        case _:
            return None


def _streams(command: Command | Refused) -> set[StreamId]:
    match command:
        case Tell():
            return _streams(command.append)
        case Append():
            return {row.stream for row in command.rows()}
        case AppendIf():
            return {row.stream for row in command.append.rows()} | {stream for stream, _ in command.expected}
        case _:
            return set()


def _is_unsettled(commands: Sequence[Command | Refused]) -> bool:
    """Whether a command may change what is decided about an append behind it."""
    changed: set[StreamId] = set()
    ends_all = False
    for command in commands:
        if _append_of(command) is not None and (ends_all or changed & _streams(command)):
            return True
        ends_all = ends_all or isinstance(command, _ENDS_ALL)
        if isinstance(command, _OF_ONE_STREAM):
            changed.add(command.stream)
    return False


def _knows_events(machine: Machine, command: Command | Refused) -> bool:
    """Are the events there that a command tells? Else one in front of it may make them."""
    if not isinstance(command, Tell):
        return True
    history = machine.histories.all.get(command.shard)
    return history is not None and len(history.events) >= command.count


class _Judge(Machine):
    """A machine that is asked once and thrown away."""

    def __init__(self) -> None:
        """It is given what it needs by who makes it: most of a machine is of no use here."""

    def judge(self, entry: bytes, entry_hash: bytes) -> list[Verdict] | None:
        step = Step(self.position + 1, NOBODY, want=True)
        return self._judge(step, entry, entry_hash, True).verdicts


def _whole(machine: Machine) -> _Judge:
    """A copy of all of it. Only for entries that hardly anybody writes: it takes its time."""
    judge = _Judge()
    judge.__dict__.update(checkpoint.load(checkpoint.dump(machine)).__dict__)
    return judge


def _part(machine: Machine, session: SessionId, commands: Sequence[Command | Refused]) -> _Judge:
    """A copy of what appends look at."""
    judge = _Judge()
    judge.position = machine.position
    judge.head = machine.head
    judge.timeline = copy(machine.timeline)
    judge.sessions = Sessions(judge.timeline)
    judge.sessions.live = machine.sessions.live | {session: copy(machine.sessions.live[session])}
    judge.decoders = machine.decoders
    judge.nouns = ()
    streams = Streams(judge.head, judge.timeline, judge.sessions, _Names(machine.objects))
    streams.closed_before(machine.streams)
    named = [row for command in commands for row in _rows(command)]
    for number in set().union(*map(_streams, commands)):
        found = machine.streams.find(number)
        if found is not None:
            streams.open[number] = _end_of(found, {row.producer_id for row in named if row.stream == number})
    still = _Still()
    histories = HeapHistories(streams)
    told = {command.shard for command in commands if isinstance(command, Tell)}
    histories.all = {shard: _copied(machine.histories.all[shard]) for shard in told}
    judge.homes = {kind: still for kind in machine.homes} | {
        Append: streams, AppendIf: streams, Tell: histories,
    }  # fmt: skip
    return judge


def _copied(history: ShardHistory) -> ShardHistory:
    return ShardHistory(
        topic=history.topic, heap=history.heap, first=history.first, closed=history.closed,
        events=deque(history.events),
    )  # fmt: skip


def _rows(command: Command | Refused) -> Sequence[AppendRow]:
    append = _append_of(command)
    return () if append is None else list(append.rows())


def _end_of(stream: Stream, written_by: set[int]) -> Stream:
    """The end of a stream, and what it remembers of some producers."""
    end = Stream(stream.id, stream.topic_id, stream.partition, stream.opened_ms)
    end.closed = stream.closed
    end.start = stream.start
    end.producer_floor = stream.producer_floor
    end.producers = producers.some(stream.producers, written_by)
    end.index.end, end.index.size = stream.index.end, stream.index.size
    end.txns = dict(stream.txns)
    return end


class _Names(Objects):
    """Objects that are recorded nowhere."""

    def __init__(self, real: Objects) -> None:
        self._real = real
        self.next = real.next

    def has_room(self, kind: ObjectKind, log_id: LogId, zone: str) -> bool:
        return self._real.has_room(kind, log_id, zone)

    def record(
        self, kind: ObjectKind, *, log_id: LogId, session: SessionId, counter: int, size: int, created_ms: int,
        zone: str, rows: int,
    ) -> ObjectId:  # fmt: skip
        number = self.next
        self.next = ObjectId(number + 1)
        return number

    def die(self, step: Step, number: ObjectId) -> None:
        """It was never there."""


class _Still:
    """A noun that takes everything and does nothing."""

    name: ClassVar[str] = ""
    since: ClassVar[int] = 1
    commands: ClassVar[tuple[type[Command], ...]] = ()

    def apply(self, step: Step, command: Command) -> Verdict:
        return DONE

    def session_ended(self, step: Step, session: SessionId) -> None: ...

    def dump(self, out: Writer, version: int) -> None: ...

    def load(self, source: Reader, version: int) -> None: ...

    def show(self, prefix: str) -> Listing:
        return iter(())
