"""Writing segment files: one batch, one write, one sync.

Synchronous, and used by one thread at a time: `FileLog` runs it through
`Offload`. A batch that fails is either surely not in the log (`NotAppended`) or
the log is finished (`LogFailed`); there is no third way.

Invariants
    LG7  `durable` moves only after the sync that covers the record returned.
    LG8  A segment is used only after its header and its name are durable, and
         only after everything before it is.
    LG9  After a failed sync, or a write that could not be undone, the log
         takes nothing more; no sync is ever tried again.
"""

from collections.abc import Sequence
from pathlib import Path

from dray.disk import Disk, File, SyncFailed
from dray.errors import DrayError
from dray.log.port import NotAppended
from dray.log.segment import HEADER, RECORD, encode_header, encode_record, segment_name


class LogFailed(NotAppended):
    """The disk failed under the log: end the process, look at the disk, start again."""


class SegmentWriter:
    """The end of a local log."""

    def __init__(
        self, disk: Disk, directory: Path, file: File, *, size: int, durable: int, active: int, segment_bytes: int
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._file = file
        self.size = size
        """Bytes of the active segment."""
        self._segment_bytes = segment_bytes
        self._failure: DrayError | None = None
        self.durable = durable
        """The position of the last durable entry."""
        self.active = active
        """The first position of the segment that is written to."""

    def commit(self, entries: Sequence[bytes]) -> int:
        """Append the entries in order and make them durable; the position of the first."""
        if self._failure is not None:
            raise LogFailed("the log failed before", reason=self._failure.message)  # LG9
        first = self.durable + 1
        added = sum(map(len, entries)) + RECORD.size * len(entries)
        if self.size + added > self._segment_bytes and self.size > HEADER.size:
            self._rotate(first)
        buffers: list[bytes] = []
        for place, entry in enumerate(entries):
            buffers += encode_record(first + place, place, entry)
        self._write(buffers)
        self.size += added
        self.durable += len(entries)  # LG7
        return first

    def _write(self, buffers: list[bytes]) -> None:
        try:
            self._file.write(buffers)
        except DrayError as error:
            self._undo(error)
            raise NotAppended("nothing was appended: the disk did not take it", reason=error) from error
        try:
            self._file.sync()
        except DrayError as error:
            raise self._fail(error) from error

    def _undo(self, cause: DrayError) -> None:
        """Bring the file back to its durable size: only then is the batch surely not in the log (LG4)."""
        try:
            self._file.truncate(self.size)
            self._file.sync()
        except DrayError as error:
            raise self._fail(error) from cause

    def _rotate(self, first: int) -> None:
        """Begin the segment of `first` (LG8); the one before it is durable to its end."""
        path = self._directory / segment_name(first)
        try:
            file = create_segment(self._disk, self._directory, first)
        except SyncFailed as error:
            raise self._fail(error) from error
        except DrayError as error:
            # A leftover under this name would overlap what goes on in the old segment.
            try:
                self._disk.remove(path)
                self._disk.sync_dir(self._directory)
            except DrayError as second:
                raise self._fail(second) from error
            raise NotAppended("nothing was appended: no new segment could be made", reason=error) from error
        self._file.close()
        self._file, self.size, self.active = file, HEADER.size, first

    def _fail(self, error: DrayError) -> LogFailed:
        self._failure = error
        return LogFailed("the log is finished until the process starts again", reason=error)

    def close(self) -> None:
        self._file.close()


def create_segment(disk: Disk, directory: Path, first: int) -> File:
    """A new segment whose header and name are durable (LG8)."""
    file = disk.create(directory / segment_name(first))
    try:
        file.write([encode_header(first)])
        file.sync()
        disk.sync_dir(directory)
    except DrayError:
        file.close()
        raise
    return file
