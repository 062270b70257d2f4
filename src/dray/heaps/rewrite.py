"""One old message does not keep a whole object for ever.

Bodies that still live are copied out of objects that are mostly dead, the
deadest first, until the objects that rows name hold at most twice the bodies
that live and a little more. An object that nobody names any more goes by the
way of all objects. Whoever copies writes less than it frees.

Invariants
    HB4  Objects that messages name hold at most twice the bodies that live,
         and `rewrite_slack_bytes`, after a look.
"""

import asyncio
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from dray.clock import Clock
from dray.errors import DrayError
from dray.heaps import telemetry
from dray.heaps.peek import as_granted
from dray.heaps.placing import BodyPlacer
from dray.heaps.policy import HeapPolicy
from dray.heaps.present import is_oldest
from dray.heaps.reading import BodyReader
from dray.heaps.search import SLICE
from dray.heaps.spill import MovingBody, move_bodies
from dray.machine.command import MAX_ROWS
from dray.machine.heaps.rows import FREE, SIZE
from dray.machine.names import ObjectId, StreamId
from dray.replica.replica import Replica
from dray.telemetry import logger

_PLACED: Final = struct.Struct("<B7xI24xQ32x")
assert _PLACED.size == SIZE, "where a body lies is part of a row"
_HALF: Final = 2


class _Named(NamedTuple):
    """An object that rows name."""

    shard: StreamId
    size: int
    live: int
    """Bytes of bodies that are still somebody's."""


class Rewriter:
    """Copies what lives out of the objects of one domain's heaps that are mostly dead."""

    def __init__(
        self, *, replica: Replica, placer: BodyPlacer, reader: BodyReader, clock: Clock, policy: HeapPolicy
    ) -> None:
        self._replica = replica
        self._placer = placer
        self._reader = reader
        self._clock = clock
        self._policy = policy

    async def run(self) -> None:
        """For ever."""
        while True:
            await self._clock.sleep(self._policy.rewrite_every_ms / 1_000)
            try:
                if is_oldest(self._replica):
                    await self.step()
            except DrayError as error:
                logger().warning(telemetry.UPKEEP_FAILED, error=str(error))

    async def step(self) -> int:
        """One look (HB4); how many bodies moved."""
        named = await self._named()
        live = sum(one.live for one in named.values())
        excess = sum(one.size for one in named.values()) - 2 * live - self._policy.rewrite_slack_bytes
        dying = sorted((one.live / one.size, place) for place, one in named.items() if one.live * _HALF < one.size)
        chosen: dict[StreamId, list[int]] = {}
        for _, place in dying:
            if excess <= 0:
                break
            excess -= named[place].size - named[place].live
            chosen.setdefault(named[place].shard, []).append(place)
        moved = 0
        for shard, places in chosen.items():
            moved += await self._rewrite(shard, set(places))
        return moved

    async def _named(self) -> dict[int, _Named]:
        """What rows name, by place, from a look at all of them in slices."""
        live: dict[tuple[StreamId, int], int] = {}
        for number in [shard.id for shard in self._replica.machine.heaps if not shard.closed]:
            for start in range(0, self._slots(number), SLICE):
                for _, place, length in self._slice(number, start):
                    live[number, place] = live.get((number, place), 0) + length
                await asyncio.sleep(0)
        found = {}
        for (number, place), size in live.items():
            record = self._replica.machine.objects.find(ObjectId(place - 1))
            if record is not None and record.size:
                found[place] = _Named(number, record.size, size)
        return found

    async def _rewrite(self, shard: StreamId, places: set[int]) -> int:
        """Copy what still lies in some objects, a few megabytes at a time."""
        slots: list[int] = []
        for start in range(0, self._slots(shard), SLICE):
            slots += [slot for slot, place, _ in self._slice(shard, start) if place in places]
            await asyncio.sleep(0)
        moved = 0
        while slots:
            part = [slots.pop()]
            size = self._length(shard, part[0])
            while slots and len(part) < MAX_ROWS and size < self._policy.spill_bytes:
                part.append(slots.pop())
                size += self._length(shard, part[-1])
            moved += await self._copy(shard, part, places)
        return moved

    async def _copy(self, shard: StreamId, slots: Sequence[int], places: set[int]) -> int:
        found = self._replica.machine.heaps.find(shard)
        if found is None or found.closed:
            return 0
        rows = found.messages.rows
        wanted = [
            as_granted(slot, rows.read(slot), None)
            for slot in slots
            if slot < rows.slots and rows.state(slot) != FREE and rows.place(slot) in places
        ]
        bodies = await self._reader.read(wanted)
        moving = []
        for one in wanted:
            body = bodies[one.slot]
            if not isinstance(body, DrayError):  # whoever is granted it will tell
                moving.append(MovingBody(one.slot, one.arrival, body))
        return await move_bodies(self._replica, self._placer, shard, moving, "rewrite") if moving else 0

    def _slots(self, shard: StreamId) -> int:
        found = self._replica.machine.heaps.find(shard)
        return 0 if found is None or found.closed else found.messages.rows.slots

    def _length(self, shard: StreamId, slot: int) -> int:
        return self._replica.machine.heaps.all[shard].messages.rows.length(slot) if slot < self._slots(shard) else 0

    def _slice(self, shard: StreamId, start: int) -> list[tuple[int, int, int]]:
        """Slot, place and length of the bodies that lie in objects, in one slice of rows."""
        found = self._replica.machine.heaps.find(shard)
        if found is None:
            return []
        part = bytes(memoryview(found.messages.rows.data)[start * SIZE : (start + SLICE) * SIZE])
        return [
            (slot, place, length)
            for slot, (state, length, place) in enumerate(_PLACED.iter_unpack(part), start)
            if state != FREE and place
        ]
