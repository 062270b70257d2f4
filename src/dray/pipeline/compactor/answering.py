"""What is asked about one table, beside a running broker or with none: its state, whether it is right, to mend it."""

import asyncio
from collections.abc import Mapping
from typing import Final

from dray.clock import Clock
from dray.errors import Invalid
from dray.machine.topics import Topic
from dray.offload import Offload
from dray.pipeline.compactor import telemetry
from dray.pipeline.compactor.rebuild import Rebuilder
from dray.pipeline.compactor.spark import SparkJobs
from dray.pipeline.compactor.standing import StandingTables
from dray.pipeline.compactor.status import status_of, topic_of
from dray.pipeline.compactor.verify import files_seen, verify
from dray.replica.replica import Replica
from dray.tables.options import CompactorOptions, PartitionStatus, Said, TableReached, TableRebuilt, TableStatus
from dray.tables.table import TableOwner, TopicTables
from dray.telemetry import logger

LOOK_S: Final = 0.5
_SECOND_NS: Final = 1_000_000_000


class TableAnswers:
    """Answers one question about the table of a topic."""

    def __init__(
        self,
        options: CompactorOptions,
        replicas: Mapping[int, Replica],
        tables: TopicTables,
        spark: SparkJobs,
        standing: StandingTables,
        rebuilder: Rebuilder,
        offload: Offload,
        clock: Clock,
        cluster_id: str,
    ) -> None:
        self._options = options
        self._replicas = replicas
        self._tables = tables
        self._spark = spark
        self._standing = standing
        self._rebuilder = rebuilder
        self._offload = offload
        self._clock = clock
        self._cluster_id = cluster_id

    async def answer(self, stopped: asyncio.Event) -> tuple[Said, int]:
        """What to say, and the exit code; waiting ends with `stopped`."""
        for replica in self._replicas.values():
            await replica.sync()
        topic = topic_of(self._replicas, self._options.topic or "")
        match self._options.ask:
            case "verify":
                return await self._verify(topic)
            case "rebuild":
                return await self._rebuild(topic)
            case "wait":
                return await self._wait(topic, stopped)
            case _:
                status = await self._status(topic)
                return status, 1 if status.problem else 0

    async def _status(self, topic: Topic) -> TableStatus:
        return await self._offload.run(status_of, self._replicas, self._tables, topic, self._cluster_id)

    async def _verify(self, topic: Topic) -> tuple[Said, int]:
        status = await self._status(topic)
        names = await self._offload.run(self._tables.file_names, self._owner(topic))
        seen = files_seen([replica.machine for replica in self._replicas.values()], names)
        found = await self._offload.run(
            self._spark.use, lambda session: verify(session, self._options.data, self._spark.address, seen, status)
        )
        return found, 0 if found.equal else 1

    async def _rebuild(self, topic: Topic) -> tuple[Said, int]:
        done = await self._rebuilder.run(topic)
        await self._standing.clear(self._owner(topic))
        logger().info(telemetry.REBUILT, topic=topic.name, added=done.added, removed=done.removed, kept=done.kept)
        return TableRebuilt(topic=topic.name, added=done.added, removed=done.removed, kept=done.kept), 0

    async def _wait(self, topic: Topic, stopped: asyncio.Event) -> tuple[Said, int]:
        """Until the table has come so far, stands still, or time is up."""
        deadline_ns = self._clock.boot_ns() + int(self._options.timeout_s * _SECOND_NS)
        status = await self._status(topic)
        wanted = self._wanted(status)
        ended = asyncio.ensure_future(stopped.wait())
        try:
            while True:
                behind = [one for one in status.partitions if one.table_end < wanted.get(one.partition, 0)]
                left_s = (deadline_ns - self._clock.boot_ns()) / _SECOND_NS
                if not behind or status.problem or left_s <= 0 or ended.done():
                    said = TableReached(topic=topic.name, reached=not behind, behind=behind, problem=status.problem)
                    return said, 1 if behind else 0
                await asyncio.wait((ended,), timeout=min(LOOK_S, left_s))
                topic = topic_of(self._replicas, topic.name)
                status = await self._status(topic)
        finally:
            ended.cancel()

    def _wanted(self, status: TableStatus) -> dict[int, int]:
        """The end that each partition is waited for."""
        one = self._options.partition
        partitions = [found for found in status.partitions if one is None or found.partition == one]
        if not partitions:
            raise Invalid("the topic has no such partition", topic=status.topic, partition=one)
        return {found.partition: self._end(found) for found in partitions}

    def _end(self, found: PartitionStatus) -> int:
        return found.log_end if self._options.offset is None else self._options.offset + 1

    def _owner(self, topic: Topic) -> TableOwner:
        return TableOwner(name=topic.name, topic_id=topic.id, cluster_id=self._cluster_id)
