"""Which enqueues were taken before: exact, for at least the window, at most a quarter longer.

Entries lie in generations, each a quarter of the window of running time long.
An entry is a producer with the ranges of sequences that were taken in that
generation, or a key (a producer that sends sequence 0 once). The id of a
message is made of the number of its entry and its sequence, so no message is
remembered for itself: a producer that counts up costs one range, however much
it sends, and a duplicate is told the id of a message that is long gone.

Invariants
    DD1  What was taken within the window is known, and nothing else is.
"""

import struct
from array import array
from bisect import bisect_right
from typing import Final, NamedTuple, TypeAlias

from dray.errors import Corrupt
from dray.machine.heaps.config import HeapConfig
from dray.machine.packing import Reader, Writer

PARTS: Final = 4
MAX_RANGES: Final = 4_096
"""Of one producer in one generation: each sequence that joins none costs a walk over them."""
_ONE: Final = struct.Struct("<IQQQ")
"""Number, floor, start, end: a producer with one range."""
_KEY_BYTES: Final = 16
_ENTRY_BYTES: Final = _KEY_BYTES + _ONE.size


class _Many(NamedTuple):
    """A producer with holes: its ranges, start and end in turn."""

    number: int
    floor: int
    ranges: "array[int]"


_Entry: TypeAlias = "bytes | _Many"


class Known(NamedTuple):
    """What the id of a message is made of, besides its sequence."""

    number: int
    begun_ms: int


class _Generation:
    __slots__ = ("begun_ms", "begun_running_ms", "entries")

    def __init__(self, begun_running_ms: int, begun_ms: int) -> None:
        self.begun_running_ms = begun_running_ms
        self.begun_ms = begun_ms
        """Machine time: it goes into ids, and is kept, for it cannot be told from running time later."""
        self.entries: dict[bytes, _Entry] = {}


