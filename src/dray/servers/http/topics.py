"""Streams over HTTP: publish, publish at an expected version, read, read as of a version.

The version of a partition is its end: the offset that the next record gets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request

from dray.clock import Clock
from dray.fetch.reading import RecordReads
from dray.machine.topics import Topic
from dray.offload import Offload
from dray.produce.publishing import Published, Publisher, RecordToPublish
from dray.records import NewRecord, Record
from dray.replica.freshness import Freshness
from dray.servers.http.endpoint import ApiEndpoint, Call, NoBody, NoQuery, Reply, endpoint
from dray.servers.http.errors import BadRequest, ErrorBody, body_of
from dray.servers.http.records import MAX_RECORDS, PlacedRecordIn, RecordForm, RecordIn, RecordOut, new_record, told
from dray.servers.http.values import Duration, In, Int64, Offset, Out, PartitionNumber, seconds
from dray.servers.http.waiting import MAX_WAIT_S, WaitingRequests
from dray.topics.service import TopicService

MAX_BYTES: Final = 16 << 20
TxnId = Annotated[str, Meta(min_length=1, max_length=1_024)]


class PublishIn(In, frozen=True, kw_only=True):
    """Records to publish, each for itself."""

    records: Annotated[list[PlacedRecordIn], Meta(min_length=1, max_length=MAX_RECORDS)]


class BatchIn(In, frozen=True, kw_only=True):
    """Records to publish all at once, or not at all."""

    records: Annotated[list[PlacedRecordIn], Meta(min_length=1, max_length=MAX_RECORDS)]
    expected_versions: dict[PartitionNumber, Offset] = msgspec.field(default_factory=dict)
    txn_id: TxnId | None = None


class AppendIn(In, frozen=True, kw_only=True):
    """Records to publish to one partition, at its expected version if there is one."""

    records: Annotated[list[RecordIn], Meta(min_length=1, max_length=MAX_RECORDS)]
    expected_version: Offset | None = None
    txn_id: TxnId | None = None


class PublishedOut(Out, frozen=True, kw_only=True):
    """Where a record lies, or why it does not."""

    partition: int
    offset: Int64 | None = None
    error: ErrorBody | None = None


class PublishedListOut(Out, frozen=True, kw_only=True):
    """One result for each record, in order."""

    results: list[PublishedOut]
    repeated: bool = False
    """The transaction was done before; these are its results."""


class AppendedOut(Out, frozen=True, kw_only=True):
    """Where the records lie, one behind the other, and the version behind them."""

    base_offset: Int64
    version: Int64
    repeated: bool = False


class PartitionOut(Out, frozen=True, kw_only=True):
    """A partition: the offsets from `log_start` to below `version` can be read."""

    topic: str
    partition: int
    log_start: Int64
    version: Int64


class ReadQuery(In, frozen=True, kw_only=True):
    """What to read of a partition."""

    offset: Offset = 0
    max: Annotated[int, Meta(ge=1, le=MAX_RECORDS)] = 500
    max_bytes: Annotated[int, Meta(ge=1, le=MAX_BYTES)] = 1 << 20
    wait: Duration = "0s"
    as_of: Offset | None = None
    form: RecordForm = "base64"


class RecordsOut(Out, frozen=True, kw_only=True):
    """Records, and the offset to go on from."""

    records: list[RecordOut]
    next_offset: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsApi:
    """What is asked about streams."""

    topics: TopicService
    publisher: Publisher
    reads: RecordReads
    waiting: WaitingRequests
    clock: Clock
    offload: Offload

    def endpoints(self) -> list[ApiEndpoint]:
        records = "/topics/{topic}/partitions/{partition}/records"
        return [
            endpoint(
                method="POST", path="/topics/{topic}/records", action="topic.produce", handle=self.publish,
                query=NoQuery, body=PublishIn, gives=PublishedListOut, statuses=(404, 409),
                summary="Publish records, each for itself.",
            ),
            endpoint(
                method="POST", path="/topics/{topic}/records:batch", action="topic.produce", handle=self.batch,
                query=NoQuery, body=BatchIn, gives=PublishedListOut, statuses=(404, 409, 501),
                summary="Publish records to partitions of one domain, all or none.",
            ),
            endpoint(
                method="GET", path="/topics/{topic}/partitions/{partition}", action="topic.describe",
                handle=self.partition, query=NoQuery, body=NoBody, gives=PartitionOut, statuses=(404,),
                summary="The log start and the version of a partition.",
            ),
            endpoint(
                method="POST", path=records, action="topic.produce", handle=self.append, query=NoQuery,
                body=AppendIn, gives=AppendedOut, statuses=(404, 409, 501),
                summary="Publish records to a partition, at an expected version or once for a transaction.",
            ),
            endpoint(
                method="GET", path=records, action="topic.fetch", handle=self.read, query=ReadQuery, body=NoBody,
                gives=RecordsOut, statuses=(404, 410, 416, 429),
                summary="Read records of a partition, perhaps as of a version: the same bytes each time.",
            ),
        ]  # fmt: skip

    async def publish(self, call: Call[NoQuery, PublishIn]) -> Reply:
        fresh = Freshness()
        topic = await self.topics.find(call.path["topic"], fresh)
        placed = await self.offload.run(_placed, call.body.records, self.clock.wall_ms())
        results = await self.publisher.publish(topic, placed, call.request.client, fresh=fresh)
        if all(result.error is not None for result in results):
            first = results[0].error
            assert first is not None, "an error was counted"
            raise first
        return Reply(value=PublishedListOut(results=[_published(result) for result in results]))

    async def batch(self, call: Call[NoQuery, BatchIn]) -> PublishedListOut:
        fresh = Freshness()
        topic = await self.topics.find(call.path["topic"], fresh)
        placed = await self.offload.run(_placed, call.body.records, self.clock.wall_ms())
        results = await self.publisher.publish_at_once(
            topic, placed, call.request.client,
            expected=call.body.expected_versions, txn_id=call.body.txn_id or "", fresh=fresh,
        )  # fmt: skip
        return PublishedListOut(
            results=[_published(result) for result in results], repeated=any(result.repeated for result in results)
        )

    async def append(self, call: Call[NoQuery, AppendIn]) -> Reply:
        topic, partition = await self._found(call.path)
        expected = _expected(call.request, call.body.expected_version)
        records = await self.offload.run(_placed, call.body.records, self.clock.wall_ms(), partition)
        if expected is None and call.body.txn_id is None:
            results = await self.publisher.publish(topic, records, call.request.client)
        else:
            ends = {} if expected is None else {partition: expected}
            results = await self.publisher.publish_at_once(
                topic, records, call.request.client, expected=ends, txn_id=call.body.txn_id or ""
            )
        if results[0].error is not None:
            raise results[0].error
        base, version = results[0].offset, results[-1].offset + 1
        value = AppendedOut(base_offset=str(base), version=str(version), repeated=results[0].repeated)
        return Reply(value=value, headers={"etag": f'"{version}"'})

    async def partition(self, call: Call[NoQuery, NoBody]) -> Reply:
        topic, partition = await self._found(call.path)
        start, end = await self.reads.bounds(topic.streams[partition])
        value = PartitionOut(topic=topic.name, partition=partition, log_start=str(start), version=str(end))
        return Reply(value=value, headers={"etag": f'"{end}"'})

    async def read(self, call: Call[ReadQuery, NoBody]) -> RecordsOut:
        topic, partition = await self._found(call.path)
        query = call.query
        wait_ms = round(1_000 * seconds(query.wait, most_s=MAX_WAIT_S, name="wait"))
        reading = self.reads.read(
            topic.streams[partition], query.offset, max_records=query.max, max_bytes=query.max_bytes,
            wait_ms=wait_ms, before=query.as_of,
        )  # fmt: skip
        found = await (self.waiting.run(call.request, reading) if wait_ms else reading)
        shown = await self.offload.run(_told, found.records, query.form)
        return RecordsOut(records=shown, next_offset=str(found.next_offset))

    async def _found(self, path: Mapping[str, str]) -> tuple[Topic, int]:
        """The topic that a path names, and the number of one of its partitions."""
        partition = _number(path["partition"])
        fresh = Freshness()
        topic = await self.topics.find(path["topic"], fresh)
        return await self.topics.find_partition(topic, partition, fresh), partition


def _number(text: str) -> int:
    """What a path says where a partition is named."""
    if not (text.isascii() and text.isdigit() and len(text) < 11):
        raise BadRequest("a partition is a number", given=text[:40])
    return int(text)


def _placed(given: Sequence[RecordIn], now_ms: int, partition: int | None = None) -> list[RecordToPublish]:
    """What somebody sent, for the partitions that they chose."""
    return [
        RecordToPublish(
            _new(one, now_ms, index), one.partition if isinstance(one, PlacedRecordIn) else partition
        )
        for index, one in enumerate(given)
    ]  # fmt: skip


def _told(records: Sequence[Record], form: RecordForm) -> list[RecordOut]:
    return [told(record, form) for record in records]


def _new(given: RecordIn, now_ms: int, index: int) -> NewRecord:
    try:
        return new_record(given, now_ms)
    except BadRequest as error:
        error.facts["index"] = index
        raise


def _expected(request: Request, in_body: int | None) -> int | None:
    """The version that somebody expects: in the body, or in `If-Match`."""
    header = request.headers.get("if-match")
    if header is None:
        return in_body
    text = header.strip().removeprefix('"').removesuffix('"')
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) < 1 << 63):
        raise BadRequest('If-Match is a version, as "7"', given=header[:40])
    if in_body is not None and in_body != int(text):
        raise BadRequest("If-Match and expected_version differ")
    return int(text)


def _published(result: Published) -> PublishedOut:
    if result.error is not None:
        return PublishedOut(partition=result.partition, error=body_of(result.error))
    return PublishedOut(partition=result.partition, offset=str(result.offset))
