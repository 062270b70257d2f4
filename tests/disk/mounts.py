"""A small file system of its own, to fill and to make read-only.

Root ignores permission bits, so a read-only directory must be a read-only
file system. Where mounting is not allowed the tests fail and say so: they
prove what an operator sees when a disk is full.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounted:
    path: Path

    def remount_read_only(self) -> None:
        _run("mount", "-o", "remount,ro", str(self.path))


@contextmanager
def small_filesystem(path: Path, size_mib: int = 8) -> Iterator[Mounted]:
    """A tmpfs of this size at `path`, gone at the end."""
    path.mkdir(parents=True)
    _run("mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(path))
    try:
        yield Mounted(path=path)
    finally:
        _run("umount", "--lazy", str(path))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(
            f"{' '.join(command)}: {done.stderr.strip()} (this test needs the right to mount: "
            "run it as root, or under `unshare --user --map-root-user --mount`)"
        )
