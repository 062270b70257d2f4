"""What happened in a run, in order: bounded to print, complete as a fingerprint.

Invariants
    SM4  The fingerprint covers every event of the run, also those that the
         bounded trace no longer shows; facts are rendered without addresses.
"""

import hashlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEvent:
    """One line: when, who, what."""

    at: float
    who: str
    what: str

    def __str__(self) -> str:
        return f"{self.at:14.6f}  {self.who:<12} {self.what}"


class Trace:
    """Events by virtual time."""

    def __init__(self, now: Callable[[], float], limit: int = 2_000) -> None:
        self._now = now
        self._events: deque[TraceEvent] = deque(maxlen=limit)
        self._hash = hashlib.blake2b(digest_size=16)
        self._sealed = False
        self.count = 0

    def add(self, who: str, what: str, **facts: object) -> None:
        """Note an event. Facts are numbers, strings, bytes: nothing whose text names an address."""
        if self._sealed:
            return
        if facts:
            what = f"{what} " + " ".join(f"{name}={_text(value)}" for name, value in facts.items())
        event = TraceEvent(at=self._now(), who=who, what=what)
        self._hash.update(f"{event.at!r}|{who}|{what}\n".encode())  # SM4
        self._events.append(event)
        self.count += 1

    def seal(self) -> None:
        """The run is over; what parked coroutines do while they are thrown away is no event."""
        self._sealed = True

    def fingerprint(self) -> str:
        """Equal for equal runs (SM4)."""
        return self._hash.hexdigest()

    def lines(self) -> list[str]:
        """The newest events, oldest first, and how many came before them."""
        hidden = self.count - len(self._events)
        head = [f"... {hidden} earlier events"] if hidden else []
        return head + [str(event) for event in self._events]


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.hex() if len(value) <= 16 else f"{value[:12].hex()}..({len(value)})"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)
