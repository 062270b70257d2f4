"""The local engine on a real disk."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.log.files import FileLog
from dray.log.port import Log, LostReply
from dray.offload import ThreadOffload
from tests.log.contract import LogContract

SEGMENT_BYTES = 2_000


class FileFactory:
    """One engine object per process life: the handles of a process are that object."""

    max_entry_bytes = 4096

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.offload = ThreadOffload(2)
        self.log: FileLog | None = None

    async def open(self) -> Log:
        if self.log is None:
            self.log = await FileLog.open(
                self.directory,
                disk=LocalDisk(),
                offload=self.offload,
                clock=SystemClock(),
                segment_bytes=SEGMENT_BYTES,
                max_entry_bytes=self.max_entry_bytes,
                recent_bytes=1_000,  # history comes from the files, too
            )
        return self.log

    async def restart(self) -> None:
        if self.log is not None:
            await self.log.close()
            self.log = None

    async def disconnect(self) -> None:
        pass

    async def append_with_lost_reply(self, log: Log, entry: bytes) -> None:
        await log.append(entry)
        raise LostReply("dropped by the test")

    async def close(self) -> None:
        await self.restart()
        self.offload.close()


@pytest.fixture
async def log_factory(tmp_path: Path) -> AsyncIterator[FileFactory]:
    factory = FileFactory(tmp_path / "meta" / "log")
    yield factory
    await factory.close()


class TestFileLog(LogContract):
    pass
