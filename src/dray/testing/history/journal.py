"""Histories as JSONL files: written as things happen, read back whole.

A line is written under one lock together with its time, so the order of the
lines is an order of real time. The writer may die at any byte: a cut last
line is left out and reported, damage anywhere else is refused.

Invariants
    HC1  The time of an invoke is taken before the client acts, that of a
         completion after the client was answered; a recorded interval
         contains the true one.
    HC2  Nothing but a cut last line is ever left out of a history.
"""

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from dray.errors import Corrupt
from dray.testing.history.events import Call, Event, Fail, Info, Invoke, Note, Noted, Ok, OpId, Process, Result, Run

_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Event)


class Recorder:
    """Writes one history. Safe to call from many threads."""

    def __init__(self, sink: BinaryIO, now_ns: Callable[[], int]) -> None:
        self._sink = sink
        self._now_ns = now_ns
        self._lock = threading.Lock()
        self._next = 0

    def run(self, run: Run) -> None:
        with self._lock:
            self._write(run)

    def invoke(self, process: Process, call: Call) -> OpId:
        """Write down what is about to be done; call it before doing it (HC1)."""
        with self._lock:
            op = OpId(self._next)
            self._next += 1
            self._write(Invoke(op=op, t_ns=self._now_ns(), process=process, call=call))
            return op

    def ok(self, op: OpId, result: Result) -> None:
        with self._lock:
            self._write(Ok(op=op, t_ns=self._now_ns(), result=result))

    def fail(self, op: OpId, error: str) -> None:
        """Only for what surely did not happen; see `dray.testing.history.outcomes`."""
        with self._lock:
            self._write(Fail(op=op, t_ns=self._now_ns(), error=error))

    def info(self, op: OpId, error: str) -> None:
        with self._lock:
            self._write(Info(op=op, t_ns=self._now_ns(), error=error))

    def note(self, process: Process, note: Note) -> None:
        with self._lock:
            self._write(Noted(t_ns=self._now_ns(), process=process, note=note))

    def _write(self, event: Event) -> None:
        self._sink.write(_ENCODER.encode(event) + b"\n")


def encode_events(events: Iterable[Event]) -> bytes:
    """The lines of a history file."""
    return b"".join(_ENCODER.encode(event) + b"\n" for event in events)


def decode_events(raw: bytes) -> tuple[list[Event], bool]:
    """The events of a history file, and whether a cut last line was left out (HC2).

    Raises:
        Corrupt: a line before the last is no event.
    """
    lines = raw.split(b"\n")
    rest = lines.pop()
    events: list[Event] = []
    for number, line in enumerate(lines, 1):
        try:
            events.append(_DECODER.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            raise Corrupt(
                "a line of the history is no event; take an undamaged copy of the file", line=number
            ) from problem
    if rest:
        try:
            events.append(_DECODER.decode(rest))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return events, True
    return events, False


def read_events(path: Path) -> tuple[list[Event], bool]:
    """`decode_events` of a file."""
    return decode_events(path.read_bytes())
