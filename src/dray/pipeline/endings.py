"""Waiting for the end of a process that is not a child of ours."""

import asyncio
import os
from pathlib import Path
from typing import Final

POLL_S: Final = 1.0


async def wait_for_end(pid: int) -> None:
    """Return when the process is gone: at once by a pidfd, within `POLL_S` where the system has none."""
    try:
        gone = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):  # not Linux; an old kernel or a sandbox; no descriptor is left
        await _poll(pid)
        return
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(gone, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(gone)
        os.close(gone)


async def _poll(pid: int) -> None:
    watched = _who(pid)
    # By start as well as by number: another process may get the number.
    while watched is not None and _who(pid) == watched:  # noqa: ASYNC110
        await asyncio.sleep(POLL_S)


def _who(pid: int) -> str | None:
    """Which process has the number: when it began, or nothing where that is not told. None if it has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass  # somebody else's: it lives
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return ""
    return None if state in "ZX" else rest[18]
