"""Events folded into operations, topic lives and faults.

A history that is not well formed (a completion without its invoke, two
completions, time running back, an answer that does not fit its question) is
refused: whatever a checker said about it would be worth nothing.

A topic name may have several lives. Clients name topics, not lives, so an
operation is given to a life only if its interval meets no other one.

Invariants
    HC3  An operation is attributed to a life of its topic only where no other
         life was possible during it; everything else is left out of
         judgement rather than guessed.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from dray.errors import Corrupt
from dray.testing.history.events import (
    Assign,
    At,
    Call,
    Commit,
    Committed,
    Created,
    CreateTopic,
    DeleteTopic,
    Done,
    Earliest,
    Event,
    Fail,
    Info,
    Invoke,
    Latest,
    Nemesis,
    Noted,
    Ok,
    OpId,
    Partition,
    Poll,
    Polled,
    Process,
    ProducerOpened,
    Result,
    Run,
    Seek,
    Send,
    Sent,
    Subscribe,
    topic_of,
)
from dray.testing.history.heap_events import Dead, Enqueue, Enqueued, ListDead, Pop, Popped, Replay, Settle, Settled

FOREVER: Final = 1 << 63
"""When an operation without completion ends."""

_ANSWERS: Final[dict[type[Call], type[Result]]] = {
    Send: Sent,
    Poll: Polled,
    Assign: Done,
    Subscribe: Done,
    Seek: Done,
    Latest: At,
    Earliest: At,
    Commit: Done,
    Committed: At,
    CreateTopic: Created,
    DeleteTopic: Done,
    Enqueue: Enqueued,
    Pop: Popped,
    Settle: Settled,
    ListDead: Dead,
    Replay: Done,
}


class Status(Enum):
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Op(Struct, frozen=True, gc=False):
    """One operation, both halves."""

    id: OpId
    process: Process
    call: Call
    start_ns: int
    end_ns: int
    """When it surely had its effect, if ever; what is unknown may still have it later."""
    answered_ns: int
    """When the client went on."""
    status: Status
    result: Result | None
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One incarnation of a topic, within what the clients can know."""

    topic: str
    number: int
    topic_id: str = ""
    start_ns: int = -1
    """It did not exist before."""
    end_ns: int = FOREVER
    """It surely did not exist after."""
    doomed_ns: int = FOREVER
    """From here on a deletion was under way or may have been."""

    @property
    def survives(self) -> bool:
        return self.doomed_ns == FOREVER

    def meets(self, start_ns: int, end_ns: int) -> bool:
        return self.start_ns <= end_ns and start_ns <= self.end_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    start: int
    end: int


@dataclass(slots=True, kw_only=True)
class History:
    """What happened, as far as the clients can tell."""

    run: Run | None = None
    ops: list[Op] = field(default_factory=list)
    """In the order of their invokes."""
    notes: list[Noted] = field(default_factory=list)
    producers: dict[str, ProducerOpened] = field(default_factory=dict)
    lives: dict[str, list[Life]] = field(default_factory=dict)
    faults: list[Interval] = field(default_factory=list)
    """Disjoint and sorted: when at least one fault was active."""
    start_ns: int = 0
    end_ns: int = 0
    cut: bool = False
    """The last line of the file was incomplete."""

    def lives_of(self, tp: Partition, start_ns: int, end_ns: int) -> list[Life]:
        """The lives of the topic that something in this interval can belong to."""
        lives = self.lives.get(topic_of(tp))
        if lives is None:
            lives = self.lives[topic_of(tp)] = [Life(topic=topic_of(tp), number=0)]
        if len(lives) == 1 and lives[0].survives:
            return lives
        return [life for life in lives if life.meets(start_ns, end_ns)]

    def life_of(self, tp: Partition, start_ns: int, end_ns: int) -> Life | None:
        """The only such life; none if there are several (HC3)."""
        possible = self.lives_of(tp, start_ns, end_ns)
        return possible[0] if len(possible) == 1 else None

    def quiet_since(self, t_ns: int) -> int | None:
        """Since when no fault is active at `t_ns`; none if one is."""
        index = bisect_right(self.faults, t_ns, key=lambda fault: fault.start) - 1
        if index < 0:
            return self.start_ns
        return self.faults[index].end if self.faults[index].end < t_ns else None


