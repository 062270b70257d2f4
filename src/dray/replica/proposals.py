"""Commands that wait for their entry: bounded queues, cut into entries by rows (Q8).

Each kind of work has a queue of its own: what keeps the session alive, what
an operator or a saga asks, the commits of consumers, the appends of produce.
An entry takes from all of them by turns, the least served first, so that a
flood of one kind delays the others by an entry and starves none.

Invariants
    RP8  A proposal has an age. What waited too long for its entry, in a
         process that slept too, is refused and never sent; and a commit
         whose entry was dead is not sent again here, but by its client, if
         it still waits.
    RP9  A queue that is full, or always filled, keeps no other from its turn.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from dray.clock import Clock
from dray.errors import DrayError
from dray.log.envelope import COMMAND, MAX_COMMANDS
from dray.machine.append import Append
from dray.machine.append_if import AppendIf
from dray.machine.brokers import RegisterBroker
from dray.machine.command import MAX_ROWS, Command, encode
from dray.machine.heaps.history import Tell
from dray.machine.offsets import CommitOffsets
from dray.machine.sessions import Close, Expire, KeepAlive
from dray.machine.verdict import Verdict
from dray.replica.errors import Busy, TooLate

ENTRY_BYTES: Final = 512 << 10
"""An entry is closed at this size; one command alone may be larger, up to what the log takes."""
MAX_WAITING: Final = 10_000
"""Of each kind."""


@dataclass(slots=True, eq=False)
class Proposal:
    """Some commands of one caller; they share an entry, so they are applied together."""

    encoded: list[tuple[int, bytes]]
    rows: int
    size: int
    queue: "_Queue"
    deadline_ns: int
    """On the boot clock: it is not sent later than this."""
    answer: "asyncio.Future[list[Verdict]]"
    tries: int = 0

    @property
    def once(self) -> bool:
        """A commit that was not applied is not sent a second time: its client may have gone on elsewhere (RP8)."""
        return self.queue.once

    def refuse(self, error: Exception) -> None:
        """Tell whoever still waits."""
        if not self.answer.done():
            self.answer.set_exception(error)


class _Queue:
    """The proposals of one kind, oldest first."""

    __slots__ = ("once", "rows", "taking", "waiting")

    def __init__(self, *, once: bool = False) -> None:
        self.once = once
        self.waiting: deque[Proposal] = deque()
        self.rows = 0
        """Taken into the entry that is being filled."""
        self.taking = False
        """Whether that entry may take more of it."""

    def head(self, now_ns: int) -> Proposal | None:
        """The oldest that may still be sent; who is gone and what is too old is dropped here (RP8)."""
        waiting = self.waiting
        while waiting:
            proposal = waiting[0]
            if now_ns <= proposal.deadline_ns and not proposal.answer.done():
                return proposal
            waiting.popleft()
            proposal.refuse(TooLate("the log was not written for too long; nothing of it was sent"))
        return None


class Proposals:
    """The queues between callers and the one append in flight."""

    def __init__(self, clock: Clock, *, wait_ms: int) -> None:
        self._clock = clock
        self._wait_ns = wait_ms * 1_000_000
        self._upkeep, self._rest, self._commits, self._bulk = _Queue(), _Queue(), _Queue(once=True), _Queue()
        self._queue_of: dict[type[Command], _Queue] = {
            KeepAlive: self._upkeep,
            Expire: self._upkeep,
            Close: self._upkeep,
            RegisterBroker: self._upkeep,
            CommitOffsets: self._commits,
            Append: self._bulk,
            AppendIf: self._bulk,
            Tell: self._bulk,
        }
        self._turns = [self._upkeep, self._rest, self._commits, self._bulk]
        self._filled = asyncio.Event()
        self._closed: DrayError | None = None

    def send_by_ns(self) -> int:
        """When what comes now is too old to be sent, on the boot clock (RP8)."""
        return self._clock.boot_ns() + self._wait_ns

    def add(
        self, batch: Sequence[Command], version: int, *, send_by_ns: int | None = None
    ) -> "asyncio.Future[list[Verdict]]":
        """Queue the commands of one caller, as the active version has them; resolves to their verdicts, in order."""
        if self._closed is not None:
            raise self._closed
        queue = self._queue_of.get(type(batch[0]), self._rest) if batch else self._rest
        if len(queue.waiting) >= MAX_WAITING:
            raise Busy("too many proposals wait for the log", waiting=len(queue.waiting))
        encoded = [encode(command, version) for command in batch]
        proposal = Proposal(
            encoded=encoded,
            rows=sum(command.needs() for command in batch),
            size=sum(COMMAND.size + len(payload) for _, payload in encoded),
            queue=queue,
            deadline_ns=self.send_by_ns() if send_by_ns is None else send_by_ns,
            answer=asyncio.get_running_loop().create_future(),
        )
        queue.waiting.append(proposal)
        self._filled.set()
        return proposal.answer

    @property
    def is_empty(self) -> bool:
        return not any(queue.waiting for queue in self._turns)

    async def wait(self) -> None:
        """Until there is something to write."""
        await self._filled.wait()

    def take(self, *, upkeep_only: bool = False) -> list[Proposal]:
        """What goes into the next entry: of the queue that has the fewest rows in it, again and again (RP9)."""
        now_ns = self._clock.boot_ns()
        for queue in self._turns:
            queue.rows, queue.taking = 0, not upkeep_only or queue is self._upkeep
        taken: list[Proposal] = []
        cut: list[_Queue] = []
        rows = size = count = 0
        while (least := self._least_served()) is not None:
            head = least.head(now_ns)
            if head is None:
                least.taking = False
                continue
            full = rows + head.rows > MAX_ROWS or size + head.size > ENTRY_BYTES
            if taken and (full or count + len(head.encoded) > MAX_COMMANDS):
                least.taking = False
                cut.append(least)
                continue
            taken.append(least.waiting.popleft())
            least.rows += head.rows
            rows, size, count = rows + head.rows, size + head.size, count + len(head.encoded)
        if cut:  # what did not fit goes first next time, or something small might always be before it
            self._turns = [*cut, *(queue for queue in self._turns if queue not in cut)]
        self._note_emptiness()
        return taken

    def _least_served(self) -> _Queue | None:
        least = None
        for queue in self._turns:
            if queue.taking and (least is None or queue.rows < least.rows):
                least = queue
        return least

    def put_back(self, proposals: list[Proposal]) -> None:
        """Give back what was surely not applied, in front and in order."""
        if self._closed is not None:
            for proposal in proposals:
                proposal.refuse(self._closed)
            return
        for proposal in reversed(proposals):
            proposal.queue.waiting.appendleft(proposal)
        if proposals:
            self._filled.set()

    def drop_late(self) -> None:
        """Answer those who waited too long, also while an entry is in flight (RP8)."""
        now_ns = self._clock.boot_ns()
        for queue in self._turns:
            queue.head(now_ns)
        self._note_emptiness()

    def close(self, error: DrayError) -> None:
        """Nothing is sent any more: answer everyone who waits, and whoever comes, with an error."""
        self._closed = error
        self.fail(error)

    def fail(self, error: Exception) -> None:
        """Answer everyone who waits with an error."""
        for proposal in self._all():
            proposal.refuse(error)
        self._filled.clear()

    def _all(self) -> Iterator[Proposal]:
        for queue in self._turns:
            while queue.waiting:
                yield queue.waiting.popleft()

    def _note_emptiness(self) -> None:
        if self.is_empty:
            self._filled.clear()
