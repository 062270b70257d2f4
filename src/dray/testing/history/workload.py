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
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from dray.clock import Clock
from dray.ids import Entropy
from dray.testing.history.clients import ClientFailed, Consumer, Kit
from dray.testing.history.events import (
    Assign,
    At,
    Crashed,
    Created,
    CreateTopic,
    Earliest,
    Latest,
    Nemesis,
    OpId,
    Partition,
    Process,
    ProducerOpened,
    Result,
    Run,
    Send,
    Sent,
    partition,
)
from dray.testing.history.journal import Recorder
from dray.testing.history.reader import Attempts, Reader, choose
from dray.testing.history.values import Value, checksum, encode_value

_T = TypeVar("_T")
_BACKOFF_S: Final = 0.2
_ASK_S: Final = 0.02
_EARLIEST_SHARE: Final = 0.1
_MOVE_SHARE: Final = 1 / 64
"""How often a consumer takes other partitions instead of polling."""
_DROP_SHARE: Final = 1 / 4
"""How often it drops its client for that."""
_COMMIT_SHARE: Final = 1 / 20


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
        self._attempts = Attempts(recorder)
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

    def _group(self, process: Process) -> str:
        return f"dray-check-{self._plan.seed}-{process}"

    def _reader(self, process: Process) -> Reader:
        return Reader(
            process=process,
            group=self._group(process),
            partitions=self._partitions,
            kit=self._kit,
            attempts=self._attempts,
            entropy=self._entropy,
        )

    async def _create(self, topic: str) -> None:
        async def create() -> Result:
            return Created(topic_id=await self._kit.create_topic(topic, self._plan.partitions))

        await self._attempts.run(Process("admin"), CreateTopic(topic=topic), create)

    async def _produce(self, name: str) -> None:
        plan = self._plan
        promises = plan.promises
        self._recorder.note(
            Process(name),
            ProducerOpened(
                producer=name, idempotent=promises.idempotent, ordered=promises.ordered, retries=promises.retries
            ),
        )
        producer = await self._patiently(lambda: self._kit.producer(promises), self._end_ns)
        if producer is None:
            return
        room = asyncio.Semaphore(plan.in_flight)
        seq = 0
        while self._running():
            await room.acquire()
            value = Value(producer=name, seq=seq, tp=choose(self._entropy, self._partitions))
            seq += 1
            payload = encode_value(value, plan.value_bytes)
            call = Send(tp=value.tp, value=value.id, crc=checksum(payload), producer=name)
            op = self._recorder.invoke(Process(name), call)
            try:
                future = await producer.send(value.tp, payload)
            except ClientFailed as problem:
                self._attempts.settle(op, problem)
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
            self._attempts.settle(op, problem)
        else:
            self._recorder.info(op, type(problem).__name__)

    async def _consume(self, process: Process) -> None:
        reader = self._reader(process)
        opened = await self._patiently(reader.open, self._end_ns)
        while opened and self._running():
            if not await self._consume_once(reader):
                await reader.close()
                opened = await self._patiently(reader.open, self._end_ns)
        await reader.close()

    async def _consume_once(self, reader: Reader) -> bool:
        """False if the client is to be dropped: by choice, or because it failed (some never recover)."""
        if self._entropy.uniform(0, 1) < _MOVE_SHARE:
            if self._entropy.uniform(0, 1) < _DROP_SHARE:
                return False
            await reader.move()
        elif not await reader.poll():
            await self._clock.sleep(_BACKOFF_S)
            return False
        elif self._entropy.uniform(0, 1) < _COMMIT_SHARE:
            await reader.commit()
        return True

    async def _ask(self, process: Process) -> None:
        consumer = await self._patiently(lambda: self._kit.consumer(self._group(process)), self._end_ns)
        while consumer is not None and self._running():
            tp = choose(self._entropy, self._partitions)
            await self._offset(process, consumer, Latest(tp=tp))
            if self._entropy.uniform(0, 1) < _EARLIEST_SHARE:
                await self._offset(process, consumer, Earliest(tp=tp))
            await self._clock.sleep(_ASK_S)
        if consumer is not None:
            await consumer.close()

    async def _offset(self, process: Process, consumer: Consumer, call: Latest | Earliest) -> int | None:
        async def ask() -> Result:
            asked = consumer.latest(call.tp) if isinstance(call, Latest) else consumer.earliest(call.tp)
            return At(offset=await asked)

        result = await self._attempts.run(process, call, ask)
        return result.offset if isinstance(result, At) else None

    async def _disturb(self) -> None:
        """Each fault has its turn, and has it before another has a second one."""
        plan = self._plan
        unseen, turns = len(plan.faults), list(plan.faults)
        while turns and (unseen or self._running()):
            await self._clock.sleep(plan.quiet_seconds)
            if not unseen and not self._running():
                return
            fault = choose(self._entropy, turns)
            turns.remove(fault)
            unseen = max(0, unseen - 1)
            turns = turns or list(plan.faults)
            self._recorder.note(Process("nemesis"), Nemesis(fault=fault.name, target=fault.target, start=True))
            await fault.start()
            try:
                await self._clock.sleep(plan.fault_seconds)
            finally:
                await fault.stop()
                self._recorder.note(Process("nemesis"), Nemesis(fault=fault.name, target=fault.target, start=False))

    async def _drain(self, process: Process) -> None:
        """Read every partition from its beginning, with fresh clients, until each known end is reached.

        A drain that gets no client or no answer is written down as one that
        reached nothing: what was acknowledged then counts as unseen.
        """
        deadline_ns = self._clock.boot_ns() + int(self._plan.drain_seconds * 1e9)
        starts: dict[Partition, int] = {}
        ends: dict[Partition, int] = {}
        asker = await self._patiently(lambda: self._kit.consumer(self._group(process)), deadline_ns)
        while asker is not None and len(ends) < len(self._partitions) and self._clock.boot_ns() < deadline_ns:
            await self._find_ends(process, asker, starts, ends)
        if asker is not None:
            await asker.close()
        reader = self._reader(process)
        if await self._patiently(lambda: reader.open(starts, drain=True), deadline_ns) is None:
            op = self._recorder.invoke(process, Assign(positions={}, drain=True))
            self._recorder.info(op, "no client")
            return
        while self._clock.boot_ns() < deadline_ns and any(reader.positions[tp] < ends[tp] for tp in starts):
            if not await reader.poll():
                await self._clock.sleep(_BACKOFF_S)
        await reader.close()

    async def _find_ends(
        self, process: Process, asker: Consumer, starts: dict[Partition, int], ends: dict[Partition, int]
    ) -> None:
        for tp in self._partitions:
            start = await self._offset(process, asker, Earliest(tp=tp))
            end = await self._offset(process, asker, Latest(tp=tp))
            if start is None or end is None:
                await self._clock.sleep(_BACKOFF_S)
            else:
                starts[tp], ends[tp] = start, end

    async def _patiently(self, act: Callable[[], Awaitable[_T]], deadline_ns: int) -> _T | None:
        """Open a client; during a fault that takes several tries."""
        while True:
            try:
                return await act()
            except ClientFailed:
                if self._clock.boot_ns() >= deadline_ns:
                    return None
                await self._clock.sleep(_BACKOFF_S)
