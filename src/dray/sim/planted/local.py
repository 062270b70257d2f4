"""Mistakes about what is on the disk."""

from typing import Final

from dray.sim.disk import FakeDisk, FakeFile

_SYNC: Final = FakeFile.sync


def sync_later(self: FakeFile) -> None:
    """The log is told that its bytes are on the disk; they get there with a later sync, or never."""
    self._enter("sync")
    if self._disk.calls % 4 == 0:
        _SYNC(self)


_OPEN: Final = FakeDisk.open


def open_without_sync(self: FakeDisk, path: object) -> FakeFile:
    """The first sync of a file that was there before is left out."""
    file = _OPEN(self, path)  # type: ignore[arg-type]
    real = file.sync

    def first() -> None:
        file.sync = real  # type: ignore[method-assign]

    file.sync = first  # type: ignore[method-assign]
    return file


def nothing_written_again(self: FakeDisk, path: object, start: int) -> None:
    """What a mark does not cover is believed."""
