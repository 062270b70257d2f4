"""Azurite, Microsoft's own emulator of Azure Blob Storage: from npm, on a directory and a free port of 127.0.0.1.

python -m tools.peers.azurite DIR     run it until interrupted
"""

import base64
import hashlib
import hmac
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Final

from tools.peers.process import PeerError, cached, free_ports, run, serving, tool

VERSION: Final = "3.35.0"
ACCOUNT: Final = "devstoreaccount1"
KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The one account that Azurite has, as its documentation tells everybody."""
_API: Final = "2021-08-06"
_START_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Azurite:
    """A running server."""

    port: int

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}/{ACCOUNT}"

    def make_container(self, name: str) -> None:
        """One signed request; it is all that is needed of Azure's own library."""
        date = formatdate(usegmt=True)
        signed = (
            "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{_API}\n/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        )
        signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), signed.encode(), hashlib.sha256)).decode()
        request = urllib.request.Request(f"{self.endpoint}/{name}?restype=container", method="PUT")
        headers = {"x-ms-date": date, "x-ms-version": _API, "Authorization": f"SharedKey {ACCOUNT}:{signature}"}
        for header, value in headers.items():
            request.add_header(header, value)
        try:
            urllib.request.urlopen(request, timeout=60).close()
        except urllib.error.HTTPError as error:
            raise PeerError(f"Azurite made no container: {error.read()[:500]!r}") from error


def program() -> list[str]:
    """How to run it, installed if it is not there yet."""

    def install(directory: Path) -> None:
        npm = tool("npm", "npm")
        quiet = ["--silent", "--no-audit", "--no-fund", "--no-package-lock"]
        (directory / "package.json").write_text("{}", encoding="utf-8")
        run([npm, "install", *quiet, "--prefix", directory, f"azurite@{VERSION}"], directory=directory)

    home = cached(f"azurite-{VERSION}", install)
    return [tool("node", "nodejs"), str(home / "node_modules/azurite/dist/src/blob/main.js")]


@contextmanager
def running(directory: Path) -> Iterator[Azurite]:
    """Serve `directory` until the end of the block."""
    directory.mkdir(parents=True, exist_ok=True)
    (port,) = free_ports(1)
    command: list[str | Path] = [
        *program(), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", directory,
        "--skipApiVersionCheck", "--disableTelemetry", "--silent",
    ]  # fmt: skip

    def answers() -> bool:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True

    log = directory.parent / f"{directory.name}.log"
    with serving(command, log=log, ready=answers, seconds=_START_SECONDS):
        yield Azurite(port=port)


if __name__ == "__main__":
    with running(Path(sys.argv[1])) as server:
        print(server.endpoint, flush=True)
        sys.stdin.read()
