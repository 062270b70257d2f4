"""Fetch (1): records of partitions, whole batches, waited for if there are none.

Left out: fetch sessions are declined (session id 0 in every answer, so every
client keeps sending full requests), aborted transactions (there are none:
`read_committed` reads the same), followers. Whoever says in which rack it is,
and not in its client id, is sent to a broker of that zone, if there is one.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from dray.errors import DrayError
from dray.fetch.plan import PartitionRead
from dray.fetch.service import Fetched, PartitionData
from dray.machine.names import StreamId
from dray.machine.topics import Topic
from dray.pace import Pace
from dray.routing.errors import NotLeader
from dray.servers.kafka import telemetry
from dray.servers.kafka.asked import Asked
from dray.servers.kafka.epochs import UNCHECKED, epoch_error
from dray.servers.kafka.error_codes import ErrorCode, Family, code_for
from dray.servers.kafka.handler import Context, Endpoint, check_count
from dray.servers.kafka.leading import Leading
from dray.servers.kafka.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
)
from dray.servers.kafka.messages.fetch import PartitionData as PartitionAnswer

_FIRST_WITH_IDS: Final = 13
_NO_SESSION: Final = (-1, 0)
"""Epochs that ask for a whole answer: without a session, or for a new one."""
_READ_COMMITTED: Final = 1


@dataclass(frozen=True, slots=True)
class _Nearer:
    """A broker in the rack of the client, which should read there (KIP-392)."""

    broker_id: int


_Found: TypeAlias = PartitionRead | ErrorCode | NotLeader | _Nearer
"""What is read of a partition, or why nothing is."""


async def handle(request: FetchRequest, context: Context) -> FetchResponse:
    if request.session_epoch not in _NO_SESSION:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    check_count(sum(len(topic.partitions) for topic in request.topics))
    asked, pace = Asked(context.services), Pace()
    leading = Leading(context, asked, request.rack_id)
    rack = "" if context.zone else request.rack_id  # who named a zone knows of its brokers alone
    places: list[tuple[FetchTopic, list[_Found]]] = []
    for topic in _folded(request.topics):
        places.append((topic, await _reads(topic, context, asked, leading, rack, pace)))
        if pace.is_due():
            await asyncio.sleep(0)
    reads = [read for _, found in places for read in found if isinstance(read, PartitionRead)]
    refused = len(reads) < sum(len(found) for _, found in places)
    account = context.peer.account
    try:
        answers = iter(
            await context.services.fetch.fetch(
                reads,
                min_bytes=request.min_bytes,
                max_bytes=request.max_bytes,
                max_wait_ms=0 if refused or not reads else request.max_wait_ms,
                account=account,
            )
        )
        aborted = () if request.isolation_level == _READ_COMMITTED else None
        responses = [
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=await _partitions(topic, found, answers, aborted, pace),
            )
            for topic, found in places
        ]
    finally:
        if account is not None:
            account.forget_plan()  # from here to the connection nothing is awaited: it counts what it has not sent
    nodes = [NodeEndpoint(node_id=one.broker_id, host=one.host, port=one.port, rack=one.rack) for one in leading.told]
    return FetchResponse(responses=responses, node_endpoints=nodes)


def _folded(topics: Sequence[FetchTopic]) -> Sequence[FetchTopic]:
    """Each topic once, and each of its partitions once, as it was named last; so does Kafka."""
    names = {(topic.topic, topic.topic_id) for topic in topics}
    if len(names) == len(topics) and all(len(topic.partitions) == len(_by_number(topic)) for topic in topics):
        return topics
    folded: dict[tuple[str, bytes], dict[int, FetchPartition]] = {}
    for topic in topics:
        folded.setdefault((topic.topic, topic.topic_id), {}).update(_by_number(topic))
    return [
        FetchTopic(topic=name, topic_id=topic_id, partitions=list(partitions.values()))
        for (name, topic_id), partitions in folded.items()
    ]


def _by_number(topic: FetchTopic) -> dict[int, FetchPartition]:
    return {asked.partition: asked for asked in topic.partitions}


async def _partitions(
    topic: FetchTopic,
    found: list[_Found],
    answers: Iterator[PartitionData],
    aborted: tuple[()] | None,
    pace: Pace,
) -> list[PartitionAnswer]:
    partitions = []
    for asked, read in zip(topic.partitions, found, strict=True):
        partitions.append(
            _answer(asked, next(answers), aborted) if isinstance(read, PartitionRead) else _refusal(asked, read)
        )
        if pace.is_due():
            await asyncio.sleep(0)
    return partitions


async def _reads(
    wanted: FetchTopic, context: Context, asked: Asked, leading: Leading, rack: str, pace: Pace
) -> list[_Found]:
    by_id = context.version >= _FIRST_WITH_IDS
    try:
        topic = await (asked.topic_of_id(wanted.topic_id) if by_id else asked.topic(wanted.topic))
    except DrayError as error:
        return [code_for(error, Family.DATA) for _ in wanted.partitions]
    epoch, is_plain = context.services.routing.epoch, not rack and not context.services.sending.partitions
    domains = context.services.domains
    is_whole, has = domains.is_whole, domains.has
    reads: list[_Found] = []
    for partition in wanted.partitions:
        at = partition.partition
        if is_plain and 0 <= at < topic.visible and (is_whole or has(topic.streams[at])):
            stream = topic.streams[at]  # what nearly all are, and nothing to wait for
            reads.append(_at_epoch(partition, stream, epoch(stream)))
        else:
            reads.append(await _read(topic, partition, context, asked, leading, rack))
        if pace.is_due():
            await asyncio.sleep(0)
    return reads


def _at_epoch(wanted: FetchPartition, stream: StreamId, epoch: int) -> PartitionRead | ErrorCode:
    named = max(UNCHECKED, wanted.current_leader_epoch)  # any negative one names none here, as in Kafka
    return epoch_error(named, epoch) or PartitionRead(stream, wanted.fetch_offset, wanted.partition_max_bytes)


async def _read(
    topic: Topic, wanted: FetchPartition, context: Context, asked: Asked, leading: Leading, rack: str
) -> _Found:
    routing = context.services.routing
    try:
        stream = await asked.stream(topic, wanted.partition)
        nearer = routing.nearer(context.peer.listener, rack, stream) if rack else -1
        if nearer >= 0:
            return _Nearer(nearer)
        await leading.check(stream)
    except NotLeader as error:
        return error
    except DrayError as error:
        return code_for(error, Family.DATA)
    return _at_epoch(wanted, stream, routing.epoch(stream))


def _answer(asked: FetchPartition, found: PartitionData, aborted: tuple[()] | None) -> PartitionAnswer:
    if not isinstance(found, Fetched):
        return _refusal(asked, code_for(found.error, Family.DATA))
    return PartitionAnswer(
        partition_index=asked.partition,
        high_watermark=found.end,
        last_stable_offset=found.end,
        log_start_offset=found.start,
        aborted_transactions=aborted,
        records=found.parts,
    )


def _refusal(asked: FetchPartition, why: ErrorCode | NotLeader | _Nearer) -> PartitionAnswer:
    code, leader, nearer = ErrorCode.NONE, LeaderIdAndEpoch(), -1
    match why:
        case _Nearer(broker_id=nearer):
            pass
        case NotLeader():
            code = code_for(why, Family.DATA)
            leader = LeaderIdAndEpoch(leader_id=why.leader.broker_id, leader_epoch=why.epoch)
        case _:
            code = why
    if code:
        telemetry.count_partition_error("Fetch", code)
    return PartitionAnswer(
        partition_index=asked.partition, error_code=code, high_watermark=-1, last_stable_offset=-1,
        log_start_offset=-1, current_leader=leader, preferred_read_replica=nearer,
    )  # fmt: skip


def refuse(request: FetchRequest, code: ErrorCode) -> FetchResponse:
    return FetchResponse(
        error_code=code,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[_refusal(partition, code) for partition in topic.partitions],
            )
            for topic in request.topics
        ],
    )


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)
