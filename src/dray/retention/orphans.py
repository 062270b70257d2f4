"""Orphans: objects that were put and never committed, found by their names.

A WAL id names its log and its session, and so does the id of a file that a
compactor wrote. What an ended session had not committed when it ended can
never be committed any more (Q3), so an object that the machine does not know is
garbage once its session has ended: no marker is needed, and the age of the
object does not matter.

A sweep lists the store once for all domains in which it is this process's
turn. It fixes the sessions that it is about before it begins to list, and
says `Swept` of those whose orphans are all gone when the list has ended.

Invariants
    RT7  Only an object of this very log, of a session that ended at least
         `orphan_ttl` of machine time ago, which the machine does not know, is
         deleted; nothing while time is paused.
    RT8  An object of another log, or with a name that is not ours, is
         counted and reported, and never touched.
    RT9  A session is swept only after a whole list, and only if every orphan
         of it that was found is gone.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from dray.clock import Clock
from dray.errors import DrayError
from dray.machine.machine import Machine
from dray.machine.names import LogId, SessionId, parse_wal_id
from dray.machine.sessions import Swept
from dray.objects.paths import FILES_PREFIX, WAL_PREFIX, BadName, owner_of
from dray.objects.port import ObjectInfo, Objects
from dray.replica.domains import Domains
from dray.replica.replica import Replica
from dray.retention import telemetry
from dray.retention.deletion import delete_all
from dray.retention.settings import RetentionSettings, millis
from dray.telemetry import logger

PAGE: Final = 1_000
"""Names that are judged together."""
PAUSE_S: Final = 0.05
"""Between two pages: a sweep is never in a hurry."""
MAX_SESSIONS: Final = 100
"""Sessions that one sweep is about, in each domain; the oldest come first."""
MAX_LOGS_TOLD: Final = 5


@dataclass(slots=True)
class Findings:
    """What a sweep has seen so far."""

    deleted: int = 0
    left: int = 0
    """Orphans that wait for their time, or that could not be deleted."""
    foreign: int = 0
    logs: set[str] = field(default_factory=set)
    """Of foreign objects; at most `MAX_LOGS_TOLD`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """An object of this log and of a session that this sweep is about."""

    info: ObjectInfo
    session: SessionId
    counter: int


class Domain:
    """One domain of a sweep: its ended sessions, and what the machine knows of each."""

    def __init__(self, replica: Replica, orphan_ttl_ms: int) -> None:
        machine = replica.machine
        self.replica = replica
        self.log_id = machine.log_id
        ended = sorted(machine.sessions.ended.values(), key=lambda session: session.id)[:MAX_SESSIONS]
        self.due = {
            session.id
            for session in ended
            if not machine.timeline.paused and session.time_ms + orphan_ttl_ms <= machine.time_ms
        }
        self.waiting = {session.id for session in ended} - self.due
        self.unswept: set[SessionId] = set()
        """Sessions of which an orphan could not be deleted (RT9)."""
        self._known: dict[tuple[LogId, SessionId], set[int]] = {}

    def knows(self, log_id: LogId, session: SessionId, counter: int) -> bool:
        """Did the machine know the object? What an ended session has committed can only become less."""
        counters = self._known.get((log_id, session))
        if counters is None:
            if len(self._known) > MAX_SESSIONS:
                self._known.clear()
            counters = self._known[log_id, session] = self.replica.machine.objects.counters_of(log_id, session)
        return counter in counters


