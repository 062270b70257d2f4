"""A stream of messages as lines of JSON, for consumers that hold a connection open.

    {"status": {"stopping": false}}       at the beginning, and each 15 s without a message
    {"message_id": ..., "lease_token": ...}

Invariants
    HX2  However a stream ends, its consumer is closed and its place among
         those who wait is given back; what was not sent is ready again.
    HX4  A stream whose key works no more sends no message after that is known
         here, and ends within `CUT_S`, whether its client reads or not.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from typing import Final

import msgspec
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from dray.access.errors import Unauthenticated
from dray.clock import Clock
from dray.errors import DrayError
from dray.heaps.consumers import Delivery
from dray.heaps.errors import UnknownHeap
from dray.heaps.unsettled import UnsettledConsumer
from dray.servers.http.errors import body_of
from dray.servers.http.heap_models import MessageOut, StatusLineOut, StatusOut

NDJSON: Final = "application/x-ndjson"
STATUS_S: Final = 15.0
LOOK_S: Final = 1.0
"""How often a stream looks whether its key still works."""
CUT_S: Final = 5.0
"""What a client has to read what it is told last."""


class MessageStream(StreamingResponse):
    """The messages of one consumer, until it or the broker leaves."""

    def __init__(
        self, taking: UnsettledConsumer, told: Callable[[Delivery], MessageOut], clock: Clock, status_s: float,
        held: ExitStack, ended: asyncio.Event,
    ) -> None:  # fmt: skip
        """`ended` is set when the key of this stream works no more."""
        super().__init__(self._lines(), media_type=NDJSON)
        self._taking = taking
        self._told = told
        self._clock = clock
        self._status_s = status_s
        self._held = held
        self._ended = ended
        self._unsent: list[Delivery] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(super().__call__(scope, receive, send))
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait((sending, ended), return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait((sending,), timeout=CUT_S)  # HX4
        finally:
            for task in (sending, ended):
                task.cancel()
            await asyncio.gather(sending, ended, return_exceptions=True)
            self._held.close()  # HX2
            await self._taking.close(self._unsent)
        if not sending.cancelled():
            sending.result()

    async def _lines(self) -> AsyncIterator[bytes]:
        quiet_s = 0.0
        yield _status(stopping=False)
        while not (self._taking.stopping or self._taking.gone or self._ended.is_set()):
            begun_ns = self._clock.boot_ns()
            self._unsent = await self._taking.take(min(LOOK_S, self._status_s - quiet_s))
            while self._unsent and not self._ended.is_set():  # HX4
                line = msgspec.json.encode(self._told(self._unsent[0])) + b"\n"
                del self._unsent[0]  # from here on it may have been read
                begun_ns, quiet_s = self._clock.boot_ns(), 0.0
                yield line
            quiet_s += (self._clock.boot_ns() - begun_ns) / 1e9
            if quiet_s >= self._status_s:
                quiet_s = 0.0
                yield _status(stopping=False)
        yield self._last_line()

    def _last_line(self) -> bytes:
        """Why nothing more comes."""
        if self._ended.is_set():
            return _refused(Unauthenticated("the key of this stream works no more"))
        return _refused(UnknownHeap("the heap is gone")) if self._taking.gone else _status(stopping=True)


def _refused(why: DrayError) -> bytes:
    return msgspec.json.encode({"error": body_of(why)}) + b"\n"


def _status(*, stopping: bool) -> bytes:
    return msgspec.json.encode(StatusLineOut(status=StatusOut(stopping=stopping))) + b"\n"
