"""Making checkpoints as a child process does, without the process."""

import asyncio
from typing import Final

from dray.errors import Unavailable
from dray.replica.fold import Folder

FOLD_S: Final = 20.0


class TimedFolder:
    """Folds within the time that a child is given: what it follows may have gone silent for good."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    async def fold(self, upto: int) -> None:
        try:
            async with asyncio.timeout(FOLD_S):
                await self._folder.fold(upto)
        except TimeoutError as error:
            raise Unavailable("the checkpoint's child did not finish in time", deadline_s=FOLD_S) from error
