"""An environment with the Python clients of peers, apart from ours: none of them is needed to build, run or test Dray.

What it holds is `requirements/bench-peers.lock`, with hashes; it is made once
for each content of that file.
"""

import hashlib
import sys
from pathlib import Path
from typing import Final

from tools.peers.process import PeerError, cached, run

LOCK: Final = Path(__file__).resolve().parents[2] / "requirements" / "bench-peers.lock"


def python_with_peers() -> Path:
    """Its interpreter; a minute or so the first time."""
    uv = Path(sys.executable).with_name("uv")
    if not uv.exists():
        raise PeerError(f"there is no uv beside {sys.executable}: run `make setup`")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256(version.encode() + LOCK.read_bytes()).hexdigest()[:16]

    def install(directory: Path) -> None:
        run([uv, "venv", "--quiet", "--relocatable", "--python", sys.executable, directory / "venv"])
        python = directory / "venv" / "bin" / "python"
        run([uv, "pip", "sync", "--quiet", "--python", python, "--require-hashes", LOCK])

    return cached(f"python-{digest}", install) / "venv" / "bin" / "python"
