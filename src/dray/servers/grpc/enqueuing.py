"""One EnqueueStream: lists of messages come in, each is answered by its tag as soon as it is durable.

Invariants
    GE1  Every list that was read is answered, unless its client is gone; at
         most `LISTS` of them are unanswered, and no more is read meanwhile.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeAlias

from dray.api.v1 import heaps_pb2 as pb
from dray.servers.grpc.gate import GrpcCaller
from dray.servers.grpc.heaps import HeapsApi
from dray.servers.grpc.popping import LOOK_S, STOP_S, in_time

LISTS: Final = 64
WriteResults: TypeAlias = Callable[[pb.EnqueueManyResp], Awaitable[None]]


class EnqueueSession:
    """What one stream is about."""

    def __init__(self, api: HeapsApi, caller: GrpcCaller, stopping: asyncio.Event) -> None:
        self._api = api
        self._caller = caller
        self._stopping = stopping
        self._room = asyncio.Semaphore(LISTS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._outbox: asyncio.Queue[pb.EnqueueManyResp | BaseException | None] = asyncio.Queue()

    async def run(self, requests: AsyncIterator[pb.EnqueueMany], write: WriteResults) -> None:
        """Serve the stream to its end; raises what ended it, if it did not end well."""
        background = [asyncio.create_task(self._read(requests)), asyncio.create_task(self._end_when_stopping())]
        try:
            while (out := await self._outbox.get()) is not None:
                if isinstance(out, BaseException):
                    raise out
                await in_time(write(out))
                self._room.release()
        finally:
            for task in (*background, *self._tasks):
                task.cancel()
            await asyncio.gather(*background, *self._tasks, return_exceptions=True)

    async def _read(self, requests: AsyncIterator[pb.EnqueueMany]) -> None:
        try:
            async for asked in requests:
                await self._room.acquire()  # GE1
                task = asyncio.create_task(self._take(asked))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            await asyncio.gather(*self._tasks)
        except Exception as error:
            self._outbox.put_nowait(error)
        else:
            self._outbox.put_nowait(None)

    async def _take(self, asked: pb.EnqueueMany) -> None:
        try:
            self._outbox.put_nowait(await self._api.enqueue_many(self._caller, asked))
        except Exception as error:
            self._outbox.put_nowait(error)

    async def _end_when_stopping(self) -> None:
        """What was read is answered; then the stream ends, and its client goes elsewhere."""
        await self._stopping.wait()
        waited_s = 0.0
        while self._tasks and waited_s < STOP_S:
            await asyncio.wait(self._tasks, timeout=LOOK_S)
            waited_s += LOOK_S
        self._outbox.put_nowait(None)
