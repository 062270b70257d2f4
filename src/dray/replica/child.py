"""The child process that makes checkpoints beside a live broker, so that the broker never stops for it.

`python -m dray.replica.child` reads the log where other processes find it (the
socket that every owner of a data directory serves, say), and leaves its result
in the checkpoint directory under a name that nobody loads yet (CK1).
"""

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import Final

from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.errors import DrayError, Unavailable
from dray.log.opening import LogEffects, open_log
from dray.log.urls import LogUrl, parse_log_url
from dray.offload import InlineOffload
from dray.replica.checkpoints import FileCheckpoints
from dray.replica.fold import InlineFolder

_NICE: Final = 10  # the broker beside it goes first


class ChildFolder:
    """Folds in a child process."""

    def __init__(self, *, log: LogUrl, domain: int, directory: Path, deadline_s: float = 300) -> None:
        self._store = FileCheckpoints(directory, LocalDisk(), InlineOffload())
        self._arguments = ["--log", str(log), "--domain", str(domain), "--directory", str(directory)]
        self._deadline_s = deadline_s
        self.nice = _NICE

    async def fold(self, upto: int) -> None:
        try:
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "dray.replica.child",
                *self._arguments,
                "--upto",
                str(upto),
                "--nice",
                str(self.nice),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:  # no memory, no process, no descriptor: there may be some later
            raise Unavailable("the checkpoint's child could not be started", reason=str(error)) from error
        await self._finish(child)

    async def _finish(self, child: asyncio.subprocess.Process) -> None:
        try:
            async with asyncio.timeout(self._deadline_s):
                _, said = await child.communicate()
        except BaseException as error:
            if child.returncode is None:
                child.kill()
                await child.wait()
            self._store.sweep_names(str(child.pid))  # what it leaves half-written is nobody's
            if isinstance(error, TimeoutError):
                late = Unavailable("the checkpoint's child did not finish in time", deadline_s=self._deadline_s)
                raise late from error
            raise
        if child.returncode != 0:
            self._store.sweep_names(str(child.pid))
            raise Unavailable("the checkpoint's child failed", said=said.decode(errors="replace")[-500:])


async def _main(url: LogUrl, domain: int, directory: Path, upto: int) -> None:
    disk, offload = LocalDisk(), InlineOffload()
    store = FileCheckpoints(directory, disk, offload, maker=str(os.getpid()))
    log = await open_log(url, domain, LogEffects(clock=SystemClock(), disk=disk, offload=offload))
    try:
        await InlineFolder(log, store).fold(upto)
    finally:
        await log.close()


def main() -> int:
    """The child's command line."""
    parser = argparse.ArgumentParser(prog="python -m dray.replica.child", description=__doc__)
    parser.add_argument("--log", metavar="URL", required=True)
    parser.add_argument("--domain", type=int, required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--upto", type=int, required=True)
    parser.add_argument("--nice", type=int, default=_NICE)
    given = parser.parse_args()
    os.nice(given.nice)
    try:
        asyncio.run(_main(parse_log_url(given.log), given.domain, given.directory, given.upto))
    except DrayError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
