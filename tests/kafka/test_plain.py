"""Plain Produce requests: the same answers as `handle` gives, in order, once, and nothing left behind."""

import asyncio
import itertools
import random
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import cast

import pytest

from dray.clock import ManualClock
from dray.offload import InlineOffload
from dray.produce.intake import Intake
from dray.produce.unpacking import Unpacking
from dray.records import Codec, NewRecord, ScratchPool, build_batch
from dray.routing.sending import Sending
from dray.servers.kafka.apis.produce import ENDPOINT
from dray.servers.kafka.codec import decode
from dray.servers.kafka.connection import Connection
from dray.servers.kafka.handler import Context, Peer, Services
from dray.servers.kafka.messages.heartbeat import HeartbeatResponse
from dray.servers.kafka.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from dray.servers.kafka.messages.response_header import CODEC as RESPONSE_HEADER
from dray.servers.kafka.server import Core
from dray.servers.kafka.settings import Limits
from dray.servers.kafka.support import Api, Matrix
from dray.topics.service import NewTopic
from tests.kafka.test_connection import MemoryTransport, settle
from tests.kafka.wire import API_VERSIONS_ROW, HEARTBEAT, PRODUCE, heartbeat, heartbeat_api, produce_api, request_bytes
from tests.produce.broker import Broker, GatedObjects, broker, stored
from tests.records.batch_samples import resealed
from tests.replica.domain import new_log

NOW_MS = 1_700_000_000_000
TOPICS = {
    "plain": {},
    "other": {},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "small": {"max.message.bytes": "200"},
    "keyed": {"cleanup.policy": "compact,delete"},
    "windowed": {"message.timestamp.before.max.ms": "1000", "message.timestamp.after.max.ms": "1000"},
}


@dataclass(slots=True)
class Side:
    """A broker's produce side behind one connection."""

    one: Broker
    core: Core
    connection: Connection
    transport: MemoryTransport
    clock: ManualClock
    objects: GatedObjects
    taken: list[bool]
    """Of each request of a flexible version, whether it was plain."""

    def send(self, request: ProduceRequest, correlation: int = 1, version: int = 9) -> None:
        self.receive(request_bytes(PRODUCE, version, request, correlation))

    def receive(self, raw: bytes) -> None:
        while raw:
            tail = self.connection.get_buffer(-1)
            size = min(len(tail), len(raw))
            tail[:size] = raw[:size]
            tail.release()
            self.connection.buffer_updated(size)
            raw = raw[size:]

    async def answered(self, count: int) -> list[tuple[int, ProduceResponse]]:
        """All answers so far, once there are this many; of version 9."""
        async with asyncio.timeout(30):
            while len(found := self.answers()) < count:
                await asyncio.sleep(0)
        return found

    def answers(self) -> list[tuple[int, ProduceResponse]]:
        raw, found = memoryview(b"".join(self.transport.sent)), []
        while raw:
            (length,) = struct.unpack_from(">i", raw)
            header, at, _ = decode(RESPONSE_HEADER.read[1], raw[4 : 4 + length], 0)
            found.append((header.correlation_id, decode(PRODUCE.response.read[9], raw[4 : 4 + length], at)[0]))
            raw = raw[4 + length :]
        return found

    def nothing_is_held(self) -> bool:
        return (self.core.budget.requests, self.core.relief._begun_bytes) == (0, 0)


@asynccontextmanager
async def side(
    *, plain: bool = True, gated: bool = False, offload: InlineOffload | None = None, limits: Limits | None = None,
    rows: tuple[Api, ...] = (), **policy: object,
) -> AsyncIterator[Side]:  # fmt: skip
    clock, objects = ManualClock(wall_ms=NOW_MS), GatedObjects(gated=gated)
    async with broker({0: await new_log()}, objects, clock=clock, **policy) as one, asyncio.TaskGroup() as tasks:
        for name, configs in TOPICS.items():
            await one.topics.create(NewTopic(name=name, partitions=2, replication_factor=1, configs=configs))
        services = SimpleNamespace(
            topics=one.topics, produce=one.produce, domains=one.domains, clock=clock, sending=Sending(enforced=False),
            intake=Intake(
                clock=clock, unpacking=Unpacking(offload or InlineOffload(), 2), scratch=ScratchPool(1 << 20)
            ),
        )  # fmt: skip
        taken: list[bool] = []
        endpoint = replace(ENDPOINT, plain=watched(taken) if plain else None)
        row = produce_api(endpoint.handle, refuse=endpoint.refuse)  # type: ignore[arg-type]
        __import__("sys").modules[row.module].ENDPOINT = endpoint  # type: ignore[attr-defined]
        core = Core(
            services=cast(Services, services), matrix=Matrix([API_VERSIONS_ROW, row, *rows]),
            limits=limits or Limits(), clock=clock, tasks=tasks,
        )  # fmt: skip
        connection, transport = Connection(core, "client"), MemoryTransport()
        connection.connection_made(transport)
        yield Side(one, core, connection, transport, clock, objects, taken)
        objects.open_all()


