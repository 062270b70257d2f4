"""Produce (0): store batches; each partition is answered for itself, once it is durable and applied here.

Left out: transactions (48), versions 0 to 2 (advertised, because older
librdkafka concludes from a higher minimum that compression is not known).
`acks=1` is `acks=all`; `acks=0` gets no answer, and an error closes the
connection, which is how such a client learns of it.
"""

import asyncio
from typing import Final

from dray.errors import DrayError
from dray.machine.names import domain_of
from dray.machine.topics import Topic
from dray.pace import Pace
from dray.produce.batches import NewBatch, Stored
from dray.produce.intake import Checked, appended_ms
from dray.records import InvalidBatch
from dray.routing.errors import NotLeader
from dray.servers.kafka import telemetry
from dray.servers.kafka.asked import Asked
from dray.servers.kafka.error_codes import ErrorCode, Family, code_for
from dray.servers.kafka.handler import Context, Disconnect, Endpoint, Services, check_count
from dray.servers.kafka.leading import Leading
from dray.servers.kafka.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from dray.servers.kafka.plain import Plain

_ACKS: Final = (-1, 0, 1)
_FIRST_WITH_ZSTD: Final = 7
_STEP_BYTES: Final = 8 * 1024
"""Checking so many bytes of records takes about as long as all else about a batch."""


async def handle(request: ProduceRequest, context: Context) -> ProduceResponse | None:
    if request.acks not in _ACKS:
        return _unless_silent(request, _refused(request, ErrorCode.INVALID_REQUIRED_ACKS))
    if request.transactional_id is not None:
        return _unless_silent(request, _refused(request, ErrorCode.INVALID_TXN_STATE))
    check_count(sum(len(topic.partition_data) for topic in request.topic_data))
    asked, pace = Asked(context.services), Pace()
    leading = Leading(context, asked) if request.acks else None  # whom nobody answers is served (SV4)
    topics = [await _works(topic, context, asked, leading, pace) for topic in request.topic_data]
    # What may overlap is done; from here on batches keep the order in which their requests arrived (KP8).
    await context.turn.wait()
    timeout_ms = request.timeout_ms if request.acks else 0  # who wants no answer does not wait for one
    for works in topics:
        for work in works:
            work.submit(context.services, timeout_ms)
            if pace.is_due():
                await asyncio.sleep(0)  # the requests behind this one still wait for their turn
    context.turn.pass_on()
    responses = []
    for topic, works in zip(request.topic_data, topics, strict=True):
        answers = []
        for work in works:
            answers.append(await work.answer())
            if pace.is_due():
                await asyncio.sleep(0)
        responses.append(TopicProduceResponse(name=topic.name, partition_responses=answers))
    told = () if leading is None else leading.told
    nodes = [NodeEndpoint(node_id=one.broker_id, host=one.host, port=one.port, rack=one.rack) for one in told]
    return _unless_silent(request, ProduceResponse(responses=responses, node_endpoints=nodes))


async def _works(
    data: TopicProduceData, context: Context, asked: Asked, leading: Leading | None, pace: Pace
) -> "list[_Work]":
    topic: Topic | DrayError
    try:
        topic = await asked.topic(data.name)
    except DrayError as error:
        topic = error
    works = []
    for partition in data.partition_data:
        works.append(await _prepare(topic, partition, context, asked, leading))
        if pace.is_due(1 + len(partition.records or b"") // _STEP_BYTES):
            await asyncio.sleep(0)
    return works


class _Work:
    """One partition of a request on its way."""

    __slots__ = ("_batch", "_error", "_future", "_index", "_stamp_ms")

    def __init__(self, index: int, found: Checked | DrayError) -> None:
        self._index = index
        self._future: asyncio.Future[Stored] | None = None
        self._batch: NewBatch | None = None
        self._stamp_ms = -1
        self._error: DrayError | None = None
        if isinstance(found, DrayError):
            self._error = found
        else:
            self._batch, self._stamp_ms = found

    def submit(self, services: Services, timeout_ms: int) -> None:
        if self._batch is None:
            return
        try:
            self._future = services.produce.submit(self._batch)
            services.produce.deadlines.watch(self._future, timeout_ms)
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
                    log_append_time_ms=appended_ms(self._stamp_ms, stored),
                    log_start_offset=stored.log_start_offset,
                )
        assert self._error is not None, "a batch is submitted or refused"
        return _failure(self._index, self._error)


async def _prepare(
    topic: Topic | DrayError, data: PartitionProduceData, context: Context, asked: Asked, leading: Leading | None
) -> _Work:
    """Everything that can be refused about a batch without asking the machine."""
    if isinstance(topic, DrayError):
        return _Work(data.index, topic)
    try:
        stream = await asked.stream(topic, data.index)
        if leading is not None:
            await leading.check(stream)
        else:
            await context.services.domains.ready(domain_of(stream))
        checked = await context.services.intake.check(
            topic, stream, data.records or b"", owner=context.peer, knows_zstd=context.version >= _FIRST_WITH_ZSTD
        )
    except DrayError as error:
        return _Work(data.index, error)
    return _Work(data.index, checked)


def _failure(index: int, error: DrayError) -> PartitionProduceResponse:
    code = code_for(error, Family.DATA)
    telemetry.count_partition_error("Produce", code)
    blamed = error.blamed if isinstance(error, InvalidBatch) else ()
    faults = [
        BatchIndexAndErrorMessage(batch_index=record, batch_index_error_message=error.message) for record in blamed
    ]
    leader = LeaderIdAndEpoch()
    if isinstance(error, NotLeader):
        leader = LeaderIdAndEpoch(leader_id=error.leader.broker_id, leader_epoch=error.epoch)
    return PartitionProduceResponse(
        index=index, error_code=code, base_offset=-1, record_errors=faults, error_message=str(error),
        current_leader=leader,
    )  # fmt: skip


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


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse, plain=Plain(_failure))
