"""Whose session an observer may propose to expire (Q5). Pure: time comes in as a number.

No clocks are compared. An observer counts its own keep-alives that were
applied here since the other session's last entry: an outage of the log stops
the observer's own keep-alives too, so it expires nobody. Whoever finds its own
entries more than one and a half beats apart, because it was paused or the log
was away, starts counting anew.

Long before a session is expired it is *silent*: not heard for two beats by an
observer that is heard itself. Nothing but advice follows from that.
"""

from dataclasses import dataclass
from typing import Final

from dray.machine.names import SessionId

BEATS: Final = 3
SILENT_BEATS: Final = 2


@dataclass(slots=True)
class _Silence:
    """What was heard of one session, and the observer's own beats since."""

    last_n: int
    heard_ns: int
    beats: int = 0
    first_ns: int = 0
    last_ns: int = 0


class Observer:
    """One replica's view of how long the others have been silent."""

    def __init__(self, *, ttl_ns: int, beat_ns: int) -> None:
        self._ttl_ns = ttl_ns
        self._beat_ns = beat_ns
        self._others: dict[SessionId, _Silence] = {}
        self._last_beat_ns: int | None = None
        self._last_own_ns: int | None = None

    def heard(self, session: SessionId, n: int, now_ns: int) -> None:
        """An entry of that session was applied here."""
        self._others[session] = _Silence(last_n=n, heard_ns=now_ns)

    def watch(self, session: SessionId, n: int, now_ns: int) -> None:
        """Begin to watch a session, unless it is watched already."""
        self._others.setdefault(session, _Silence(last_n=n, heard_ns=now_ns))

    def clear(self) -> None:
        """Watch nobody: the state was replaced."""
        self._others.clear()
        self._last_beat_ns = self._last_own_ns = None

    def gone(self, session: SessionId) -> None:
        """That session is no more."""
        self._others.pop(session, None)

    def own_entry_applied(self, now_ns: int) -> None:
        """An entry of this replica's own was applied here: at most one beat per keep-alive interval."""
        last_own_ns, self._last_own_ns = self._last_own_ns, now_ns
        if last_own_ns is not None and 2 * (now_ns - last_own_ns) > 3 * self._beat_ns:
            # A beat is late: this process was away, or the log was, perhaps for everyone. What was not heard
            # meanwhile says nothing about the others.
            self.restart(now_ns)
            self._last_beat_ns = None
        if self._last_beat_ns is not None and now_ns - self._last_beat_ns < self._beat_ns:
            return
        self._last_beat_ns = now_ns
        for silence in self._others.values():
            if not silence.beats:
                silence.first_ns = now_ns
            silence.beats += 1
            silence.last_ns = now_ns

    def restart(self, now_ns: int) -> None:
        """Count anew: after a pause, a jump or a reconnect."""
        for silence in self._others.values():
            silence.beats = 0
            silence.heard_ns = now_ns

    def is_silent(self, session: SessionId, now_ns: int) -> bool:
        """Whether that session was not heard for two beats, while this replica heard itself."""
        silence, own_ns = self._others.get(session), self._last_own_ns
        if silence is None or own_ns is None or 2 * (now_ns - own_ns) > 3 * self._beat_ns:
            return False
        return now_ns - silence.heard_ns > SILENT_BEATS * self._beat_ns

    def due(self, *, patience: float = 1.0) -> list[tuple[SessionId, int]]:
        """(session, last n) of those that stayed silent through a ttl of own beats, in order of session."""
        span = int(self._ttl_ns * patience)
        return [
            (session, silence.last_n)
            for session, silence in sorted(self._others.items())
            if silence.beats >= BEATS and silence.last_ns - silence.first_ns >= span
        ]
