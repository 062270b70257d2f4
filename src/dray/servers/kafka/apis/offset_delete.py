"""OffsetDelete (47): forget committed offsets of topics that no member of the group reads.

Left out: nothing.
"""

import asyncio
from typing import Final

from dray.errors import DrayError
from dray.groups.admin import DeletionCode
from dray.groups.offsets import Partition
from dray.pace import Pace
from dray.servers.kafka.asked import Asked
from dray.servers.kafka.error_codes import ErrorCode, Family, code_for
from dray.servers.kafka.handler import Context, Endpoint, check_count
from dray.servers.kafka.leading import check_coordinator
from dray.servers.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from dray.topics.errors import UnknownTopic

_MEANING: Final = {
    DeletionCode.DELETED: ErrorCode.NONE,
    DeletionCode.UNKNOWN_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    DeletionCode.SUBSCRIBED: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
}


async def handle(request: OffsetDeleteRequest, context: Context) -> OffsetDeleteResponse:
    check_count(sum(len(topic.partitions) for topic in request.topics))
    await check_coordinator(request.group_id, context)
    asked, pace = Asked(context.services), Pace()
    wanted: list[Partition] = []
    codes: dict[Partition, ErrorCode] = {}
    try:
        for partition in _named(request):
            if pace.is_due():
                await asyncio.sleep(0)
            try:
                await asked.stream(await asked.topic(partition.topic), partition.number)
                wanted.append(partition)
            except UnknownTopic as error:
                codes[partition] = code_for(error, Family.GROUP)
        judged = await context.services.group_admin.delete_offsets(request.group_id, wanted)
    except DrayError as error:
        return refuse(request, code_for(error, Family.GROUP))
    codes |= {partition: _MEANING[code] for partition, code in judged.items()}
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=one.partition_index,
                        error_code=codes[Partition(topic=topic.name, number=one.partition_index)],
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _named(request: OffsetDeleteRequest) -> list[Partition]:
    return [
        Partition(topic=topic.name, number=one.partition_index) for topic in request.topics for one in topic.partitions
    ]


def refuse(request: OffsetDeleteRequest, code: ErrorCode) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=code)


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)
