"""Bodies of a shard become one object: named, written, and removed if it is of no use."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from dray.buffers import Buffer
from dray.clock import Clock
from dray.errors import DrayError
from dray.machine.names import SessionId, StreamId, WalId
from dray.objects.paths import ObjectKind, object_path
from dray.objects.port import Objects
from dray.replica.replica import Replica
from dray.wal import codec
from dray.wal.ids import LogId, wal_id

ONE_RECORD: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedBodies:
    """An object that is durable in the store and not yet in the log."""

    session: SessionId
    wal_id: WalId
    path: str
    size: int
    created_ms: int
    positions: list[int]


class BodyPlacer:
    """Writes the objects of one domain's heaps."""

    def __init__(self, *, domain: int, replica: Replica, objects: Objects, zone: str, clock: Clock) -> None:
        self.zone = zone
        self._domain = domain
        self._replica = replica
        self._objects = objects
        self._clock = clock

    async def place(self, shard: StreamId, bodies: Sequence[Buffer]) -> PlacedBodies:
        """Write one object under a walId of the session that is live now.

        Raises:
            DrayError: no object will be committed; whether one lies in the store does not matter.
        """
        return await self._put(shard, lambda created_ms: [_one_record(body, created_ms) for body in bodies])

    async def place_batches(self, stream: StreamId, batches: Sequence[codec.Batch]) -> PlacedBodies:
        """The same for batches of records of a stream."""
        return await self._put(stream, lambda _: batches)

    async def _put(self, stream: StreamId, batches_at: "Callable[[int], Sequence[codec.Batch]]") -> PlacedBodies:
        session = await self._replica.open_session()
        name = wal_id(LogId(self._replica.machine.log_id), session.id, session.take_counter())
        created_ms = session.stamp_ms(self._clock.wall_ms(), self._clock.boot_ns())
        encoded = codec.encode(name, self._domain, created_ms, [(stream, batches_at(created_ms))])
        path = object_path(
            ObjectKind.WAL, zone=self.zone, domain=self._domain, created_ms=created_ms, object_id=name
        )  # fmt: skip
        await self._objects.put(path, encoded.parts)
        return PlacedBodies(
            session=session.id, wal_id=name, path=path, size=encoded.size, created_ms=created_ms,
            positions=encoded.positions[0],
        )  # fmt: skip

    async def discard(self, placed: PlacedBodies) -> None:
        """Delete an own object that surely is not and will not be in the log; an orphan is swept otherwise."""
        try:
            await self._objects.delete(placed.path)
        except DrayError:
            return


def _one_record(body: Buffer, created_ms: int) -> codec.Batch:
    return codec.Batch(body, ONE_RECORD, created_ms, created_ms)