def watched(taken: list[bool]) -> object:
    """The real thing; it tells of each frame whether it took it."""

    class Watched:
        def take(self, frame: memoryview, services: Services, peer: Peer) -> object:
            assert ENDPOINT.plain is not None
            order = ENDPOINT.plain.take(frame, services, peer)
            taken.append(order is not None)
            return order

    return Watched()


def batch(value: bytes = b"v", *, at: int = NOW_MS, key: bytes | None = b"k", **options: int) -> bytes:
    return build_batch([NewRecord(key, value, at)], **options)


def request(topics: dict[str, dict[int, bytes | None]], *, acks: int = -1, timeout_ms: int = 30_000) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(name, partition_data=[PartitionProduceData(index, data) for index, data in parts.items()])
            for name, parts in topics.items()
        ],
    )


def some_batch(dice: random.Random, sequences: dict[int, int]) -> bytes | None:
    """Mostly a good one; else one of each kind that is refused, or that only `handle` knows."""
    producer = dice.choice((-1, 5, 6))
    sequence = sequences.get(producer, 0) + dice.choice((0, 0, 0, -1, 3))
    if producer >= 0:
        sequences[producer] = max(sequences.get(producer, 0), sequence + 1)
    good = batch(
        dice.randbytes(dice.choice((0, 3, 60, 300))), key=dice.choice((None, b"k")),
        at=dice.choice((NOW_MS, NOW_MS, NOW_MS - 1_001, NOW_MS + 1_001, -1)), producer_id=producer,
        producer_epoch=dice.choice((0, 0, 0, 1)) if producer >= 0 else -1,
        base_sequence=max(0, sequence) if producer >= 0 else -1,
    )  # fmt: skip
    match dice.randrange(40):
        case 0:
            return dice.choice((good[:-1] + bytes([good[-1] ^ 1]), good[:20] + bytes([good[20] ^ 1]) + good[21:]))
        case 1:
            return batch(at=NOW_MS + 10**10)
        case 2:
            return build_batch([NewRecord(b"k", b"v", NOW_MS)], codec=Codec.GZIP)
        case 3:
            return dice.choice((None, b"", good[:40], good + good))
        case 4:
            return resealed(good, attributes=(21, dice.choice((b"\x00\x08", b"\x00\x10", b"\x00\x20", b"\x40\x00"))))
        case _:
            return good


def some_request(dice: random.Random, sequences: dict[int, int]) -> ProduceRequest:
    names = dice.sample(("plain", "other"), dice.choice((1, 1, 2)))
    if not dice.randrange(2):
        names = dice.sample((*TOPICS, "missing"), dice.choice((1, 1, 2)))
    if not dice.randrange(9):
        names.append(dice.choice(names))  # a name may come twice
    topics = [
        TopicProduceData(
            name,
            partition_data=[
                PartitionProduceData(dice.choice((0, 1) * 10 + (7, -1)), some_batch(dice, sequences))
                for _ in range(dice.choice((1, 1, 1, 2)))
            ],
        )
        for name in names
    ]
    return ProduceRequest(acks=dice.choice((-1, -1, 1)), timeout_ms=30_000, topic_data=topics)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_a_plain_request_is_answered_with_the_bytes_that_handle_would_have_sent(seed: int) -> None:
    """PL1, KP13: good and bad, of every version, many in flight."""
    dice, sequences = random.Random(seed), dict[int, int]()
    asked = [
        request_bytes(PRODUCE, dice.choice((3, 8, 9, 9, 9, 10, 11, 12)), some_request(dice, sequences), number)
        for number in range(300)
    ]
    bursts = [dice.choice((1, 1, 1, 2, 7)) for _ in asked]
    sent = []
    for plain in (True, False):
        async with side(plain=plain) as one:
            left = iter(asked)
            for burst in bursts:
                for raw in itertools.islice(left, burst):
                    one.receive(raw)
                async with asyncio.timeout(30):
                    while not one.nothing_is_held():
                        await asyncio.sleep(0)
            found = [await stored(one.one, stream) for name in TOPICS for stream in streams_of(one, name)]
            sent.append((b"".join(one.transport.sent), found))
            if plain:
                assert sum(one.taken) > 30, "the test is about what is plain"
                assert not all(one.taken)
    assert sent[0] == sent[1]


