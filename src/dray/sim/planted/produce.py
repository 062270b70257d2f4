"""Mistakes between a batch and its answer."""

import asyncio
from collections.abc import Iterable
from typing import Final

from dray.machine.append import Append, pack_rows
from dray.produce.flush import Flush, placed_of
from dray.produce.lane import Lane
from dray.produce.placing import Chunks, Placer, _Attempt
from dray.replica.session import OwnSession

_LOSE: Final = Lane._lose
_LAY_OUT: Final = Placer._lay_out


def overtakes_nobody(self: Lane, failed: Flush) -> None:
    """What waits behind a failed flush is stored all the same."""


def lose_and_delete(self: Lane, group: Iterable[Flush], cause: Exception) -> None:
    """Whoever does not know whether an object is committed deletes it."""
    flushes = list(group)
    for flush in flushes:
        self._placer.discard(placed_of(flush))
    _LOSE(self, flushes, cause)


def lay_out_and_remember(self: Placer, session: OwnSession, chunks: Chunks) -> _Attempt:
    """As it is; what is in an object is kept for the next mistake."""
    attempt = _LAY_OUT(self, session, chunks)
    self.__dict__.setdefault("_chunks", {})[attempt.placed.wal_id] = chunks
    return attempt


async def commit_the_loser(self: Placer, put: "asyncio.Task[None]", loser: _Attempt) -> None:
    """The put that came too late is committed too."""
    await asyncio.wait((put,))
    self._hedging = False
    self._pressure.give_back(loser.placed.size)
    if not loser.written:
        return
    chunks: Chunks = self.__dict__["_chunks"][loser.placed.wal_id]
    rows = [
        (stream, greatest, least, -1, -1, records, len(data), at, -1)
        for (stream, batches), positions in zip(chunks, loser.placed.positions, strict=True)
        for (data, records, least, greatest), at in zip(batches, positions, strict=True)
    ]
    placed = loser.placed
    command = Append(
        wal_id=placed.wal_id, size=placed.size, created_ms=placed.created_ms, zone="", packed=pack_rows(rows)
    )
    await self._replica.propose(command)
