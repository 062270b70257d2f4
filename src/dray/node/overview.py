"""A look at a running broker, for its page and its metrics: from memory, in slices, and changing nothing."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

import dray
from dray.errors import DrayError
from dray.machine.brokers import Broker
from dray.machine.topics import Topic, TopicState
from dray.node import telemetry
from dray.node.addresses import HostPort
from dray.node.plane import Plane
from dray.node.space import DiskWatch, Reading, report
from dray.node.table_gauges import measure_tables
from dray.servers.http.overview import BrokerRow, DiskRow, Overview, PartitionRow, TopicPage, TopicRow
from dray.telemetry import last_warnings

SLICE: Final = 1_000
"""Streams that are looked at before others get a turn."""
TOPIC_SERIES: Final = 1_000
"""Topics with a metric of their own, the largest first: every series costs whoever collects them."""


class BrokerView:
    """What one broker knows of itself and its cluster."""

    def __init__(self, plane: Plane, disks: DiskWatch) -> None:
        self._domains = plane.domains
        self._cluster_id = plane.identity.cluster_id
        self._disks = disks
        self._clock = plane.clock

    async def measure(self) -> None:
        report(await self._reading())
        rows = [row async for row in self._rows("")]
        telemetry.TOPICS.set(len(rows))
        rows.sort(key=lambda row: -row.size_bytes)
        telemetry.TOPIC_BYTES.clear()  # a deleted topic has no size
        for row in rows[:TOPIC_SERIES]:
            telemetry.TOPIC_BYTES.labels(row.name).set(row.size_bytes)
        await measure_tables(self._domains)

    async def overview(self, states: Mapping[str, str], search: str, first: int, count: int) -> Overview:
        reading = await self._reading()
        rows = [row async for row in self._rows(search)]
        catalog = self._domains.catalog
        session = catalog.session
        return Overview(
            version=dray.__version__,
            cluster_id=self._cluster_id,
            now_ms=self._clock.wall_ms(),
            states=states,
            brokers=[
                _broker_row(broker, is_this=session is not None and broker.session == session.id)
                for broker in catalog.machine.brokers.all()
            ],
            disks=[
                DiskRow(
                    what=room.what, path=str(room.path), free_bytes=room.free_bytes, size_bytes=room.size_bytes,
                    is_full=room.is_full(self._disks.reserve_bytes),
                )
                for room in reading.rooms
            ],
            log_bytes=sum(reading.log_bytes.values()),
            entries=sum(replica.machine.position for _, replica in self._domains),
            topics=TopicPage(
                rows=rows[first : first + count], found=len(rows), before=min(first, len(rows)),
                size_bytes=sum(row.size_bytes for row in rows),
            ),
            warnings=last_warnings()[-20:],
        )  # fmt: skip

    async def partitions(self, topic: str, first: int, count: int) -> tuple[int, Sequence[PartitionRow]] | None:
        found = self._domains.catalog.machine.topics.named(topic)
        if found is None or found.state is not TopicState.READY:
            return None
        end = min(found.visible, first + count)
        return found.visible, [self._partition(found, number) for number in range(first, end)]

    async def _reading(self) -> Reading:
        """Nothing, where a disk does not answer: readiness says so, and the rest can still be shown."""
        try:
            return await self._disks.look()
        except DrayError:
            return Reading()

    async def _rows(self, search: str) -> AsyncIterator[TopicRow]:
        looked = 0
        for topic in list(self._domains.catalog.machine.topics.visible()):
            if search not in topic.name:
                continue
            partitions = []
            for number in range(topic.visible):
                partitions.append(self._partition(topic, number))
                looked += 1
                if looked % SLICE == 0:
                    await asyncio.sleep(0)
            yield TopicRow(
                name=topic.name,
                partitions=topic.visible,
                records=sum(row.end - row.start for row in partitions),
                size_bytes=sum(row.size_bytes for row in partitions),
                start=partitions[0].start if partitions else 0,
                end=partitions[0].end if partitions else 0,
            )

    def _partition(self, topic: Topic, number: int) -> PartitionRow:
        stream_id = topic.streams[number]
        found = self._domains.of(stream_id).machine if self._domains.has(stream_id) else None
        stream = None if found is None else found.streams.find(stream_id)
        if stream is None:  # deleted while we looked, or in a domain that is not loaded here
            return PartitionRow(number=number, start=0, end=0, size_bytes=0)
        return PartitionRow(number=number, start=stream.start, end=stream.end, size_bytes=stream.kept_bytes)


def _broker_row(broker: Broker, *, is_this: bool) -> BrokerRow:
    return BrokerRow(
        broker_id=broker.broker_id,
        address=", ".join(str(HostPort(host=one.host, port=one.port)) for one in broker.listeners),
        zone=broker.zone,
        build=broker.build,
        started_ms=broker.started_ms,
        is_this=is_this,
    )
