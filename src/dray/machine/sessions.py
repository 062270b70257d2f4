"""Sessions: who may write, and what becomes of each entry.

A session is the fence of the system. Whatever a writer sent is executed once,
in order, while its session lives, and never afterwards; so a lost reply is
settled by sending the same bytes again, a late copy is harmless, and a writer
that was expired while it slept can change nothing.

Invariants
    Q1  A session id is the machine's own counter when `Open` is applied:
        dense, never reused, never taken from a nonce or a position. Below
        the counter and not live = ended.
    Q2  An entry is executed if its session is live and n = last + 1, and then
        n is used up whatever the verdicts; else it does nothing. The same n
        with other bytes (a cloned process) closes the session.
    Q3  A repeat is the same bytes: it changes nothing, and is told from a
        clone by the hash of the session's last entry. An entry of an ended
        session is dead now and for ever.
    Q4  `Open`: the same nonce gets the same id; it is refused by a session of
        that name newer than `seen`; a live name is taken over only with the
        same instance id or by the owner of the directory lock, which closes
        the older session; anyone else waits for expiry.
    Q5  `Expire(session, last_n)` acts only if the session has not moved on.
    Q6  An entry says what its writer had seen: a position and the digest
        there (M4). A replica with another digest at that position stops.
    Q8  No command touches more than 3,000 rows (M2), and neither does an
        entry (M7): deletion, retention and expiry go in slices.

Q7, about time, is kept by `dray.machine.timeline`.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, ClassVar, Final

from msgspec import Meta

from dray.machine.command import (
    MAX_ROWS,
    Command,
    Count,
    MaybeMillis,
    Millis,
    Name,
    Nonce,
    Packed,
    SessionField,
    Version,
)
from dray.machine.keys import Shape
from dray.machine.names import MAX_SESSION, SessionId
from dray.machine.noun import Fields, Listing, stray
from dray.machine.packing import Reader, Writer
from dray.machine.step import EndReason, Outcome, SessionEnd, Step
from dray.machine.timeline import FIRST_WITH_RUNNING_TIME, Timeline, proves
from dray.machine.verdict import DONE, Refused, Verdict, Why, refused

SESSION_KEY: Final = Shape("sessions/#")

MAX_LIVE: Final = 10_000
MAX_ENDED: Final = 100_000
WAL_WINDOW: Final = 1_024
"""How far behind its newest WAL counter a session may still commit one: hedged puts come out of order."""


class SessionKind(IntEnum):
    """What a session is for. Brokers and compactors have a say in upgrades."""

    BROKER = 0
    COMPACTOR = 1
    TOOL = 2


class Open(Packed, frozen=True, kw_only=True):
    """Begin a session; alone in its entry, by nobody (session 0, n 0)."""

    number = 2

    name: Name
    nonce: Nonce
    seen: SessionField
    """The newest session id that the opener had seen (Q4)."""
    instance: Nonce
    """Stays the same when the same installation starts again."""
    kind: SessionKind
    lowest_version: Version
    highest_version: Version
    wall_ms: Millis
    store_date_ms: MaybeMillis = -1
    """What the object store says the time is; -1: not asked."""
    accept_clock: bool = False
    owner: bool = False
    """The opener holds the lock of the data directory."""


class Close(Packed, frozen=True, kw_only=True):
    """End the entry's own session."""

    number = 3


class KeepAlive(Packed, frozen=True, kw_only=True):
    """Say that the entry's session is alive."""

    number = 4


class Expire(Packed, frozen=True, kw_only=True):
    """End a silent session, if it has not moved on (Q5)."""

    number = 5

    session: SessionField
    last_n: Count


class Swept(Packed, frozen=True, kw_only=True):
    """The orphans of these ended sessions are gone: forget the sessions."""

    number = 26

    sessions: Annotated[tuple[SessionField, ...], Meta(max_length=MAX_ROWS)]

    def needs(self) -> int:
        return max(1, len(self.sessions))


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened(Verdict):
    """The session of a nonce. Its entries say `time_ms` + the time passed since this was seen."""

    session: SessionId
    nonce: bytes
    time_ms: int


