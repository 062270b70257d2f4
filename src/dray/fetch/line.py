"""The memory that answers with records may take, and who waits for it.

    plan -> take at once, or wait in line -> read -> send -> (the client takes it) -> room for the next

What a fetch plans to send is charged before a byte of it is read, and stays
charged until the client has taken it. A fetch that finds less room than it
wants is given what there is; it waits only if there is no room at all, and is
never ended for having waited: after a while it is answered without records
and asks again.

A share is kept back for small answers, so that who follows the end of a log
is not held up by those who catch up.

Invariants
    F14  Planned and unsent answers exceed the limit by at most its reserve,
         and by what was sent without being planned: answers of other
         requests, and the first batch of an answer where it is larger than
         what was granted.
    F15  Who waits in line goes on in the order of arrival, as soon as there
         is room for a grain.
"""

import asyncio
from collections import OrderedDict
from typing import Final

GRAIN_BYTES: Final = 1 << 20
"""The least that a large fetch is given; a smaller one counts as small."""
RESERVE_SHARE: Final = 8
"""One part in so many is added to the limit for grains."""
WAIT_S: Final = 20.0
"""Nobody waits longer; clients give up after 30 s."""


class Line:
    """Bytes of answers against a limit (F14)."""

    def __init__(self, limit_bytes: int, wait_s: float = WAIT_S) -> None:
        self.limit_bytes = limit_bytes
        self.planned_bytes = 0
        self.unsent_bytes = 0
        self._most_bytes = limit_bytes + limit_bytes // RESERVE_SHARE
        self._wait_s = wait_s
        self._waiting: OrderedDict[Account, asyncio.Future[int]] = OrderedDict()
        self._wanted: dict[Account, int] = {}
        self._waking = False

    @property
    def held_bytes(self) -> int:
        return self.planned_bytes + self.unsent_bytes

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def account(self) -> "Account":
        """For one more connection."""
        return Account(self)

    def room(self, size: int) -> int:
        """How much of `size` may be planned now; 0: wait."""
        left = self.limit_bytes - self.held_bytes
        if size <= left:
            return size
        grain = min(size, GRAIN_BYTES)
        if left >= grain:
            return left
        return grain if self.held_bytes + grain <= self._most_bytes else 0  # F14

    async def wait(self, account: "Account", size: int) -> int:
        """Room for at least a grain, when it is this account's turn; 0 if it did not come in time."""
        turn: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting[account] = turn
        self._wanted[account] = size
        try:
            async with asyncio.timeout(self._wait_s):
                return await turn
        except TimeoutError:
            return 0
        finally:
            self._waiting.pop(account, None)
            self._wanted.pop(account, None)

    def released(self) -> None:
        """Something was sent or given up: whoever waits may go on."""
        if self._waiting and not self._waking:
            self._waking = True
            # Not at once: what a fetch has planned is released just before its answer counts as unsent.
            asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        self._waking = False
        while self._waiting:
            account, turn = next(iter(self._waiting.items()))  # F15
            room = self.room(self._wanted[account])
            if not room:
                return
            del self._waiting[account]
            account.plan(room)
            if not turn.done():
                turn.set_result(room)


class Account:
    """What one connection has planned and not sent. It fetches one thing at a time."""

    __slots__ = ("_line", "planned_bytes", "unsent_bytes")

    def __init__(self, line: Line) -> None:
        self._line = line
        self.planned_bytes = 0
        self.unsent_bytes = 0

    async def reserve(self, size: int) -> int:
        """Plan to send `size` bytes, or as much of it as there is room for; 0 if there was none for a long time."""
        room = 0 if self._line.waiting and size > GRAIN_BYTES else self._line.room(size)
        if room:
            self.plan(room)
            return room
        return await self._line.wait(self, size)

    def plan(self, size: int) -> None:
        """Count bytes as planned, whether there is room or not."""
        self.planned_bytes += size
        self._line.planned_bytes += size

    def forget_plan(self) -> None:
        """The answer is made, or nobody wants it any more."""
        self._line.planned_bytes -= self.planned_bytes
        self.planned_bytes = 0
        self._line.released()

    def keep_unsent(self, size: int) -> None:
        """So much is still to be taken by the client."""
        change = size - self.unsent_bytes
        self.unsent_bytes = size
        self._line.unsent_bytes += change
        if change < 0:
            self._line.released()
