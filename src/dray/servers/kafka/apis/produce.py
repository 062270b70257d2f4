"""Produce (0): store batches; each partition is answered for itself, once it is durable and applied here.

Left out: transactions (48), versions 0 to 2 (advertised, because older
librdkafka concludes from a higher minimum that compression is not known).
`acks=1` is `acks=all`; `acks=0` gets no answer, and an error closes the
connection, which is how such a client learns of it.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from dray.errors import DrayError, Unavailable, Unknown
from dray.machine.topics import Topic
from dray.pace import Pace
from dray.produce.batches import NewBatch, Stored, received, stamped
from dray.produce.errors import BadBatch, OutOfOrder, ProducerFenced, StreamGone
from dray.produce.rules import TopicRules
from dray.records import Validated, check_records, errors, inspect
from dray.records.layout import Codec
from dray.replica.freshness import Freshness
from dray.servers.kafka import telemetry
from dray.servers.kafka.error_codes import ErrorCode, Family, code_for
from dray.servers.kafka.handler import Context, Disconnect, Endpoint, Services, check_count
from dray.servers.kafka.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from dray.topics.errors import UnknownTopic

_ACKS: Final = (-1, 0, 1)
_FIRST_WITH_ZSTD: Final = 7
_STEP_BYTES: Final = 8 * 1024
"""Checking so many bytes of records takes about as long as all else about a batch."""
_CODES: Final[tuple[tuple[type[DrayError], ErrorCode], ...]] = (
    (errors.TooLarge, ErrorCode.MESSAGE_TOO_LARGE),
    (errors.BadCrc, ErrorCode.CORRUPT_MESSAGE),
    (errors.BadCompression, ErrorCode.CORRUPT_MESSAGE),
    (errors.BadCodec, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    (errors.BadTimestamp, ErrorCode.INVALID_TIMESTAMP),
    (errors.Transactional, ErrorCode.INVALID_TXN_STATE),
    (errors.InvalidBatch, ErrorCode.INVALID_RECORD),
    (BadBatch, ErrorCode.INVALID_RECORD),
    (StreamGone, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (UnknownTopic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (OutOfOrder, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    (ProducerFenced, ErrorCode.INVALID_PRODUCER_EPOCH),
)


class _UnsupportedZstd(DrayError):
    """zstd before the version that knows it."""


async def handle(request: ProduceRequest, context: Context) -> ProduceResponse | None:
    if request.acks not in _ACKS:
        return _unless_silent(request, _refused(request, ErrorCode.INVALID_REQUIRED_ACKS))
    if request.transactional_id is not None:
        return _unless_silent(request, _refused(request, ErrorCode.INVALID_TXN_STATE))
    check_count(sum(len(topic.partition_data) for topic in request.topic_data))
    fresh, pace = Freshness(), Pace()
    topics = [await _works(topic, context, fresh, pace) for topic in request.topic_data]
    # What may overlap is done; from here on batches keep the order in which their requests arrived (KP8).
    await context.turn.wait()
    for works in topics:
        for work in works:
            work.submit(context.services)
            if pace.is_due():
                await asyncio.sleep(0)  # the requests behind this one still wait for their turn
    context.turn.pass_on()
    responses = []
    for topic, works in zip(request.topic_data, topics, strict=True):
        answers = [await work.answer() for work in works]
        responses.append(TopicProduceResponse(name=topic.name, partition_responses=answers))
    return _unless_silent(request, ProduceResponse(responses=responses))


async def _works(asked: TopicProduceData, context: Context, fresh: Freshness, pace: Pace) -> "list[_Work]":
    found = await _find(asked.name, context.services, fresh)
    works = []
    for partition in asked.partition_data:
        works.append(await _prepare(found, partition, context, fresh))
        if pace.is_due(1 + len(partition.records or b"") // _STEP_BYTES):
            await asyncio.sleep(0)
    return works


async def _find(name: str, services: Services, fresh: Freshness) -> Topic | DrayError:
    topic = services.topics.peek(name)
    if topic is not None:
        return topic
    try:
        return await services.topics.find(name, fresh)
    except DrayError as error:
        return error


class _Work:
    """One partition of a request on its way."""

    __slots__ = ("_batch", "_error", "_future", "_index", "_stamp_ms")

    def __init__(
        self, index: int, *, batch: NewBatch | None = None, stamp_ms: int = -1, error: DrayError | None = None
    ) -> None:
        self._index = index
        self._batch = batch
        self._stamp_ms = stamp_ms
        self._error = error
        self._future: asyncio.Future[Stored] | None = None

    def submit(self, services: Services) -> None:
        if self._batch is None:
            return
        try:
            self._future = services.produce.submit(self._batch)
        except DrayError as error:
            self._error = error
        self._batch = None

    async def answer(self) -> PartitionProduceResponse:
        if self._future is not None:
            try:
                stored = await self._future
            except DrayError as error:
                self._error = error
            else:
                return PartitionProduceResponse(
                    index=self._index,
                    base_offset=stored.base_offset,
                    log_append_time_ms=self._stamp_ms,
                    log_start_offset=stored.log_start_offset,
                )
        assert self._error is not None, "a batch is submitted or refused"
        return _failure(self._index, self._error)


async def _prepare(topic: Topic | DrayError, data: PartitionProduceData, context: Context, fresh: Freshness) -> _Work:
    """Everything that can be refused about a batch without asking the machine."""
    services = context.services
    if isinstance(topic, DrayError):
        return _Work(data.index, error=topic)
    if not 0 <= data.index < topic.visible:
        # Partitions are added through other brokers too: unknown is said only after a sync.
        await fresh.of(services.domains.catalog)
        if not 0 <= data.index < topic.visible:
            return _Work(data.index, error=UnknownTopic("no such partition", topic=topic.name, partition=data.index))
    rules = services.rules.of(topic)
    now_ms = services.clock.wall_ms()
    try:
        validated = await _validate(data, rules, now_ms, context)
    except DrayError as error:
        return _Work(data.index, error=error)
    stream = topic.streams[data.index]
    if rules.batch.append_time:
        return _Work(data.index, batch=stamped(stream, validated, now_ms), stamp_ms=now_ms)
    return _Work(data.index, batch=received(stream, validated))


async def _validate(data: PartitionProduceData, rules: TopicRules, now_ms: int, context: Context) -> Validated:
    services = context.services
    batch = inspect(data.records or b"", rules.batch)
    if batch.codec is Codec.ZSTD and context.version < _FIRST_WITH_ZSTD:
        raise _UnsupportedZstd("zstd needs version 7 of Produce", version=context.version)
    if batch.is_compressed:
        return await services.unpacking.run(context.peer, check_records, batch, rules.batch, services.scratch, now_ms)
    return check_records(batch, rules.batch, services.scratch, now_ms)


def _failure(index: int, error: DrayError) -> PartitionProduceResponse:
    code = _code(error)
    telemetry.count_partition_error("Produce", code)
    record = error.facts.get("record") if isinstance(error, errors.NullKey) else None
    faults: Sequence[BatchIndexAndErrorMessage] = ()
    if isinstance(record, int):
        faults = (BatchIndexAndErrorMessage(batch_index=record, batch_index_error_message=error.message),)
    return PartitionProduceResponse(
        index=index, error_code=code, base_offset=-1, record_errors=faults, error_message=str(error)
    )


def _code(error: DrayError) -> ErrorCode:
    if isinstance(error, _UnsupportedZstd):
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if isinstance(error, Unavailable | Unknown):
        return ErrorCode.KAFKA_STORAGE_ERROR  # retriable, and never a definite failure (E1)
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return code_for(error, Family.DATA)


def _unless_silent(request: ProduceRequest, response: ProduceResponse) -> ProduceResponse | None:
    if request.acks != 0:
        return response
    if any(part.error_code for topic in response.responses for part in topic.partition_responses):
        raise Disconnect("a batch sent with acks=0 was refused")
    return None


def refuse(request: ProduceRequest, code: ErrorCode) -> ProduceResponse | None:
    return None if request.acks == 0 else _refused(request, code)


def _refused(request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    for topic in request.topic_data:
        telemetry.PARTITION_ERRORS.labels("Produce", str(int(code))).inc(len(topic.partition_data))
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1)
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)
