"""The child process that makes checkpoints beside a live broker, so that the broker never stops for it.

`python -m dray.replica.child` reads the log where other processes find it (the
socket that every owner of a data directory serves, say), and leaves its result
in the checkpoint directory under a name that nobody loads yet (CK1). A log that
is kept in the object store is reached by what the parent says on its input:
arguments are shown to everybody, and keys are among it.

Invariants
    CH1  A child ends with its parent, within seconds: nobody waits for its
         result any more, and the log may be gone with the parent.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, Self

from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.errors import DrayError, Unavailable
from dray.ids import SystemEntropy
from dray.log.opening import LogEffects, open_log
from dray.log.urls import LogUrl, parse_log_url
from dray.objects.opening import StoreEffects, StoreOptions, open_store
from dray.objects.port import Objects
from dray.offload import InlineOffload
from dray.replica.checkpoints import FileCheckpoints
from dray.replica.fold import InlineFolder

_NICE: Final = 10  # the broker beside it goes first
_LOOK_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAddress:
    """How a child reaches the cluster's object store."""

    url: str
    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    credentials_file: str | None = None
    profile: str | None = None

    @classmethod
    def of(cls, url: str, options: StoreOptions) -> Self:
        return cls(
            url=url, endpoint=options.endpoint, region=options.region, access_key=options.access_key,
            secret_key=options.secret_key, session_token=options.session_token, profile=options.profile,
            credentials_file=None if options.credentials_file is None else str(options.credentials_file),
        )  # fmt: skip

    async def open(self) -> Objects:
        options = StoreOptions(
            endpoint=self.endpoint, region=self.region, access_key=self.access_key, secret_key=self.secret_key,
            session_token=self.session_token, profile=self.profile,
            credentials_file=None if self.credentials_file is None else Path(self.credentials_file),
        )  # fmt: skip
        effects = StoreEffects(clock=SystemClock(), entropy=SystemEntropy(), disk=LocalDisk(), offload=InlineOffload())
        return await open_store(self.url, options, effects)


class ChildFolder:
    """Folds in a child process."""

    def __init__(
        self, *, log: LogUrl, domain: int, directory: Path, deadline_s: float = 300, store: StoreAddress | None = None
    ) -> None:
        """`store`: where the log is, if it is kept in the object store."""
        self._said = b"" if store is None else json.dumps(asdict(store)).encode()
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
                "--parent",
                str(os.getpid()),
                stdin=asyncio.subprocess.PIPE if self._said else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:  # no memory, no process, no descriptor: there may be some later
            raise Unavailable("the checkpoint's child could not be started", reason=str(error)) from error
        await self._finish(child)

    async def _finish(self, child: asyncio.subprocess.Process) -> None:
        try:
            async with asyncio.timeout(self._deadline_s):
                _, said = await child.communicate(self._said or None)
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


async def _main(url: LogUrl, domain: int, directory: Path, upto: int, kept: StoreAddress | None) -> None:
    disk, offload = LocalDisk(), InlineOffload()
    store = FileCheckpoints(directory, disk, offload, maker=str(os.getpid()))
    async with AsyncExitStack() as stack:
        objects = None
        if kept is not None:
            objects = await kept.open()
            stack.push_async_callback(objects.close)
        effects = LogEffects(clock=SystemClock(), disk=disk, offload=offload, objects=objects)
        log = await open_log(url, domain, effects)
        stack.push_async_callback(log.close)
        await InlineFolder(log, store).fold(upto)


async def _main_of(parent: int, work: Coroutine[None, None, None]) -> None:
    """Do the work, unless the parent is gone (CH1)."""
    working = asyncio.ensure_future(work)
    while os.getppid() == parent:
        if (await asyncio.wait((working,), timeout=_LOOK_S))[0]:
            return working.result()
    working.cancel()
    await asyncio.wait((working,), timeout=_LOOK_S)
    raise Unavailable("the parent of this process has ended", parent=parent)


def main() -> int:
    """The child's command line."""
    parser = argparse.ArgumentParser(prog="python -m dray.replica.child", description=__doc__)
    parser.add_argument("--log", metavar="URL", required=True)
    parser.add_argument("--domain", type=int, required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--upto", type=int, required=True)
    parser.add_argument("--nice", type=int, default=_NICE)
    parser.add_argument("--parent", type=int, default=os.getppid(), help="the process that waits for the result")
    given = parser.parse_args()
    os.nice(given.nice)
    said = sys.stdin.read()
    kept = StoreAddress(**json.loads(said)) if said else None
    try:
        work = _main(parse_log_url(given.log), given.domain, given.directory, given.upto, kept)
        asyncio.run(_main_of(given.parent, work))
    except DrayError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
