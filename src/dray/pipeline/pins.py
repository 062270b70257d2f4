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
from typing import IO, Final, Literal

import msgspec

from dray.clock import SystemClock
from dray.ids import SystemEntropy
from dray.log.sockets import reachable_path
from dray.node.directory import DataDirectory
from dray.pipeline.errors import NotPinned
from dray.pipeline.private import private_directory

STARTING_LIMIT_S: Final = 60
PINNING_LIMIT_S: Final = 60
PAUSE_S: Final = 0.05
PATIENCE_S: Final = (0, 2, 8)
"""Before each start of a keeper, this long for the one that may be starting or ending already."""
AFTER_FAILURE_S: Final = 0.5
TOLD_BYTES: Final = 2_000
"""Of what a keeper said at its end."""
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
    with tempfile.TemporaryFile() as said:
        keepers = _Keepers(directory, socket, watched, said)
        held = await _ask(socket, request)
        while held is None:
            keepers.see_to_one()
            await asyncio.sleep(PAUSE_S)
            held = await _ask(socket, request)
    if held.state == "failed":
        raise NotPinned("the objects could not be held: is the broker well?", reason=held.reason)


def socket_of(directory: DataDirectory, driver: int) -> Path:
    """Where the keeper of a driver listens: a directory of this user alone."""
    home = private_directory(os.environ)  # noqa: TID251
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


class _Keepers:
    """Starts a keeper while none answers, a few times and not more."""

    def __init__(self, directory: DataDirectory, socket: Path, driver: int, said: IO[bytes]) -> None:
        self._command = [sys.executable, "-m", "dray.pipeline.keeper", str(directory.root), str(socket), str(driver)]
        self._said = said
        self._clock = SystemClock()
        self._began_ns = self._since_ns = self._clock.boot_ns()
        self._started: subprocess.Popen[bytes] | None = None
        self._starts = 0

    def see_to_one(self) -> None:
        """Nobody answers: start one if it is time to.

        Raises:
            NotPinned: none comes up; with what the last one said.
        """
        now_ns = self._clock.boot_ns()
        ended = None if self._started is None else self._started.poll()
        if self._started is None or ended is not None:
            if self._starts == len(PATIENCE_S) and ended:
                raise self._hopeless("ended when it was started", starts=self._starts, exit_code=ended)
            if self._starts < len(PATIENCE_S):
                patience_s = AFTER_FAILURE_S if ended else PATIENCE_S[self._starts]
                if now_ns - self._since_ns >= patience_s * 10**9:
                    self._start()
                    self._since_ns = now_ns
        if now_ns - self._began_ns >= STARTING_LIMIT_S * 10**9:
            raise self._hopeless("does not answer", limit_s=STARTING_LIMIT_S, starts=self._starts)

    def _start(self) -> None:
        """In a session of its own: Spark ends its workers by their process group."""
        self._starts += 1
        try:
            self._started = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._said,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise NotPinned("no process can be started to hold objects for Spark", reason=error) from error

    def _hopeless(self, what: str, **facts: object) -> NotPinned:
        self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, self._said.tell() - TOLD_BYTES))
        said = self._said.read().decode(errors="replace").strip()
        return NotPinned(f"the process that holds objects for Spark {what}", **facts, said=said or "nothing")
