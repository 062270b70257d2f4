"""Which offsets of which partitions an option means, in one state of the machines.

earliest, -2     where the log starts
latest, -1       where it ends
a time           the first record that is not older

What is refused is what Spark's Kafka source refuses: JSON that does not name
exactly the partitions that are read, a start behind the end, a starting time
that no record is as young as.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dray.errors import Corrupt, DrayError
from dray.machine.index import IndexRow
from dray.machine.machine import Machine
from dray.machine.names import domain_of
from dray.machine.stream import Stream
from dray.machine.topics import TopicState
from dray.objects.paths import ObjectKind
from dray.objects.port import Objects
from dray.pipeline.errors import BadOption, BrokenObject, DataLoss, NoSuchTopic, broken, told
from dray.pipeline.options import EARLIEST, LATEST, ByPartition, Place, ReadOptions, Times
from dray.pipeline.plan import Span
from dray.records import Record, one_batch, records_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A partition that is to be read."""

    topic: str
    partition: int
    machine: Machine
    stream: Stream


def find_partitions(options: ReadOptions, machines: Mapping[int, Machine]) -> list[Wanted]:
    """The streams behind the topics that were asked for.

    Raises:
        NoSuchTopic: one of them is not there.
        BadOption: offsets or times are given for other partitions than these.
    """
    found = []
    for name, wanted in _wanted(options, machines[0]).items():
        topic = machines[0].topics.named(name)
        if topic is None or topic.state is not TopicState.READY:
            known = [other.name for other in machines[0].topics.visible()][:20]
            raise NoSuchTopic("no such topic", topic=name, known=", ".join(known) or "none")
        for partition in range(topic.visible) if wanted is None else wanted:
            if not 0 <= partition < topic.visible:
                raise NoSuchTopic("no such partition", topic=name, partition=partition, partitions=topic.visible)
            machine = machines[domain_of(topic.streams[partition])]
            stream = machine.streams.find(topic.streams[partition])
            if stream is None or stream.closed:
                raise NoSuchTopic("the topic was just deleted", topic=name, partition=partition)
            found.append(Wanted(topic=name, partition=partition, machine=machine, stream=stream))
    for place in (options.starting, options.ending):
        _check_named(place, found)
    return found


def _wanted(options: ReadOptions, catalog: Machine) -> dict[str, tuple[int, ...] | None]:
    pattern = options.topics
    if not isinstance(pattern, re.Pattern):
        return pattern
    ready = (topic.name for topic in catalog.topics.visible() if topic.state is TopicState.READY)
    return dict.fromkeys(sorted(name for name in ready if pattern.fullmatch(name)))


def _check_named(place: Place, found: Sequence[Wanted]) -> None:
    """JSON names each partition that is read, and no other: a number for a wrong name would be left out silently."""
    if isinstance(place.given, int):
        return
    read = {(one.topic, one.partition) for one in found}
    named = {(topic, partition) for topic, numbers in place.given.items() for partition in numbers}
    for what, wrong in (("is missing", read - named), ("is named that is not read", named - read)):
        if wrong:
            topic, partition = min(wrong)
            raise BadOption(
                f"a partition {what}: name each partition of the read, and no other", option=place.option, topic=topic,
                partition=partition, others=len(wrong) - 1,
            )  # fmt: skip


async def span_of(options: ReadOptions, found: Wanted, objects: Objects) -> Span:
    """The offsets of one partition.

    Raises:
        DataLoss: the log does not hold what was asked for, and `failOnDataLoss` is not off.
        BadOption: the start is behind the end, or no record is as young as the starting time.
    """
    start, end = [await _resolve(options, found, place, objects) for place in (options.starting, options.ending)]
    if start is None:
        if not options.latest_if_no_match:
            raise BadOption(
                "no record is as young as the starting time: give an earlier one, or set "
                "startingOffsetsByTimestampStrategy to latest to begin such a partition at its end",
                option=options.starting.option, topic=found.topic, partition=found.partition,
                time=_of(options.starting.given, found),
            )  # fmt: skip
        start = found.stream.end
    if end is None:
        end = found.stream.end
    if start > end:
        raise BadOption(
            "the start is behind the end", topic=found.topic, partition=found.partition, start=start, end=end,
            starting=options.starting.option, ending=options.ending.option,
        )  # fmt: skip
    return Span(topic=found.topic, stream=found.stream, start=start, end=end)


async def _resolve(options: ReadOptions, found: Wanted, place: Place, objects: Objects) -> int | None:
    """The offset that is meant; None if no record is as young as the time that is given."""
    number, stream = _of(place.given, found), found.stream
    if isinstance(place, Times):
        return await _offset_at(found, number, objects)
    if number == EARLIEST:
        return stream.start
    if number == LATEST:
        return stream.end
    if stream.start <= number <= stream.end:
        return number
    if options.fail_on_data_loss:
        raise DataLoss(
            "the log does not hold this offset: it expired, or was never written. To read what is there, set "
            "failOnDataLoss to false",
            option=place.option, topic=found.topic, partition=found.partition, offset=number, start=stream.start,
            end=stream.end,
        )  # fmt: skip
    return min(max(number, stream.start), stream.end)


def _of(given: int | ByPartition, found: Wanted) -> int:
    """The number of a partition, which is there: see `_check_named`."""
    return given if isinstance(given, int) else given[found.topic][found.partition]


async def _offset_at(found: Wanted, time_ms: int, objects: Objects) -> int | None:
    """The first record that is not older than a time; the index knows the batch, the batch knows the record."""
    index, stream = found.stream.index, found.stream
    number = index.find(stream.start)
    while number is not None:
        number = index.find_time(time_ms, number)
        if number is None:
            break
        offset = await _first_since(found, index.row(number), time_ms, objects)
        if offset is not None:
            return offset
        number += 1  # the log starts inside this batch, behind the record that was meant
    return None


async def _first_since(found: Wanted, row: IndexRow, time_ms: int, objects: Objects) -> int | None:
    """The first record of a row that is not older than a time, and not below the log start."""
    start = max(found.stream.start, row.start)
    if found.machine.objects.kind(row.object) is ObjectKind.PARQUET:
        from dray.pipeline.reading_files import first_since  # Arrow comes with it, and few plans need it

        path, file = _path_of(found.machine, row), found.machine.objects.files.get(row.object)
        crc = 0 if file is None else file.footer_crc
        try:
            return await first_since(objects, path, crc, start, time_ms)
        except DrayError as error:
            raise told(error, **_facts(found, row, path)) from error
    for record in await _records(found, row, objects):
        if record.offset >= start and record.timestamp >= time_ms:
            return record.offset
    return None


async def _records(found: Wanted, row: IndexRow, objects: Objects) -> list[Record]:
    """The records of one batch, checked as a task checks them: a wrong time would leave records out (SP3)."""
    path = _path_of(found.machine, row)
    facts = _facts(found, row, path)
    try:
        batch = one_batch(await objects.get(path, row.position, row.position + row.size))
        if not batch.crc_is_right:
            raise broken("CRC32C of the batch does not match", **facts)
        return list(records_of(batch, row.start))
    except BrokenObject:
        raise
    except DrayError as error:
        raise told(error, **facts) from error


def _facts(found: Wanted, row: IndexRow, path: str) -> dict[str, object]:
    return {
        "object": path, "topic": found.topic, "partition": found.partition, "stream": found.stream.id,
        "offset": row.start,
    }  # fmt: skip


def _path_of(machine: Machine, row: IndexRow) -> str:
    found = machine.objects.find(row.object)
    if found is None:
        raise Corrupt("the index names an object that the machine has forgotten", object=row.object)
    return found.path()
