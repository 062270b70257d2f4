"""An HTTP proxy between us and a real store, which counts requests and hurts those that a test chooses.

What it forwards it forwards unchanged, for requests are signed: the store sees the proxy's own address as its name.
"""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Final
from urllib.parse import urlsplit

from dray.ids import SeededEntropy

_HEAD_BYTES: Final = 1 << 16
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")


class Hurt(Enum):
    """What happens to one request."""

    SLOW_DOWN = "503 SlowDown, not forwarded"
    TOO_MANY = "429 TooManyRequests, not forwarded"
    BROKEN = "500 InternalError, not forwarded"
    BROKEN_AFTER = "done by the store, and answered with 500"
    CONFLICT = "409 ConditionalRequestConflict, not forwarded"
    EXPIRED = "403 ExpiredToken, not forwarded"
    RESET = "the connection is reset before the store hears of it"
    LOST = "done by the store, and the connection is reset"
    LATE = "done by the store, and answered much later"
    TRUNCATED = "half of the body, then a reset"
    SHORT = "half of the body, and a length that says so"
    LONG = "more bytes than there are, and a length that says so"
    FLIPPED = "one bit of the body is another one"
    WHOLE = "200 to a range, as if it were the whole object"
    MISSING = "404, though it is there"
    TRICKLE = "the body comes a byte at a time, and never ends"
    HIDDEN = "a listing without its last name"
    ERROR_IN_BODY = "200, with an error in the body; not forwarded"