def streams_of(one: Side, name: str) -> tuple[int, ...]:
    topic = one.one.topics.peek(name)
    assert topic is not None
    return tuple(topic.streams)


@pytest.mark.parametrize("version", range(9, 13))
async def test_every_flexible_version_has_the_same_answer(version: int) -> None:
    """PL1"""
    sent = []
    for plain in (True, False):
        async with side(plain=plain) as one:
            one.send(request({"plain": {0: batch(), 1: batch()}, "other": {1: batch()}}), 1, version)
            while not one.transport.sent:
                await asyncio.sleep(0)
            sent.append(one.transport.sent)
            assert one.taken == ([True] if plain else [])
    assert sent[0] == sent[1]


async def test_a_batch_that_waits_for_its_decompression_is_not_overtaken() -> None:
    """KP8: the plain request behind it has to wait for its turn."""
    gate = asyncio.Event()

    class Slow(InlineOffload):
        async def run(self, function: Callable[..., object], /, *args: object, **kwargs: object) -> object:
            await gate.wait()
            return function(*args, **kwargs)

    async with side(offload=Slow()) as one:
        one.send(request({"plain": {0: build_batch([NewRecord(b"k", b"first", NOW_MS)], codec=Codec.GZIP)}}), 1)
        one.send(request({"plain": {0: batch(b"second")}}), 2)
        await settle()
        gate.set()
        answers = await one.answered(2)
        one.send(request({"plain": {0: batch(b"third")}}), 3)
        answers = await one.answered(3)
        assert [number for number, _ in answers] == [1, 2, 3]
        stream = streams_of(one, "plain")[0]
        assert [value for _, value in await stored(one.one, stream)] == [b"first", b"second", b"third"]
        assert one.taken == [False, True], "what came behind an unfinished turn is not even looked at"


async def test_an_answer_waits_for_the_ones_before_it() -> None:
    """KP7, KP13: a request of another API runs; a plain one behind it begins only when it has ended."""
    gate = asyncio.Event()

    async def handle(message: object, context: Context) -> HeartbeatResponse:
        await gate.wait()
        return HeartbeatResponse()

    async with side(rows=(heartbeat_api(handle),)) as one:
        one.receive(request_bytes(HEARTBEAT, 4, heartbeat(), 1))
        one.send(request({"plain": {0: batch()}}), 2)
        await settle()
        assert one.objects.puts == []
        gate.set()
        while len(one.transport.sent) < 2:
            await asyncio.sleep(0)
        assert [struct.unpack_from(">i", frame, 4)[0] for frame in one.transport.sent] == [1, 2]


async def test_answers_that_are_there_together_leave_together() -> None:
    """KP13: a connection is told once of all its answers of a turn, and they keep their order."""
    async with side(gated=True) as one:
        one.send(request({"plain": {0: batch(b"first")}}), 1)
        await one.objects.put_count(1)
        for number in (2, 3, 4):
            one.send(request({"plain": {number % 2: batch(b"%d" % number)}}), number)
        one.objects.open_all()
        answers = await one.answered(4)
        assert [number for number, _ in answers] == [1, 2, 3, 4]
        assert len(one.transport.sent) == 2, "one write for each of the two objects"
        assert one.nothing_is_held()


