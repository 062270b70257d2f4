"""Where a log server listens: a unix socket, or TCP on this machine only."""

import ipaddress
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from dray.errors import Invalid

Address: TypeAlias = Path | tuple[str, int]
"""A unix socket, or a host and a port."""

MAX_PATH_BYTES: Final = 107
"""What fits into a socket address on Linux."""


@contextmanager
def reachable_path(path: Path) -> Iterator[str]:
    """A name of the socket that fits into an address, usable inside the block."""
    if len(os.fsencode(path)) <= MAX_PATH_BYTES:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        short = f"/proc/self/fd/{directory}/{path.name}"
        if len(os.fsencode(short)) > MAX_PATH_BYTES or not os.path.isdir("/proc/self/fd"):
            raise Invalid("the path of the socket is too long: choose a shorter data directory", path=path)
        yield short
    finally:
        os.close(directory)


def bind_unix(path: Path) -> socket.socket:
    """A bound socket that only its owner may connect to. The caller owns the directory, so an old file is stale."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise Invalid("something other than a socket has the name of the socket: move it away", path=path)
        os.unlink(path)
    except FileNotFoundError:
        pass
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with reachable_path(path) as name:
            bound.bind(name)
        path.chmod(0o600)  # before listen: until then nobody can connect
    except BaseException:
        bound.close()
        raise
    return bound


def loopback(host: str) -> str:
    """The address to bind for `host`; `Invalid` if others could reach it, for there is no authentication."""
    if host == "localhost":
        return "127.0.0.1"
    try:
        if ipaddress.ip_address(host).is_loopback:
            return host
    except ValueError:
        pass
    raise Invalid("a log server without authentication listens on loopback only: use 127.0.0.1 or ::1", host=host)
