"""Known mistakes, put into the product for one run, so that the simulator can be held to finding them.

A bug is a context manager that replaces a method of a class and puts the
right one back. Nothing of this is in the product: there is no switch there.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from dray.clock import Clock
from dray.log.port import Position
from dray.machine.checkpoint import Summary
from dray.machine.confirmations import CheckpointMark
from dray.machine.garbage import Objects
from dray.machine.machine import Machine
from dray.machine.names import SessionId, WalId, parse_wal_id
from dray.machine.sessions import Open, Session, Sessions
from dray.machine.step import EndReason, Outcome, Step
from dray.machine.streams import Streams
from dray.machine.timeline import Timeline
from dray.replica.checkpointer import Checkpointer
from dray.replica.expiry import Observer
from dray.replica.proposals import Proposal, _Queue
from dray.replica.replica import Replica
from dray.replica.session import OwnSession
from dray.replica.stall import StallWatch
from dray.replica.writer import Writer
from dray.sim.disk import FakeDisk, FakeFile
from dray.sim.log import FaultyLog
from dray.sim.scenarios.garbage import Collector
from dray.sim.world import World

Scenario = Callable[[World], Coroutine[object, object, None]]


@contextmanager
def replaced(owner: type, name: str, value: object) -> Iterator[None]:
    """Another method in place of one, for as long as the block runs."""
    kept = owner.__dict__.get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if kept is None:
            delattr(owner, name)
        else:
            setattr(owner, name, kept)


def planted(scenario: Scenario, *changes: tuple[type, str, object]) -> Scenario:
    """The scenario with one mistake in it."""

    async def run(world: World) -> None:
        with ExitStack() as stack:
            for owner, name, value in changes:
                stack.enter_context(replaced(owner, name, value))
            await scenario(world)

    return run


def without_n_check(self: Sessions, session: SessionId, n: int, entry_hash: bytes) -> Outcome:
    """Whatever a live session sends is executed, repeats and late copies too."""
    return Outcome.EXECUTED if session in self.live else Outcome.DEAD


def id_from_nonce(self: Sessions, command: Open) -> SessionId:
    """The session id is drawn, not counted."""
    number = SessionId(1 + int.from_bytes(command.nonce[:3], "little"))
    self.newest = max(self.newest, number)
    return number


async def without_tail_wait(self: Replica) -> None:
    """Answers come from memory, however old it is."""


_END: Final = Sessions.end
_JUDGE: Final = Sessions.judge


def end_softly(self: Sessions, step: Step, number: SessionId, reason: EndReason) -> None:
    """An expired session is kept, to be revived."""
    session = self.live[number]
    _END(self, step, number, reason)
    if reason is EndReason.EXPIRED:
        _expired_of(self)[number] = session


def revive(self: Sessions, session: SessionId, n: int, entry_hash: bytes) -> Outcome:
    """Whoever was expired goes on writing as if it were not."""
    expired = _expired_of(self).pop(session, None)
    if expired is not None:
        self.ended.pop(session, None)
        self.add(expired)
    return _JUDGE(self, session, n, entry_hash)


def _expired_of(sessions: Sessions) -> dict[SessionId, Session]:
    kept: dict[SessionId, Session] = sessions.__dict__.setdefault("_expired", {})
    return kept


def mine_by_number(self: Writer, entry: bytes) -> bool:
    """A verdict is taken for (session, n), whoever wrote the bytes."""
    return self._flight is not None and self._flight.entry[:20] == entry[:20]


def owns_any_session(self: Streams, name: WalId, session: SessionId) -> bool:
    """Objects of older sessions may be committed."""
    return parse_wal_id(name).log_id == self._head.log_id


def trusts_dead_after_a_jump(self: Writer) -> None:
    """What was in flight is taken for sent after the jump."""


def orphan_of_any_log(self: Collector, machine: Machine, name: WalId) -> bool:
    """The sweep does not look at the log id."""
    parts = parse_wal_id(name)
    known = machine.objects.counters_of(machine.log_id, parts.session)
    return machine.sessions.is_ended(parts.session) and parts.counter not in known


def time_is_believed(self: Timeline, wall_ms: int, *, proven: bool, others_ms: int | None) -> tuple[int, int]:
    """An open moves time to whatever its clock says."""
    self.sure_ms = max(self.sure_ms, wall_ms)
    self.time_ms = max(self.time_ms, self.sure_ms)
    return self.sure_ms, 0


def due_by_wall_time(self: Observer, *, patience: float = 1.0) -> list[tuple[SessionId, int]]:
    """Silence is counted on the wall, whether or not the log was there."""
    clock = self._clock_of_the_bug  # type: ignore[attr-defined]
    now = clock.boot_ns()
    heard: dict[SessionId, tuple[int, int]] = self.__dict__.setdefault("_heard", {})
    due = []
    for session, silence in sorted(self._others.items()):
        known = heard.get(session)
        if known is None or known[0] != silence.last_n:
            heard[session] = (silence.last_n, now)
        elif now - known[1] > self._ttl_ns:
            due.append((session, silence.last_n))
    return due


def wall_time_observer(scenario: Scenario) -> Scenario:
    """The observer needs a clock for its mistake; its replica has one."""
    build = Replica.__init__

    def init(self: Replica, **parts: object) -> None:
        build(self, **parts)  # type: ignore[arg-type]
        clock: Clock = self._clock
        self._observer._clock_of_the_bug = clock  # type: ignore[attr-defined]

    async def run(world: World) -> None:
        with replaced(Replica, "__init__", init), replaced(Observer, "due", due_by_wall_time):
            await scenario(world)

    return run


_FOLLOW: Final = FaultyLog.follow


async def missing_one(self: FaultyLog, after: Position) -> AsyncIterator[tuple[Position, bytes]]:
    """One node misses the sixtieth entry after its start."""
    count = 0
    async for position, entry in _FOLLOW(self, after):
        count += 1
        if count != 60 or self._link.process != "node-1":
            yield position, entry


async def refold_by_reading(self: Checkpointer, mark: CheckpointMark) -> Summary | None:
    """Another's checkpoint is confirmed because it can be read."""
    return await self._store.examine(mark.position)


_RELEASE: Final = Objects.release


def release_too_much(self: Objects, step: Step, owners: Iterable[int]) -> None:
    """Where an object has two rows or more, one that goes takes another with it."""
    more = []
    for number in owners:
        more.append(number)
        block = self._blocks[number >> 6]
        if block.rows[number & 63] - more.count(number) == 1:
            more.append(number)
    _RELEASE(self, step, [n for n in more if self._blocks[n >> 6].rows[n & 63] > 0])


_SYNC: Final = FakeFile.sync


def sync_later(self: FakeFile) -> None:
    """The log is told that its bytes are on the disk; they get there with a later sync, or never."""
    self._enter("sync")
    if self._disk.calls % 4 == 0:
        _SYNC(self)


_OPEN: Final = FakeDisk.open


def open_without_sync(self: FakeDisk, path: object) -> FakeFile:
    """The first sync of a file that was there before is left out."""
    file = _OPEN(self, path)  # type: ignore[arg-type]
    real = file.sync

    def first() -> None:
        file.sync = real  # type: ignore[method-assign]

    file.sync = first  # type: ignore[method-assign]
    return file


EXPIRED_MAY_WRITE: Final = ((Sessions, "end", end_softly), (Sessions, "judge", revive))


def of_any_age(self: Proposal) -> bool:
    """Whatever waited is sent, and sent again."""
    self.deadline_ns = 1 << 62
    return False


async def never_away(self: Writer) -> bool:
    """A process that slept goes on as if it had not."""
    return True


OLD_COMMITS_ARE_SENT: Final = (
    (Replica, "check_serving", lambda self: None),
    (Proposal, "once", property(of_any_age)),
    (_Queue, "head", lambda self, now_ns: self.waiting[0] if self.waiting else None),
    (Writer, "_try_refresh", never_away),
)


def never_stalled(self: StallWatch, position: int, now_ns: int) -> bool:
    """A follower that shows nothing is waited for."""
    return False


def counter_again(self: OwnSession) -> int:
    """The counter begins anew in the same session."""
    self.next_counter = self.next_counter % self.counters + 1
    return self.next_counter


COUNTERS_AGAIN: Final = (
    (OwnSession, "take_counter", counter_again),
    (OwnSession, "spent", property(lambda self: False)),
    (OwnSession, "exhausted", property(lambda self: False)),
)
