"""DescribeLogDirs (35): how many bytes each partition holds. There is one place, the object store.

Each broker tells of the partitions that clients are sent to it for, since
tools ask all brokers and add up.

Left out: the room that is left in the store, which nobody knows (-1).
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from dray.errors import DrayError
from dray.machine.topics import Topic
from dray.pace import Pace
from dray.routing.view import RoutingView
from dray.servers.kafka.asked import Asked
from dray.servers.kafka.error_codes import ErrorCode
from dray.servers.kafka.handler import Context, Endpoint, Services, check_count
from dray.servers.kafka.leading import view_of
from dray.servers.kafka.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
    write_describe_log_dirs_topic,
)
from dray.topics.errors import UnknownTopic

PLACE: Final = "objects"


async def handle(request: DescribeLogDirsRequest, context: Context) -> DescribeLogDirsResponse:
    """Partitions that are not there are left out, as by Kafka."""
    services, asked, pace = context.services, Asked(context.services), Pace()
    for _, replica in services.domains:
        await asked.fresh.of(replica)
    view = view_of(context)
    topics: list[DescribeLogDirsTopic | bytes] = []
    for topic, numbers in await _wanted(request, asked):
        sizes = []
        for number in numbers:
            size = _size(topic, number, services, view)
            if size is not None:
                sizes.append(DescribeLogDirsPartition(partition_index=number, partition_size=size))
            if pace.is_due():
                await asyncio.sleep(0)
        if sizes:
            told = DescribeLogDirsTopic(name=topic.name, partitions=sizes)
            topics.append(write_describe_log_dirs_topic(context.version, told))
    return DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir=PLACE, topics=topics)])


async def _wanted(request: DescribeLogDirsRequest, asked: Asked) -> Sequence[tuple[Topic, Iterable[int]]]:
    if request.topics is None:
        return [(topic, range(topic.visible)) for topic in await asked.everything()]
    check_count(sum(1 + len(topic.partitions) for topic in request.topics))
    numbers: dict[str, dict[int, None]] = {}
    for one in request.topics:
        numbers.setdefault(one.topic, {}).update(dict.fromkeys(one.partitions))
    found: list[tuple[Topic, Iterable[int]]] = []
    for name, wanted in numbers.items():
        try:
            found.append((await asked.topic(name), wanted))
        except UnknownTopic:
            continue
    return found


def _size(topic: Topic, number: int, services: Services, view: RoutingView) -> int | None:
    """The bytes of a partition; None: it is not there, or another broker tells of it."""
    if not 0 <= number < topic.visible:
        return None
    stream = topic.streams[number]
    if view.leader(stream) != services.routing.broker_id:
        return None
    try:
        found = services.domains.of(stream).machine.streams.find(stream)
    except DrayError:
        return None
    return None if found is None else found.batch_bytes


def refuse(request: DescribeLogDirsRequest, code: ErrorCode) -> DescribeLogDirsResponse:
    """Below version 3 only a place can carry the code."""
    return DescribeLogDirsResponse(error_code=code, results=[DescribeLogDirsResult(error_code=code, log_dir=PLACE)])


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)
