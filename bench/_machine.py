"""What a result was measured on. A figure without its machine means nothing."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path


def describe() -> dict[str, object]:
    """The machine and the software, as they are now."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "cores_usable": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "libraries": _libraries(),
        "commit": _commit(),
        "load_average": list(os.getloadavg()),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _libraries() -> dict[str, str]:
    """The distributions whose modules this process has loaded."""
    loaded = {name.partition(".")[0] for name in sys.modules}
    owners = metadata.packages_distributions()
    used = {owner for module in loaded for owner in owners.get(module, ())}
    return {name: metadata.version(name) for name in sorted(used)}


def _commit() -> str:
    """The commit, with `+` behind it if the tree has changes; empty outside a repository."""
    try:
        head = _git("rev-parse", "HEAD")
        return head + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def _git(*arguments: str) -> str:
    root = Path(__file__).parent
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def full_page_cache(directory: Path, keep_bytes: int = 1 << 30) -> Iterator[None]:
    """Hold the free memory of this machine as page cache, as it is on one that has run for a while.

    The host of a virtual machine backs memory when it is first touched, and takes back what was free for
    some seconds; a write into such memory costs ten times the usual. Without this, chance says who pays.
    """
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    free = int(next(line for line in lines if line.startswith("MemFree")).split()[1]) * 1024
    room = shutil.disk_usage(directory).free // 2
    path = directory / "dray-bench-page-cache"
    block = bytes(8 << 20)
    try:
        with path.open("wb", buffering=0) as file:
            for _ in range(max(0, min(free, room) - keep_bytes) // len(block)):
                file.write(block)
            os.fsync(file.fileno())
        yield
    finally:
        path.unlink(missing_ok=True)
