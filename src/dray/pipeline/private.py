"""A directory of this user alone, for the sockets of keepers."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from dray.pipeline.errors import NotPinned


def private_directory(environ: Mapping[str, str]) -> Path:
    """In XDG_RUNTIME_DIR where this user has one, else in the directory of temporary files.

    Anybody may make a name in the latter first, and nobody else can remove it there; the former is the user's own.

    Raises:
        NotPinned: somebody else has the name, and what to do about it.
    """
    runtime = Path(environ.get("XDG_RUNTIME_DIR", ""))
    if runtime.is_absolute() and _is_ours(runtime) and os.access(runtime, os.W_OK | os.X_OK):
        home = runtime / "dray-spark"
    else:  # none, or that of the user who became this one by su
        home = Path(tempfile.gettempdir()) / f"dray-spark-{os.getuid()}"
    home.mkdir(mode=0o700, exist_ok=True)
    if not _is_ours(home):
        raise NotPinned(
            "a directory must be this user's alone, and is not: set XDG_RUNTIME_DIR or TMPDIR to one of your own",
            path=home,
        )  # fmt: skip
    return home


def _is_ours(directory: Path) -> bool:
    try:
        found = directory.lstat()
    except OSError:
        return False
    return found.st_uid == os.getuid() and not found.st_mode & 0o077 and directory.is_dir()
