"""Whose clock tells when a lease is over, after the session that gave it has ended.

A lease lasts until its giver's own clock has seen its duration pass. When the
giver's session has ended, that clock stands; what was left of the lease then
is measured by an heir: the first session that says something about heaps and
had seen the end when it did. What passed in between counts for nobody, so a
lease ends late by that, and never early.

    orphan   a giver that has ended, before anybody took over its leases
    heir     whose clock counts, and what is to be added to an end on the giver's line

An heir that ends becomes an orphan itself, and takes along what it inherited.

Invariants
    L8  No lease ends before its duration has passed: on its giver's clock, or
        on the clocks of those who took over from it.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from dray.machine.names import SessionId
from dray.machine.packing import Reader, Writer
from dray.machine.sessions import Session

KEPT_MS: Final = 13 * 3_600_000
"""Of running time: longer than any lease lasts."""


class LeaseOrphan(NamedTuple):
    clock_ms: int
    """What its clock showed last."""
    position: int
    """Where it ended."""
    running_ms: int


class LeaseHeir(NamedTuple):
    session: SessionId
    later_ms: int
    running_ms: int
    """When the giver ended."""


class LeaseEnd(NamedTuple):
    """When a lease is over, on the line of a session that lives."""

    clock_ms: int
    """What that session's clock shows now."""
    end_ms: int


class LeaseHeirs:
    """The sessions of a domain that gave leases, and who took over from those that ended."""

    __slots__ = ("_givers", "_heirs", "_orphans")

    def __init__(self) -> None:
        self._givers: set[SessionId] = set()
        """Live ones whose clock counts for some lease."""
        self._orphans: dict[SessionId, LeaseOrphan] = {}
        self._heirs: dict[SessionId, LeaseHeir] = {}

    def gave(self, session: SessionId) -> None:
        """A live session gave or prolonged a lease."""
        self._givers.add(session)

    def ended(self, session: SessionId, orphan: LeaseOrphan) -> None:
        if session in self._givers:
            self._givers.discard(session)
            self._orphans[session] = orphan

    def take_over(self, session: SessionId, clock_ms: int, seen: int, running_ms: int) -> None:
        """A live session says something, and had seen the log up to `seen` when it read its clock."""
        for giver in [giver for giver, orphan in self._orphans.items() if orphan.position <= seen]:
            orphan = self._orphans.pop(giver)
            later_ms = clock_ms - orphan.clock_ms
            for heritage, heir in self._heirs.items():
                if heir.session == giver:
                    self._heirs[heritage] = LeaseHeir(session, heir.later_ms + later_ms, heir.running_ms)
            self._heirs[giver] = LeaseHeir(session, later_ms, orphan.running_ms)
            self._givers.add(session)
        past = [giver for giver, heir in self._heirs.items() if heir.running_ms + KEPT_MS < running_ms]
        for giver in past:
            del self._heirs[giver]

    @property
    def has_orphans(self) -> bool:
        return bool(self._orphans)

    def end_of(self, giver: SessionId, end_ms: int, live: Mapping[SessionId, Session]) -> LeaseEnd | None:
        """Where the end of a lease lies on a live session's line; None: nobody's clock counts now."""
        heir = self._heirs.get(giver)
        if heir is not None:
            giver, end_ms = heir.session, end_ms + heir.later_ms
        line = live.get(giver)
        return None if line is None else LeaseEnd(line.clock_ms, end_ms)

    def is_waiting(self, giver: SessionId) -> bool:
        """Has nobody taken over from it yet?"""
        heir = self._heirs.get(giver)
        return (giver if heir is None else heir.session) in self._orphans

    def dump(self, out: Writer) -> None:
        out.values([len(self._givers), len(self._orphans), len(self._heirs)])
        for session in sorted(self._givers):
            out.values([session])
        for session, orphan in sorted(self._orphans.items()):
            out.values([session, *orphan])
        for session, heir in sorted(self._heirs.items()):
            out.values([session, *heir])

    def load(self, source: Reader) -> None:
        givers, orphans, heirs = source.ints(3)
        self._givers = {SessionId(source.row().number()) for _ in range(givers)}
        for _ in range(orphans):
            session, clock_ms, position, running_ms = source.ints(4)
            self._orphans[SessionId(session)] = LeaseOrphan(clock_ms, position, running_ms)
        for _ in range(heirs):
            session, heir, later_ms, running_ms = source.ints(4)
            self._heirs[SessionId(session)] = LeaseHeir(SessionId(heir), later_ms, running_ms)
