"""What lies on a disk, held against the whole log.

A witness folds a log from its files, just before the product takes a file
away, and at the end: so it knows the fold of everything that ever was in the
log, however far that was trimmed.

Checked whenever a file of the log goes: a power cut at this moment leaves two
confirmed checkpoints, whole, at or above what goes (CK2, CK4); and every
confirmed checkpoint of anybody is, to the byte, the fold of the log up to it
(CK1, K1).
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from dray.disk import Disk
from dray.errors import Corrupt
from dray.log.reader import read_on, segment_firsts, survey
from dray.log.segment import HEADER, first_of
from dray.log.verified import Cursor
from dray.machine import checkpoint
from dray.machine.machine import Machine
from dray.replica.checkpoints.files import CONFIRMED
from dray.sim.disk import FakeDisk
from dray.sim.world import World

_NAME: Final = re.compile(r"([0-9]{20})" + re.escape(CONFIRMED))


class Witness:
    """Sees every entry of one log before it goes."""

    def __init__(self, world: World, disk: FakeDisk, log: Path, checkpoints: Sequence[Path]) -> None:
        """`checkpoints` are the directories of all brokers; the first is that of the log's keeper."""
        self.machine = Machine()
        self.trims = 0
        self.first = 1
        """The oldest position that the log still has, as far as it was seen."""
        self.active = True
        """Off while the files are somebody else's business than the log's."""
        self._world = world
        self._disk = disk
        self._log = log
        self._checkpoints = tuple(checkpoints)
        self._folds: dict[int, bytes] = {}
        disk.on_call = self._look

    def _look(self, call: str, path: Path) -> None:
        if self.active and call == "remove" and path.parent == self._log and first_of(path.name) is not None:
            self._goes(path)

    def _goes(self, path: Path) -> None:
        left = self._disk.durable()
        later = [first for first in segment_firsts(left, self._log) if first > (first_of(path.name) or 0)]
        if not later:
            return  # a file that was never finished
        last = later[0] - 1
        self.trims += 1
        self.first = later[0]
        kept = {position: data for position, data in self._confirmed(left, self._checkpoints[0]) if position >= last}
        self._world.check(
            len(kept) >= 2, "a power cut would leave fewer than two checkpoints to a log that is trimmed",
            upto=last, left=sorted(kept),
        )  # fmt: skip
        self.compare(left, upto=last)

    def newest_confirmed(self) -> list[int]:
        """The newest confirmed checkpoint of each broker; 0 if it has none."""
        left = self._disk.durable()
        return [
            max((position for position, _ in self._confirmed(left, directory)), default=0)
            for directory in self._checkpoints
        ]

    def compare(self, left: FakeDisk, upto: int = 0) -> None:
        """Hold every confirmed checkpoint against the fold, and fold at least up to a position."""
        found = [
            (position, data) for directory in self._checkpoints for position, data in self._confirmed(left, directory)
        ]
        self.fold(left, max([upto, *(position for position, _ in found)]), {position for position, _ in found})
        for position, data in found:
            fold = self._folds.get(position)
            self._world.check(fold in (None, data), "a checkpoint is not the fold of its log", position=position)

    def fold(self, disk: Disk, upto: int, keep: set[int] | None = None) -> None:
        """Go on with the fold; of these positions what a checkpoint must be is remembered."""
        for position, entry in entries_of(disk, self._log, self.machine.position):
            if position > upto:
                break
            self.machine.apply(position, entry)
            if keep and position in keep:
                self._folds[position] = checkpoint.dump(self.machine)

    def _confirmed(self, disk: FakeDisk, directory: Path) -> Iterator[tuple[int, bytes]]:
        for name in disk.list(directory):
            found = _NAME.fullmatch(name)
            if found is None:
                continue
            data = disk.read(directory / name)
            try:
                whole = checkpoint.summary(data).position == int(found[1])
            except Corrupt:
                whole = False
            self._world.check(
                whole, "a power cut would damage a confirmed checkpoint", file=directory / name, size=len(data)
            )
            yield int(found[1]), data


def entries_of(disk: Disk, log: Path, after: int) -> Iterator[tuple[int, bytes]]:
    """The entries of a log behind a position, from its files."""
    for segment in survey(disk, log).segments:
        cursor = Cursor(segment=segment.first, offset=HEADER.size, position=segment.first)
        while max(after + 1, cursor.position) <= segment.last:
            entries, cursor = read_on(disk, log, cursor, after, segment.last)
            for entry in entries:
                after += 1
                yield after, entry
