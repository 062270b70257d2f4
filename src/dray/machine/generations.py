"""Where the generations of a log ended: for consumers that had read what a recovery could not save.

A generation ends when a recovery makes what was saved the beginning of a new
log (`recovery`). What came behind the end of a stream was lost, and its
offsets are given a second time. No command changes this; it is written once,
with the new log's first checkpoint.
"""

from bisect import bisect_left
from typing import ClassVar, Final

from dray.errors import Corrupt
from dray.machine.command import Command
from dray.machine.head import Head
from dray.machine.names import SessionId, StreamId
from dray.machine.noun import Listing, stray
from dray.machine.packing import Reader, Writer
from dray.machine.step import Step
from dray.machine.streams import Streams
from dray.machine.verdict import Verdict

KEPT: Final = 100
"""Generations of which each stream remembers the end."""


class Generations:
    """The ends of earlier generations, by stream."""

    name: ClassVar[str] = "generations"
    since: ClassVar[int] = 2
    commands: ClassVar[tuple[type[Command], ...]] = ()

    def __init__(self, head: Head, streams: Streams) -> None:
        self._head = head
        self._streams = streams
        self._ends: dict[StreamId, list[tuple[int, int]]] = {}
        """Generations, rising, and where they ended."""

    def end(self) -> None:
        """The present generation ends where every open stream ends (RN2)."""
        for stream in self._streams.all():
            if not stream.closed:
                ends = self._ends.setdefault(stream.id, [])
                ends.append((self._head.generation, stream.end))
                del ends[:-KEPT]

    def end_of(self, stream: StreamId, generation: int) -> int | None:
        """Where a stream ended in an earlier generation; None: nobody remembers."""
        ends = self._ends.get(stream, [])
        at = bisect_left(ends, (generation, -1))
        return ends[at][1] if at < len(ends) else None

    def apply(self, step: Step, command: Command) -> Verdict:
        return stray(command)

    def session_ended(self, step: Step, session: SessionId) -> None:
        """Generations belong to no session."""

    def dump(self, out: Writer, version: int) -> None:
        """Of streams that are still there."""
        known = [(stream, ends) for stream, ends in sorted(self._ends.items()) if self._streams.is_known(stream)]
        out.values([len(known)])
        for stream, ends in known:
            out.values([stream, [generation for generation, _ in ends], [end for _, end in ends]])

    def load(self, source: Reader, version: int) -> None:
        (count,) = source.ints(1)
        for _ in range(count):
            row = source.row()
            stream = StreamId(row.number())
            ends = list(zip(row.numbers(), row.numbers(), strict=True))
            if ends != sorted(set(ends)):
                raise Corrupt("generations of a stream do not rise", stream=stream)
            self._ends[stream] = ends

    def show(self, prefix: str) -> Listing:
        """Nothing: it is part of no key of its own."""
        return iter(())
