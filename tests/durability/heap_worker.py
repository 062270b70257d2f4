"""A worker of a heap, as a process of its own: `python -m tests.durability.heap_worker ENDPOINTS FILE SEED KEEP`.

It pops through the SDK and writes its history to FILE. With KEEP it is
sometimes slower than its leases, nacks, gives back and rejects; without it
acks whatever it gets, at once. It works until it is killed.
"""

import asyncio
import random
import sys
import zlib
from pathlib import Path

from dray.client import Client
from dray.client.consumer import Consumer
from dray.client.errors import ClientError, LeaseLost
from dray.client.job import Job
from dray.clock import SystemClock
from dray.testing.history import Recorder
from dray.testing.history.events import OpId, Process
from dray.testing.history.heap_events import LEASE_LOST, Held, Pop, Popped, Settle, Settled, SettleKind

HEAP = "jobs"
LEASE_S = 2
BACK_S = 0.5


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


async def serve(worker: Worker, endpoints: str) -> None:
    async with Client(endpoints.split(","), timeout=5.0) as client:
        heap = client.heap(HEAP)
        async with heap.pop(lease=LEASE_S, auto_ack=False, auto_extend=False, on_lost="flag") as consumer:
            await worker.work(consumer)


def main(endpoints: str, path: str, seed: str, keep: str) -> None:
    with Path(path).open("wb", buffering=0) as sink:
        record = Recorder(sink, SystemClock().boot_ns)
        worker = Worker(record, Process(f"worker {seed}"), random.Random(seed), keep=bool(keep))
        asyncio.run(serve(worker, endpoints))


if __name__ == "__main__":
    main(*sys.argv[1:])