async def test_an_answer_that_lets_the_next_request_in_harms_no_queue() -> None:
    """PL2, PR8: batches fail while the lane walks its queue, and requests that waited for their answers begin."""
    limits = Limits(connection_inflight_requests=4)
    async with side(gated=True, limits=limits, flush_batches=1, flushes=1) as one:
        one.send(request({"plain": {0: batch(b"first")}}), 100)
        await one.objects.put_count(1)
        first, one.connection, one.transport = one.transport, Connection(one.core, "client"), MemoryTransport()
        one.connection.connection_made(one.transport)
        for number in range(12):
            one.send(request({"plain": {0: batch(b"%d" % number)}}), number)
        one.objects.fail(0)  # so the four that wait in the queue are overtaken
        async with asyncio.timeout(30):
            await one.objects.put_count(2)
        one.objects.open_all()
        answers = await one.answered(12)
        codes = [answer.responses[0].partition_responses[0].error_code for _, answer in answers]
        assert [number for number, _ in answers] == list(range(12))
        assert codes == [56] * 4 + [0] * 8
        assert len(first.sent) == 1
        stream = streams_of(one, "plain")[0]
        assert [value for _, value in await stored(one.one, stream)] == [b"%d" % number for number in range(4, 12)]
        assert one.taken == [True] * 13
        assert one.nothing_is_held()


async def test_a_request_whose_time_is_up_is_told_so_and_its_batch_is_stored_all_the_same() -> None:
    """E1, KP13, PL2: 7 says that nobody knows; there is one answer, and the next one is the next one's."""
    async with side(gated=True) as one:
        one.send(request({"plain": {0: batch(b"slow")}}, timeout_ms=100), 1)
        one.send(request({"plain": {0: batch(b"patient")}}, timeout_ms=60_000), 2)
        await one.objects.put_count(1)
        [(number, answer)] = await one.answered(1)
        part = answer.responses[0].partition_responses[0]
        assert (number, part.index, part.error_code, part.base_offset) == (1, 0, 7, -1)
        one.objects.open_all()
        (_, (number, answer)) = await one.answered(2)
        assert (number, answer.responses[0].partition_responses[0].base_offset) == (2, 1)
        stream = streams_of(one, "plain")[0]
        assert [value for _, value in await stored(one.one, stream)] == [b"slow", b"patient"]
        assert one.nothing_is_held()


async def test_of_a_request_whose_time_is_up_what_is_known_is_told() -> None:
    """E1: one batch is refused at once, the other is still on its way."""
    async with side(gated=True, max_buffer_bytes=1_000) as one:
        one.send(request({"plain": {0: batch(bytes(700)), 1: batch(bytes(700))}}, timeout_ms=100), 1)
        await one.objects.put_count(1)
        [(_, answer)] = await one.answered(1)
        assert [part.error_code for part in answer.responses[0].partition_responses] == [7, 56]


async def test_a_connection_that_is_cut_leaves_nothing_behind() -> None:
    """KP15, PL2: not its requests, not their time, and no answer when their batches are stored."""
    async with side(gated=True) as one:
        for number in range(3):
            one.send(request({"plain": {0: batch()}}), number)
        await one.objects.put_count(1)
        one.connection.abort("stop deadline")
        one.connection.connection_lost(None)
        assert one.nothing_is_held()
        assert len(one.core.connections) == 0
        one.objects.open_all()
        await settle()
        assert one.transport.sent == []


async def test_a_client_that_is_gone_is_counted_until_its_batches_are_stored() -> None:
    """A stop waits for what was taken."""
    async with side(gated=True) as one:
        one.send(request({"plain": {0: batch()}}))
        await one.objects.put_count(1)
        one.connection.connection_lost(ConnectionResetError())
        await settle()
        assert len(one.core.connections) == 1
        one.objects.open_all()
        async with asyncio.timeout(30):
            while one.core.connections:
                await asyncio.sleep(0)
        assert one.nothing_is_held()
        assert one.transport.sent == []


async def test_a_service_that_stops_refuses_as_handle_does() -> None:
    """PL1"""
    sent = []
    for plain in (True, False):
        async with side(plain=plain) as one:
            await one.one.produce.drain()
            one.send(request({"plain": {0: batch(), 1: batch()}}))
            await one.answered(1)
            sent.append(one.transport.sent)
    assert sent[0] == sent[1]


async def test_a_mistake_in_taking_a_batch_is_an_answer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """KP15"""
    async with side() as one:

        def broken(*_: object) -> None:
            raise RuntimeError("a mistake")

        monkeypatch.setattr(one.one.produce, "submit_to", broken)
        one.send(request({"plain": {0: batch()}}), 5)
        [(number, answer)] = await one.answered(1)
        assert (number, answer.responses[0].partition_responses[0].error_code) == (5, -1)
        assert one.nothing_is_held()
