"""One flush becomes one object: named, written, and hedged if the store is slow.

A slow put is tried a second time under another walId with the same batches.
The first to finish is the one that may be committed; the other is deleted
when it finishes. At most one put of a domain is hedged at a time, so a store
that is slow as a whole is not asked for twice the work.

Invariants
    PR4  An own object is deleted only if its put returned and no Append of it
         is or can come into the log; after an unknown outcome it is left.
    PR6  Of a hedged pair at most one is ever proposed.
"""

import asyncio
import statistics
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from dray.buffers import Buffer
from dray.clock import Clock
from dray.errors import DrayError
from dray.machine.names import SessionId, WalId
from dray.objects.paths import ObjectKind, object_path
from dray.objects.port import Objects
from dray.produce import telemetry
from dray.produce.errors import NotStored
from dray.produce.pressure import Pressure
from dray.replica.replica import Replica
from dray.replica.session import OwnSession
from dray.telemetry import logger
from dray.wal import codec
from dray.wal.ids import LogId, wal_id

Chunks: TypeAlias = Sequence[tuple[int, Sequence[codec.Fields]]]
Spawn: TypeAlias = "Callable[[Coroutine[None, None, None]], asyncio.Task[None]]"

_REMEMBERED: Final = 31
_ENOUGH: Final = 5
"""Puts to have seen before one is called slow."""
_SLOW: Final = 3


class WrittenObjects(Protocol):
    """Where objects stay for readers that are close behind. It copies what it keeps of `parts`, if anything."""

    def add(self, path: str, parts: Sequence[Buffer], size: int) -> None: ...


class NoCache:
    """Keeps nothing."""

    def add(self, path: str, parts: Sequence[Buffer], size: int) -> None:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """An object that is durable in the store and not yet in the log."""

    session: SessionId
    wal_id: WalId
    path: str
    size: int
    created_ms: int
    positions: list[list[int]]


@dataclass(slots=True, eq=False)
class _Attempt:
    placed: Placed
    parts: list[Buffer]
    written: bool = False
    error: Exception | None = None


class Placer:
    """Writes the objects of one domain."""

    def __init__(
        self,
        *,
        domain: int,
        replica: Replica,
        objects: Objects,
        written: WrittenObjects,
        zone: str,
        clock: Clock,
        pressure: Pressure,
        hedge_floor_s: float | None,
        spawn: Spawn,
    ) -> None:
        self._domain = domain
        self._replica = replica
        self._objects = objects
        self._written = written
        self._zone = zone
        self._clock = clock
        self._pressure = pressure
        self._hedge_floor_s = hedge_floor_s
        self._spawn = spawn
        self._seconds: deque[float] = deque(maxlen=_REMEMBERED)
        self._hedging = False

    async def place(self, chunks: Chunks) -> Placed:
        """Write one object under a walId of the session that is live now.

        Raises:
            DrayError: no object will be committed; whether one lies in the store does not matter.
        """
        session = self._replica.session
        if session is None or session.exhausted:
            session = await self._replica.open_session()
        attempt = self._lay_out(session, chunks)
        after_s = self._hedge_after_s()
        begun_ns = self._clock.boot_ns()
        if after_s is None:
            await self._objects.put(attempt.placed.path, attempt.parts)
        else:
            attempt = await self._race(attempt, chunks, after_s)
        self._seconds.append((self._clock.boot_ns() - begun_ns) / 1e9)
        telemetry.FLUSH_BYTES.observe(attempt.placed.size)
        # Before the commit: whoever is woken by it looks here first.
        self._written.add(attempt.placed.path, attempt.parts, attempt.placed.size)
        return attempt.placed

    def discard(self, placed: Placed) -> None:
        """Delete an own object that surely is not and will not be in the log (PR4)."""
        self._spawn(self._delete(placed.path))

    def _lay_out(self, session: OwnSession, chunks: Chunks) -> _Attempt:
        log_id = self._replica.machine.log_id
        name = wal_id(LogId(log_id), session.id, session.take_counter())
        created_ms = session.stamp_ms(self._clock.wall_ms(), self._clock.boot_ns())
        encoded = codec.encode(name, self._domain, created_ms, chunks)
        path = object_path(
            ObjectKind.WAL, zone=self._zone, domain=self._domain, created_ms=created_ms, object_id=name
        )  # fmt: skip
        placed = Placed(
            session=session.id, wal_id=WalId(name), path=path, size=encoded.size, created_ms=created_ms,
            positions=encoded.positions,
        )  # fmt: skip
        return _Attempt(placed, encoded.parts)

    # -- hedging -----------------------------------------------------------

    def _hedge_after_s(self) -> float | None:
        if self._hedge_floor_s is None or len(self._seconds) < _ENOUGH:
            return None
        return max(self._hedge_floor_s, _SLOW * statistics.median(self._seconds))

    async def _race(self, first: _Attempt, chunks: Chunks, after_s: float) -> _Attempt:
        timer = self._spawn(self._clock.sleep(after_s))
        put = self._spawn(self._try(first))
        await asyncio.wait((put, timer), return_when=asyncio.FIRST_COMPLETED)
        timer.cancel()
        running = {put: first}
        session = self._replica.session
        if not put.done() and not self._hedging and session is not None and not session.exhausted:
            self._hedging = True
            second = self._lay_out(session, chunks)
            running[self._spawn(self._try(second))] = second
        return await self._winner(first, running)

    async def _winner(self, first: _Attempt, running: "dict[asyncio.Task[None], _Attempt]") -> _Attempt:
        """The first that was written; who is late is deleted when it comes (PR6)."""
        hedged = len(running) > 1
        failure: Exception = NotStored("the put was cut short")
        while running:
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for put in [put for put in running if put.done()]:
                attempt = running.pop(put)
                if attempt.written:
                    if hedged:
                        telemetry.HEDGES.labels("first" if attempt is first else "second").inc()
                    for late, loser in running.items():
                        self._pressure.pin(loser.placed.size)
                        self._spawn(self._outlive(late, loser))
                    return attempt
                failure = attempt.error or failure
                self._hedging = self._hedging and not hedged
        raise failure

    async def _try(self, attempt: _Attempt) -> None:
        try:
            await self._objects.put(attempt.placed.path, attempt.parts)
        except Exception as error:
            attempt.error = error
        else:
            attempt.written = True

    async def _outlive(self, put: "asyncio.Task[None]", loser: _Attempt) -> None:
        """Wait for the put that lost, then remove what it wrote."""
        try:
            await asyncio.wait((put,))
        finally:
            self._hedging = False
            self._pressure.give_back(loser.placed.size)
        if loser.written:
            await self._delete(loser.placed.path)

    async def _delete(self, path: str) -> None:
        try:
            await self._objects.delete(path)
        except DrayError as error:
            telemetry.ORPHANS.labels("left").inc()
            logger().info(telemetry.ORPHAN_LEFT, path=path, error=str(error))
        else:
            telemetry.ORPHANS.labels("deleted").inc()
