"""A few lines of S3 on a socket, to answer as a test says: wrong statuses, lost replies, no conditions.

GCS and Azure are close enough that it serves their puts, gets, heads and deletes too. That proves what we send, not
what those clouds do with it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class S3Double:
    """Objects by path; `plan` holds one answer per request that is not to be served as usual."""

    objects: dict[str, bytes] = field(default_factory=dict)
    honours_conditions: bool = True
    plan: list[str] = field(default_factory=list)
    """`503 SlowDown`: status and code; `close`: hang up unread; `apply, close`: do it, then hang up; `hang`."""
    requests: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    port: int = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                method, path, _ = head[0].split(" ")
                headers = {key.lower(): value.strip() for key, _, value in (line.partition(":") for line in head[1:])}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                self.requests.append(method)
                self.headers.append(headers)
                self.targets.append(path)
                path = path.partition("?")[0]
                step = self.plan.pop(0) if self.plan else "serve"
                if step == "hang":
                    await asyncio.Event().wait()
                if step == "close":
                    return
                answer = self._answer(method, path, headers, body) if "serve" in step or "apply" in step else b""
                if step == "apply, close":
                    return
                if not answer:
                    status, code = step.split(" ")
                    text = f"<Error><Code>{code}</Code></Error>".encode()
                    answer = _response(int(status), b"" if method == "HEAD" else text)
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the test is over; a cancelled handler would only be logged
        finally:
            writer.close()

    def _answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> bytes:
        found = self.objects.get(path)
        match method:
            case "PUT" if found is not None and self.honours_conditions and _is_create_only(headers):
                return _response(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            case "PUT":
                self.objects[path] = body
                return _response(201 if "x-ms-version" in headers else 200, b"")
            case "DELETE" if found is None and "x-amz-date" not in headers:
                return _response(404, b"")  # S3 alone is silent about it
            case "DELETE":
                self.objects.pop(path, None)
                return _response(202 if "x-ms-version" in headers else 204, b"")
            case _ if found is None:
                return _response(404, b"")
            case "HEAD":
                return _response(200, found, with_body=False)
            case _ if "range" in headers:
                first, _, last = headers["range"].removeprefix("bytes=").partition("-")
                part = found[int(first) : int(last) + 1]
                where = f"content-range: bytes {first}-{int(first) + len(part) - 1}/{len(found)}\r\n"
                return _response(206, part, extra=where)
            case _:
                return _response(200, found)


@asynccontextmanager
async def s3_double() -> AsyncIterator[S3Double]:
    double = S3Double()
    server = await asyncio.start_server(double.serve, "127.0.0.1", 0)
    double.port = server.sockets[0].getsockname()[1]
    try:
        yield double
    finally:
        server.close()


def _is_create_only(headers: dict[str, str]) -> bool:
    return headers.get("if-none-match") == "*" or headers.get("x-goog-if-generation-match") == "0"


def _response(status: int, body: bytes, *, with_body: bool = True, extra: str = "") -> bytes:
    head = (
        f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n{extra}"
        'etag: "0"\r\nx-goog-generation: 1\r\nlast-modified: Sun, 15 Nov 2026 12:00:00 GMT\r\n\r\n'
    )
    return head.encode() + (body if with_body else b"")
