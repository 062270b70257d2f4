"""Commands that wait for their entry: a bounded queue, cut into entries by rows (Q8)."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from dray.log.envelope import COMMAND, MAX_COMMANDS
from dray.machine.command import MAX_ROWS, Command, encode
from dray.machine.verdict import Verdict
from dray.replica.errors import Busy

ENTRY_BYTES: Final = 512 << 10
"""An entry is closed at this size; one command alone may be larger, up to what the log takes."""
MAX_WAITING: Final = 10_000


@dataclass(slots=True, eq=False)
class Proposal:
    """Some commands of one caller; they share an entry, so they are applied together."""

    encoded: list[tuple[int, bytes]]
    rows: int
    size: int
    answer: "asyncio.Future[list[Verdict]]"
    tries: int = 0
    verdicts: list[Verdict] = field(default_factory=list)


class Proposals:
    """The queue between callers and the one append in flight."""

    def __init__(self) -> None:
        self._waiting: deque[Proposal] = deque()
        self._filled = asyncio.Event()

    def add(self, batch: Sequence[Command], version: int) -> "asyncio.Future[list[Verdict]]":
        """Queue the commands of one caller, as the active version has them; resolves to their verdicts, in order."""
        if len(self._waiting) >= MAX_WAITING:
            raise Busy("too many proposals wait for the log", waiting=len(self._waiting))
        encoded = [encode(command, version) for command in batch]
        proposal = Proposal(
            encoded=encoded,
            rows=sum(command.needs() for command in batch),
            size=sum(COMMAND.size + len(payload) for _, payload in encoded),
            answer=asyncio.get_running_loop().create_future(),
        )
        self._waiting.append(proposal)
        self._filled.set()
        return proposal.answer

    async def wait(self) -> None:
        """Until there is something to write."""
        await self._filled.wait()

    def take(self) -> list[Proposal]:
        """What goes into the next entry. A proposal whose caller is gone is dropped here, before it is sent."""
        taken: list[Proposal] = []
        rows = size = count = 0
        while self._waiting:
            head = self._waiting[0]
            if head.answer.done():
                self._waiting.popleft()
                continue
            full = rows + head.rows > MAX_ROWS or size + head.size > ENTRY_BYTES
            if taken and (full or count + len(head.encoded) > MAX_COMMANDS):
                return taken
            taken.append(self._waiting.popleft())
            rows, size, count = rows + head.rows, size + head.size, count + len(head.encoded)
        self._filled.clear()
        return taken

    def put_back(self, proposals: list[Proposal]) -> None:
        """Give back what was surely not applied, in front and in order."""
        self._waiting.extendleft(reversed(proposals))
        if proposals:
            self._filled.set()

    def fail(self, error: Exception) -> None:
        """Answer everyone who waits with an error."""
        while self._waiting:
            proposal = self._waiting.popleft()
            if not proposal.answer.done():
                proposal.answer.set_exception(error)
        self._filled.clear()
