"""Drives real Kafka clients against a cluster and records what they see.

N producers append, M consumers read by assignment and move about, one client
asks for LATEST and EARLIEST, one hook makes faults. In the end all faults are
stopped and fresh clients read everything from the beginning.

    faults ....xxxx....xx....|
    clients -----------------|  drain ------|

Client libraries are chosen by the caller (`ConfluentKit`, `AiokafkaKit`) and
imported only there.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from dray.clock import Clock
from dray.errors import Corrupt
from dray.ids import Entropy
from dray.testing.history.clients import ClientFailed, Consumer, Fetched, Kit
from dray.testing.history.events import (
    UNREADABLE,
    Assign,
    At,
    Call,
    Commit,
    Committed,
    Crashed,
    Created,
    CreateTopic,
    Done,
    Earliest,
    Latest,
    Nemesis,
    OpId,
    Partition,
    Poll,
    Polled,
    Process,
    ProducerOpened,
    Record,
    Result,
    Run,
    Send,
    Sent,
    partition,
)
from dray.testing.history.journal import Recorder
from dray.testing.history.outcomes import Outcome
from dray.testing.history.values import Value, checksum, decode_value, encode_value

_T = TypeVar("_T")
_POLL_S: Final = 0.5
_BACKOFF_S: Final = 0.2
_MOVE_SHARE: Final = 1 / 64
"""How often a consumer takes other partitions instead of polling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that can be done to a cluster and undone."""

    name: str
    target: str
    start: Callable[[], Awaitable[None]]
    stop: Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The shape of a run."""

    topics: Sequence[str]
    seed: int
    partitions: int = 4
    producers: int = 4
    consumers: int = 4
    seconds: float = 30.0
    sends_per_second: float = 200.0
    """Per producer."""
    in_flight: int = 50
    value_bytes: int = 256
    promises: ProducerOpened = field(default_factory=lambda: ProducerOpened(producer="", idempotent=True, ordered=True))
    faults: Sequence[Fault] = ()
    fault_seconds: float = 5.0
    quiet_seconds: float = 5.0
    drain_seconds: float = 120.0
    version: str = ""