_ANSWERS: Final = {
    Hurt.SLOW_DOWN: (503, "SlowDown"),
    Hurt.TOO_MANY: (429, "TooManyRequests"),
    Hurt.BROKEN: (500, "InternalError"),
    Hurt.CONFLICT: (409, "ConditionalRequestConflict"),
    Hurt.EXPIRED: (403, "ExpiredToken"),
    Hurt.MISSING: (404, "NoSuchKey"),
    Hurt.ERROR_IN_BODY: (200, "InternalError"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request, as the proxy sees it."""

    kind: str
    """PUT, GET, HEAD, LIST, DELETE or POST: what a store would bill."""
    path: str
    head: bytes
    body: bytes


Choose = Callable[[Asked], Hurt | None]


def nothing(_: Asked) -> Hurt | None:
    return None


def first(hurt: Hurt, kind: str, count: int = 1) -> Choose:
    """The first `count` requests of a kind."""
    left = [count]

    def choose(asked: Asked) -> Hurt | None:
        if asked.kind != kind or not left[0]:
            return None
        left[0] -= 1
        return hurt

    return choose


def some(seed: int, hurts: dict[str, list[Hurt]], share: float) -> Choose:
    """A share of the requests of each kind, by a seed."""
    entropy = SeededEntropy(seed)

    def choose(asked: Asked) -> Hurt | None:
        kinds = hurts.get(asked.kind)
        if not kinds or entropy.uniform(0, 1) >= share:
            return None
        return kinds[int(entropy.uniform(0, len(kinds)))]

    return choose


@dataclass(slots=True)
class FaultProxy:
    """It listens at `endpoint`; `choose` says what is to happen to each request."""

    target: str
    choose: Choose = nothing
    late_s: float = 3600.0
    delay_s: float = 0.0
    """How much longer every request takes."""
    counts: Counter[str] = field(default_factory=Counter)
    sent_bytes: Counter[str] = field(default_factory=Counter)
    """Of bodies, by kind: what was put, what was got."""
    hurt: Counter[Hurt] = field(default_factory=Counter)
    seen: list[Asked] = field(default_factory=list)
    """Without bodies, while `remembers`."""
    remembers: bool = True
    port: int = 0
    _tasks: set["asyncio.Task[None]"] = field(default_factory=set)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        store: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        try:
            while True:
                asked = await _asked(reader)
                self._count(asked)
                await asyncio.sleep(self.delay_s)
                hurt = self.choose(asked)
                if hurt is not None:
                    self.hurt[hurt] += 1
                if hurt is Hurt.RESET:
                    return
                if hurt in _ANSWERS:
                    writer.write(_made_up(*_ANSWERS[hurt], has_body=asked.kind != "HEAD"))
                    await writer.drain()
                    continue
                if store is None:
                    parts = urlsplit(self.target)
                    store = await asyncio.open_connection(parts.hostname, parts.port, limit=_HEAD_BYTES)
                if not await self._pass(asked, hurt, writer, *store):
                    return
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass
        finally:
            writer.transport.abort()  # a reset, not an end
            if store is not None:
                store[1].close()

    def _count(self, asked: Asked) -> None:
        self.counts[asked.kind] += 1
        self.sent_bytes[asked.kind] += len(asked.body)
        if self.remembers:
            self.seen.append(Asked(kind=asked.kind, path=asked.path, head=asked.head, body=b""))

    async def _pass(
        self, asked: Asked, hurt: Hurt | None, writer: asyncio.StreamWriter, back: asyncio.StreamReader,
        there: asyncio.StreamWriter,
    ) -> bool:  # fmt: skip
        """Whether the connection goes on."""
        there.write(asked.head + asked.body)
        await there.drain()
        answer, body = await _answer(back, has_body=asked.kind != "HEAD")
        if asked.kind != "PUT":
            self.sent_bytes[asked.kind] += len(body)
        match hurt:
            case Hurt.LOST:
                return False
            case Hurt.BROKEN_AFTER:
                answer, body = _made_up(500, "InternalError", has_body=asked.kind != "HEAD"), b""
            case Hurt.LATE:
                await asyncio.sleep(self.late_s)
            case Hurt.TRUNCATED:
                writer.write(answer + body[: len(body) // 2])
                await writer.drain()
                return False
            case Hurt.TRICKLE:
                await self._trickle(writer, answer, body)
                return False
        answer, body = _damaged(hurt, answer, body)
        writer.write(answer + body)
        await writer.drain()
        return True

    async def _trickle(self, writer: asyncio.StreamWriter, answer: bytes, body: bytes) -> None:
        writer.write(answer)
        for byte in body:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(1)


@asynccontextmanager
async def fault_proxy(target: str) -> AsyncIterator[FaultProxy]:
    """In front of `target`, until the end of the block."""
    proxy = FaultProxy(target)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0, limit=_HEAD_BYTES)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        with suppress(asyncio.CancelledError):
            await proxy.close()


async def _asked(reader: asyncio.StreamReader) -> Asked:
    head = await reader.readuntil(b"\r\n\r\n")
    method, path, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
    found = _LENGTH.search(head)
    body = await reader.readexactly(int(found[1])) if found else b""
    is_list = method == "GET" and ("list-type=2" in path or "comp=list" in path)
    return Asked(kind="LIST" if is_list else method, path=path, head=head, body=body)


async def _answer(reader: asyncio.StreamReader, *, has_body: bool) -> tuple[bytes, bytes]:
    """Head and body of what the store says; a body in chunks gets a length."""
    head = await reader.readuntil(b"\r\n\r\n")
    if not has_body or head.split(b" ", 2)[1] in (b"204", b"304"):
        return head, b""
    if b"transfer-encoding: chunked" in head.lower():
        body = b""
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            body += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readexactly(2)
        return re.sub(rb"(?i)\r\ntransfer-encoding: chunked", b"\r\ncontent-length: %d" % len(body), head), body
    found = _LENGTH.search(head)
    return head, await reader.readexactly(int(found[1])) if found else b""


def _damaged(hurt: Hurt | None, answer: bytes, body: bytes) -> tuple[bytes, bytes]:
    """An answer that is well formed, and wrong."""
    match hurt:
        case Hurt.SHORT:
            body = body[: len(body) // 2]
        case Hurt.LONG:
            body += b"more"
        case Hurt.FLIPPED if body:
            at = len(body) // 2
            body = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
        case Hurt.WHOLE:
            answer = re.sub(rb"(?i)\r\ncontent-range: [^\r]*", b"", answer.replace(b" 206 ", b" 200 ", 1))
        case Hurt.HIDDEN:
            body = re.sub(rb"(?s)<Contents>(?:(?!<Contents>).)*</Contents>(?!.*<Contents>)", b"", body)
        case _:
            return answer, body
    return _LENGTH.sub(b"\r\ncontent-length: %d" % len(body), answer), body


def _made_up(status: int, code: str, *, has_body: bool) -> bytes:
    text = f"<Error><Code>{code}</Code><Message>by the proxy</Message></Error>".encode() if has_body else b""
    return f"HTTP/1.1 {status} X\r\ncontent-length: {len(text)}\r\n\r\n".encode() + text
