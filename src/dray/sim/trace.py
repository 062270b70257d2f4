"""What happened in a run, in order: bounded to print, complete as a fingerprint.

Invariants
    SM4  The fingerprint covers every event of the run, also those that the
         bounded trace no longer shows; facts are rendered without addresses.
"""

import hashlib
from collections import deque
from collections.abc import Callable


class Trace:
    """Events by virtual time."""

    def __init__(self, now: Callable[[], float], limit: int = 2_000) -> None:
        self._now = now
        self._events: deque[tuple[float, str, str]] = deque(maxlen=limit)
        self._hash = hashlib.blake2b(digest_size=16)
        self._sealed = False
        self.count = 0

    def add(self, who: str, what: str, **facts: object) -> None:
        """Note an event. Facts are numbers, strings, bytes: nothing whose text names an address."""
        if self._sealed:
            return
        if facts:
            what = f"{what} " + " ".join(f"{name}={_text(value)}" for name, value in facts.items())
        at = self._now()
        self._hash.update(f"{at!r}|{who}|{what}\n".encode())  # SM4
        self._events.append((at, who, what))
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
        return head + [f"{at:14.6f}  {who:<12} {what}" for at, who, what in self._events]


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.hex() if len(value) <= 16 else f"{value[:12].hex()}..({len(value)})"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)
