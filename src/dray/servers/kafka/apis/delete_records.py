"""DeleteRecords (21): records below an offset are gone, at once for readers and soon from the store.

Left out: nothing. What is not done after the request's timeout is answered
with 7, and may be done all the same; to ask again is harmless.
"""

import asyncio
from typing import Final, TypeAlias

from dray.errors import DrayError
from dray.machine.names import StreamId
from dray.pace import Pace
from dray.servers.kafka.asked import Asked
from dray.servers.kafka.error_codes import ErrorCode, Family, code_for
from dray.servers.kafka.handler import Context, Endpoint, check_count, time_limit
from dray.servers.kafka.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from dray.topics.configs import meaning

_Place: TypeAlias = tuple[str, int]


async def handle(request: DeleteRecordsRequest, context: Context) -> DeleteRecordsResponse:
    """A partition that is named twice is cut where it was named last, and answered once; so does Kafka."""
    check_count(sum(len(topic.partitions) for topic in request.topics))
    wanted = {(topic.name, one.partition_index): one.offset for topic in request.topics for one in topic.partitions}
    asked = Asked(context.services)
    answers: dict[_Place, int | ErrorCode] = dict.fromkeys(wanted, ErrorCode.REQUEST_TIMED_OUT)
    try:
        async with asyncio.timeout(time_limit(request.timeout_ms)):
            streams = await _streams(wanted, answers, asked)
            offsets = {stream: wanted[place] for stream, place in streams.items()}
            for stream, found in (await context.services.records.delete(offsets, asked.fresh)).items():
                answers[streams[stream]] = code_for(found, Family.ADMIN) if isinstance(found, DrayError) else found
    except TimeoutError:
        pass
    by_topic: dict[str, list[DeleteRecordsPartitionResult]] = {}
    for (name, number), found in answers.items():
        by_topic.setdefault(name, []).append(_told(number, found))
    return DeleteRecordsResponse(
        topics=[DeleteRecordsTopicResult(name=name, partitions=results) for name, results in by_topic.items()]
    )


async def _streams(
    wanted: dict[_Place, int], answers: dict[_Place, int | ErrorCode], asked: Asked
) -> dict[StreamId, _Place]:
    """The streams of the places that there are; of others the answer is given."""
    streams: dict[StreamId, _Place] = {}
    pace = Pace()
    for place in wanted:
        name, number = place
        try:
            topic = await asked.topic(name)
            stream = await asked.stream(topic, number)
        except DrayError as error:
            answers[place] = code_for(error, Family.ADMIN)
        else:
            if meaning(topic.configs).deletes:
                streams[stream] = place
            else:
                answers[place] = ErrorCode.POLICY_VIOLATION  # it only compacts: every key is to be kept
        if pace.is_due():
            await asyncio.sleep(0)
    return streams


def _told(number: int, found: int | ErrorCode) -> DeleteRecordsPartitionResult:
    if isinstance(found, ErrorCode):
        return DeleteRecordsPartitionResult(partition_index=number, low_watermark=-1, error_code=found)
    return DeleteRecordsPartitionResult(partition_index=number, low_watermark=found)


def refuse(request: DeleteRecordsRequest, code: ErrorCode) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name, partitions=[_told(one.partition_index, code) for one in topic.partitions]
            )
            for topic in request.topics
        ]
    )


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)
