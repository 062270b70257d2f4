"""libfaketime: a process whose wall clock a test moves while it runs."""

from collections.abc import Mapping
from pathlib import Path

from tools.peers.process import PeerError, tool


class MovedClock:
    """The wall clock of one process to come. Its other clocks stay."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.move(0)

    def move(self, seconds: int) -> None:
        """Seen within a second."""
        written = self._path.with_suffix(".new")
        written.write_text(f"{seconds:+d}s\n")
        written.replace(self._path)

    def environment(self) -> Mapping[str, str]:
        """Of the process."""
        return {
            "LD_PRELOAD": str(_library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._path),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_RESET": "1",
            "NO_FAKE_STAT": "1",
        }


def _library() -> Path:
    tool("faketime", "faketime")
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if not found:
        raise PeerError("libfaketimeMT.so.1 is not where Debian's package puts it: install libfaketime")
    return found[0]
