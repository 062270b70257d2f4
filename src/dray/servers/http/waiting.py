"""Requests that wait: so many at once, and none for a client that is gone.

Invariants
    HW1  At most `limit` requests wait or stream at once; one more is told to
         come again.
    HW2  What a request waits for is given up when its client has gone.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

from starlette.requests import Request

from dray.servers.http import telemetry
from dray.servers.http.errors import BadRequest, TooManyAtOnce

T = TypeVar("T")

LIMIT: Final = 1_000
MAX_WAIT_S: Final = 60.0


class ClientGone(BadRequest):
    """The client has gone: nobody reads this."""


class WaitingRequests:
    """The requests of one server that wait."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._left = limit

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place among those who wait (HW1)."""
        if not self._left:
            raise TooManyAtOnce("too many requests wait already: try again")
        self._left -= 1
        telemetry.WAITING.inc()
        try:
            yield
        finally:
            self._left += 1
            telemetry.WAITING.dec()

    async def run(self, request: Request, work: Coroutine[None, None, T]) -> T:
        """What the work gives, unless its client leaves before (HW2)."""
        try:
            with self.place():
                return await while_there(request, work)
        finally:
            work.close()


async def while_there(request: Request, work: Coroutine[None, None, T]) -> T:
    """Do something for a client whose request was read whole; give it up when it leaves."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientGone("the client has gone")
    finally:
        for task in (working, watching):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
