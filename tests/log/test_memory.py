"""The log in memory."""

import pytest

from dray.errors import Corrupt
from dray.log.memory import MemoryLog, MemorySequence
from dray.log.port import BEFORE_ALL, Log, LostReply, Position
from tests.log.contract import LogContract, deaf, fill


class MemoryFactory:
    """Handles on one sequence; the sequence is what a restart keeps."""

    max_entry_bytes = 4096

    def __init__(self) -> None:
        self.sequence = MemorySequence()
        self.handles: list[MemoryLog] = []

    async def open(self) -> Log:
        self.handles.append(MemoryLog(self.sequence, max_entry_bytes=self.max_entry_bytes))
        return self.handles[-1]

    async def restart(self) -> None:
        await self.close()

    async def disconnect(self) -> None:
        pass

    async def append_with_lost_reply(self, log: Log, entry: bytes) -> None:
        await log.append(entry)
        raise LostReply("dropped by the test")

    async def append_unheard(self, log: Log, entry: bytes) -> Position:
        with deaf(self.sequence.bell):
            return await log.append(entry)

    async def open_other(self) -> Log:
        return MemoryLog(max_entry_bytes=self.max_entry_bytes)

    async def close(self) -> None:
        for handle in self.handles:
            await handle.close()


@pytest.fixture
def log_factory() -> MemoryFactory:
    return MemoryFactory()


class TestMemoryLog(LogContract):
    pass


async def test_a_handle_closed_leaves_the_others_open() -> None:
    log = MemoryLog()
    other = log.handle()
    await log.close()
    position = await other.append(b"still here")
    assert await other.tail() == position


async def test_who_has_read_more_than_there_is_is_told() -> None:
    """LG25."""
    log = MemoryLog()
    entries = await fill(log, 5)
    stream = log.follow(BEFORE_ALL)
    assert [await anext(stream) for _ in entries] == entries
    del log.sequence.entries[2:]
    with pytest.raises(Corrupt, match="backup"):
        await anext(stream)
