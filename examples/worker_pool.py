"""A pool of workers on a queue with priorities, retries and dead letters; one is killed while it holds a message.

    python examples/worker_pool.py [DIRECTORY]

Workers are processes of their own, as they would be on other machines. A message that its worker has taken and not
acknowledged comes back when its lease ends; one that was acknowledged never does.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from dray.client import Client, Job, NewMessage, Reject, Retry

JOBS = 60
LEASE_S = 4.0


async def work(address: str, name: str) -> None:
    """A worker: some jobs at a time, until it is told to end."""

    async def handle(job: Job) -> None:
        print(f"took {job.id} {job.attempts}", flush=True)
        match job.payload:
            case {"kind": "hang"} if name == "victim":
                await asyncio.sleep(3_600)  # it is killed in here, and so never acknowledges it
            case {"kind": "flaky"} if job.attempts == 0:
                raise Retry(delay=0.1)
            case {"kind": "poison"}:
                raise ValueError("this can never work")
            case {"kind": "refused"}:
                raise Reject("not for us")
        await job.ack()
        print(f"done {job.id} {job.attempts}", flush=True)

    most = 1 if name == "victim" else 4
    async with Client(address) as client:
        pool = asyncio.create_task(client.heap("jobs").run(handle, concurrency=most, consumer=name))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, pool.cancel)
        with suppress(asyncio.CancelledError):
            await pool


def start_broker(directory: Path) -> tuple["subprocess.Popen[str]", str]:
    """A broker on free ports; returns it and where it serves heaps."""
    command = [str(Path(sys.executable).parent / "drayd"), "dev", "--data", str(directory), "--kafka", "0"]
    command += ["--http", "0", "--grpc", "0", "--set", "logging.level=error"]
    broker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    line = broker.stdout.readline() if broker.stdout else ""
    if not line.startswith("ready "):
        raise SystemExit(f"the broker did not start: exit code {broker.wait()}")
    return broker, line.strip().partition(" grpc=")[2]


class Worker:
    """A worker process, and what it said."""

    def __init__(self, process: asyncio.subprocess.Process, name: str) -> None:
        self.process = process
        self.name = name
        self.took: dict[str, int] = {}
        self.done: list[str] = []
        self.listening = asyncio.create_task(self._listen())

    @classmethod
    async def start(cls, address: str, name: str) -> "Worker":
        process = await asyncio.create_subprocess_exec(
            sys.executable, __file__, "--worker", address, name,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        return cls(process, name)

    async def _listen(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            word, message_id, attempts = line.decode().split()
            if word == "took":
                self.took[message_id] = int(attempts)
            else:
                self.done.append(message_id)


async def main(directory: Path) -> None:
    print("1. a queue: the smallest priority first, two retries, a lease of 4 s")
    broker, address = start_broker(directory)
    async with Client(address) as client:
        await client.make_heap("jobs", max_retries=2, visibility_timeout=LEASE_S, backoff_base=0.1, backoff_cap=0.1)
        heap = client.heap("jobs")
        hanging = (await heap.enqueue({"kind": "hang"}, priority=-10)).message_id
        kinds = {7: "flaky", 13: "poison", 29: "refused"}
        jobs = [NewMessage(payload={"kind": kinds.get(n, "plain"), "n": n}, priority=n % 3) for n in range(1, JOBS)]
        await heap.enqueue_batch(jobs)
        print(f"  {JOBS} messages enqueued, each synced before its answer; the most urgent is {hanging}")

        print("2. a worker takes the most urgent one, and is killed while it holds it")
        victim = await Worker.start(address, "victim")
        while hanging not in victim.took:  # noqa: ASYNC110  it says so when it is there
            await asyncio.sleep(0.02)
        os.kill(victim.process.pid, signal.SIGKILL)
        await victim.process.wait()
        await victim.listening
        print(f"  kill -9 of the worker: it had acknowledged {len(victim.done)} messages, and holds the urgent one")

        print("3. two other workers do the rest; what the dead one held comes back when its lease ends")
        workers = [await Worker.start(address, f"worker-{n}") for n in (1, 2)]
        while (stats := await heap.stats()).ready + stats.delayed + stats.leased:  # noqa: ASYNC110  brokers tell no end
            await asyncio.sleep(0.1)
        for worker in workers:
            worker.process.terminate()
            await worker.process.wait()
            await worker.listening

        done = [message_id for worker in (victim, *workers) for message_id in worker.done]
        again = max(worker.took.get(hanging, 0) for worker in workers)
        print(f"  {hanging} came back: delivery {again + 1}, done by {owner(workers, hanging)}")
        dead = await heap.dlq.list()
        print(f"  {len(done)} done, {len(dead)} dead letters: {len(done) + len(dead)} of {JOBS}, nothing was lost")
        print(f"  done twice after an ack: {len(done) - len(set(done))}")
        for letter in dead:
            print(f"  dead after {letter.attempts} deliveries: {letter.last_error}")
        if len(done) + len(dead) != JOBS or len(done) != len(set(done)) or len(dead) != 2:
            raise SystemExit("that is not what was promised")

        print("4. a person looks at the dead letters, and lets one try again")
        print(f"  {await heap.dlq.replay([dead[0].id])} replayed, {(await heap.stats()).ready} ready")
    broker.send_signal(signal.SIGTERM)
    print(f"5. SIGTERM: exit code {broker.wait()}")


def owner(workers: list[Worker], message_id: str) -> str:
    return ", ".join(worker.name for worker in workers if message_id in worker.done)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        asyncio.run(work(*sys.argv[2:]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(temporary) / "dray-data"))
