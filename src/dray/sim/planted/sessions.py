"""Mistakes about who may write, and about time."""

from typing import Final

from dray.clock import Clock
from dray.machine.names import SessionId
from dray.machine.sessions import Session, Sessions
from dray.machine.step import EndReason, Outcome, Step
from dray.machine.timeline import Timeline
from dray.replica.expiry import Observer
from dray.replica.replica import Replica
from dray.replica.writer import Writer
from dray.sim.planted import Scenario, replaced
from dray.sim.world import World

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


EXPIRED_MAY_WRITE: Final = ((Sessions, "end", end_softly), (Sessions, "judge", revive))


def mine_by_number(self: Writer, entry: bytes) -> bool:
    """A verdict is taken for (session, n), whoever wrote the bytes."""
    return self._flight is not None and self._flight.entry[:20] == entry[:20]


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


def fresh_for_too_long(self: Writer) -> bool:
    """A broker serves for four thirds of a ttl without an append, not for two."""
    if self._session is None:
        return False
    return self._clock.boot_ns() - self._confirmed_ns < self._timing.ttl_ms * 1_000_000 * 4 // 3
