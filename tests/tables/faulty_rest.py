"""A REST catalog with a bad line before it: requests pass to the real server, answers may be lost, late or wrong."""

import http.client
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Fault:
    """What happens to one request."""

    lands: bool
    """The server is asked before anything else happens."""
    status: int = 0
    """Answered instead of what the server says; 0: no answer at all."""
    hangs: bool = False
    """The connection stays open and silent until the proxy ends."""


class FaultyRest:
    """A proxy before the server at `address`; `fault` is asked for each request, and None lets it pass."""

    def __init__(self, address: str) -> None:
        self.target = urlsplit(address).netloc
        self.fault: Callable[[str, str], Fault | None] = lambda _method, _path: None
        self.ended = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"proxy": self}))
        self._server.daemon_threads = True

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def at_commits(self, *faults: Fault) -> None:
        """The next commits of tables go wrong, one after another."""
        waiting = list(faults)
        self.fault = lambda method, path: waiting.pop(0) if waiting and _is_commit(method, path) else None

    def __enter__(self) -> "FaultyRest":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()


def _is_commit(method: str, path: str) -> bool:
    return method == "POST" and "/tables/" in path


class _Handler(BaseHTTPRequestHandler):
    proxy: FaultyRest
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        fault = self.proxy.fault(self.command, self.path)
        if fault is not None and not fault.lands:
            self._fail(fault)
            return
        line = http.client.HTTPConnection(self.proxy.target, timeout=60)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
            line.request(self.command, self.path, body, headers)
            answer = line.getresponse()
            content = answer.read()
        finally:
            line.close()
        if fault is not None:
            self._fail(fault)
            return
        kept = [
            (name, value)
            for name, value in answer.getheaders()
            if name.lower().startswith(("content-type", "content-enc"))
        ]
        self._answer(answer.status, kept, b"" if self.command == "HEAD" else content)

    do_POST = do_HEAD = do_DELETE = do_GET  # noqa: N815 - the names are the base class's

    def _fail(self, fault: Fault) -> None:
        if fault.status:
            told = b'{"error":{"message":"planted","type":"planted","code":%d}}' % fault.status
            self._answer(fault.status, [("content-type", "application/json")], told)
            return
        if fault.hangs:
            self.proxy.ended.wait()
        self.close_connection = True

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass
