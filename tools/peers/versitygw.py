"""versitygw, an S3 server on a directory: build it once into the cache, run it on a free port of 127.0.0.1.

    python -m tools.peers.versitygw DIR     run it until interrupted

Needs Go for the first run; later runs use the cached binary.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

VERSION: Final = "v1.8.0"
MODULE: Final = "github.com/versity/versitygw/cmd/versitygw"
CACHE: Final = Path(__file__).resolve().parents[2] / ".peers"
_START_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running S3 server."""

    endpoint: str
    access_key: str
    secret_key: str
    pid: int


def binary(cache: Path = CACHE) -> Path:
    """The cached binary, built by `go install` if it is not there yet (one to three minutes)."""
    directory = cache / f"versitygw-{VERSION}"
    path = directory / "versitygw"
    if path.exists():
        return path
    go = shutil.which("go")
    if go is None:
        raise RuntimeError(f"versitygw is not in {cache} and there is no `go` to build it: install Go 1.24 or newer")
    directory.mkdir(parents=True, exist_ok=True)
    subprocess.run([go, "install", f"{MODULE}@{VERSION}"], check=True, env={**os.environ, "GOBIN": str(directory)})
    return path


@contextmanager
def running(directory: Path, host: str = "127.0.0.1") -> Iterator[Server]:
    """Serve `directory` until the end of the block."""
    directory.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    access, secret = "peer-access", "peer-secret"
    command = [str(binary()), "--port", f"{host}:{port}", "--access", access, "--secret", secret]
    with (directory.parent / f"{directory.name}.log").open("wb") as log:
        process = subprocess.Popen([*command, "posix", str(directory)], stdout=log, stderr=log)
        try:
            wait_for_port(process, port, Path(log.name), host)
            yield Server(endpoint=f"http://{host}:{port}", access_key=access, secret_key=secret, pid=process.pid)
        finally:
            process.terminate()
            process.wait(10)


def wait_for_port(process: subprocess.Popen[bytes], port: int, log: Path, host: str = "127.0.0.1") -> None:
    """Return when the server takes connections; an error if it ended or takes too long."""
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"the server did not start: {log.read_text(errors='replace')[-2000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    with running(Path(sys.argv[1])) as server:
        print(server, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600)