@dataclass(slots=True, kw_only=True)
class Session:
    """A live session."""

    id: SessionId
    name: str
    nonce: bytes
    instance: bytes
    kind: SessionKind
    lowest_version: int
    highest_version: int
    opened_position: int
    base_ms: int
    lead_ms: int
    clock_ms: int
    ceiling_ms: int
    running_base_ms: int = 0
    last_n: int = 0
    last_hash: bytes = b""
    last_position: int = 0
    """Of its last executed entry, or of its Open."""
    newest_wal: int = -1
    used_wals: int = 0
    """Bit i: the WAL counter `newest_wal - i` was committed."""

    def may_commit_wal(self, counter: int) -> bool:
        """A WAL counter is committed at most once (X5)."""
        age = self.newest_wal - counter
        return age < 0 or (age < WAL_WINDOW and not self.used_wals >> age & 1)

    def commit_wal(self, counter: int) -> None:
        age = self.newest_wal - counter
        if age < 0:
            mask = (1 << WAL_WINDOW) - 1
            self.used_wals = (self.used_wals << -age | 1) & mask if -age < WAL_WINDOW else 1
            self.newest_wal = counter
        else:
            self.used_wals |= 1 << age


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedSession:
    """A session that ended and whose orphans have not been swept."""

    id: SessionId
    name: str
    nonce: bytes
    kind: SessionKind
    reason: EndReason
    position: int
    time_ms: int


