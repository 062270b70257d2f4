"""Checkpoints of a broker that joined: files of its own, and copies of those that are kept for everybody."""

import asyncio
from pathlib import Path
from typing import Protocol

from dray.disk import Disk
from dray.errors import Corrupt, NotFound, Unavailable
from dray.offload import Offload
from dray.replica import telemetry
from dray.replica.checkpoints.files import FileCheckpoints
from dray.replica.checkpoints.newest import report_damaged
from dray.telemetry import logger


class Confirmed(Protocol):
    """Checkpoints that may be loaded, in a place that is not ours: the directory of the log's owner, say."""

    async def confirmed(self) -> list[int]: ...

    async def read(self, position: int) -> bytes: ...


class JoinedCheckpoints(FileCheckpoints):
    """Our own, and always the newest that they have: the log may be trimmed up to the one before that."""

    def __init__(self, directory: Path, theirs: Confirmed, disk: Disk, offload: Offload) -> None:
        super().__init__(directory, disk, offload)
        self._theirs = theirs
        self._unreadable: set[int] = set()
        self._copying = asyncio.Lock()
        """Two who ask at once would write the same file."""

    async def confirmed(self) -> list[int]:
        async with self._copying:
            ours = await super().confirmed()
            theirs = await self._theirs.confirmed()
            newer = [position for position in theirs if position > max(ours, default=0)]
            for position in reversed(newer):
                try:
                    if position not in self._unreadable and await self._copied(position):
                        break
                except Unavailable as error:  # a full disk
                    logger().warning(telemetry.CHECKPOINT_FAILED, position=position, error=str(error))
                    if not ours or ours[-1] < theirs[0]:
                        raise  # what we have will not do: the log may be trimmed above it
            return await super().confirmed() if newer else ours

    async def _copied(self, position: int) -> bool:
        try:
            await self.write(position, await self._theirs.read(position))
            if (await self.examine(position)).position != position:
                raise Corrupt("the checkpoint has the name of another", position=position)
        except NotFound:
            return False  # it went meanwhile
        except Corrupt as error:  # theirs to keep aside; the one before it will do
            self._unreadable.add(position)
            await report_damaged(self, position, error, set_aside=False)
            await self.discard(position)
            return False
        await FileCheckpoints.confirm(self, position)  # CK1: it was confirmed where it comes from
        return True
