"""Records that fail too often go to a topic of their own, once each.

Invariants
    CO6  A record is in its dead-letter topic before it counts as settled, and
         once, however often it is tried: the append has a transaction named
         after group, topic, partition and offset.
"""

from hashlib import blake2b
from typing import Final

from dray.consume import telemetry
from dray.machine.topics import Topic
from dray.produce.intake import Intake
from dray.produce.service import ProduceService
from dray.records import NewRecord, Record, build_batch
from dray.topics.errors import TopicExists, UnknownTopic
from dray.topics.service import NewTopic, TopicService

PREFIX: Final = "dlq."
MAX_ERROR: Final = 1_024


class Burial:
    """Moves records to dead-letter topics."""

    def __init__(self, *, topics: TopicService, produce: ProduceService, intake: Intake) -> None:
        self._topics = topics
        self._produce = produce
        self._intake = intake

    async def bury(self, group: str, topic: Topic, partition: int, record: Record, attempts: int, error: str) -> None:
        """Write a record to the dead-letter topic of its topic (CO6)."""
        grave = await self._grave(topic)
        headers = (
            *record.headers,
            ("dray-topic", topic.name.encode()),
            ("dray-partition", str(partition).encode()),
            ("dray-offset", str(record.offset).encode()),
            ("dray-group", group.encode()),
            ("dray-attempts", str(attempts).encode()),
            ("dray-error", error.encode()[:MAX_ERROR]),
        )
        dead = NewRecord(record.key, record.value, record.timestamp, headers)
        checked = await self._intake.check(grave, grave.streams[0], build_batch([dead]), owner=self)
        name = b"\0".join((group.encode(), topic.id, str(partition).encode(), str(record.offset).encode()))
        await self._produce.append_if([checked.batch], txn=blake2b(name, digest_size=16, person=b"burial").digest())
        telemetry.BURIED.inc()

    async def _grave(self, topic: Topic) -> Topic:
        name = f"{PREFIX}{topic.name}"[:249]
        try:
            return await self._topics.find(name)
        except UnknownTopic:
            pass
        wanted = NewTopic(name=name, partitions=1, replication_factor=1, configs={})
        try:
            return await self._topics.create(wanted)
        except TopicExists:
            return await self._topics.find(name)