def fold_history(events: Iterable[Event], *, cut: bool = False) -> History:
    """Pair the halves of every operation.

    Raises:
        Corrupt: the events cannot come from one honest recording.
    """
    history = History(cut=cut)
    invokes: dict[OpId, Invoke] = {}
    done: dict[OpId, Ok | Fail | Info] = {}
    # The lines are in the order of real time even where the clock stood still (a simulator's does):
    # events of one instant are spread by a nanosecond each, so that times alone tell the order.
    told_ns = spread_ns = -1
    for event in events:
        if isinstance(event, Run):
            history.run = event
            continue
        if event.t_ns < told_ns:
            raise Corrupt("time runs back in the history", t_ns=event.t_ns, before_ns=told_ns)
        if told_ns < 0:
            history.start_ns = event.t_ns
        told_ns = event.t_ns
        if told_ns <= spread_ns:
            event = replace(event, t_ns=spread_ns + 1)
        spread_ns = event.t_ns
        if isinstance(event, Invoke):
            if event.op in invokes:
                raise Corrupt("an operation was invoked twice", op=event.op)
            invokes[event.op] = event
        elif isinstance(event, Noted):
            history.notes.append(event)
        else:
            _check_completion(event, invokes, done)
            done[event.op] = event
    history.end_ns = max(spread_ns, 0)
    history.ops = [_join(invoke, done.get(op)) for op, invoke in invokes.items()]
    history.producers = {n.note.producer: n.note for n in history.notes if isinstance(n.note, ProducerOpened)}
    history.faults = _faults(history)
    history.lives = _lives(history.ops)
    return history


def _check_completion(event: Ok | Fail | Info, invokes: dict[OpId, Invoke], done: dict[OpId, Ok | Fail | Info]) -> None:
    invoke = invokes.get(event.op)
    if invoke is None:
        raise Corrupt("an operation completed that was never invoked", op=event.op)
    if event.op in done:
        raise Corrupt("an operation completed twice", op=event.op)
    if isinstance(event, Ok) and type(event.result) is not _ANSWERS[type(invoke.call)]:
        raise Corrupt("an answer does not fit its question", op=event.op, answer=type(event.result).__name__)


def _join(invoke: Invoke, done: Ok | Fail | Info | None) -> Op:
    op, process, call, start_ns = invoke.op, invoke.process, invoke.call, invoke.t_ns
    if done is None:
        return Op(op, process, call, start_ns, FOREVER, FOREVER, Status.INFO, None, "no completion")
    t_ns = done.t_ns
    if isinstance(done, Ok):
        return Op(op, process, call, start_ns, t_ns, t_ns, Status.OK, done.result, "")
    if isinstance(done, Info):
        return Op(op, process, call, start_ns, FOREVER, t_ns, Status.INFO, None, done.error)
    return Op(op, process, call, start_ns, t_ns, t_ns, Status.FAIL, None, done.error)


def _faults(history: History) -> list[Interval]:
    active: set[tuple[str, str]] = set()
    merged: list[Interval] = []
    since = 0
    for noted in history.notes:
        if not isinstance(noted.note, Nemesis):
            continue
        name = (noted.note.fault, noted.note.target)
        if noted.note.start:
            if not active:
                since = noted.t_ns
            active.add(name)
        elif name in active:
            active.discard(name)
            if not active:
                merged.append(Interval(start=since, end=noted.t_ns))
    if active:
        merged.append(Interval(start=since, end=history.end_ns))
    return merged


@dataclass(slots=True, kw_only=True)
class _Growing:
    start_ns: int
    topic_id: str = ""
    doomed_ns: int = FOREVER
    end_ns: int = FOREVER


def _lives(ops: list[Op]) -> dict[str, list[Life]]:
    growing: dict[str, list[_Growing]] = {}
    for op in ops:
        if op.status is Status.FAIL:
            continue
        if isinstance(op.call, CreateTopic):
            _on_create(growing.setdefault(op.call.topic, []), op)
        elif isinstance(op.call, DeleteTopic):
            _on_delete(growing.setdefault(op.call.topic, []), op)
    return {
        topic: [
            Life(
                topic=topic,
                number=number,
                topic_id=life.topic_id,
                start_ns=life.start_ns,
                end_ns=life.end_ns,
                doomed_ns=life.doomed_ns,
            )
            for number, life in enumerate(lives)
        ]
        for topic, lives in growing.items()
    }


def _on_create(lives: list[_Growing], op: Op) -> None:
    topic_id = op.result.topic_id if isinstance(op.result, Created) else ""
    if lives and lives[-1].doomed_ns == FOREVER:
        lives[-1].topic_id = topic_id or lives[-1].topic_id  # a repeat of a create whose answer was lost
        return
    if lives and op.status is Status.OK:
        # The new topic exists now, so the old one does not, even if its deletion was never confirmed.
        lives[-1].end_ns = min(lives[-1].end_ns, op.end_ns)
    lives.append(_Growing(start_ns=op.start_ns, topic_id=topic_id))


def _on_delete(lives: list[_Growing], op: Op) -> None:
    if not lives:
        lives.append(_Growing(start_ns=-1))  # it was there before the history began
    lives[-1].doomed_ns = min(lives[-1].doomed_ns, op.start_ns)
    lives[-1].end_ns = min(lives[-1].end_ns, op.end_ns)
