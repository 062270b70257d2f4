"""Mistakes of a replica that writes and answers."""

from collections.abc import AsyncIterator
from typing import Final

from dray.log.port import Position
from dray.machine.names import SessionId
from dray.machine.offsets import Committed, Offsets
from dray.machine.sessions import Sessions
from dray.machine.step import Outcome, Step
from dray.replica.proposals import Proposal, _Queue
from dray.replica.replica import Replica
from dray.replica.session import OwnSession
from dray.replica.stall import StallWatch
from dray.replica.writer import Writer
from dray.sim.log import FaultyLog


def without_n_check(self: Sessions, session: SessionId, n: int, entry_hash: bytes) -> Outcome:
    """Whatever a live session sends is executed, repeats and late copies too."""
    return Outcome.EXECUTED if session in self.live else Outcome.DEAD


async def without_tail_wait(self: Replica) -> None:
    """Answers come from memory, however old it is."""


_FOLLOW: Final = FaultyLog.follow


async def missing_one(self: FaultyLog, after: Position) -> AsyncIterator[tuple[Position, bytes]]:
    """One node misses the sixtieth entry after its start."""
    count = 0
    async for position, entry in _FOLLOW(self, after):
        count += 1
        if count != 60 or self._link.process != "node-1":
            yield position, entry


def never_stalled(self: StallWatch, position: int, now_ns: int) -> bool:
    """A follower that shows nothing is waited for."""
    return False


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


def counter_again(self: OwnSession) -> int:
    """The counter begins anew in the same session."""
    self.next_counter = self.next_counter % self.counters + 1
    return self.next_counter


COUNTERS_AGAIN: Final = (
    (OwnSession, "take_counter", counter_again),
    (OwnSession, "spent", property(lambda self: False)),
    (OwnSession, "exhausted", property(lambda self: False)),
)


def never_stale(self: Offsets, step: Step, replaced: Committed | None) -> bool:
    """A commit takes the place of any other, however long it was under way."""
    return False