class Dedup:
    """What a shard remembers of its producers."""

    __slots__ = ("_generations", "count")

    def __init__(self) -> None:
        self._generations: list[_Generation] = []
        self.count = 0
        """Ranges of all entries: what memory is counted by."""

    def find(self, key: bytes, seq: int, running_ms: int, window_ms: int) -> Known | None:
        """The entry that took this sequence. Judged by time: what was not swept yet is not found (DD1)."""
        oldest = running_ms - window_ms - window_ms // PARTS
        for generation in reversed(self._generations):
            if generation.begun_running_ms <= oldest:
                return None
            entry = generation.entries.get(key)
            if entry is None:
                continue
            if isinstance(entry, bytes):
                number, floor, start, end = _ONE.unpack(entry)
                taken = start <= seq < end
            else:
                number, floor, ranges = entry
                taken = bool(bisect_right(ranges, seq) & 1)
            if taken:
                return Known(number, generation.begun_ms)
            if seq >= floor:
                return None
        return None

    def follows(self, key: bytes, seq: int, running_ms: int, window_ms: int) -> Known | None:
        """The newest entry of a key, if it has one range, and this sequence is the next of it: nobody knows it, or any
        that follows (DD1). `go_on` takes it."""
        generation = self._current(running_ms, window_ms)
        entry = None if generation is None else generation.entries.get(key)
        if generation is None or not isinstance(entry, bytes):
            return None
        number, floor, _, end = _ONE.unpack(entry)
        return Known(number, generation.begun_ms) if seq == end and seq >= floor else None

    def go_on(self, key: bytes, count: int) -> None:
        """So many sequences were taken that follow the newest entry of a key."""
        entries = self._generations[-1].entries
        entry = entries[key]
        assert isinstance(entry, bytes)
        number, floor, start, end = _ONE.unpack(entry)
        entries[key] = _ONE.pack(number, floor, start, end + count)

    def take(self, key: bytes, seq: int, now_ms: int, running_ms: int, config: HeapConfig, number: int) -> Known | None:
        """Remember a sequence that `find` does not know; a new entry gets `number` (DD2). None: there is no room."""
        generation = self._current(running_ms, config.dedup_window_ms)
        entry = None if generation is None else generation.entries.get(key)
        if entry is None:
            if self.count >= config.max_dedup_keys:
                return None
            if generation is None:
                generation = _Generation(running_ms, now_ms)
                self._generations.append(generation)
            generation.entries[key] = _ONE.pack(number, self._floor(key), seq, seq + 1)
            self.count += 1
            return Known(number, generation.begun_ms)
        assert generation is not None
        if isinstance(entry, bytes):
            number, floor, start, end = _ONE.unpack(entry)
            if seq == end:
                generation.entries[key] = _ONE.pack(number, floor, start, end + 1)
                return Known(number, generation.begun_ms)
            entry = _Many(number, floor, array("Q", (start, end)))
        ranges = entry.ranges
        if len(ranges) >= 2 * MAX_RANGES or self.count >= config.max_dedup_keys:
            return None
        before = len(ranges)
        _insert(ranges, seq)
        self.count += (len(ranges) - before) // 2
        only = len(ranges) == 2
        generation.entries[key] = _ONE.pack(entry.number, entry.floor, *ranges) if only else entry
        return Known(entry.number, generation.begun_ms)

    def give_back(self, key: bytes, seq: int) -> None:
        """Forget that a sequence was taken: its batch was aborted, and nobody was told its id (BA4)."""
        for generation in reversed(self._generations):
            entry = generation.entries.get(key)
            if entry is None:
                continue
            number, floor, *ends = _ONE.unpack(entry) if isinstance(entry, bytes) else (*entry[:2], *entry.ranges)
            ranges = array("Q", ends)
            if not bisect_right(ranges, seq) & 1:
                continue
            _remove(ranges, seq)
            self.count += (len(ranges) - len(ends)) // 2
            if not ranges:
                del generation.entries[key]
            elif len(ranges) == 2:
                generation.entries[key] = _ONE.pack(number, floor, *ranges)
            else:
                generation.entries[key] = _Many(number, floor, ranges)
            return

    def has_room(self, key: bytes, fresh: int, running_ms: int, config: HeapConfig) -> bool:
        """Would `fresh` more sequences be taken, at least one of them of this key, whatever they are?"""
        generation = self._current(running_ms, config.dedup_window_ms)
        entry = None if generation is None else generation.entries.get(key)
        ranges = len(entry.ranges) // 2 if isinstance(entry, _Many) else 1
        return self.count + fresh <= config.max_dedup_keys and ranges + fresh <= MAX_RANGES

    def _current(self, running_ms: int, window_ms: int) -> _Generation | None:
        """The newest generation, if it still takes entries."""
        newest = self._generations[-1] if self._generations else None
        return None if newest is None or running_ms - newest.begun_running_ms >= window_ms // PARTS else newest

    def _floor(self, key: bytes) -> int:
        """The highest end in older generations: at or above it nothing was taken there."""
        floor = 0
        for generation in self._generations:
            entry = generation.entries.get(key)
            if entry is not None:
                floor = max(floor, _ONE.unpack(entry)[3] if isinstance(entry, bytes) else entry.ranges[-1])
        return floor

    def expire(self, running_ms: int, window_ms: int, limit: int) -> int:
        """Forget at most `limit` entries of generations that ended more than a window ago."""
        gone = 0
        while self._generations and gone < limit:
            if self._generations[0].begun_running_ms > running_ms - window_ms - window_ms // PARTS:
                break
            gone += self._cut_first(limit - gone)
        return gone

    def cut(self, limit: int) -> int:
        """Forget whatever there is, at most `limit` entries."""
        gone = 0
        while self._generations and gone < limit:
            gone += self._cut_first(limit - gone)
        return gone

    def next_end_ms(self, window_ms: int) -> int | None:
        """When the oldest generation may be forgotten."""
        if not self._generations:
            return None
        return self._generations[0].begun_running_ms + window_ms + window_ms // PARTS

    def _cut_first(self, limit: int) -> int:
        entries = self._generations[0].entries
        gone = min(limit, len(entries))
        for _ in range(gone):
            _, entry = entries.popitem()
            self.count -= 1 if isinstance(entry, bytes) else len(entry.ranges) // 2
        if not entries:
            del self._generations[0]
        return gone

    def dump(self, out: Writer) -> None:
        out.values([len(self._generations)])
        for generation in self._generations:
            out.values([generation.begun_running_ms, generation.begun_ms])
            # In their own order, which decides who is forgotten first; an empty range says that a column follows.
            out.blob(
                b"".join(
                    key + (entry if isinstance(entry, bytes) else _ONE.pack(entry.number, entry.floor, 0, 0))
                    for key, entry in generation.entries.items()
                )
            )
            for entry in generation.entries.values():
                if not isinstance(entry, bytes):
                    out.column(entry.ranges)

    def load(self, source: Reader) -> None:
        (generations,) = source.ints(1)
        for _ in range(generations):
            begun_running_ms, begun_ms = source.ints(2)
            generation = _Generation(begun_running_ms, begun_ms)
            raw = bytes(source.blob())
            if len(raw) % _ENTRY_BYTES:
                raise Corrupt("what is remembered of producers ends inside an entry", size=len(raw))
            for at in range(0, len(raw), _ENTRY_BYTES):
                packed = raw[at + _KEY_BYTES : at + _ENTRY_BYTES]
                number, floor, start, end = _ONE.unpack(packed)
                entry = packed if start < end else _Many(number, floor, source.column("Q"))
                generation.entries[raw[at : at + _KEY_BYTES]] = entry
                self.count += 1 if isinstance(entry, bytes) else len(entry.ranges) // 2
            self._generations.append(generation)


def _insert(ranges: "array[int]", seq: int) -> None:
    """Add a sequence that none of the ranges holds."""
    at = bisect_right(ranges, seq)
    joins_left = at > 0 and ranges[at - 1] == seq
    joins_right = at < len(ranges) and ranges[at] == seq + 1
    if joins_left and joins_right:
        del ranges[at - 1 : at + 1]
    elif joins_left:
        ranges[at - 1] = seq + 1
    elif joins_right:
        ranges[at] = seq
    else:
        ranges[at:at] = array("Q", (seq, seq + 1))


def _remove(ranges: "array[int]", seq: int) -> None:
    """Take away a sequence that one of the ranges holds."""
    at = bisect_right(ranges, seq)
    start, end = ranges[at - 1], ranges[at]
    left = (start, seq) if start < seq else ()
    right = (seq + 1, end) if seq + 1 < end else ()
    ranges[at - 1 : at + 1] = array("Q", (*left, *right))
