"""Holding the objects of a plan for as long as its driver may read them.

Spark plans in a process that ends with the planning, so the pin cannot live
there. A small process of its own, one for each driver and directory, holds
the session: `keeper`. It ends, and gives its session back, when the driver's
Python is gone or the last hold has run out; if it is killed, the brokers
expire its session. This module is how a planner talks to it.

    planner -> keeper   {"pin": name, "seconds": n}
    keeper  -> planner  {"state": "pinned" | "closed" | "failed", "reason": ...}

`closed` means that no broker runs on the directory. Then nobody deletes
anything; the keeper goes on looking, and pins as soon as a broker comes. What
dies in the moments between is kept by the grace time of garbage.
"""

import asyncio
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, Literal

import msgspec

from dray.ids import SystemEntropy
from dray.log.sockets import reachable_path
from dray.node.directory import DataDirectory
from dray.pipeline.errors import NotPinned

STARTING_LIMIT_S: Final = 60
PINNING_LIMIT_S: Final = 60
PAUSE_S: Final = 0.05
MESSAGE_BYTES: Final = 4_096


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """Hold everything that the next plan may name."""

    pin: str
    seconds: int


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a hold."""

    state: Literal["pinned", "closed", "failed"]
    reason: str = ""


async def hold(directory: DataDirectory, *, seconds: int, driver: int | None = None) -> None:
    """Return once what a plan made from now on names is held (SP5).

    `driver` is the process whose end ends the hold: the parent of a planner,
    which is the Python daemon of the Spark driver, or its JVM.
    """
    watched = os.getppid() if driver is None else driver
    request = Hold(pin=f"plan-{SystemEntropy().random_bytes(8).hex()}", seconds=seconds)
    socket = socket_of(directory, watched)
    started: subprocess.Popen[bytes] | None = None
    waited = 0.0
    while True:
        held = await _ask(socket, request)
        if held is not None:
            break
        if started is None or started.poll() is not None:
            started = _start(directory, socket, watched)
        if waited >= STARTING_LIMIT_S:
            raise NotPinned("the process that holds objects for Spark does not start", directory=directory.root)
        await asyncio.sleep(PAUSE_S)
        waited += PAUSE_S
    if held.state == "failed":
        raise NotPinned("the objects could not be held: is the broker well?", reason=held.reason)


def socket_of(directory: DataDirectory, driver: int) -> Path:
    """Where the keeper of a driver listens: a directory of this user alone."""
    home = Path(tempfile.gettempdir()) / f"dray-spark-{os.getuid()}"
    home.mkdir(mode=0o700, exist_ok=True)
    found = home.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise NotPinned("the directory must be this user's alone: remove it", path=home)
    name = hashlib.blake2b(str(directory.root.resolve()).encode(), digest_size=8).hexdigest()
    return home / f"{driver}-{name}.sock"


async def _ask(socket: Path, request: Hold) -> Held | None:
    try:
        with reachable_path(socket) as name:
            reader, writer = await asyncio.open_unix_connection(name, limit=MESSAGE_BYTES)
    except OSError:
        return None
    try:
        writer.write(msgspec.json.encode(request) + b"\n")
        async with asyncio.timeout(PINNING_LIMIT_S):
            line = await reader.readline()
        return msgspec.json.decode(line, type=Held) if line else None
    except TimeoutError as late:
        raise NotPinned("the broker took no pin in time", limit_s=PINNING_LIMIT_S) from late
    except OSError:
        return None
    finally:
        writer.close()


def _start(directory: DataDirectory, socket: Path, driver: int) -> "subprocess.Popen[bytes]":
    """In a session of its own: Spark ends its workers by their process group."""
    command = [sys.executable, "-m", "dray.pipeline.keeper", str(directory.root), str(socket), str(driver)]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
