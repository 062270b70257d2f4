"""A few lines of Google Cloud Storage: its XML interface as obstore uses it, with keys that are checked.

No emulator from a registry takes what obstore sends. This one proves our calls and what we make of the answers; what
Google does with them is by its documentation only.
"""

import asyncio
import base64
import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

PAGE = 1000


@dataclass(slots=True)
class GcsDouble:
    """Buckets of objects, each with the number of its generation."""

    buckets: dict[str, dict[str, tuple[int, bytes]]] = field(default_factory=dict)
    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))
    port: int = 0
    _generations: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def key_file(self, path: Path, key: rsa.RSAPrivateKey | None = None) -> Path:
        """What a console gives a service account, with our key or another one."""
        pem = (key or self.key).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        account = {
            "type": "service_account", "client_email": "dray@example.iam", "private_key_id": "1",
            "private_key": pem.decode(), "token_uri": "https://oauth2.example/token",
        }  # fmt: skip
        path.write_text(json.dumps(account))
        return path

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                method, target, _ = head[0].split(" ")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                writer.write(self._answer(method, target, headers, body))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the test is over
        finally:
            writer.close()

    def _answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> bytes:
        if not self._is_ours(headers.get("authorization", "")):
            return _error(401, "AuthenticationRequired")
        parts = urlsplit(target)
        bucket, _, name = unquote(parts.path.lstrip("/")).partition("/")
        objects = self.buckets.get(bucket)
        if objects is None:
            return _error(404, "NoSuchBucket", method)
        if not name:
            return self._listed(objects, {key: values[0] for key, values in parse_qs(parts.query).items()})
        found = objects.get(name)
        match method:
            case "PUT" if headers.get("x-goog-if-generation-match") == "0" and found is not None:
                return _error(412, "PreconditionFailed")
            case "PUT":
                objects[name] = (next(self._generations), body)
                return _response(200, b"", objects[name][0])
            case _ if found is None:
                return _error(404, "NoSuchKey", method)
            case "DELETE":
                del objects[name]
                return _response(204, b"", found[0])
            case "HEAD":
                return _response(200, found[1], found[0], with_body=False)
            case _ if "range" in headers:
                return _part(headers["range"], *found)
            case _:
                return _response(200, found[1], found[0])

    def _listed(self, objects: dict[str, tuple[int, bytes]], query: dict[str, str]) -> bytes:
        after, prefix = query.get("continuation-token", ""), query.get("prefix", "")
        names = sorted(name for name in objects if name.startswith(prefix) and name > after)
        page = names[:PAGE]
        rows = "".join(
            f'<Contents><Key>{escape(name)}</Key><Size>{len(objects[name][1])}</Size><ETag>"{objects[name][0]}"</ETag>'
            "<LastModified>2026-11-15T12:00:00.000Z</LastModified></Contents>"
            for name in page
        )
        more = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if len(names) > PAGE else ""
        return _response(200, f"<ListBucketResult>{rows}{more}</ListBucketResult>".encode(), 0)

    def _is_ours(self, authorization: str) -> bool:
        """Whether the token was signed with our key."""
        try:
            signed, _, signature = authorization.removeprefix("Bearer ").rpartition(".")
            raw = base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4))
            self.key.public_key().verify(raw, signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        except (ValueError, InvalidSignature):
            return False
        return True


def _part(wanted: str, generation: int, content: bytes) -> bytes:
    first, _, last = wanted.removeprefix("bytes=").partition("-")
    start, end = int(first), int(last) + 1 if last else len(content)
    if start >= len(content):
        return _error(416, "InvalidRange")
    part = content[start:end]
    where = f"content-range: bytes {start}-{start + len(part) - 1}/{len(content)}\r\n"
    return _response(206, part, generation, extra=where)


def _error(status: int, code: str, method: str = "") -> bytes:
    return _response(status, b"" if method == "HEAD" else f"<Error><Code>{code}</Code></Error>".encode(), 0)


def _response(status: int, body: bytes, generation: int, *, with_body: bool = True, extra: str = "") -> bytes:
    head = (
        f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n{extra}"
        f'etag: "{generation}"\r\nx-goog-generation: {generation}\r\n'
        "last-modified: Sun, 15 Nov 2026 12:00:00 GMT\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")


@contextmanager
def gcs_double() -> Iterator[GcsDouble]:
    """It serves in a thread of its own: the tests of a module share it, each with a loop of its own."""
    double, loop = GcsDouble(), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def begin() -> asyncio.Server:
        return await asyncio.start_server(double.serve, "127.0.0.1", 0)

    async def end() -> None:
        server.close()
        handlers = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in handlers:
            task.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)

    server = asyncio.run_coroutine_threadsafe(begin(), loop).result(30)
    double.port = server.sockets[0].getsockname()[1]
    try:
        yield double
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()
