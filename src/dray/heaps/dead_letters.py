"""What operators do to messages: bury them, replay and delete the dead.

Messages are named by their ids and looked for first; "all" means those that
were dead when it began, in slices. Whatever was found may be gone when the
machine looks: that is no mistake, and is told by the counts.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from dray.clock import Clock
from dray.errors import DrayError, Unavailable
from dray.heaps.asking import NOBODY, AskedBy
from dray.heaps.errors import BadMessage, MessageGone, MessageLeased, UnknownHeap
from dray.heaps.ids import MessageId
from dray.heaps.search import find_messages, shard_of
from dray.machine.command import MAX_ROWS
from dray.machine.heaps.answers import ALREADY, DONE, LOST
from dray.machine.heaps.catalog import Heap
from dray.machine.heaps.commands import Buried, Bury, Drop, MessageRef, Moved, Purge, Purged, Replay
from dray.machine.heaps.packets import MAX_NOTE_BYTES
from dray.machine.verdict import Refused, Verdict, Why
from dray.replica.domains import Domains

PACES: Final = 10
"""Slices a second of a replay that is to be slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountMoved:
    """How many messages it was done to, and how many of those asked for it was not."""

    count: int
    left: int = 0


class DeadLetters:
    """What operators ask about the messages of heaps."""

    def __init__(self, *, domains: Domains, clock: Clock) -> None:
        self._domains = domains
        self._clock = clock

    async def bury(
        self, heap: Heap, ids: Collection[MessageId], *, force: bool = False, reason: str = "", by: AskedBy = NOBODY
    ) -> CountMoved:
        """Move messages to the dead; those that are leased only by force. What is dead already counts as done.

        Raises:
            MessageLeased: nothing happened, because consumers hold what was named.
            MessageGone: nothing happened, because there is nothing of what was named.
        """
        found = await find_messages(self._domains, heap, ids)
        done = leased = 0
        if found:
            note = reason.encode()[: MAX_NOTE_BYTES // 4].decode(errors="ignore")
            command = Bury(
                shard=heap.shard, messages=tuple(found.values()), force=force, note=note, actor=by.actor,
                request=by.request,
            )  # fmt: skip
            (verdict,) = await self._domains.of(heap.shard).propose(command)
            if not isinstance(verdict, Buried):
                raise _refusal(heap, verdict)
            done = sum(code in (DONE, ALREADY) for code in verdict.codes)
            leased = verdict.codes.count(LOST)
        if not done and leased:
            raise MessageLeased("a consumer holds it", heap=heap.name, leased=leased)
        if not done:
            raise MessageGone("there is no such message", heap=heap.name)
        return CountMoved(count=done, left=len(set(ids)) - done)

    async def replay(
        self, heap: Heap, ids: Collection[MessageId] | None, *, keep_time: bool = False, priority: int | None = None,
        per_second: int = 0, dry_run: bool = False, by: AskedBy = NOBODY,
    ) -> CountMoved:  # fmt: skip
        """Make dead messages ready again: these, or (None) all that are dead now; at most so many a second.

        Raises:
            MessageGone: nothing of what was named is dead.
            Unavailable, Unknown: some may have been replayed; to ask again is harmless.
        """
        if priority is not None and not -(1 << 63) <= priority < 1 << 63:
            raise BadMessage("a priority is a signed number of 64 bits")
        named, total = await self._dead(heap, ids)
        if dry_run:
            return CountMoved(count=total)
        most = min(MAX_ROWS, max(1, per_second // PACES)) if per_second else MAX_ROWS
        done = 0
        for start in range(0, total, most):
            if start and per_second:
                await self._clock.sleep(most / per_second)
            done += await self._move(
                heap,
                Replay(
                    shard=heap.shard, messages=named[start : start + most], limit=min(most, total - start),
                    keep_time=keep_time, priority=priority, actor=by.actor, request=by.request,
                ),
            )  # fmt: skip
        return CountMoved(count=done, left=(total if ids is None else len(set(ids))) - done)

    async def delete(
        self, heap: Heap, ids: Collection[MessageId] | None, *, dry_run: bool = False, by: AskedBy = NOBODY
    ) -> CountMoved:
        """Delete dead messages: these, or (None) all that are dead now. Errors as of `replay`."""
        named, total = await self._dead(heap, ids)
        if dry_run:
            return CountMoved(count=total)
        done = 0
        for start in range(0, total, MAX_ROWS):
            chosen, limit = named[start : start + MAX_ROWS], min(MAX_ROWS, total - start)
            done += await self._move(
                heap, Drop(shard=heap.shard, messages=chosen, limit=limit, actor=by.actor, request=by.request)
            )
        return CountMoved(count=done, left=(total if ids is None else len(set(ids))) - done)

    async def purge(self, heap: Heap, *, leased: bool = False, dead: bool = False, by: AskedBy = NOBODY) -> int:
        """Delete what has arrived so far; how many messages that were."""
        replica = self._domains.of(heap.shard)
        await replica.sync()
        upto, start, count = shard_of(replica, heap).next_arrival, 0, 0
        while start >= 0:
            command = Purge(
                shard=heap.shard, upto=upto, start=start, include_leased=leased, include_dead=dead, actor=by.actor,
                request=by.request,
            )  # fmt: skip
            (verdict,) = await replica.propose(command)
            if not isinstance(verdict, Purged):
                raise _refusal(heap, verdict)
            count, start = count + verdict.count, verdict.next_start
        return count

    async def _dead(self, heap: Heap, ids: Collection[MessageId] | None) -> tuple[tuple[MessageRef, ...], int]:
        """The dead that are meant, by their names or (none) the oldest, and how many."""
        replica = self._domains.of(heap.shard)
        if ids is None:
            await replica.sync()
            return (), len(shard_of(replica, heap).messages.dead)
        found = await find_messages(self._domains, heap, ids)
        dead = shard_of(replica, heap).messages.dead
        chosen = tuple(ref for ref in found.values() if ref.slot in dead)
        if not chosen:
            raise MessageGone("no dead message has such an id", heap=heap.name)
        return chosen, len(chosen)

    async def _move(self, heap: Heap, command: Replay | Drop) -> int:
        (verdict,) = await self._domains.of(heap.shard).propose(command)
        if not isinstance(verdict, Moved):
            raise _refusal(heap, verdict)
        return verdict.count


def _refusal(heap: Heap, verdict: Verdict) -> DrayError:
    if isinstance(verdict, Refused) and verdict.why in (Why.NOT_FOUND, Why.STATE):
        return UnknownHeap("no such heap", heap=heap.name)
    return Unavailable("the machine refused: try again", verdict=type(verdict).__name__)
