"""OffsetCommit (8): remember how far a consumer has come, without membership.

Left out: groups with members. Whoever names a generation or a member is told
that there is none.
"""

import asyncio
from typing import Final

from dray.groups.errors import BadGroupId, UnknownGroup, UnknownMember
from dray.groups.offsets import Codes, CommitCode, OffsetToCommit, Partition
from dray.pace import Pace
from dray.servers.kafka.error_codes import ErrorCode
from dray.servers.kafka.handler import Context, Endpoint, check_count
from dray.servers.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_FIRST_WITH_EPOCHS: Final = 9
_CODES: Final = {
    CommitCode.COMMITTED: ErrorCode.NONE,
    CommitCode.UNKNOWN_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    CommitCode.METADATA_TOO_LARGE: ErrorCode.OFFSET_METADATA_TOO_LARGE,
    CommitCode.BAD_OFFSET: ErrorCode.INVALID_REQUEST,
    CommitCode.FAILED: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    CommitCode.UNSURE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


async def handle(request: OffsetCommitRequest, context: Context) -> OffsetCommitResponse:
    check_count(sum(len(topic.partitions) for topic in request.topics))
    pace = Pace()
    wanted = {}
    for topic in request.topics:
        for one in topic.partitions:
            wanted[Partition(topic=topic.name, number=one.partition_index)] = OffsetToCommit(
                offset=one.committed_offset,
                leader_epoch=one.committed_leader_epoch,
                metadata=one.committed_metadata or "",
            )
            if pace.is_due():
                await asyncio.sleep(0)
    try:
        codes = await context.services.offsets.commit(
            request.group_id,
            wanted,
            generation=request.generation_id_or_member_epoch,
            member=request.member_id,
            retention_ms=request.retention_time_ms,
        )
    except BadGroupId:
        return refuse(request, ErrorCode.INVALID_GROUP_ID)
    except UnknownMember:
        return refuse(request, ErrorCode.UNKNOWN_MEMBER_ID)
    except UnknownGroup:
        late = context.version >= _FIRST_WITH_EPOCHS
        return refuse(request, ErrorCode.GROUP_ID_NOT_FOUND if late else ErrorCode.ILLEGAL_GENERATION)
    return OffsetCommitResponse(topics=[await _answer(topic, codes, pace) for topic in request.topics])


async def _answer(topic: OffsetCommitRequestTopic, codes: Codes, pace: Pace) -> OffsetCommitResponseTopic:
    partitions = []
    for one in topic.partitions:
        code = _CODES[codes[Partition(topic=topic.name, number=one.partition_index)]]
        partitions.append(OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code))
        if pace.is_due():
            await asyncio.sleep(0)
    return OffsetCommitResponseTopic(name=topic.name, partitions=partitions)


def refuse(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """There is no place for an error of the group: it stands in every partition."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)
