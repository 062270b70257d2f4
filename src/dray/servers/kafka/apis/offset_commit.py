"""OffsetCommit (8): remember how far a consumer has come.

Left out: nothing. The group judges who commits: a member in its generation,
or anyone in a group without members.
"""

import asyncio
from typing import Final, TypeAlias

from dray.groups.errors import BadGroupId
from dray.groups.offsets import CommitCode, Committer, OffsetToCommit, Partition
from dray.machine.groups.codes import GroupCode
from dray.pace import Pace
from dray.servers.kafka.asked import Asked
from dray.servers.kafka.error_codes import GROUP_CODES, ErrorCode, Family, code_for
from dray.servers.kafka.handler import Context, Endpoint, check_count
from dray.servers.kafka.leading import check_coordinator
from dray.servers.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from dray.topics.errors import UnknownTopic

_FIRST_WITH_EPOCHS: Final = 9
_MEANING: Final = {
    CommitCode.COMMITTED: ErrorCode.NONE,
    CommitCode.UNKNOWN_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    CommitCode.METADATA_TOO_LARGE: ErrorCode.OFFSET_METADATA_TOO_LARGE,
    CommitCode.BAD_OFFSET: ErrorCode.INVALID_REQUEST,
    CommitCode.NO_ROOM: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,  # clients raise it and do not try again for ever
    CommitCode.STALE: ErrorCode.COORDINATOR_NOT_AVAILABLE,  # who still waits sends it again, and is the newest then
    CommitCode.FAILED: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    CommitCode.UNSURE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
Codes: TypeAlias = dict[Partition, ErrorCode]


async def handle(request: OffsetCommitRequest, context: Context) -> OffsetCommitResponse:
    check_count(sum(len(topic.partitions) for topic in request.topics))
    await check_coordinator(request.group_id, context)
    asked, pace = Asked(context.services), Pace()
    wanted: dict[Partition, OffsetToCommit] = {}
    codes: Codes = {}
    for topic in request.topics:
        await _sort_out(topic, asked, wanted, codes, pace)
    try:
        judged = await context.services.offsets.commit(
            Committer(
                group=request.group_id,
                generation=max(-1, request.generation_id_or_member_epoch),
                member=request.member_id,
                instance=request.group_instance_id,
                knows_epochs=context.version >= _FIRST_WITH_EPOCHS,
            ),
            wanted,
            retention_ms=request.retention_time_ms,
            is_awaited=lambda: not context.peer.sends_no_more,
        )
    except BadGroupId as error:
        return refuse(request, code_for(error, Family.GROUP))
    codes |= {partition: _code(code, context.version) for partition, code in judged.items()}
    return OffsetCommitResponse(topics=[await _answer(topic, codes, pace) for topic in request.topics])


async def _sort_out(
    topic: OffsetCommitRequestTopic,
    asked: Asked,
    wanted: dict[Partition, OffsetToCommit],
    codes: Codes,
    pace: Pace,
) -> None:
    """What can be committed of a topic, and the codes of what cannot, because it is not there."""
    for one in topic.partitions:
        if pace.is_due():
            await asyncio.sleep(0)
        partition = Partition(topic=topic.name, number=one.partition_index)
        try:
            await asked.stream(await asked.topic(topic.name), one.partition_index)
        except UnknownTopic as error:
            codes[partition] = code_for(error, Family.GROUP)
            continue
        wanted[partition] = OffsetToCommit(
            offset=one.committed_offset,
            leader_epoch=one.committed_leader_epoch,
            metadata=one.committed_metadata or "",
        )


def _code(code: CommitCode | GroupCode, version: int) -> ErrorCode:
    if isinstance(code, CommitCode):
        return _MEANING[code]
    if code is GroupCode.UNKNOWN_GROUP and version < _FIRST_WITH_EPOCHS:
        return ErrorCode.ILLEGAL_GENERATION
    return GROUP_CODES[code]


async def _answer(topic: OffsetCommitRequestTopic, codes: Codes, pace: Pace) -> OffsetCommitResponseTopic:
    partitions = []
    for one in topic.partitions:
        code = codes[Partition(topic=topic.name, number=one.partition_index)]
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
