"""A worker of a heap, as a process of its own: `python -m tests.durability.heap_worker ENDPOINTS FILE SEED HABIT`.

It pops and writes its history to FILE. By its habit it is `slow`: sometimes
slower than its leases, and it nacks, gives back and rejects; or `quick`: it
acks whatever it gets, at once. `greedy` is quick, and takes a hundred at a
time by calls, so that a million pops end. It works until it is killed.
"""

import asyncio
import random
import sys
import zlib
from pathlib import Path

from dray.api.v1 import heaps_pb2 as pb
from dray.client import Client
from dray.client.consumer import Consumer
from dray.client.errors import ClientError, LeaseLost, error_among
from dray.client.grpc import GrpcTransport
from dray.client.job import Job, duration_of
from dray.client.retrying import keep_trying
from dray.client.transport import SETTLE, Method
from dray.clock import SystemClock
from dray.testing.history import Recorder
from dray.testing.history.events import OpId, Process
from dray.testing.history.heap_events import LEASE_LOST, Held, Pop, Popped, Settle, Settled, SettleKind

HEAP = "jobs"
LEASE_S = 2
BACK_S = 0.5
MANY = 100
GREEDY_LEASE_S = 5
POP = Method("Pop", pb.PopReq, pb.PopResp)
CALL_S = 30.0
WAIT_S = 1


def seen(job: Job) -> Held:
    """As a history has it."""
    return Held(
        id=job.id, key=job.raw.decode(errors="replace").partition(":")[0], crc=zlib.crc32(job.raw),
        token=job.lease_token, attempts=job.attempts, priority=job.priority,
    )  # fmt: skip


class Worker:
    def __init__(self, record: Recorder, process: Process, dice: random.Random, *, keep: bool) -> None:
        self._record = record
        self._process = process
        self._dice = dice
        self._keep = keep

    def ask(self) -> OpId:
        """Written down before the credit is given: the broker may grant from then on."""
        return self._record.invoke(self._process, Pop(heap=HEAP, lease_ms=LEASE_S * 1_000))

    async def work(self, consumer: Consumer) -> None:
        op = self.ask()
        while True:
            job = await consumer.next()
            self._record.ok(op, Popped(jobs=[seen(job)]))
            kind: SettleKind = "ack"
            if self._keep:
                kind = self._dice.choices(("ack", "nack", "release", "reject"), (16, 2, 1, 1))[0]
                await asyncio.sleep(self._dice.choice((0, 0, 0, 0, 0, 0, 0.01, 0.3, LEASE_S * 1.5)))
            op = self.ask()
            await self._settle(job, kind)

    async def _settle(self, job: Job, kind: SettleKind) -> None:
        wait_ms = 0 if kind in ("ack", "reject") else int(BACK_S * 1_000)
        call = Settle(heap=HEAP, token=job.lease_token, kind=kind, wait_ms=wait_ms)
        op = self._record.invoke(self._process, call)
        try:
            match kind:
                case "ack":
                    await job.ack()
                case "nack":
                    await job.nack(delay=BACK_S)
                case "release":
                    await job.release(delay=BACK_S)
                case _:
                    await job.reject()
        except LeaseLost:
            (self._record.fail if kind == "ack" else self._record.info)(op, LEASE_LOST)
        except ClientError as error:
            self._record.info(op, type(error).__name__)
        else:
            self._record.ok(op, Settled())


class GreedyWorker:
    """Takes and acks many with each call."""

    def __init__(self, record: Recorder, process: Process) -> None:
        self._record = record
        self._process = process

    async def work(self, brokers: GrpcTransport) -> None:
        asked = pb.PopReq(topic=HEAP, max=MANY, wait=duration_of(WAIT_S), visibility=duration_of(GREEDY_LEASE_S))
        while True:
            op = self._record.invoke(self._process, Pop(heap=HEAP, credits=MANY, lease_ms=GREEDY_LEASE_S * 1_000))
            try:
                taken = await brokers.call(POP, asked, CALL_S)
            except ClientError as error:
                self._record.info(op, type(error).__name__)
                await asyncio.sleep(0.05)
                continue
            self._record.ok(op, Popped(jobs=[_held(item) for item in taken.items]))
            if taken.items:
                await self._ack(brokers, [item.lease_token for item in taken.items])

    async def _ack(self, brokers: GrpcTransport, tokens: list[str]) -> None:
        ops = [
            self._record.invoke(self._process, Settle(heap=HEAP, token=token, kind="ack", wait_ms=0))
            for token in tokens
        ]
        items = [pb.SettleOne(lease_token=token, kind=pb.ACK) for token in tokens]
        request = pb.SettleReq(topic=HEAP, items=items)
        try:
            told = await keep_trying(lambda seconds: brokers.call(SETTLE, request, seconds), CALL_S, harmless=True)
        except ClientError as error:
            for op in ops:
                self._record.info(op, type(error).__name__)
            return
        for op, result in zip(ops, told.results, strict=True):
            if not result.HasField("error"):
                self._record.ok(op, Settled())
            elif isinstance(error := error_among(result.error), LeaseLost):
                self._record.fail(op, LEASE_LOST)
            else:
                self._record.info(op, type(error).__name__)


def _held(item: pb.PopItem) -> Held:
    return Held(
        id=item.message_id, key=item.payload.decode(errors="replace").partition(":")[0],
        crc=zlib.crc32(item.payload), token=item.lease_token, attempts=item.attempts, priority=item.priority,
    )  # fmt: skip


async def serve_greedily(worker: GreedyWorker, endpoints: str) -> None:
    brokers = GrpcTransport(endpoints.split(","))
    try:
        await worker.work(brokers)
    finally:
        await brokers.close()


async def serve(worker: Worker, endpoints: str) -> None:
    async with Client(endpoints.split(","), timeout=5.0) as client:
        heap = client.heap(HEAP)
        async with heap.pop(lease=LEASE_S, auto_ack=False, auto_extend=False, on_lost="flag") as consumer:
            await worker.work(consumer)


def main(endpoints: str, path: str, seed: str, habit: str) -> None:
    with Path(path).open("wb", buffering=0) as sink:
        record = Recorder(sink, SystemClock().boot_ns)
        process = Process(f"worker {seed}")
        if habit == "greedy":
            asyncio.run(serve_greedily(GreedyWorker(record, process), endpoints))
        else:
            worker = Worker(record, process, random.Random(seed), keep=habit == "slow")
            asyncio.run(serve(worker, endpoints))


if __name__ == "__main__":
    main(*sys.argv[1:])
