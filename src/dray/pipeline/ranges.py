"""Which offsets of which partitions an option means, in one state of the machines.

earliest, -2     where the log starts
latest, -1       where it ends
a time           the first record that is not older
"""

from collections.abc import Mapping
from dataclasses import dataclass

from dray.errors import Corrupt, DrayError
from dray.machine.index import IndexRow
from dray.machine.machine import Machine
from dray.machine.names import domain_of
from dray.machine.stream import Stream
from dray.machine.topics import TopicState
from dray.objects.paths import WalName
from dray.objects.port import Objects
from dray.pipeline.errors import BadOption, BrokenObject, DataLoss, NoSuchTopic, broken, told
from dray.pipeline.options import EARLIEST, LATEST, ByPartition, ReadOptions
from dray.pipeline.plan import Span
from dray.records import Record, one_batch, records_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A partition that is to be read."""

    topic: str
    partition: int
    machine: Machine
    stream: Stream


def find_partitions(options: ReadOptions, machines: Mapping[int, Machine]) -> list[Found]:
    """The streams behind the topics that were asked for.

    Raises:
        NoSuchTopic: one of them is not there.
    """
    found = []
    for name, wanted in options.topics.items():
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
            found.append(Found(topic=name, partition=partition, machine=machine, stream=stream))
    return found


async def span_of(options: ReadOptions, found: Found, objects: Objects) -> Span:
    """The offsets of one partition.

    Raises:
        DataLoss: the log does not hold what was asked for, and `failOnDataLoss` is not off.
        BadOption: the partition has no offset in the JSON.
    """
    stream = found.stream
    if options.starting_times is not None:
        time_ms = _of(options.starting_times, found, "startingOffsetsByTimestamp")
        start = await _offset_at(found, time_ms, objects)
    else:
        start = _resolve(options, found, options.starting, "startingOffsets")
    end = _resolve(options, found, options.ending, "endingOffsets")
    return Span(topic=found.topic, stream=stream, start=start, end=max(start, end))


def _resolve(options: ReadOptions, found: Found, given: int | ByPartition, name: str) -> int:
    number = given if isinstance(given, int) else _of(given, found, name)
    stream = found.stream
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
            option=name, topic=found.topic, partition=found.partition, offset=number, start=stream.start,
            end=stream.end,
        )  # fmt: skip
    return min(max(number, stream.start), stream.end)


def _of(given: ByPartition, found: Found, name: str) -> int:
    number = given.get(found.topic, {}).get(found.partition)
    if number is None:
        raise BadOption("a partition is missing", option=name, topic=found.topic, partition=found.partition)
    return number


async def _offset_at(found: Found, time_ms: int, objects: Objects) -> int:
    """The first record that is not older than a time; the index knows the batch, the batch knows the record."""
    index, stream = found.stream.index, found.stream
    number = index.find(stream.start)
    while number is not None:
        number = index.find_time(time_ms, number)
        if number is None:
            break
        row = index.row(number)
        for record in await _records(found, row, objects):
            if record.offset >= stream.start and record.timestamp >= time_ms:
                return record.offset
        number += 1  # the log starts inside this batch, behind the record that was meant
    return stream.end


async def _records(found: Found, row: IndexRow, objects: Objects) -> list[Record]:
    """The records of one batch, checked as a task checks them: a wrong time would leave records out (SP3)."""
    path = _path_of(found.machine, row)
    facts: dict[str, object] = {
        "object": path, "topic": found.topic, "partition": found.partition, "stream": found.stream.id,
        "offset": row.start,
    }  # fmt: skip
    try:
        batch = one_batch(await objects.get(path, row.position, row.position + row.size))
        if not batch.crc_is_right:
            raise broken("CRC32C of the batch does not match", **facts)
        return list(records_of(batch, row.start))
    except BrokenObject:
        raise
    except DrayError as error:
        raise told(error, **facts) from error


def _path_of(machine: Machine, row: IndexRow) -> str:
    found = machine.objects.find(row.object)
    if found is None:
        raise Corrupt("the index names an object that the machine has forgotten", object=row.object)
    name = WalName.of(zone=found.zone, domain=machine.domain, created_ms=found.created_ms, wal_id=found.wal_id)
    return name.path()
