"""Machine time: how late it is in a domain, by the log alone.

Nobody's wall clock is believed. There are two lines:

    sure time      moves by the time that writers saw pass on CLOCK_BOOTTIME
                   while their session lived, and by opens that can prove
                   their clock
    machine time   at most an hour beyond sure time: what an open without
                   proof may add, so that a short stop needs no proof

A session lives on its own line: it starts at sure time when it opens, plus a
fixed lead (what its wall clock said beyond that, at most an hour). Its entries
claim `base + elapsed`. Because the lead is never added to sure time, opening
again and again gains nothing: any number of clocks that are ten years ahead
move machine time by one hour in all, and when they are gone it stands still
until sure time has caught up.

A claim that is more than an hour beyond any other live session is cut to that
hour, so broken clocks cannot run away within their sessions either, as long
as one that works is among them. (A dead session holds time back until it is
expired, which needs no machine time.) A session that is alone is believed:
nobody can contradict it.

Since version 2 there is a third line for what lasts rather than names a
moment: *running time*. A session's part of it begins, when it opens, at what
running time is then, and an entry claims that and what its bounded clock
moved since; running time is the most that was ever claimed. Opens, leads and
proofs do not move it, and with no broker alive it stands. So what lasts ends
late by an outage, and never early, whatever clocks say.

After a jump (an open that moves time by more than a minute, or any entry that
moves it by more than an hour) retention, expiry and garbage pause until sure
time has moved one hour further; leads do not shorten that hour.

Invariants
    Q7  Machine time never runs back; within a session it advances by what
        the writer claims to have seen pass, at most an hour beyond any other
        live session; only an open may jump: by at most an hour beyond sure
        time, or, alone, as far as the store's date within five minutes or
        an operator vouches for.
    Q9  Running time never runs back, and moves by no more than what one live
        session saw pass.
"""

from collections.abc import Callable
from typing import Final, Protocol

from dray.machine.command import MAX_TIME_MS
from dray.machine.names import SessionId

HOUR_MS: Final = 3_600_000
PROOF_MS: Final = 300_000
JUMP_MS: Final = 60_000
FIRST_WITH_RUNNING_TIME: Final = 2
"""The version of the rules; before it running time stands at 0."""


class Line(Protocol):
    """The part of a session that is about time."""

    @property
    def id(self) -> SessionId: ...

    lead_ms: int
    clock_ms: int
    ceiling_ms: int
    running_base_ms: int
    """What is to be added to its clock for running time."""


def proves(wall_ms: int, store_date_ms: int, *, accept_clock: bool) -> bool:
    """Does anything vouch for the opener's clock?"""
    return accept_clock or (store_date_ms >= 0 and abs(wall_ms - store_date_ms) <= PROOF_MS)


class Timeline:
    """Sure time, machine time, running time and the pause after a jump."""

    __slots__ = ("pause_end_ms", "running_ms", "runs", "sure_ms", "time_ms")

    def __init__(self) -> None:
        self.time_ms = 0
        self.sure_ms = 0
        self.pause_end_ms = 0
        self.running_ms = 0
        self.runs = False
        """Whether the active version has running time."""

    @property
    def paused(self) -> bool:
        """Did time jump less than an hour of sure time ago?"""
        return self.sure_ms < self.pause_end_ms

    def begin(self, wall_ms: int) -> None:
        """The founder's clock is where time begins."""
        self.time_ms = self.sure_ms = min(max(wall_ms, 0), MAX_TIME_MS)

    def restart(self, time_ms: int) -> None:
        """A new log begins with the state of one that ran ahead; retention waits as after every jump."""
        self.time_ms = self.sure_ms = time_ms
        self.pause_end_ms = time_ms + HOUR_MS

    def open(self, wall_ms: int, *, proven: bool, others_ms: int | None) -> tuple[int, int]:
        """Start a line: (its sure time, its lead). `others_ms` is the oldest clock of the other live sessions."""
        before, sure = self.time_ms, self.sure_ms
        highest = sure + HOUR_MS
        if proven:
            trusted = wall_ms if others_ms is None else min(wall_ms, others_ms + HOUR_MS)
            sure = max(sure, trusted)
        lead = max(0, min(wall_ms, highest) - sure)
        self.sure_ms = sure
        self.time_ms = max(before, sure + lead)  # Q7
        if self.time_ms - before > JUMP_MS:
            self.pause_end_ms = self.sure_ms + HOUR_MS
        return sure, lead

    def advance(self, line: Line, claimed_ms: int, others_ms: Callable[[SessionId], int | None]) -> None:
        """An executed entry says how late it is on its writer's line; `others_ms` is asked for all but that."""
        clock = (claimed_ms if claimed_ms < MAX_TIME_MS else MAX_TIME_MS) - line.lead_ms
        if clock > line.ceiling_ms:
            clock = self.bounded(line, clock, others_ms(line.id))
        if clock <= line.clock_ms:
            return
        line.clock_ms = clock
        if self.runs and line.running_base_ms + clock > self.running_ms:
            self.running_ms = line.running_base_ms + clock  # Q9
        if clock > self.sure_ms:
            if clock - self.sure_ms > HOUR_MS:
                self.pause_end_ms = clock + HOUR_MS
            self.sure_ms = clock
        if clock + line.lead_ms > self.time_ms:
            self.time_ms = clock + line.lead_ms  # Q7

    def running_base_ms(self, clock_ms: int) -> int:
        """For a line whose clock is there now: it claims nothing yet (Q9)."""
        return self.running_ms - clock_ms if self.runs else 0

    def bounded(self, line: Line, clock_ms: int, others_ms: int | None) -> int:
        """Cut a claim to an hour beyond the others (Q7). The ceiling is kept, so that they are rarely asked."""
        if others_ms is None:
            line.ceiling_ms = clock_ms + HOUR_MS
            return clock_ms
        line.ceiling_ms = others_ms + HOUR_MS
        return min(clock_ms, line.ceiling_ms)
