"""Bodies of requests: read whole within limits, and taken apart without holding up others.

Invariants
    HR1  A body that is too large, too slow, half sent, of another content
         type or no JSON is refused with a JSON error, before anything is done.
    HR2  More than `INLINE_BYTES` are taken apart in a thread.
    HR4  Answers with many parts are put together in a thread, too.
    HR3  Bodies that are being received take at most `budget` bytes at once:
         whoever comes then is told to come again.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from dray.offload import Offload
from dray.servers.http.errors import BadRequest, TooManyAtOnce

T = TypeVar("T")

INLINE_BYTES: Final = 32 << 10
INLINE_PARTS: Final = 100
CONTENT_TYPES: Final = ("application/json",)


class Bodies:
    """Reads the bodies of one server."""

    def __init__(self, offload: Offload, *, max_bytes: int, timeout_s: float, budget_bytes: int) -> None:
        self._offload = offload
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._left = budget_bytes

    async def read(self, request: Request, kind: type[T]) -> T:
        """The body as a value of this type."""
        self._check_head(request)
        raw = await self._receive(request)
        if len(raw) <= INLINE_BYTES:
            return decode(raw, kind)
        return await self._offload.run(decode, raw, kind)  # HR2

    async def encode(self, value: msgspec.Struct, form: Callable[[msgspec.Struct], bytes] | None = None) -> bytes:
        """A value as JSON."""
        write = form or msgspec.json.encode
        parts = (getattr(value, name) for name in value.__struct_fields__)
        if any(isinstance(part, list) and len(part) > INLINE_PARTS for part in parts):
            return await self._offload.run(write, value)  # HR4
        return write(value)

    def _check_head(self, request: Request) -> None:
        given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if given not in CONTENT_TYPES and not given.endswith("+json"):
            raise BadRequest("the body is JSON: send content-type application/json", status=415)
        if request.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
            raise BadRequest("the body is sent as it is, without content-encoding", status=415)
        size = request.headers.get("content-length", "")
        if size.isascii() and size.isdigit() and (len(size) > 18 or int(size) > self._max_bytes):
            raise BadRequest("the body is too large", status=413, most=self._max_bytes)

    async def _receive(self, request: Request) -> bytes:
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._timeout_s):
                async for part in request.stream():
                    size += len(part)
                    if size > self._max_bytes:
                        raise BadRequest("the body is too large", status=413, most=self._max_bytes)
                    if len(part) > self._left:
                        raise TooManyAtOnce("too many large bodies at once: try again")  # HR3
                    self._left -= len(part)
                    parts.append(part)
        except TimeoutError as slow:
            raise BadRequest("the body did not come in time", status=408, limit_s=self._timeout_s) from slow
        except ClientDisconnect as gone:
            raise BadRequest("the body was cut off") from gone
        finally:
            self._left += sum(map(len, parts))
        return b"".join(parts)


def decode(raw: bytes, kind: type[T]) -> T:
    """JSON to a value; numbers may be written as strings."""
    try:
        return msgspec.json.decode(raw, type=kind, strict=False)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError) as bad:
        raise BadRequest(f"the body does not fit: {str(bad)[:500]}") from bad
    except RecursionError as deep:
        raise BadRequest("the body is nested too deeply") from deep