class Workload:
    """One run of a plan."""

    def __init__(self, plan: Plan, kit: Kit, recorder: Recorder, clock: Clock, entropy: Entropy) -> None:
        self._plan = plan
        self._kit = kit
        self._recorder = recorder
        self._clock = clock
        self._entropy = entropy
        self._partitions = [partition(topic, n) for topic in plan.topics for n in range(plan.partitions)]
        self._end_ns = 0

    async def run(self) -> None:
        """Create the topics, do the work, stop the faults, read everything."""
        plan = self._plan
        config: dict[str, str | int | float | bool] = {
            "client": self._kit.name,
            "partitions": len(self._partitions),
            "producers": plan.producers,
            "consumers": plan.consumers,
            "seconds": plan.seconds,
            "sends_per_second": plan.sends_per_second,
            "value_bytes": plan.value_bytes,
            "idempotent": plan.promises.idempotent,
        }
        self._recorder.run(Run(seed=plan.seed, version=plan.version, config=config))
        for topic in plan.topics:
            await self._create(topic)
        self._end_ns = self._clock.boot_ns() + int(plan.seconds * 1e9)
        async with asyncio.TaskGroup() as group:
            for number in range(plan.producers):
                group.create_task(self._produce(f"w{number}"))
            for number in range(plan.consumers):
                group.create_task(self._consume(Process(f"c{number}")))
            group.create_task(self._ask(Process("q")))
            group.create_task(self._disturb())
        await self._drain(Process("drain"))

    def _running(self) -> bool:
        return self._clock.boot_ns() < self._end_ns

    def _choose(self, choices: Sequence[_T]) -> _T:
        return choices[min(int(self._entropy.uniform(0, len(choices))), len(choices) - 1)]

    async def _try(self, process: Process, call: Call, act: Callable[[], Awaitable[Result]]) -> Result | None:
        """Record one operation around `act`; none if it did not surely happen."""
        op = self._recorder.invoke(process, call)
        try:
            result = await act()
        except ClientFailed as problem:
            self._settle(op, problem)
            return None
        self._recorder.ok(op, result)
        return result

    def _settle(self, op: OpId, problem: ClientFailed) -> None:
        if problem.outcome is Outcome.FAIL:
            self._recorder.fail(op, problem.cause)
        else:
            self._recorder.info(op, problem.cause)

    async def _create(self, topic: str) -> None:
        async def create() -> Result:
            return Created(topic_id=await self._kit.create_topic(topic, self._plan.partitions))

        await self._try(Process("admin"), CreateTopic(topic=topic), create)

    async def _produce(self, name: str) -> None:
        plan = self._plan
        promises = plan.promises
        self._recorder.note(
            Process(name),
            ProducerOpened(
                producer=name, idempotent=promises.idempotent, ordered=promises.ordered, retries=promises.retries
            ),
        )
        producer = await self._kit.producer(promises)
        room = asyncio.Semaphore(plan.in_flight)
        seq = 0
        while self._running():
            await room.acquire()
            value = Value(producer=name, seq=seq, tp=self._choose(self._partitions))
            seq += 1
            payload = encode_value(value, plan.value_bytes)
            call = Send(tp=value.tp, value=value.id, crc=checksum(payload), producer=name)
            op = self._recorder.invoke(Process(name), call)
            try:
                future = await producer.send(value.tp, payload)
            except ClientFailed as problem:
                self._settle(op, problem)
                room.release()
                await self._clock.sleep(_BACKOFF_S)
                continue
            future.add_done_callback(partial(self._delivered, op, room))
            await self._clock.sleep(1 / plan.sends_per_second)
        await producer.close(plan.drain_seconds)
        self._recorder.note(Process(name), Crashed())

    def _delivered(self, op: OpId, room: asyncio.Semaphore, done: asyncio.Future[int | None]) -> None:
        room.release()
        if done.cancelled():
            self._recorder.info(op, "cancelled")
            return
        problem = done.exception()
        if problem is None:
            self._recorder.ok(op, Sent(offset=done.result()))
        elif isinstance(problem, ClientFailed):
            self._settle(op, problem)
        else:
            self._recorder.info(op, type(problem).__name__)

    async def _consume(self, process: Process) -> None:
        reader = _Reader(self, process)
        await reader.open()
        while self._running():
            if self._entropy.uniform(0, 1) < _MOVE_SHARE:
                if self._entropy.uniform(0, 1) < 0.25:
                    await reader.close()
                    await reader.open()
                else:
                    await reader.move()
            elif not await reader.poll():
                await self._clock.sleep(_BACKOFF_S)
            elif self._entropy.uniform(0, 1) < 0.05:
                await reader.commit()
        await reader.close()

    async def _ask(self, process: Process) -> None:
        consumer = await self._kit.consumer(f"dray-check-{self._plan.seed}-{process}")
        while self._running():
            tp = self._choose(self._partitions)
            await self._offset(process, consumer, Latest(tp=tp))
            if self._entropy.uniform(0, 1) < 0.1:
                await self._offset(process, consumer, Earliest(tp=tp))
            await self._clock.sleep(0.02)
        await consumer.close()

    async def _offset(self, process: Process, consumer: Consumer, call: Latest | Earliest) -> int | None:
        async def ask() -> Result:
            asked = consumer.latest(call.tp) if isinstance(call, Latest) else consumer.earliest(call.tp)
            return At(offset=await asked)

        result = await self._try(process, call, ask)
        return result.offset if isinstance(result, At) else None

    async def _disturb(self) -> None:
        plan = self._plan
        while plan.faults and self._running():
            await self._clock.sleep(plan.quiet_seconds)
            fault = self._choose(plan.faults)
            self._recorder.note(Process("nemesis"), Nemesis(fault=fault.name, target=fault.target, start=True))
            await fault.start()
            try:
                await self._clock.sleep(plan.fault_seconds)
            finally:
                await fault.stop()
                self._recorder.note(Process("nemesis"), Nemesis(fault=fault.name, target=fault.target, start=False))

    async def _drain(self, process: Process) -> None:
        """Read every partition from its beginning, with a fresh client, until each known end is reached."""
        deadline_ns = self._clock.boot_ns() + int(self._plan.drain_seconds * 1e9)
        consumer = await self._kit.consumer(f"dray-check-{self._plan.seed}-{process}")
        starts: dict[Partition, int] = {}
        ends: dict[Partition, int] = {}
        while len(ends) < len(self._partitions) and self._clock.boot_ns() < deadline_ns:
            for tp in self._partitions:
                start = await self._offset(process, consumer, Earliest(tp=tp))
                end = await self._offset(process, consumer, Latest(tp=tp))
                if start is not None and end is not None:
                    starts[tp], ends[tp] = start, end
        reader = _Reader(self, process, consumer)
        await reader.assign(starts, drain=True)
        while self._clock.boot_ns() < deadline_ns and any(reader.positions[tp] < ends[tp] for tp in starts):
            await reader.poll()
        await reader.close()