class Orphans:
    """Sweeps the store."""

    def __init__(self, *, domains: Domains, store: Objects, clock: Clock, settings: RetentionSettings) -> None:
        self._domains = domains
        self._store = store
        self._clock = clock
        self._ttl_ms = millis(settings.orphan_ttl)
        self._in_flight = settings.deletes_in_flight
        self._has_looked = False

    async def run(self, mine: Sequence[tuple[int, Replica]]) -> Findings | None:
        """Sweep the domains whose turn is ours, if there is anything to look for.

        The first sweep of a process lists the store in any case: that is when foreign objects are noticed.
        """
        swept = {}
        for number, replica in mine:
            with self._telling(number):
                await replica.sync()
                swept[number] = Domain(replica, self._ttl_ms)
        if not swept or (self._has_looked and not any(domain.due for domain in swept.values())):
            return None
        findings = Findings()
        async for page in self._pages():
            await self._judge(swept, page, findings)
        self._has_looked = True
        self._tell(findings)
        for number, domain in swept.items():
            sessions = tuple(sorted(domain.due - domain.unswept))
            if sessions:
                with self._telling(number):
                    await domain.replica.propose(Swept(sessions=sessions))  # RT9
        return findings

    @contextmanager
    def _telling(self, domain: int) -> Iterator[None]:
        """A domain that fails hinders no other (RT10)."""
        try:
            yield
        except DrayError as error:
            logger().warning(telemetry.FAILED, step="sweep", domain=domain, error=str(error))

    async def _pages(self) -> AsyncIterator[list[ObjectInfo]]:
        page: list[ObjectInfo] = []
        for prefix in (WAL_PREFIX, FILES_PREFIX):
            async for info in self._store.list(prefix):
                page.append(info)
                if len(page) >= PAGE:
                    yield page
                    page = []
                    await self._clock.sleep(PAUSE_S)
        yield page

    async def _judge(self, swept: dict[int, Domain], page: list[ObjectInfo], findings: Findings) -> None:
        suspects: dict[int, list[Suspect]] = {}
        for info in page:
            self._sort(swept, info, findings, suspects)
        await asyncio.sleep(0)
        for number, found in suspects.items():
            domain, left = swept[number], {suspect.session for suspect in found}
            with self._telling(number):
                left = await self._delete(domain, found, findings)
            domain.unswept |= left  # RT9

    def _sort(
        self, swept: dict[int, Domain], info: ObjectInfo, findings: Findings, suspects: dict[int, list[Suspect]]
    ) -> None:
        try:
            number, object_id = owner_of(info.path)
        except BadName:
            _count_foreign(findings, "")  # RT8
            return
        machine = self._machine(number)
        if machine is None:
            if number > self._domains.catalog.machine.head.domains:
                _count_foreign(findings, "")  # RT8
            return  # a domain that is not served here
        parts = parse_wal_id(object_id)
        domain = swept.get(number)
        if parts.log_id != machine.log_id:
            # A log that was recovered knows objects of the one before.
            if domain is None or not domain.knows(parts.log_id, parts.session, parts.counter):
                _count_foreign(findings, parts.log_id.hex())  # RT8
        elif domain is not None and parts.session in domain.due:
            suspect = Suspect(info=info, session=parts.session, counter=parts.counter)
            suspects.setdefault(number, []).append(suspect)
        elif domain is not None and parts.session in domain.waiting:
            findings.left += not domain.knows(parts.log_id, parts.session, parts.counter)

    def _machine(self, domain: int) -> Machine | None:
        return next((replica.machine for number, replica in self._domains if number == domain), None)

    async def _delete(self, domain: Domain, suspects: list[Suspect], findings: Findings) -> set[SessionId]:
        """Delete the orphans among the suspects; returns the sessions that have some left."""
        await domain.replica.sync()  # a log that lost entries is noticed here, before anything is deleted
        machine = domain.replica.machine
        ended = all(machine.sessions.is_ended(suspect.session) for suspect in suspects)
        if machine.log_id != domain.log_id or machine.timeline.paused or not ended:
            return {suspect.session for suspect in suspects}  # RT7
        orphans = [
            suspect for suspect in suspects if not domain.knows(domain.log_id, suspect.session, suspect.counter)
        ]  # RT7
        paths = [orphan.info.path for orphan in orphans]
        gone = await delete_all(self._store, paths, in_flight=self._in_flight)
        deleted = [orphan for orphan, is_gone in zip(orphans, gone, strict=True) if is_gone]
        telemetry.DELETED.labels("orphan").inc(len(deleted))
        telemetry.DELETED_BYTES.labels("orphan").inc(sum(orphan.info.size for orphan in deleted))
        findings.deleted += len(deleted)
        findings.left += len(orphans) - len(deleted)
        return {orphan.session for orphan, is_gone in zip(orphans, gone, strict=True) if not is_gone}

    def _tell(self, findings: Findings) -> None:
        telemetry.ORPHANS.set(findings.left)
        telemetry.FOREIGN_OBJECTS.set(findings.foreign)
        if findings.deleted:
            logger().info(telemetry.SWEPT, deleted=findings.deleted, left=findings.left)
        if findings.foreign:
            logger().warning(telemetry.FOREIGN, count=findings.foreign, logs=sorted(findings.logs))


def _count_foreign(findings: Findings, log_id: str) -> None:
    findings.foreign += 1
    if log_id and len(findings.logs) < MAX_LOGS_TOLD:
        findings.logs.add(log_id)
