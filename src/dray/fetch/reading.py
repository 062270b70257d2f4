"""Records of a partition, one by one: for whoever does not speak batches.

What is read is a function of the offsets that are asked for: a read up to a
version that exists gives the same records for ever, or says that the log
start has passed them.

Invariants
    RR1  A read gives the records from its offset on, without a gap but those
         in the log, up to its limits; the limits are counted in records and
         their bytes, never in what the store gave at once.
    RR2  "Below the log start", "beyond the end" and "no such stream" are said
         after a sync.
"""

from dataclasses import dataclass
from itertools import chain
from typing import Final

from dray.buffers import Buffer
from dray.errors import DrayError
from dray.fetch.errors import AboveEnd, BelowStart, DamagedObject, OffsetOutOfRange, StreamGone
from dray.fetch.plan import PartitionRead
from dray.fetch.service import Failed, FetchService
from dray.machine.names import StreamId
from dray.machine.stream import Stream
from dray.offload import Offload
from dray.records import InvalidBatch, Record, batches, records_of

FETCH_BYTES: Final = 1 << 20
INLINE_BYTES: Final = 16 << 10
"""More is taken apart in a thread."""
RECORD_OVERHEAD: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Records, and the offset to go on from."""

    records: list[Record]
    next_offset: int


class RecordReads:
    """Reads records of partitions."""

    def __init__(self, fetch: FetchService, offload: Offload) -> None:
        self._fetch = fetch
        self._offload = offload

    async def bounds(self, stream: StreamId) -> tuple[int, int]:
        """The log start and the end, after a sync."""
        replica = self._fetch.planner.replica_of(stream)
        await replica.sync()
        found = self._find(stream)
        return found.start, found.end

    async def read(
        self, stream: StreamId, offset: int, *, max_records: int, max_bytes: int, wait_ms: int = 0,
        before: int | None = None,
    ) -> Records:  # fmt: skip
        """Records from an offset on, below `before`; waits for the first of them (RR1).

        Raises:
            BelowStart, AboveEnd: the offset, or `before`, is not in the log (RR2).
        """
        if before is not None:
            await self._check_version(stream, offset, before)
        found: list[Record] = []
        size, at = 0, offset
        while len(found) < max_records and size < max_bytes and (before is None or at < before):
            fetched = await self._fetch_some(stream, at, 0 if found else wait_ms)
            if not fetched:
                break
            for record in await self._decode(fetched):
                if record.offset < at or (before is not None and record.offset >= before):
                    continue
                size += _size(record)
                if found and size > max_bytes:
                    return Records(records=found, next_offset=at)
                found.append(record)
                at = record.offset + 1
                if len(found) >= max_records:
                    break
            else:
                at = max(at, _end_of(fetched))
        end = at if before is None else min(at, before)
        return Records(records=found, next_offset=end)

    async def _check_version(self, stream: StreamId, offset: int, before: int) -> None:
        """A version that does not exist is not promised."""
        replica = self._fetch.planner.replica_of(stream)
        seen = replica.machine.streams.find(stream) if replica.is_loaded else None
        if seen is None or before > seen.end or offset < seen.start:
            await replica.sync()
        known = self._find(stream)
        if offset < known.start:
            raise BelowStart("the log start has passed the offset", offset=offset, log_start=known.start)
        if before > known.end or offset > before:
            raise AboveEnd("there is no such version", version=known.end)

    async def _fetch_some(self, stream: StreamId, offset: int, wait_ms: int) -> bytes:
        """Whole batches, or nothing at the end."""
        read = PartitionRead(stream=stream, offset=offset, max_bytes=FETCH_BYTES)
        (answer,) = await self._fetch.fetch([read], min_bytes=1, max_bytes=FETCH_BYTES, max_wait_ms=wait_ms)
        if isinstance(answer, Failed):
            raise self._meaning(stream, offset, answer.error)
        return b"".join(answer.parts)

    def _meaning(self, stream: StreamId, offset: int, error: DrayError) -> DrayError:
        if not isinstance(error, OffsetOutOfRange):
            return error
        known = self._find(stream)
        if offset < known.start:
            return BelowStart("the log start has passed the offset", offset=offset, log_start=known.start)
        return AboveEnd("the offset is beyond the end", offset=offset, version=known.end)

    def _find(self, stream: StreamId) -> Stream:
        found = self._fetch.planner.replica_of(stream).machine.streams.find(stream)
        if found is None or found.closed:
            raise StreamGone("the stream does not exist", stream=stream)
        return found

    async def _decode(self, data: bytes) -> list[Record]:
        try:
            if len(data) <= INLINE_BYTES:
                return _records(data)
            return await self._offload.run(_records, data)
        except InvalidBatch as error:
            raise DamagedObject("a stored batch cannot be read") from error


def _records(data: Buffer) -> list[Record]:
    return list(chain.from_iterable(records_of(batch) for batch in batches(data)))


def _end_of(data: Buffer) -> int:
    """The offset behind the last batch."""
    *_, last = batches(data)
    return last.base_offset + last.last_offset_delta + 1


def _size(record: Record) -> int:
    """What counts of a record: the same at every read."""
    headers = sum(len(name.encode()) + len(value or b"") for name, value in record.headers)
    return RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"") + headers
