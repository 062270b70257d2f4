"""What belongs to no single member: phases that end, members whose broker is gone.

The keeper of a group is the broker that clients are told to ask. It is not
stored, and it only proposes, naming what it saw; the broker of rank r does the
same r steps later if it is still undone, so a dead keeper costs a step.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeAlias

from dray.clock import Clock
from dray.errors import DrayError
from dray.groups import telemetry
from dray.groups.deadlines import TICK_S, Timetable
from dray.groups.homes import AGAIN_MS, Homes, Silence
from dray.groups.phases import PhaseWatch
from dray.groups.placement import BrokerOrder
from dray.machine.groups.classic import ClassicGroup
from dray.machine.groups.codes import GroupCode, Removed
from dray.machine.groups.commands import EndPhase, Removal, RemovalRow, RemoveMembers
from dray.machine.groups.group import Group
from dray.machine.groups.names import MemberId
from dray.machine.groups.roster import Completing, Preparing
from dray.machine.names import SessionId
from dray.pace import Pace
from dray.replica.replica import Replica
from dray.replica.wakeups import GROUPS

SWEEP_S: Final = 10.0
ROWS: Final = 1_000


class Phase(NamedTuple):
    """A phase of a group, by its timer."""

    group: str
    tick: int


class Homeless(NamedTuple):
    """A member, or an id that was given, whose broker has ended."""

    group: str
    member: MemberId
    home: SessionId
    reason: Removal


Undone: TypeAlias = Phase | Homeless
Glance: TypeAlias = Callable[[Group, bool], None]


class GroupKeeper:
    """Keeps the groups of one domain."""

    def __init__(self, replica: Replica, homes: Homes, routing: BrokerOrder, clock: Clock, step_in_ms: int) -> None:
        self._replica = replica
        self._homes = homes
        self._routing = routing
        self._clock = clock
        self._step_in_ms = step_in_ms
        self._deadlines: Timetable[Undone] = Timetable(clock)
        self._phases: dict[str, int] = {}
        """The tick that is timed, for each group that has one."""
        self._working = asyncio.Event()
        self._swept_ns: int | None = None
        self._lives: tuple[SessionId, frozenset[SessionId]] | None = None
        """The sessions of the last sweep, those that came and went between two looks too."""
        self._watch = PhaseWatch(clock)
        self.looks: list[Glance] = []
        """Who else wants to look at a group that moved, or (True) that was come upon in a sweep."""

    def clear(self) -> None:
        """The domain goes from here: it is looked at anew when it comes back."""
        self._deadlines = Timetable(self._clock)
        self._phases.clear()
        self._swept_ns = self._lives = None
        self._working.clear()

    async def run(self) -> None:
        """Look and propose, for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._tick())
            with self._replica.waiter((GROUPS,)) as waiter:
                self._homes.wake = waiter.wake_wholly
                while True:
                    waiter.clear()
                    self._working.set()
                    await self.step()
                    self._working.clear()
                    await waiter.wait(self.plan())

    async def _tick(self) -> None:
        """A step waits for the log; a process that sleeps while it waits has heard nobody, too (GS3)."""
        while True:
            await self._working.wait()
            if self._working.is_set():  # the step may be done already
                self._homes.tick()
                self._deadlines.tick()
            await self._clock.sleep(TICK_S)

    def plan(self) -> float:
        """How many seconds may pass until the next look, if nothing happens meanwhile."""
        return min(self._homes.plan(), self._deadlines.plan(), SWEEP_S)

    async def step(self) -> None:
        """One look at what has changed and what is due."""
        for name in self._replica.take_moved():
            self._look(name)
        for name, member in self._homes.take_arrived():
            self._look_at_arrival(name, member)
        if self._is_sweep_due():
            await self._sweep()
        due = self._deadlines.take()
        await self._end_phases([one for one in due if isinstance(one, Phase)])
        await self._remove_homeless([one for one in due if isinstance(one, Homeless)])
        await self._remove_silent(self._homes.take())

    # -- what is to be done ------------------------------------------------

    def _look(self, name: str) -> None:
        group = self._replica.machine.groups.find(name)
        self._watch.look(name, group if self._routing.rank(name) == 0 else None)
        if isinstance(group, ClassicGroup):
            self._look_at_phase(group)
        else:
            self._phases.pop(name, None)
        if group is not None:
            for look in self.looks:
                look(group, False)

    def _look_at_arrival(self, name: str, member: MemberId) -> None:
        """Whoever answers a member times it; of one that was not answered, the time begins here."""
        group = self._replica.machine.groups.classic(name)
        found = None if group is None else group.members.get(member)
        if found is not None:
            self.look_at_home(name, found.id, found.home, found.session_ms)

    def _look_at_phase(self, group: ClassicGroup) -> None:
        match group.state:
            case Preparing(initial=True, delay_ms=delay_ms):
                length_ms = delay_ms
            case Preparing() | Completing():
                length_ms = group.rebalance_ms
            case _:
                self._phases.pop(group.id, None)
                return
        if self._phases.get(group.id) != group.tick:
            self._phases[group.id] = group.tick
            self._deadlines.set(Phase(group.id, group.tick), length_ms + self._patience_ms(group.id))

    def _patience_ms(self, group: str) -> int:
        return self._routing.rank(group) * self._step_in_ms

    def _is_sweep_due(self) -> bool:
        sessions = self._replica.machine.sessions
        lives = (sessions.newest, frozenset(sessions.live))
        now_ns = self._clock.boot_ns()
        due = self._swept_ns is None or lives != self._lives or now_ns - self._swept_ns >= SWEEP_S * 1e9
        if due:
            self._lives, self._swept_ns = lives, now_ns
        return due

    async def _sweep(self) -> None:
        """Look at every group: is there a phase, a member without a broker, or one that nobody watches here?"""
        pace = Pace()
        for name in list(self._replica.machine.groups.all):
            group = self._replica.machine.groups.find(name)
            if isinstance(group, ClassicGroup):
                self._look_at_phase(group)
                self._look_at_homes(group)
                if pace.is_due(1 + len(group.members)):
                    await asyncio.sleep(0)
            elif group is not None:
                for look in self.looks:
                    look(group, True)

    def _look_at_homes(self, group: ClassicGroup) -> None:
        for member in group.members.values():
            self.look_at_home(group.id, member.id, member.home, member.session_ms)
        for name, pending in group.pending.items():
            if self._is_gone(pending.home):
                self._expect(Homeless(group.id, name, pending.home, Removal.PENDING), 0)
            elif self._homes.is_own(pending.home) and not self._homes.watches(Silence(group.id, name, Removal.PENDING)):
                self._homes.given(group.id, name, pending.session_ms)

    def look_at_home(self, group: str, member: MemberId, home: SessionId, session_ms: int) -> None:
        """See that somebody watches over a member: its home, or whoever keeps the group of a homeless one."""
        if self._is_gone(home):
            self._expect(Homeless(group, member, home, Removal.EXPIRED), session_ms)
        elif self._homes.is_own(home) and not self._homes.watches(Silence(group, member, Removal.EXPIRED)):
            self._homes.heard(group, member, session_ms)

    def _is_gone(self, home: SessionId) -> bool:
        return home not in self._replica.machine.sessions.live

    def _expect(self, homeless: Homeless, after_ms: int) -> None:
        if homeless not in self._deadlines:
            self._deadlines.set(homeless, after_ms + self._patience_ms(homeless.group))

    # -- what is due -------------------------------------------------------

    async def _end_phases(self, phases: Iterable[Phase]) -> None:
        for phase in phases:
            group = self._replica.machine.groups.classic(phase.group)
            if group is None or group.tick != phase.tick or self._phases.get(phase.group) != phase.tick:
                continue
            try:
                await self._replica.propose(EndPhase(group=phase.group, tick=phase.tick))
            except DrayError:
                self._deadlines.set(phase, AGAIN_MS)

    async def _remove_homeless(self, due: list[Homeless]) -> None:
        rows: dict[tuple[str, Removal], list[RemovalRow]] = {}
        for one in due:
            if self._home_of(one.group, one.member) == one.home and self._is_gone(one.home):
                row = RemovalRow(member=one.member, home=one.home, seen=self._replica.machine.position)
                rows.setdefault((one.group, one.reason), []).append(row)
        for (group, reason), found in rows.items():
            try:
                await self._remove(group, reason, found)
            except DrayError:
                for row in found:
                    self._deadlines.set(Homeless(group, row.member, row.home, reason), AGAIN_MS)

    async def _remove_silent(self, due: list[Silence]) -> None:
        rows: dict[tuple[str, Removal], list[Silence]] = {}
        for silence in due:
            if self._is_silent_here(silence):
                rows.setdefault((silence.group, silence.reason), []).append(silence)
        # All at once: those of the last group may be heard while the first waits for the log.
        self._homes.doubt(one for late in rows.values() for one in late)
        seen = self._replica.machine.position  # G10: who is heard from now on does not go
        for (group, reason), late in rows.items():
            session = self._homes.session
            found = [silence for silence in late if self._homes.doubts(silence)]
            if session is None or not found:
                continue
            try:
                await self._remove(
                    group, reason,
                    [RemovalRow(member=one.member, home=session, since=one.since, seen=seen) for one in found],
                )  # fmt: skip
            except DrayError:
                self._homes.again(found, AGAIN_MS)
            else:
                self._homes.judged(found)

    def _is_silent_here(self, silence: Silence) -> bool:
        """Whether its home has to say it: not of a given id that was used since, which is a member's now (GS2)."""
        group = self._replica.machine.groups.find(silence.group)
        given = group.pending if isinstance(group, ClassicGroup) else ()
        used = silence.reason is Removal.PENDING and silence.member not in given
        home = None if group is None else group.home_of(silence.member)
        return home is not None and self._homes.is_own(home) and not used

    async def _remove(self, group: str, reason: Removal, rows: list[RemovalRow]) -> None:
        for at in range(0, len(rows), ROWS):
            command = RemoveMembers(group=group, reason=reason, rows=tuple(rows[at : at + ROWS]))
            match await self._replica.propose(command):
                case [Removed(codes=codes)]:
                    gone = sum(code is GroupCode.ACCEPTED for code in codes)
                    telemetry.REMOVED.labels(reason.name.lower()).inc(gone)

    def _home_of(self, name: str, member: MemberId) -> SessionId | None:
        group = self._replica.machine.groups.find(name)
        return None if group is None else group.home_of(member)