class Sessions:
    """The live sessions of a domain and the ended ones that are not swept."""

    name: ClassVar[str] = "sessions"
    since: ClassVar[int] = 1
    commands: ClassVar[tuple[type[Command], ...]] = (Open, Close, KeepAlive, Expire, Swept)

    def __init__(self, timeline: Timeline) -> None:
        self.newest = SessionId(0)
        self.live: dict[SessionId, Session] = {}
        self.ended: dict[SessionId, EndedSession] = {}
        self._names: dict[str, SessionId] = {}
        self._nonces: dict[bytes, SessionId] = {}
        self._timeline = timeline

    def find(self, name: str) -> Session | None:
        """The live session of a name."""
        number = self._names.get(name)
        return None if number is None else self.live[number]

    def is_ended(self, session: SessionId) -> bool:
        """Was it given out and is it no longer live (Q1)?"""
        return 0 < session <= self.newest and session not in self.live

    def judge(self, session: SessionId, n: int, entry_hash: bytes) -> Outcome:
        """What becomes of an entry, by who wrote it and its number (Q2, Q3)."""
        writer = self.live.get(session)
        if writer is None:
            return Outcome.DEAD
        if n == writer.last_n + 1:
            return Outcome.EXECUTED
        if n > writer.last_n:
            return Outcome.HOLE
        if n == writer.last_n and n > 0 and entry_hash != writer.last_hash:
            return Outcome.CLONED
        return Outcome.REPEAT

    def use_up(self, session: SessionId, n: int, entry_hash: bytes, position: int) -> Session:
        """The entry counts, whatever its verdicts (Q2)."""
        writer = self.live[session]
        writer.last_n = n
        writer.last_hash = entry_hash
        writer.last_position = position
        return writer

    def tick(self, writer: Session, claimed_ms: int) -> None:
        """An executed entry moves machine time (Q7)."""
        self._timeline.advance(writer, claimed_ms, self.oldest_clock)

    def begin_running(self) -> None:
        """Running time begins with the version that has it, for whoever lives then (Q9)."""
        for session in self.live.values():
            session.running_base_ms = self._timeline.running_base_ms(session.clock_ms)

    def oldest_clock(self, besides: SessionId) -> int | None:
        """The sure time of the other live session that is furthest behind, if there are others."""
        return min((other.clock_ms for other in self.live.values() if other.id != besides), default=None)

    def open(self, step: Step, command: Open, version: int) -> Verdict:
        """Judge an Open (Q4); it closes the older session of its name."""
        known = self._nonces.get(command.nonce)
        if known is not None:
            return self._again(command, known)
        denied = self._deny(command, version)
        if denied is not None:
            return denied
        older = self.find(command.name)
        if older is not None:
            self.end(step, older.id, EndReason.TAKEN_OVER)
        number = self.new_id(command)
        proven = proves(command.wall_ms, command.store_date_ms, accept_clock=command.accept_clock)
        sure_ms, lead_ms = self._timeline.open(
            command.wall_ms, proven=proven, others_ms=self.oldest_clock(besides=number)
        )
        session = Session(
            id=number, name=command.name, nonce=command.nonce, instance=command.instance, kind=command.kind,
            lowest_version=command.lowest_version, highest_version=command.highest_version,
            opened_position=step.position, last_position=step.position,
            base_ms=sure_ms + lead_ms, lead_ms=lead_ms, clock_ms=sure_ms, ceiling_ms=sure_ms,
            running_base_ms=self._timeline.running_base_ms(sure_ms),
        )  # fmt: skip
        self.add(session)
        step.given.append(number)
        return Opened(session=number, nonce=command.nonce, time_ms=session.base_ms)

    def new_id(self, command: Open) -> SessionId:
        """The next id of the counter (Q1)."""
        self.newest = SessionId(self.newest + 1)
        return self.newest

    def add(self, session: Session) -> None:
        self.live[session.id] = session
        self._names[session.name] = session.id
        self._nonces[session.nonce] = session.id

    def add_ended(self, ended: EndedSession) -> None:
        self.ended[ended.id] = ended
        self._nonces[ended.nonce] = ended.id

    def end(self, step: Step, number: SessionId, reason: EndReason) -> None:
        """The session is over: whatever it sent and was not executed is dead (Q3)."""
        session = self.live.pop(number)
        del self._names[session.name]
        self.ended[number] = EndedSession(
            id=number, name=session.name, nonce=session.nonce, kind=session.kind,
            reason=reason, position=step.position, time_ms=self._timeline.time_ms,
        )  # fmt: skip
        step.ended.append(SessionEnd(session=number, reason=reason, clock_ms=session.clock_ms))
        if len(self.ended) > MAX_ENDED:
            # The oldest one's orphans are never swept: a leak, where memory without bound would be an outage.
            self._forget(min(self.ended))

    def apply(self, step: Step, command: Command) -> Verdict:
        match command:
            case Close():
                self.end(step, step.session, EndReason.CLOSED)
                return DONE
            case KeepAlive():
                return DONE
            case Expire():
                return self._expire(step, command)
            case Swept():
                return self._sweep(command.sessions)
            case Open():
                return refused(Why.STATE, "only nobody may send this")
            case _:
                return stray(command)

    def session_ended(self, step: Step, session: SessionId) -> None:
        """It was ended here."""

    def _sweep(self, numbers: tuple[SessionId, ...]) -> Verdict:
        """Forget ended sessions; a live one is not swept."""
        if any(number in self.live for number in numbers):
            return refused(Why.LIVE, "a live session has no orphans")
        for number in numbers:
            self._forget(number)
        return DONE

    def _forget(self, number: SessionId) -> None:
        ended = self.ended.pop(number, None)
        if ended is not None:
            del self._nonces[ended.nonce]

    def _again(self, command: Open, number: SessionId) -> Verdict:
        session = self.live.get(number)
        if session is None or session.name != command.name:
            return refused(Why.STALE, "the session of this nonce has ended")
        return Opened(session=number, nonce=command.nonce, time_ms=session.base_ms)

    def _deny(self, command: Open, version: int) -> Refused | None:
        if not command.lowest_version <= version <= command.highest_version:
            return refused(Why.VERSION, "the opener does not support the active version")
        older = self.find(command.name)
        if older is None:
            if self.newest >= MAX_SESSION or len(self.live) >= MAX_LIVE:
                return refused(Why.LIMIT, "no room for another session")
            return None
        if self.newest >= MAX_SESSION:
            return refused(Why.LIMIT, "no room for another session")
        if older.id > command.seen:
            return refused(Why.NEWER, "a newer session of that name is live")
        if older.instance != command.instance and not command.owner:
            return refused(Why.LIVE, "another instance holds the name")
        return None

    def _expire(self, step: Step, command: Expire) -> Verdict:
        session = self.live.get(command.session)
        if command.session == step.session:
            return refused(Why.STATE, "a session does not expire itself")
        if session is None:
            return refused(Why.NOT_FOUND, "the session is not live")
        if session.last_n != command.last_n:  # Q5
            return refused(Why.STALE, "the session has moved on")
        self.end(step, session.id, EndReason.EXPIRED)
        return DONE

    def dump(self, out: Writer, version: int) -> None:
        out.values([self.newest, len(self.live), len(self.ended)])
        for _, s in sorted(self.live.items()):
            out.values([
                s.id, s.name, s.nonce, s.instance, int(s.kind), s.lowest_version, s.highest_version,
                s.opened_position, s.base_ms, s.lead_ms, s.clock_ms, s.ceiling_ms,
                s.last_n, s.last_hash, s.last_position, s.newest_wal, s.used_wals.to_bytes(WAL_WINDOW // 8, "little"),
                *([s.running_base_ms] if version >= FIRST_WITH_RUNNING_TIME else []),
            ])  # fmt: skip
        for _, e in sorted(self.ended.items()):
            out.values([e.id, e.name, e.nonce, int(e.kind), e.reason.value, e.position, e.time_ms])

    def load(self, source: Reader, version: int) -> None:
        newest, live, ended = source.ints(3)
        self.newest = SessionId(newest)
        for _ in range(live):
            row = source.row()
            self.add(Session(
                id=SessionId(row.number()), name=row.text(), nonce=row.raw(), instance=row.raw(),
                kind=SessionKind(row.number()), lowest_version=row.number(), highest_version=row.number(),
                opened_position=row.number(), base_ms=row.number(), lead_ms=row.number(), clock_ms=row.number(),
                ceiling_ms=row.number(), last_n=row.number(), last_hash=row.raw(), last_position=row.number(),
                newest_wal=row.number(), used_wals=int.from_bytes(row.raw(), "little"),
                running_base_ms=row.number() if version >= FIRST_WITH_RUNNING_TIME else 0,
            ))  # fmt: skip
        for _ in range(ended):
            row = source.row()
            self.add_ended(EndedSession(
                id=SessionId(row.number()), name=row.text(), nonce=row.raw(), kind=SessionKind(row.number()),
                reason=EndReason(row.number()), position=row.number(), time_ms=row.number(),
            ))  # fmt: skip

    def show(self, prefix: str) -> Listing:
        for number in sorted({*self.live, *self.ended}):
            live = self.live.get(number)
            yield SESSION_KEY.build(number), _ended_fields(self.ended[number]) if live is None else _live_fields(live)


def _live_fields(live: Session) -> Fields:
    return {
        "name": live.name, "kind": live.kind.name, "state": "LIVE", "lastN": live.last_n,
        "openedAtPosition": live.opened_position, "lastPosition": live.last_position,
        "versions": [live.lowest_version, live.highest_version],
    }  # fmt: skip


def _ended_fields(ended: EndedSession) -> Fields:
    return {
        "name": ended.name, "kind": ended.kind.name, "state": ended.reason.name,
        "endedAtPosition": ended.position, "endedAtMs": ended.time_ms,
    }  # fmt: skip
