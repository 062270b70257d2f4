"""Records handed to groups over HTTP, and settled one by one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.responses import Response

from dray.consume.service import ConsumerWants, ConsumeService, Handed
from dray.machine.acks import MAX_RANGES, Span
from dray.offload import Offload
from dray.replica.freshness import Freshness
from dray.servers.http.endpoint import NDJSON, ApiEndpoint, Call, Lines, NoBody, NoQuery, endpoint
from dray.servers.http.errors import BadRequest
from dray.servers.http.homes import HttpHomes
from dray.servers.http.records import RecordForm, RecordOut, told
from dray.servers.http.values import Duration, GroupText, In, Int64, Offset, Out, PartitionNumber, ShortText, seconds
from dray.servers.http.waiting import MAX_WAIT_S, WaitingRequests
from dray.topics.service import TopicService

MAX_LEASE_S: Final = 12 * 3_600.0
MAX_DELAY_S: Final = 12 * 3_600.0
MAX_BYTES: Final = 16 << 20


class ConsumeQuery(In, frozen=True, kw_only=True):
    """What a consumer of a group wants."""

    group: GroupText
    max: Annotated[int, Meta(ge=1, le=1_000)] = 100
    max_bytes: Annotated[int, Meta(ge=1, le=MAX_BYTES)] = 1 << 20
    wait: Duration = "0s"
    lease: Duration | None = None
    form: RecordForm = "base64"


class ConsumedOut(Out, frozen=True, kw_only=True):
    """Records that are the consumer's for the time of the lease."""

    records: list[RecordOut]


class SpanIn(In, frozen=True, kw_only=True):
    """Offsets from `start` to below `end`."""

    start: Offset
    end: Offset


class AckOneIn(In, frozen=True, kw_only=True):
    """Records of one partition that are done."""

    partition: PartitionNumber
    offsets: Annotated[list[Offset], Meta(max_length=MAX_RANGES)] = msgspec.field(default_factory=list)
    ranges: Annotated[list[SpanIn], Meta(max_length=MAX_RANGES)] = msgspec.field(default_factory=list)


class AckRecordsIn(In, frozen=True, kw_only=True):
    """Records that are done."""

    group: GroupText
    acks: Annotated[list[AckOneIn], Meta(min_length=1, max_length=1_000)]


class AckedOneOut(Out, frozen=True, kw_only=True):
    """All below `next_offset` is done: it is the committed offset."""

    partition: int
    next_offset: Int64


class AckedOut(Out, frozen=True, kw_only=True):
    acked: list[AckedOneOut]


class NackOneIn(In, frozen=True, kw_only=True):
    """Records of one partition that failed."""

    partition: PartitionNumber
    offsets: Annotated[list[Offset], Meta(min_length=1, max_length=MAX_RANGES)]
    delay: Duration | None = None
    error: ShortText = ""


class NackRecordsIn(In, frozen=True, kw_only=True):
    """Records that failed: they come again, or go to the dead-letter topic."""

    group: GroupText
    nacks: Annotated[list[NackOneIn], Meta(min_length=1, max_length=1_000)]


class DeadOut(Out, frozen=True, kw_only=True):
    partition: int
    offset: Int64


class NackedRecordsOut(Out, frozen=True, kw_only=True):
    """What went to the dead-letter topic, having failed too often."""

    dead: list[DeadOut]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeApi:
    """What consumers of groups ask."""

    topics: TopicService
    consuming: ConsumeService
    homes: HttpHomes
    waiting: WaitingRequests
    offload: Offload

    def endpoints(self) -> list[ApiEndpoint]:
        return [
            endpoint(
                method="GET", path="/topics/{topic}/consume", action="topic.consume", handle=self.consume,
                query=ConsumeQuery, body=NoBody, gives=ConsumedOut, statuses=(307, 404, 409, 429, 501, 504),
                summary="Records that the group has not settled, for the time of a lease.",
            ),
            endpoint(
                method="POST", path="/topics/{topic}/ack", action="topic.consume", handle=self.ack, query=NoQuery,
                body=AckRecordsIn, gives=AckedOut, statuses=(404, 409, 501), summary="Records are done.",
            ),
            endpoint(
                method="POST", path="/topics/{topic}/nack", action="topic.consume", handle=self.nack, query=NoQuery,
                body=NackRecordsIn, gives=NackedRecordsOut, statuses=(307, 404, 409, 501),
                summary="Records failed.",
            ),
        ]  # fmt: skip

    async def consume(self, call: Call[ConsumeQuery, NoBody]) -> "ConsumedOut | Lines | Response":
        query = call.query
        wait_s = seconds(query.wait, most_s=MAX_WAIT_S, name="wait")
        lease_s = None if query.lease is None else seconds(query.lease, most_s=MAX_LEASE_S, name="lease")
        if lease_s is not None and lease_s < 1:
            raise BadRequest("lease is at least 1s", given=query.lease)
        topic = await self.topics.find(call.path["topic"])
        elsewhere = self.homes.elsewhere(call.request, query.group)
        if elsewhere is not None:
            return elsewhere
        wanted = ConsumerWants(
            group=query.group, most=query.max, max_bytes=query.max_bytes, wait_s=wait_s, lease_s=lease_s
        )  # fmt: skip
        handed = await self.waiting.run(call.request, self.consuming.consume(topic, wanted))
        records = await self.offload.run(_told, handed, query.form)
        if NDJSON in call.request.headers.get("accept", ""):
            return Lines(values=records)
        return ConsumedOut(records=records)

    async def ack(self, call: Call[NoQuery, AckRecordsIn]) -> AckedOut:
        """Any broker settles: what is done is in the log."""
        fresh = Freshness()
        topic = await self.topics.find(call.path["topic"], fresh)
        acked = []
        for given in call.body.acks:
            spans = _spans(given)
            floor = await self.consuming.ack(topic, call.body.group, given.partition, spans, fresh)
            acked.append(AckedOneOut(partition=given.partition, next_offset=str(floor)))
        return AckedOut(acked=acked)

    async def nack(self, call: Call[NoQuery, NackRecordsIn]) -> "NackedRecordsOut | Response":
        topic = await self.topics.find(call.path["topic"])
        elsewhere = self.homes.elsewhere(call.request, call.body.group)
        if elsewhere is not None:
            return elsewhere
        dead = []
        for given in call.body.nacks:
            delay_s = None if given.delay is None else seconds(given.delay, most_s=MAX_DELAY_S, name="delay")
            gone = await self.consuming.nack(
                topic, call.body.group, given.partition, given.offsets, delay_s=delay_s, error=given.error
            )
            dead += [DeadOut(partition=given.partition, offset=str(offset)) for offset in gone]
        return NackedRecordsOut(dead=dead)


def _told(handed: Sequence[Handed], form: RecordForm) -> list[RecordOut]:
    return [told(one.record, form, partition=one.partition, attempts=one.attempts) for one in handed]


def _spans(given: AckOneIn) -> Sequence[Span]:
    spans = [(offset, offset + 1) for offset in given.offsets] + [(one.start, one.end) for one in given.ranges]
    if not spans:
        raise BadRequest("an ack names offsets or ranges", partition=given.partition)
    if any(start >= end for start, end in spans):
        raise BadRequest("a range ends behind its start", partition=given.partition)
    return spans
