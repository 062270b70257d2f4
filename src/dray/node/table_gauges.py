"""How far tables are behind their topics, for metrics: told by the machine, whoever compacts."""

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from dray.machine.machine import Machine
from dray.machine.names import TopicId
from dray.machine.topics import Topic
from dray.node import telemetry
from dray.replica.domains import Domains
from dray.tables.due import backlog

SLICE: Final = 250
"""Streams, files or series that are dealt with before others get a turn."""
SERIES: Final = 1_000
"""Topics with series of their own, those that are furthest behind first."""


@dataclass(slots=True)
class TableLag:
    """What of a topic is not in files, and what is."""

    records: int = 0
    bytes: int = 0
    age_ms: int = 0
    files: int = 0
    file_bytes: int = 0


async def measure_tables(domains: Domains) -> None:
    """Set the gauges of tables, in slices."""
    catalog = domains.catalog.machine
    found: dict[TopicId, TableLag] = defaultdict(TableLag)
    topics = list(catalog.topics.visible())
    await _add_lag(domains, topics, found)
    for _, replica in domains:
        if not replica.is_loaded:
            continue
        await _add_files(replica.machine, found)
    for gauge in (*_GAUGES, telemetry.TABLE_PROBLEM):
        gauge.clear()
    names = {topic.id: topic.name for topic in topics}
    for at, topic in enumerate(sorted(topics, key=lambda one: -found[one.id].records)[:SERIES], 1):
        if at % SLICE == 0:
            await asyncio.sleep(0)
        lag = found[topic.id]
        values = lag.records, lag.bytes, lag.age_ms / 1000, lag.files, lag.file_bytes
        for gauge, value in zip(_GAUGES, values, strict=True):
            gauge.labels(topic.name).set(value)
    for topic_id in list(catalog.table_marks.by_topic)[:SERIES]:
        if topic_id in names:
            telemetry.TABLE_PROBLEM.labels(names[topic_id]).set(1)


_GAUGES: Final = (
    telemetry.TABLE_LAG_RECORDS,
    telemetry.TABLE_LAG_BYTES,
    telemetry.TABLE_LAG_SECONDS,
    telemetry.TABLE_FILES,
    telemetry.TABLE_BYTES,
)


async def _add_lag(domains: Domains, topics: list[Topic], found: dict[TopicId, TableLag]) -> None:
    looked = 0
    for topic in topics:
        for number in topic.streams[: topic.visible]:
            if not domains.has(number):
                continue  # whoever leads it tells
            machine = domains.of(number).machine
            stream = machine.streams.find(number)
            if stream is not None and not stream.closed:
                records, size, age_ms = backlog(machine, stream)
                lag = found[topic.id]
                lag.records += records
                lag.bytes += size
                lag.age_ms = max(lag.age_ms, age_ms)
            looked += 1
            if looked % SLICE == 0:
                await asyncio.sleep(0)


async def _add_files(machine: Machine, found: dict[TopicId, TableLag]) -> None:
    """Files that rows or tasks name; what only older snapshots show is not counted."""
    for at, (number, file) in enumerate(list(machine.objects.files.items())):
        owner = machine.objects.find(number)
        if owner is not None and owner.rows > int(file.held):
            found[file.topic_id].files += 1
            found[file.topic_id].file_bytes += owner.size
        if at % SLICE == SLICE - 1:
            await asyncio.sleep(0)
