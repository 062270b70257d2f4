"""The members that this broker hears: who is silent for too long, and who only seems to be.

The home of a member is the broker whose entry last named it. Its timers run
there, in memory, and only propose: the machine takes a member's silence only
from its home. A member that waits here in a JoinGroup or SyncGroup is not
silent, however long it waits.

Invariants
    GS6  A home counts only the silence of one stay. What it timed before a
         member went elsewhere, where it may have beaten or synced, is
         forgotten the moment the log says that it went.
    GS7  From the moment a home proposes to remove a member, it answers it
         only by the log: the proposal may be under way when it beats again.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from dray.clock import Clock
from dray.groups import telemetry
from dray.groups.deadlines import Timetable
from dray.machine.groups.commands import Removal
from dray.machine.groups.names import MemberId
from dray.machine.names import SessionId
from dray.machine.step import Named
from dray.replica.replica import Replica

NO_GENERATION: Final = -1
AGAIN_MS: Final = 1_000
"""After a proposal that failed."""


class Silence(NamedTuple):
    """What is believed of a member when its time is up."""

    group: str
    member: MemberId
    reason: Removal
    since: int = NO_GENERATION
    """The generation or epoch that it counts for."""


class Homes:
    """The timers of the members of one domain that are at home here."""

    def __init__(self, replica: Replica, clock: Clock, wake: Callable[[], None] = lambda: None) -> None:
        self._replica = replica
        self._clock = clock
        self._deadlines: Timetable[Silence] = Timetable(clock)
        self._lengths: dict[Silence, int] = {}
        self._unsynced: dict[tuple[str, MemberId], Silence] = {}
        self._parked: Counter[tuple[str, MemberId]] = Counter()
        self._arrived: dict[tuple[str, MemberId], None] = {}
        self._doubted: set[tuple[str, MemberId]] = set()
        replica.on_named = self._named
        self.wake = wake
        """Called when a deadline is sooner than its loop expects."""

    @property
    def session(self) -> SessionId | None:
        """By which members here are known to the machine."""
        own = self._replica.session
        return None if own is None else own.id

    @property
    def is_busy(self) -> bool:
        """Whether anybody is timed, heard or waited for here."""
        return bool(self._lengths or self._parked or self._arrived or self._doubted)

    def clear(self) -> None:
        """The domain goes from here: whoever was at home is heard elsewhere from now on."""
        self._deadlines = Timetable(self._clock)
        self._lengths.clear()
        self._unsynced.clear()
        self._arrived.clear()
        self._doubted.clear()

    def is_own(self, home: SessionId) -> bool:
        return home == self.session

    def doubt(self, silences: Iterable[Silence]) -> None:
        """Their removal is proposed, and nobody knows yet what becomes of it (GS7)."""
        self._doubted.update((one.group, one.member) for one in silences)

    def doubts(self, silence: Silence) -> bool:
        """Whether it has not been heard since."""
        return (silence.group, silence.member) in self._doubted

    def judged(self, silences: Iterable[Silence]) -> None:
        """What became of it is in the state now."""
        self._doubted.difference_update((one.group, one.member) for one in silences)

    @contextmanager
    def asks(self, group: str, member: MemberId) -> Iterator[None]:
        """A call of the member is on its way to the log, so it is not silent: nobody proposes its removal now (GS7)."""
        self._parked[group, member] += 1
        try:
            yield
        finally:
            self._parked[group, member] -= 1
            if not self._parked[group, member]:
                del self._parked[group, member]

    def calls(self, group: str, member: MemberId) -> int:
        """How many calls of the member are under way here."""
        return self._parked[group, member]

    def may_answer(self, group: str, member: MemberId, home: SessionId) -> bool:
        """Whether a member of that home is answered here from memory: not by who slept, and may have lost it (RP5)."""
        return self.is_own(home) and self._replica.is_fresh and (group, member) not in self._doubted

    def watches(self, silence: Silence) -> bool:
        """Whether that would be noticed."""
        return silence in self._deadlines

    def heard(self, group: str, member: MemberId, session_ms: int) -> None:
        """The member was answered here: it may be silent as long as it said, from now on."""
        self._set(Silence(group, member, Removal.EXPIRED), session_ms)

    def given(self, group: str, member: MemberId, session_ms: int) -> None:
        """An id was given, and should be used in time."""
        self._set(Silence(group, member, Removal.PENDING), session_ms)

    def watch(self, silence: Silence, after_ms: int) -> None:
        """One other thing that a member must do in time, until `synced` says that it was done."""
        self.synced(silence.group, silence.member)
        self._unsynced[silence.group, silence.member] = silence
        self._set(silence, after_ms)

    def answered_join(self, group: str, member: MemberId, generation: int, rebalance_ms: int) -> None:
        """The member knows its generation, and should ask for its assignment in time."""
        self.watch(Silence(group, member, Removal.UNSYNCED, generation), rebalance_ms)

    def synced(self, group: str, member: MemberId) -> None:
        silence = self._unsynced.pop((group, member), None)
        if silence is not None:
            self._clear(silence)

    def forget(self, group: str, member: MemberId) -> None:
        """The member is gone, or heard elsewhere."""
        self._doubted.discard((group, member))
        self.synced(group, member)
        self._clear(Silence(group, member, Removal.EXPIRED))
        self._clear(Silence(group, member, Removal.PENDING))

    @contextmanager
    def parked(self, group: str, member: MemberId, session_ms: int) -> Iterator[None]:
        """The member waits here for an answer; when it has one, or goes away, its time begins."""
        try:
            with self.asks(group, member):
                yield
        finally:
            self.heard(group, member, session_ms)

    def _named(self, session: SessionId, members: Iterable[Named]) -> None:
        """An entry named members: they are at home with its session, and not silent."""
        own = self.is_own(session)
        for one in members:
            member = MemberId(one.member)
            if one.came and own:
                telemetry.REHOMED.inc()
            if one.came or not own:
                self.forget(one.group, member)  # GS6
            self._doubted.discard((one.group, member))  # whatever is under way was decided before this (G10)
            silence = Silence(one.group, member, Removal.EXPIRED)
            if own and silence in self._deadlines:
                self._set(silence, self._lengths[silence])
            elif own:
                self._arrived[one.group, member] = None
                self.wake()
            owed = self._unsynced.get((one.group, member))
            if owed is not None and owed not in self._deadlines:
                self._set(owed, AGAIN_MS)  # its removal will be refused, and what it must do is not done

    def take_arrived(self) -> list[tuple[str, MemberId]]:
        """Who has come here since this was last asked, and may be watched by nobody yet."""
        arrived, self._arrived = self._arrived, {}
        return list(arrived)

    def take(self) -> list[Silence]:
        """Whose time is up. Who waits here gets its time anew."""
        due = []
        for silence in self._deadlines.take():
            length_ms = self._lengths.pop(silence)
            if (silence.group, silence.member) in self._parked:
                self._set(silence, length_ms)
            else:
                due.append(silence)
        return due

    def again(self, silences: Iterable[Silence], after_ms: int) -> None:
        """They could not be told now."""
        for silence in silences:
            if silence not in self._deadlines:
                self._set(silence, after_ms)

    def tick(self) -> None:
        self._deadlines.tick()

    def plan(self) -> float:
        return self._deadlines.plan()

    def _set(self, silence: Silence, after_ms: int) -> None:
        self._lengths[silence] = after_ms
        if self._deadlines.set(silence, after_ms):
            self.wake()

    def _clear(self, silence: Silence) -> None:
        self._lengths.pop(silence, None)
        self._deadlines.clear(silence)
