"""Tables that somebody else has changed: said once, left alone, and looked at now and then.

The mark is in the log, so every compactor knows of it and brokers show it. A
table that is marked costs a look at its catalog each minute, and nothing else:
its records are not compacted, its files not removed. When the look finds it
mended, or it was made anew, the mark goes.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

from dray.clock import Clock
from dray.errors import DrayError
from dray.machine.names import TopicId, domain_of
from dray.machine.table_marks import MAX_PROBLEM, MarkTable
from dray.machine.topics import Topic
from dray.offload import Offload
from dray.pipeline.compactor import telemetry
from dray.pipeline.compactor.rebuild import Rebuilder
from dray.replica.replica import Replica
from dray.tables.errors import TableStands, TableTaken
from dray.tables.fence import Range
from dray.tables.table import TableOwner, TopicTables
from dray.telemetry import logger

LOOK_NS: Final = 60_000_000_000
PROBLEMS: Final = (TableStands, TableTaken)
"""What keeps a table from going on until somebody has looked at it."""


class StandingTables:
    """Which tables stand still, and why."""

    def __init__(
        self,
        replicas: Mapping[int, Replica],
        tables: TopicTables,
        offload: Offload,
        clock: Clock,
        cluster_id: str,
        rebuilder: Rebuilder,
    ) -> None:
        self._replicas = replicas
        self._tables = tables
        self._offload = offload
        self._clock = clock
        self._cluster_id = cluster_id
        self._rebuilder = rebuilder
        self._looked_ns: dict[TopicId, int] = {}

    def stands(self, topic_id: bytes) -> bool:
        return self._replicas[0].machine.table_marks.find(TopicId(topic_id)) is not None

    async def mark(self, topic: TableOwner, error: DrayError) -> None:
        """It stands still from here on; said once for each reason."""
        problem = str(error)[:MAX_PROBLEM]
        known = self._replicas[0].machine.table_marks.find(TopicId(topic.topic_id))
        if known is None or known.problem != problem:
            logger().error(telemetry.STANDS, topic=topic.name, reason=problem, next=error.advice)
            await self._replicas[0].propose(MarkTable(topic_id=TopicId(topic.topic_id), problem=problem))
        self._looked_ns[TopicId(topic.topic_id)] = self._clock.boot_ns()

    async def clear(self, topic: TableOwner) -> None:
        """It goes on."""
        if self.stands(topic.topic_id):
            logger().info(telemetry.MENDED, topic=topic.name)
            await self._replicas[0].propose(MarkTable(topic_id=TopicId(topic.topic_id), problem=""))

    async def look(self, name: str | None = None) -> None:
        """At those that stand still: has somebody mended one? Of one topic at once, else now and then."""
        machine, now_ns = self._replicas[0].machine, self._clock.boot_ns()
        for topic_id in list(machine.table_marks.by_topic):
            topic = machine.topics.find(topic_id)
            looked_ns = self._looked_ns.get(topic_id)
            waits = looked_ns is not None and now_ns < looked_ns + LOOK_NS
            if topic is not None and (topic.name == name if name is not None else not waits):
                self._looked_ns[topic_id] = now_ns
                await self.check(topic)

    async def check(self, topic: Topic) -> None:
        """Look at one table, and mark it or take its mark away.

        Raises:
            CatalogUnavailable: nobody knows.
        """
        owner = TableOwner(name=topic.name, topic_id=topic.id, cluster_id=self._cluster_id)
        try:
            had_rows = self._rebuilder.has_kept(topic.id)
            await self._offload.run(partial(self._tables.check, owner, self._ranges(topic), had_rows=had_rows))
        except PROBLEMS as error:
            await self.mark(owner, error)
        else:
            await self.clear(owner)

    def _ranges(self, topic: Topic) -> list[Range]:
        """What each partition would go on with."""
        found = []
        for number in topic.streams[: topic.visible]:
            machine = self._replicas[domain_of(number)].machine
            stream = machine.streams.find(number)
            if stream is None or stream.closed:
                continue
            hot = machine.streams.first_hot(stream)
            if hot:
                start = stream.index.end_of(hot)
                found.append(Range(partition=stream.partition, start=start, end=start + 1, floor=stream.start))
        return found
