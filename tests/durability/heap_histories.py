"""A heap on several broker processes, workers that are processes too, and the history of all of them."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Literal, Self, TypeAlias

from msgspec.structs import replace

from dray.client import Client
from dray.client.errors import ClientError
from dray.clock import SystemClock
from dray.testing.history import Judgement, Limits, Recorder, check, fold_history, read_events
from dray.testing.history.events import Crashed, Fail, Info, Invoke, Nemesis, Noted, Ok, OpId, Process, Run
from dray.testing.history.heap_events import Dead, Enqueue, Enqueued, HeapDrained, HeapOpened, ListDead
from tests.durability.cluster import QUICK, Meta
from tests.durability.daemon import Drayd, free_port
from tests.durability.heap_worker import HEAP

_OPS = 10_000_000
"""Operations of one file; those of the next get numbers behind them."""
RETRIES = 50
LIMITS = Limits(progress_ns=120_000_000_000, late_ack_ns=15_000_000_000, stuck_ns=30_000_000_000)
"""On a machine that does much else."""
DRAIN_S = 120
WorkerHabit: TypeAlias = Literal["slow", "quick", "greedy"]
"""As `heap_worker` has them."""


class HeapCluster:
    """A log server and brokers with gRPC. Used as a block."""

    def __init__(self, home: Path, *, brokers: int) -> None:
        self.home = home
        self.meta = Meta(home / "meta", 1)
        self.endpoints: list[str] = []
        self.brokers: list[Drayd] = []
        for number in range(1, brokers + 1):
            self.endpoints.append(f"127.0.0.1:{free_port()}")
            joins = ("--log", f"unix:{home / 'meta' / 'meta.sock'}", *QUICK, "--set", f"broker.id={number}")
            self.brokers.append(Drayd(home / f"broker-{number}", *joins, "--grpc", self.endpoints[-1]))
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.meta.start()
            stack.callback(self.meta.stop, signal.SIGKILL)
            for broker in self.brokers:
                stack.enter_context(broker)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class HeapRun:
    """Producers here, workers in processes; every one of them writes what it saw."""

    def __init__(self, cluster: HeapCluster, seed: int, *, habit: WorkerHabit, gives_back: bool) -> None:
        self.cluster = cluster
        self.dice = random.Random(seed)
        self._seed = seed
        self._habit = habit
        self._files = [cluster.home / "history-0"]
        self._sink = self._files[0].open("wb", buffering=0)
        self.record = Recorder(self._sink, SystemClock().boot_ns)
        self.record.run(Run(seed=seed))
        opened = HeapOpened(heap=HEAP, retries=RETRIES, gives_back=gives_back, resumes=True)
        self.record.note(Process("run"), opened)
        self._workers: list[tuple[Process, subprocess.Popen[bytes]]] = []
        self._numbers = count(1)
        self.enqueued = 0

    def client(self) -> Client:
        return Client(self.cluster.endpoints, timeout=10.0)

    async def make_heap(self) -> None:
        async with self.client() as client:
            await client.make_heap(HEAP, visibility_timeout=5, max_retries=RETRIES, backoff_base=0.1, backoff_cap=1)

    # -- workers -----------------------------------------------------------

    def start_worker(self) -> None:
        number = next(self._numbers)
        path = self.cluster.home / f"history-{number}"
        path.touch()
        self._files.append(path)
        ends = self.cluster.endpoints[number % len(self.cluster.endpoints) :]
        ends = [*ends, *self.cluster.endpoints[: len(self.cluster.endpoints) - len(ends)]]
        words = [",".join(ends), str(path), f"{self._seed}-{number}", self._habit]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DRAY__")}
        process = subprocess.Popen([sys.executable, "-m", "tests.durability.heap_worker", *words], env=environment)
        self._workers.append((Process(f"worker {self._seed}-{number}"), process))

    async def workers_began(self) -> None:
        """Until each has asked for a message, or more."""
        async with asyncio.timeout(DRAIN_S):
            while not all(path.stat().st_size for path in self._files):
                await asyncio.sleep(0.05)

    def kill_worker(self, index: int) -> None:
        """kill -9."""
        name, process = self._workers.pop(index)
        process.kill()
        process.wait(30)
        self.record.note(name, Crashed())

    def end(self) -> None:
        while self._workers:
            self.kill_worker(0)
        self._sink.close()

    # -- producers ---------------------------------------------------------

    async def produce(self, client: Client, name: str, messages: int, *, delays: bool, pace_s: float = 0.0) -> None:
        for number in range(messages):
            key = f"{name}-{number}"
            payload = f"{key}:".encode() + bytes(self.dice.choice((0, 100, 1_000)))
            delay_ms = self.dice.choice((0, 0, 0, 1_000)) if delays else 0
            call = Enqueue(
                heap=HEAP, key=key, crc=zlib.crc32(payload), priority=self.dice.randrange(1 << 20), delay_ms=delay_ms
            )
            while not await self._enqueue(client, name, call, payload):
                await asyncio.sleep(0.1)
            self.enqueued += 1
            await asyncio.sleep(pace_s)

    async def _enqueue(self, client: Client, name: str, call: Enqueue, payload: bytes) -> bool:
        op = self.record.invoke(Process(name), call)
        delay = call.delay_ms / 1_000 or None
        try:
            told = await client.heap(HEAP).enqueue(payload, priority=call.priority, dedup_key=call.key, delay=delay)
        except ClientError as error:
            self.record.info(op, type(error).__name__)
            return False
        self.record.ok(op, Enqueued(id=told.message_id, duplicate=told.duplicate))
        return True

    # -- the end -----------------------------------------------------------

    def fault(self, name: str, target: str, *, start: bool) -> None:
        self.record.note(Process("nemesis"), Nemesis(fault=name, target=target, start=start))

    async def drain(self, client: Client, seconds: float = DRAIN_S) -> None:
        """Until nothing is ready, delayed or leased; then the dead letters are listed."""
        async with asyncio.timeout(seconds):
            while True:
                stats = await client.heap(HEAP).stats()
                if not stats.ready + stats.delayed + stats.leased:
                    break
                await asyncio.sleep(0.2)
        op = self.record.invoke(Process("run"), ListDead(heap=HEAP))
        dead = [message.id for message in await client.heap(HEAP).dlq.list(10_000)]
        self.record.ok(op, Dead(ids=dead))
        self.record.note(Process("run"), HeapDrained(heap=HEAP))

    def judge(self) -> Judgement:
        events = sorted(self._events(), key=lambda event: event.t_ns)
        return check(fold_history(events), LIMITS)

    def _events(self) -> "Iterator[Invoke | Ok | Fail | Info | Noted]":
        for number, path in enumerate(self._files):
            events, _ = read_events(path)
            yield from (_renumbered(event, number) for event in events if not isinstance(event, Run))


def _renumbered(event: Invoke | Ok | Fail | Info | Noted, number: int) -> "Invoke | Ok | Fail | Info | Noted":
    return event if isinstance(event, Noted) else replace(event, op=OpId(event.op + number * _OPS))
