"""The local log of a directory that nobody serves: for looking, never for writing."""

from collections.abc import AsyncIterator
from pathlib import Path

from dray.disk import Disk
from dray.log.limits import trimmed
from dray.log.port import NotAppended, Position
from dray.log.reader import Survey, read_on, survey
from dray.log.segment import HEADER
from dray.log.verified import Cursor


class ClosedLog:
    """The valid prefix of a log. `follow` ends at its end; nothing is cut, repaired or synced."""

    def __init__(self, directory: Path, disk: Disk, *, believe_names: bool = False) -> None:
        """`believe_names` reads on behind a damaged header."""
        self._directory = directory
        self._disk = disk
        self.survey: Survey = survey(disk, directory, believe_names=believe_names)

    @property
    def first(self) -> int:
        return self.survey.segments[0].first if self.survey.segments else 1

    @property
    def last(self) -> int:
        return self.survey.segments[-1].last if self.survey.segments else 0

    async def append(self, entry: bytes) -> Position:
        raise NotAppended("the log is open for reading only")

    async def follow(self, after: Position) -> AsyncIterator[tuple[Position, bytes]]:
        if after + 1 < self.first:
            raise trimmed(after, Position(self.first))
        for segment in self.survey.segments:
            cursor = Cursor(segment=segment.first, offset=HEADER.size, position=segment.first)
            while max(after + 1, cursor.position) <= segment.last:
                entries, cursor = read_on(self._disk, self._directory, cursor, after, segment.last)
                for entry in entries:
                    after = Position(after + 1)
                    yield after, entry

    async def tail(self) -> Position:
        return Position(self.last)

    async def trim(self, upto: Position) -> None:
        raise NotAppended("the log is open for reading only")

    async def close(self) -> None:
        """Nothing is held open."""
