"""A log for the simulator: one shared truth, and a faulty way to it per process.

`SharedLog` is what the log server holds; `FaultyLog` is the port that a
process uses. Order is decided where an append arrives, not where it was sent.

Invariants
    SM10  Followers get every entry behind their start in order and without a
         gap, however late; never one that the truth has not held.
    SM11  An append is acknowledged only after it is in the truth; `NotAppended`
         only if it never arrives; everything else is `LostReply`.
    SM12  `tail` is read at the truth after the call began.
"""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from dray.errors import Invalid, Unavailable
from dray.log.port import BEFORE_ALL, LostReply, NotAppended, Position, Trimmed
from dray.sim.loop import SimLoop
from dray.sim.network import Link
from dray.sim.trace import Trace

SERVICE: Final = "log"


class LogUnavailable(Unavailable):
    """The log did not answer a read; nothing happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """An entry as the truth holds it."""

    position: Position
    entry: bytes


class SharedLog:
    """The truth: what is durable, in order."""

    def __init__(self, loop: SimLoop, trace: Trace, dice: Random, name: str = SERVICE) -> None:
        self.name = name
        self._loop = loop
        self._trace = trace
        self._dice = dice
        self._entries: list[LogEntry] = []
        self._trimmed = BEFORE_ALL
        self._floor = BEFORE_ALL
        self._waiting: list[asyncio.Future[None]] = []
        self.lost: list[LogEntry] = []
        """Entries that a rollback took away: evidence for checkers."""
        self.history: list[LogEntry] = []
        """Every entry that counts, trimmed ones included: what a fresh fold of the whole log reads."""
        self.on_landed: Callable[[LogEntry], None] | None = None
        """Called with each entry as it is ordered: how a checker watches the truth."""
        self.on_trim: Callable[[Position], None] | None = None
        """Called before entries are let go."""

    def land(self, entry: bytes, who: str) -> Position:
        """Order an entry. Positions leave holes, as engines that append markers do."""
        hole = self._dice.randrange(3) if self._dice.random() < 0.2 else 0
        position = Position(self.tail() + 1 + hole)
        landed = LogEntry(position=position, entry=bytes(entry))
        self._entries.append(landed)
        self.history.append(landed)
        if self.on_landed is not None:
            self.on_landed(landed)
        self._trace.add(self.name, "landed", position=position, sender=who, size=len(entry))
        self.ring()
        return position

    def ring(self) -> None:
        """Wake who waits for something new."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def tail(self) -> Position:
        return self._entries[-1].position if self._entries else self._floor

    def entries(self) -> list[LogEntry]:
        """Everything that is there now, trimmed entries excepted."""
        return list(self._entries)

    def after(self, position: Position) -> list[LogEntry]:
        """What lies behind a position; `Trimmed` if some of it is gone."""
        if position < self._trimmed:
            raise Trimmed("the entries after this position are gone", position=position, trimmed=self._trimmed)
        start = bisect_right(self._entries, position, key=lambda entry: entry.position)
        return self._entries[start:]

    async def grown(self) -> None:
        """Wait for the next entry."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(future)
        await future

    def trim(self, upto: Position) -> None:
        """Let go of the entries at or below `upto`; the tail stays where it is."""
        if upto > self.tail():
            raise Invalid("cannot trim above the tail", upto=upto, tail=self.tail())
        if self.on_trim is not None:
            self.on_trim(upto)
        self._floor = max(self._floor, upto)
        self._trimmed = max(self._trimmed, upto)
        self._entries = [entry for entry in self._entries if entry.position > upto]
        self._trace.add(self.name, "trimmed", upto=upto)

    def rollback(self, count: int) -> int:
        """An old copy was restored: the last `count` entries are gone and their positions will be used again."""
        count = min(count, len(self._entries))
        if count:
            self.lost.extend(self._entries[-count:])
            del self._entries[-count:]
            del self.history[-count:]
        self._trace.add(self.name, "rolled back", count=count, tail=self.tail())
        return count


class FaultyLog:
    """The log as one process reaches it: the port, with the faults of its link."""

    def __init__(self, truth: SharedLog, link: Link, *, max_entry: int = 1 << 20) -> None:
        self._truth = truth
        self._link = link
        self._max_entry = max_entry
        self._closed = False

    async def append(self, entry: bytes) -> Position:
        if self._closed:
            raise NotAppended("the log is closed")
        if not entry:
            raise NotAppended("an entry has at least one byte")
        if len(entry) > self._max_entry:
            raise NotAppended("the entry is too large", size=len(entry), limit=self._max_entry)
        entry = bytes(entry)

        async def arrive() -> Position:
            return self._truth.land(entry, self._link.process)

        return await self._link.call("append", arrive, lost=_lost_reply, refused=_refused, copies=True)  # SM11

    async def follow(self, after: Position) -> AsyncIterator[tuple[Position, bytes]]:
        at = after
        begun = self._link.broken_streams
        while not self._closed:
            await self._link.until_up()
            await self._link.travel()
            if self._link.broken_streams != begun:
                await self._link.never()
            if not self._link.is_up():
                continue
            behind = self._truth.after(at)
            if not behind:
                await self._truth.grown()
            for entry in behind:
                at = entry.position
                yield entry.position, entry.entry  # SM10

    async def tail(self) -> Position:
        self._check_open()

        async def read() -> Position:
            return self._truth.tail()

        return await self._link.call("tail", read, lost=_unavailable, refused=_unavailable)  # SM12

    async def trim(self, upto: Position) -> None:
        self._check_open()

        async def cut() -> None:
            self._truth.trim(upto)

        await self._link.call("trim", cut, lost=_lost_reply, refused=_unavailable)

    async def close(self) -> None:
        self._closed = True
        self._truth.ring()

    def _check_open(self) -> None:
        if self._closed:
            raise LogUnavailable("this log is closed")


def _lost_reply() -> LostReply:
    return LostReply("the log did not answer")


def _refused() -> NotAppended:
    return NotAppended("the log cannot be reached")


def _unavailable() -> LogUnavailable:
    return LogUnavailable("the log did not answer")
