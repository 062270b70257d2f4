"""What every peer needs: its tools, a cache that is filled once, free ports, a start and a stop.

A peer lives in a directory below `.peers`, made by `cached`. It appears there
under its name only when it is complete, so an interrupted download or build
is never taken for a finished one.
"""

import contextlib
import fcntl
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

CACHE: Final = Path(__file__).resolve().parents[2] / ".peers"
_LOG_TAIL: Final = 4000
_STOP_SECONDS: Final = 30.0


class PeerError(RuntimeError):
    """A peer could not be got, started or used; the message says what to do."""


def tool(name: str, package: str) -> str:
    """The path of a program; as root it is installed from the system's packages when it is missing."""
    found = shutil.which(name)
    if found is not None:
        return found
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        raise PeerError(f"`{name}` is missing: install it (on Debian: apt-get install {package}), then try again")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    # Of the whole machine: in some images an update takes away what another install has just fetched.
    with _locked("dray-apt", Path(tempfile.gettempdir())):
        found = shutil.which(name)
        if found is None:
            run([apt, "update", "-qq"], environment=quiet)
            run([apt, "install", "-y", "-qq", *package.split()], environment=quiet)
            found = shutil.which(name)
    if found is None:
        raise PeerError(f"`{name}` is still missing after installing {package}: put it on the PATH")
    return found


def run(
    command: Sequence[str | Path],
    *,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    seconds: float = 900.0,
    fine: Container[int] = (0,),
) -> bytes:
    """Run a program to its end and return what it wrote; its errors become one message."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=directory,
        env={**os.environ, **(environment or {})},
        input=stdin,
        capture_output=True,
        timeout=seconds,
    )
    if done.returncode not in fine:
        said = (done.stderr + done.stdout).decode(errors="replace")[-_LOG_TAIL:]
        raise PeerError(f"{Path(str(command[0])).name} ended with {done.returncode}: {said}")
    return done.stdout


def cached(name: str, make: Callable[[Path], None]) -> Path:
    """The directory `.peers/<name>`; the first call lets `make` fill it."""
    complete = CACHE / name
    if complete.exists():
        return complete
    with _locked(name):
        if not complete.exists():
            partial = CACHE / f"{name}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            make(partial)
            partial.rename(complete)
    return complete


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody uses at this moment."""
    with contextlib.ExitStack() as probes:
        ports = []
        for _ in range(count):
            probe = probes.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            ports.append(int(probe.getsockname()[1]))
        return ports


@contextmanager
def serving(
    command: Sequence[str | Path],
    *,
    log: Path,
    ready: Callable[[], bool],
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
    user: str | None = None,
    seconds: float,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the end of the block, which begins when `ready` says so."""
    with log.open("ab") as output:
        process = spawn(command, stdout=output, stderr=output, directory=directory, environment=environment, user=user)
        try:
            await_ready(process, ready, log, seconds)
            yield process
        finally:
            stop(process)


def spawn(
    command: Sequence[str | Path],
    *,
    stdout: IO[bytes] | int,
    stderr: IO[bytes] | int,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
    user: str | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process that ends when we do, even if we are killed: a test run leaves no server behind.

    `environment` comes on top of our own. `user`: who it is to be, if not we ourselves.
    """
    # Not by code between fork and exec: where threads of gRPC run, that ends in a crash.
    ending = [setpriv, "--pdeathsig", "TERM"] if (setpriv := shutil.which("setpriv")) else []
    return subprocess.Popen(
        [*ending, *map(str, command)], cwd=directory, stdout=stdout, stderr=stderr, user=user, group=user,
        env=None if environment is None else {**os.environ, **environment},
    )  # fmt: skip


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process we started: politely, and after a while not so."""
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def await_ready(process: subprocess.Popen[bytes], ready: Callable[[], bool], log: Path, seconds: float) -> None:
    """Return when `ready` says so; an error if the process ended, or takes too long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError):
            if ready():
                return
        time.sleep(0.05)
    why = "took too long" if process.poll() is None else f"ended with {process.returncode}"
    tail = log.read_text(errors="replace")[-_LOG_TAIL:]
    raise PeerError(f"the server {why} before it was ready; {log} ends with: {tail}")


@contextmanager
def _locked(name: str, directory: Path | None = None) -> Iterator[None]:
    """One process at a time fetches or builds a thing; the others wait and find it done."""
    directory = directory or CACHE
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
