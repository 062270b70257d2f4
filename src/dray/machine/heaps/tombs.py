"""Acks that were given, for at least ten minutes of running time: who repeats one is told that it is so.

Sixteen bytes each: the arrival of the message and the first 8 bytes of the
token's random part. They lie in lanes by the arrival's last bits; a lane is a
list of blocks that were sorted when they were full, and an open block. So
neither a search nor a full block costs much, whatever somebody asks for.

Invariants
    L4  Repeating a settlement that was taken changes nothing.
"""

from array import array
from bisect import bisect_left
from typing import Final

from dray.machine.packing import Reader, Writer

KEPT_MS: Final = 600_000
BLOCK: Final = 1_024
LANES: Final = 16
CHECK_BYTES: Final = 8


class _Lane:
    """Blocks of (newest time, arrivals, checks), oldest first, and the open block."""

    __slots__ = ("arrivals", "blocks", "checks", "newest_ms")

    def __init__(self) -> None:
        self.blocks: list[tuple[int, array[int], array[int]]] = []
        self.arrivals: array[int] = array("Q")
        self.checks: array[int] = array("Q")
        self.newest_ms = 0

    def seal(self, running_ms: int) -> None:
        """The open block is full."""
        order = sorted(range(BLOCK), key=self.arrivals.__getitem__)
        arrivals = array("Q", map(self.arrivals.__getitem__, order))
        self.blocks.append((running_ms, arrivals, array("Q", map(self.checks.__getitem__, order))))
        self.arrivals, self.checks = array("Q"), array("Q")

    def find(self, arrival: int) -> int | None:
        for _, arrivals, checks in self.blocks:
            if arrivals[0] <= arrival <= arrivals[-1]:
                at = bisect_left(arrivals, arrival)
                if arrivals[at] == arrival:
                    return checks[at]
        try:
            return self.checks[self.arrivals.index(arrival)]
        except ValueError:
            return None

    def expire(self, before_ms: int) -> None:
        kept = 0
        while kept < len(self.blocks) and self.blocks[kept][0] <= before_ms:
            kept += 1
        del self.blocks[:kept]
        if self.arrivals and self.newest_ms <= before_ms:
            self.arrivals, self.checks = array("Q"), array("Q")


class Tombs:
    """The acks of a shard."""

    __slots__ = ("_lanes",)

    def __init__(self) -> None:
        self._lanes = [_Lane() for _ in range(LANES)]

    def add_all(self, arrivals: list[int], nonce: bytes, running_ms: int) -> None:
        """Acks with one token."""
        lanes, check = self._lanes, _check(nonce)
        for arrival in arrivals:
            lane = lanes[arrival % LANES]
            lane.arrivals.append(arrival)
            lane.checks.append(check)
            lane.newest_ms = running_ms
            if len(lane.arrivals) == BLOCK:
                lane.seal(running_ms)

    def knows(self, arrival: int, nonce: bytes) -> bool | None:
        """Was the message acked with this token? None: not that we remember."""
        check = self._lanes[arrival % LANES].find(arrival)
        return None if check is None else check == _check(nonce)

    def expire(self, running_ms: int) -> None:
        for lane in self._lanes:
            lane.expire(running_ms - KEPT_MS)

    def oldest_ms(self) -> int | None:
        """When the first of them may be forgotten, at the earliest."""
        times = [lane.blocks[0][0] if lane.blocks else lane.newest_ms
                 for lane in self._lanes if lane.blocks or lane.arrivals]  # fmt: skip
        return min(times, default=None)

    def dump(self, out: Writer) -> None:
        for lane in self._lanes:
            out.values([len(lane.blocks), lane.newest_ms])
            for newest_ms, arrivals, checks in lane.blocks:
                out.values([newest_ms])
                out.column(arrivals)
                out.column(checks)
            out.column(lane.arrivals)
            out.column(lane.checks)

    def load(self, source: Reader) -> None:
        for lane in self._lanes:
            blocks, lane.newest_ms = source.ints(2)
            for _ in range(blocks):
                (newest_ms,) = source.ints(1)
                lane.blocks.append((newest_ms, source.column("Q"), source.column("Q")))
            lane.arrivals, lane.checks = source.column("Q"), source.column("Q")


def _check(nonce: bytes) -> int:
    return int.from_bytes(nonce[:CHECK_BYTES], "little")
