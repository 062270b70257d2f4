"""What a client asks of a broker, as a server would hand it to the services."""

import asyncio
from dataclasses import dataclass
from typing import TypeAlias

from dray.errors import DrayError, Unavailable, Unknown
from dray.fetch.errors import OffsetOutOfRange, StreamGone
from dray.fetch.plan import PartitionRead
from dray.fetch.service import Failed
from dray.groups.offsets import CommitCode, OffsetToCommit, Partition
from dray.machine.names import ProducerId, StreamId
from dray.node.services import BrokerServices
from dray.produce.batches import NewBatch, Stored
from dray.records import NewRecord, build_batch

FETCH_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What a client sends: bytes that no other batch has, and its place in a producer's sequence."""

    stream: StreamId
    data: bytes
    records: int
    stamp_ms: int
    producer: int = -1
    sequence: int = -1
    epoch: int = -1

    @property
    def submitted(self) -> NewBatch:
        """As a server gives it to produce."""
        return NewBatch(
            self.stream, memoryview(self.data), self.records, self.stamp_ms, self.stamp_ms,
            ProducerId(self.producer), self.epoch, self.sequence,
        )  # fmt: skip


def make_batch(
    stream: StreamId, value: bytes, records: int, stamp_ms: int, *, producer: int = -1, sequence: int = -1,
    epoch: int = 0,
) -> Batch:  # fmt: skip
    """A real batch whose records have this value, which nobody else uses."""
    epoch = epoch if producer >= 0 else -1
    rows = [NewRecord(value=value, timestamp=stamp_ms)] * records
    data = build_batch(rows, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    return Batch(
        stream=stream, data=data, records=records, stamp_ms=stamp_ms, producer=producer, sequence=sequence, epoch=epoch
    )


Answer: TypeAlias = Stored | DrayError


class NotCommitted(Unavailable):
    """The offset was not committed; nothing happened."""


class CommitUnknown(Unknown):
    """The offset may have been committed."""


class Requests:
    """The requests of clients, in the terms of the simulator."""

    def __init__(self, services: BrokerServices) -> None:
        self.services = services

    async def produce(self, batches: list[Batch]) -> list[Answer]:
        """Hand batches in, in order and at once; what became of each."""
        taken: list[asyncio.Future[Stored] | DrayError] = []
        for batch in batches:
            try:
                await self.services.produce.ready(batch.stream)
                taken.append(self.services.produce.submit(batch.submitted))
            except DrayError as error:
                taken.append(error)
        answers: list[Answer] = []
        for answer in taken:
            try:
                answers.append(answer if isinstance(answer, DrayError) else await answer)
            except DrayError as error:
                answers.append(error)
        return answers

    async def latest(self, stream: StreamId) -> int:
        """The end of a stream; -1 where there is none."""
        try:
            return await self.services.log_offsets.latest(stream)
        except StreamGone:
            return -1

    async def earliest(self, stream: StreamId) -> int:
        """The start of a stream; -1 where there is none."""
        try:
            return await self.services.log_offsets.earliest(stream)
        except StreamGone:
            return -1

    async def read(self, stream: StreamId, offset: int) -> tuple[int, bytes] | None:
        """The start of the batch that holds an offset, and its bytes but for those that a fetch writes."""
        request = PartitionRead(stream=stream, offset=offset, max_bytes=FETCH_BYTES)
        (found,) = await self.services.fetch.fetch([request], min_bytes=1, max_bytes=FETCH_BYTES, max_wait_ms=0)
        if isinstance(found, Failed):
            if isinstance(found.error, OffsetOutOfRange | StreamGone):
                return None
            raise found.error
        if not found.parts:
            return None
        head, rest = found.parts[:2]
        return int.from_bytes(head[:8], "big"), bytes(rest)

    async def commit(self, topic: str, group: str, offset: int) -> None:
        """Remember how far a group has come in the first partition of a topic."""
        partition = Partition(topic=topic, number=0)
        codes = await self.services.offsets.commit(group, {partition: OffsetToCommit(offset=offset)})
        match codes[partition]:
            case CommitCode.COMMITTED:
                return
            case CommitCode.UNSURE:
                raise CommitUnknown("nobody knows whether it was committed", group=group)
            case code:
                raise NotCommitted("not committed", group=group, code=code.name)

    async def committed(self, topic: str, group: str) -> int:
        """How far a group has come; -1 if it has not begun."""
        partition = Partition(topic=topic, number=0)
        return (await self.services.offsets.fetch(group, [partition]))[partition].offset

    async def new_producer(self) -> int:
        """A producer id that nobody has."""
        return await self.services.produce.new_producer()
