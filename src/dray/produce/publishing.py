"""Records to offsets, for whoever does not build batches: partitions chosen, batches built, all rules as for Kafka.

Invariants
    PB1  Records of one call and partition get offsets in the order in which
         they were given.
    PB2  What is refused is refused before anything is stored, and named by
         its place in the call.
"""

import asyncio
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from dray.errors import DrayError
from dray.machine.topics import Topic
from dray.offload import Offload
from dray.produce.batches import NewBatch, Stored
from dray.produce.errors import BadBatch
from dray.produce.intake import Intake
from dray.produce.partitioner import partition_for
from dray.produce.service import ProduceService
from dray.records import InvalidBatch, NewRecord, build_batch
from dray.replica.freshness import Freshness
from dray.topics.errors import UnknownPartition
from dray.topics.service import TopicService

INLINE_RECORDS: Final = 100
INLINE_KEYS: Final = 16 << 10
INLINE_BYTES: Final = 64 << 10
"""More is put together in a thread."""
TIMEOUT_MS: Final = 30_000


class Published(NamedTuple):
    """Where a record lies, or why it does not."""

    partition: int
    offset: int = -1
    error: DrayError | None = None
    repeated: bool = False


class RecordToPublish(NamedTuple):
    """A record, and the partition that its producer chose; None: by its key."""

    record: NewRecord
    partition: int | None = None


class Publisher:
    """Publishes records to topics."""

    def __init__(self, *, topics: TopicService, produce: ProduceService, intake: Intake, offload: Offload) -> None:
        self._topics = topics
        self._produce = produce
        self._intake = intake
        self._offload = offload
        self._turn = 0

    async def publish(
        self, topic: Topic, records: Sequence[RecordToPublish], owner: object, *, fresh: Freshness | None = None
    ) -> list[Published]:
        """Store records, each partition for itself; what became of each record.

        `fresh`: what was synced for the same request (RP20).

        Raises:
            UnknownPartition, InvalidBatch: nothing was stored; `index` says which record is to blame (PB2).
            Overloaded, Stopping: nothing was stored; try again.
        """
        places = await self._placed(topic, records)
        topic = await self._having(topic, places, fresh or Freshness())
        batches = await self._batches(topic, records, places, owner)
        answers: dict[int, asyncio.Future[Stored]] = {}
        failures: dict[int, DrayError] = {}
        for partition, batch in batches.items():
            try:
                await self._produce.ready(batch.stream)
                answers[partition] = self._produce.submit(batch)
                self._produce.deadlines.watch(answers[partition], TIMEOUT_MS)
            except DrayError as error:
                failures[partition] = error
        bases: dict[int, int] = {}
        for partition, answer in answers.items():
            try:
                bases[partition] = (await asyncio.shield(answer)).base_offset
            except DrayError as error:
                failures[partition] = error
        return _told(places, bases, failures, frozenset())

    async def publish_at_once(
        self,
        topic: Topic,
        records: Sequence[RecordToPublish],
        owner: object,
        *,
        expected: Mapping[int, int] | None = None,
        txn_id: str = "",
        fresh: Freshness | None = None,
    ) -> list[Published]:
        """Store all records or none, where partitions end as expected, once for a transaction.

        Raises what `ConditionalAppends.append` and `publish` do.
        """
        places, fresh = await self._placed(topic, records), fresh or Freshness()
        topic = await self._having(topic, places, fresh)
        for partition in expected or {}:
            topic = await self._topics.find_partition(topic, partition, fresh)
        ends = {topic.streams[partition]: end for partition, end in (expected or {}).items()}
        batches = await self._batches(topic, records, places, owner)
        txn = blake2b(txn_id.encode(), digest_size=16, person=b"txn-id").digest() if txn_id else b""
        placements = await self._produce.append_if(list(batches.values()), expected=ends, txn=txn)
        found = dict(zip(batches, placements, strict=True))
        bases = {partition: placement.stored.base_offset for partition, placement in found.items()}
        repeated = frozenset(partition for partition, placement in found.items() if placement.repeated)
        return _told(places, bases, {}, repeated)

    async def _placed(self, topic: Topic, records: Sequence[RecordToPublish]) -> list[int]:
        if len(records) <= INLINE_RECORDS and sum(len(one.record.key or b"") for one in records) <= INLINE_KEYS:
            return self._places(topic, records)
        return await self._offload.run(self._places, topic, records)

    def _places(self, topic: Topic, records: Sequence[RecordToPublish]) -> list[int]:
        """The partition of each record; those without a key go together, to another one each call."""
        if not records:
            raise BadBatch("there are no records")
        self._turn += 1
        places = []
        for record, chosen in records:
            if chosen is not None:
                places.append(chosen)
            elif record.key is not None:
                places.append(partition_for(record.key, topic.visible))
            else:
                places.append(self._turn % topic.visible)
        return places

    async def _having(self, topic: Topic, places: Sequence[int], fresh: Freshness) -> Topic:
        """The topic as it is known when it has all these partitions; `UnknownPartition` only after a sync (TS1)."""
        for partition in dict.fromkeys(places):
            try:
                topic = await self._topics.find_partition(topic, partition, fresh)
            except UnknownPartition as error:
                error.facts["index"] = places.index(partition)  # PB2
                raise
        return topic

    async def _batches(
        self, topic: Topic, records: Sequence[RecordToPublish], places: Sequence[int], owner: object
    ) -> dict[int, NewBatch]:
        """One checked batch for each partition (PB1)."""
        groups: dict[int, list[int]] = {}
        for index, partition in enumerate(places):
            groups.setdefault(partition, []).append(index)
        batches = {}
        for partition, indexes in groups.items():
            data = await self._build([records[index].record for index in indexes])
            try:
                checked = await self._intake.check(topic, topic.streams[partition], data, owner=owner)
            except InvalidBatch as error:
                blamed = error.blamed[0] if error.blamed else 0
                error.facts["index"] = indexes[min(blamed, len(indexes) - 1)]  # PB2
                raise
            batches[partition] = checked.batch
        return batches

    async def _build(self, records: list[NewRecord]) -> bytes:
        size = sum(len(record.value or b"") for record in records)
        if len(records) <= INLINE_RECORDS and size <= INLINE_BYTES:
            return build_batch(records)
        return await self._offload.run(build_batch, records)


def _told(
    places: Sequence[int], bases: Mapping[int, int], failures: Mapping[int, DrayError], repeated: frozenset[int]
) -> list[Published]:
    following = dict(bases)
    told = []
    for partition in places:
        if partition in failures:
            told.append(Published(partition, error=failures[partition]))
            continue
        told.append(Published(partition, following[partition], repeated=partition in repeated))
        following[partition] += 1  # PB1
    return told