class _Reader:
    """One consuming process: a client, its positions, and what is written down about it."""

    def __init__(self, workload: Workload, process: Process, consumer: Consumer | None = None) -> None:
        self._work = workload
        self._process = process
        self._group = f"dray-check-{workload._plan.seed}-{process}"
        self._consumer = consumer
        self.positions: dict[Partition, int] = {}

    async def open(self) -> None:
        self._consumer = await self._work._kit.consumer(self._group)
        await self.move()

    async def close(self) -> None:
        if self._consumer is not None:
            await self._consumer.close()
        self._consumer = None
        self._work._recorder.note(self._process, Crashed())

    async def move(self) -> None:
        """Take some partitions, each from its beginning or from where this process was."""
        work = self._work
        chosen = [tp for tp in work._partitions if work._entropy.uniform(0, 1) < 0.6] or work._partitions[:1]
        back = work._entropy.uniform(0, 1) < 0.3
        await self.assign({tp: 0 if back else self.positions.get(tp, 0) for tp in chosen})

    async def assign(self, positions: dict[Partition, int], *, drain: bool = False) -> None:
        consumer = self._client()

        async def assign() -> Result:
            await consumer.assign(positions)
            return Done()

        told: dict[Partition, int | None] = dict(positions)
        await self._work._try(self._process, Assign(positions=told, drain=drain), assign)
        self.positions = {**self.positions, **positions} if not drain else dict(positions)
        self._assigned = list(positions)

    async def poll(self) -> bool:
        consumer = self._client()

        async def poll() -> Result:
            return _polled(await consumer.poll(_POLL_S))

        told = {tp: self.positions[tp] for tp in self._assigned}
        result = await self._work._try(self._process, Poll(positions=told), poll)
        if not isinstance(result, Polled):
            return False
        for tp, records in result.records.items():
            self.positions[tp] = records[-1][0] + 1
        return True

    async def commit(self) -> None:
        """Store one position and read it back: nobody else commits for this group."""
        consumer = self._client()
        tp = self._work._choose(self._assigned)
        offset = self.positions[tp]

        async def commit() -> Result:
            await consumer.commit(tp, offset)
            return Done()

        async def committed() -> Result:
            return At(offset=await consumer.committed(tp))

        await self._work._try(self._process, Commit(group=self._group, tp=tp, offset=offset), commit)
        await self._work._try(self._process, Committed(group=self._group, tp=tp), committed)

    def _client(self) -> Consumer:
        assert self._consumer is not None, "a reader is opened before it is used"
        return self._consumer


def _polled(fetched: Fetched) -> Polled:
    records = {tp: [_record(offset, raw) for offset, raw in listed] for tp, listed in fetched.records.items() if listed}
    return Polled(records=records, ends=dict(fetched.ends))


def _record(offset: int, raw: bytes) -> Record:
    value = UNREADABLE
    with contextlib.suppress(Corrupt):
        value = decode_value(raw).id
    return offset, value, checksum(raw)
