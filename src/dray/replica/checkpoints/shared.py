"""Checkpoints of who shares them through the object store: copies on our own disk, and nothing is lost with it."""

from pathlib import Path

from dray.disk import Disk
from dray.offload import Offload
from dray.replica.checkpoints.files import FileCheckpoints
from dray.replica.checkpoints.joined import JoinedCheckpoints
from dray.replica.checkpoints.published import PublishedCheckpoints


class SharedCheckpoints(JoinedCheckpoints):
    """What is made lies here; what is confirmed is published, and here as a copy."""

    def __init__(self, directory: Path, published: PublishedCheckpoints, disk: Disk, offload: Offload) -> None:
        super().__init__(directory, published, disk, offload)
        self._published = published

    async def confirm(self, position: int) -> None:
        await self._published.publish(position, await self.read_made(position))  # CK6: it is confirmed by now
        await super().confirm(position)

    async def remove(self, position: int) -> None:
        await super().remove(position)
        await self._published.remove(position)  # what is needless here is so everywhere, and so is what lies before

    async def publish_own(self) -> None:
        """Let the others have the newest that lies here: it may be from a time when nobody shared."""
        own = await FileCheckpoints.confirmed(self)
        if own and own[-1] > max(await self._published.confirmed(), default=0):
            await self.check(own[-1])
            await self._published.publish(own[-1], await self.read(own[-1]))
