"""What a follower hears of the highest key of a sequence, from one leader.

What is heard may come before it can be read, may leave some out, and may be
nothing at all after a put that failed. So it only says when to look.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import grpc.aio

from dray.log.oxia import oxia_pb2 as pb


class Ear:
    """Of one follower; it hears for as long as the stream goes on."""

    def __init__(
        self,
        stream: "grpc.aio.UnaryStreamCall[pb.SequenceRequest, pb.SequenceResponse]",
        position_of: Callable[[str], int],
    ) -> None:
        self.heard = 0
        """The highest position that was told of, 0 for a key that is none of this log."""
        self._stream = stream
        self._position_of = position_of
        self._bell = asyncio.Event()
        self._listening = asyncio.get_running_loop().create_task(self._listen())

    def hear(self, position: int) -> None:
        if position > self.heard:
            self.heard = position
            self._bell.set()

    def ring(self) -> None:
        """Whoever waits should look."""
        self._bell.set()

    async def hears_beyond(self, after: int, limit_s: float) -> bool:
        """Wait until there is more than was read, or another reason to look; tells whether there is more.

        Raises:
            grpc.aio.AioRpcError: the stream broke.
            EOFError: it ended.
        """
        if self.heard <= after and not self._listening.done():
            self._bell.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(limit_s):
                    await self._bell.wait()
        if self.heard <= after and self._listening.done() and not self._listening.cancelled():
            self._listening.result()
        return self.heard > after

    async def close(self) -> None:
        self._listening.cancel()
        self._stream.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)

    async def _listen(self) -> None:
        try:
            async for answer in self._stream:
                self.hear(self._position_of(answer.highest_key))
            raise EOFError("the server ended the stream")
        finally:
            self._bell.set()
