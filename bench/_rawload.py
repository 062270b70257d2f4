"""Load for a Kafka port that costs its sender little; a program that answers with one line of JSON.

    python -m bench._rawload produce HOST:PORT TOPIC --partitions 4 --connections 4 --inflight 5
    python -m bench._rawload fetch HOST:PORT TOPIC --partitions 4 --connections 4
    python -m bench._rawload commit HOST:PORT TOPIC --partitions 4 --connections 64 --inflight 1
    python -m bench._rawload hold HOST:PORT --connections 2000

`produce` sends frames that were built once, as fast as they are answered or at
a fixed `--rate`; `fetch` reads each partition from its start, over and over,
and checks every batch; `hold` keeps idle connections until its input ends.
"""

import argparse
import asyncio
import gc
import json
import math
import resource
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import uvloop

from bench._connections import Committing, Connection, Fetching, Holding, Producing, Tally
from bench._wire import Refused, commit_request, produce_request, record_batch

_DRAIN_SECONDS: Final = 60.0
_LATE_SECONDS: Final = 0.05
_AT_ONCE: Final = 100
"""Connections that are opened together: fewer than any server's backlog."""

C = TypeVar("C", bound=Connection)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What to do; the names of the options."""

    mode: str
    address: str
    topic: str
    partitions: int
    connections: int
    inflight: int
    seconds: float
    rate: float
    record_bytes: int
    batch_records: int
    partitions_per_request: int
    fetch_bytes: int


def parse(argv: Sequence[str]) -> Load:
    parser = argparse.ArgumentParser(prog="python -m bench._rawload")
    parser.add_argument("mode", choices=["produce", "fetch", "commit", "hold"])
    parser.add_argument("address")
    parser.add_argument("topic", nargs="?", default="")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--inflight", type=int, default=5, help="requests on their way per connection")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rate", type=float, default=0.0, help="requests per second in all; 0: as fast as answered")
    parser.add_argument("--record-bytes", type=int, default=1024)
    parser.add_argument("--batch-records", type=int, default=128)
    parser.add_argument("--partitions-per-request", type=int, default=1)
    parser.add_argument("--fetch-bytes", type=int, default=1 << 20)
    load = Load(**vars(parser.parse_args(argv)))
    if load.mode != "hold" and not load.topic:
        parser.error(f"{load.mode} needs a topic")
    return load


async def produce(load: Load) -> dict[str, object]:
    tally = Tally()
    frames = _frames(load)
    records = load.batch_records * load.partitions_per_request
    inflight = 0 if load.rate else load.inflight

    def worker(turn: int) -> Producing:
        start = turn % len(frames)  # neighbours begin at different partitions
        return Producing(tally, frames[start:] + frames[:start], records, inflight)

    workers = await _connect(load, worker)
    work = _paced(workers, load, tally) if load.rate else _flat_out(workers, load.seconds)
    return await _measured(load, tally, workers, work)


async def fetch(load: Load) -> dict[str, object]:
    tally = Tally()
    workers = await _connect(load, lambda turn: Fetching(tally, load.topic, turn % load.partitions, load.fetch_bytes))
    return await _measured(load, tally, workers, _flat_out(workers, load.seconds))


async def commit(load: Load) -> dict[str, object]:
    """Each connection commits for a group of its own: members of one group wait for each other as little."""
    tally = Tally()

    def worker(turn: int) -> Committing:
        frames = [commit_request(f"bench-{turn}", load.topic, turn % load.partitions, offset) for offset in range(100)]
        return Committing(tally, frames, 1, load.inflight)

    workers = await _connect(load, worker)
    return await _measured(load, tally, workers, _flat_out(workers, load.seconds))


async def hold(load: Load) -> dict[str, object]:
    tally = Tally()
    workers = await _connect(load, lambda turn: Holding(tally))
    for worker in workers:
        worker.fill()
    await _all_idle(workers)
    print(json.dumps({"held": len(workers), "errors": tally.errors}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    return {"held": len(workers), "lost": sum(worker.transport.is_closing() for worker in workers)}


def _frames(load: Load) -> list[bytes]:
    """One request for each group of partitions."""
    pattern = bytes(range(256)) * (load.record_bytes // 256 + 1)
    batch = record_batch([pattern[: load.record_bytes]] * load.batch_records, int(time.time() * 1000))
    step = load.partitions_per_request
    if load.partitions % step:
        raise Refused(f"{load.partitions} partitions do not divide into requests of {step}")
    return [
        produce_request(load.topic, [(partition, batch) for partition in range(first, first + step)])
        for first in range(0, load.partitions, step)
    ]


async def _connect(load: Load, worker: Callable[[int], C]) -> list[C]:
    host, _, port = load.address.rpartition(":")
    loop = asyncio.get_running_loop()

    async def one(turn: int) -> C:
        _, protocol = await loop.create_connection(lambda: worker(turn), host, int(port))
        return protocol

    workers: list[C] = []
    for start in range(0, load.connections, _AT_ONCE):
        turns = range(start, min(start + _AT_ONCE, load.connections))
        workers.extend(await asyncio.gather(*map(one, turns)))
    return workers


async def _flat_out(workers: Sequence[Connection], seconds: float) -> None:
    for worker in workers:
        worker.fill()
    await asyncio.sleep(seconds)


async def _paced(workers: Sequence[Producing], load: Load, tally: Tally) -> None:
    start = time.perf_counter()
    for turn in range(math.floor(load.rate * load.seconds)):
        due = start + turn / load.rate
        behind = time.perf_counter() - due
        if behind < 0 or turn % 64 == 0:
            await asyncio.sleep(max(-behind, 0))
        if behind > _LATE_SECONDS:
            tally.late += 1  # the sender is behind by itself: if that is more than a few, the figures are its own
        workers[turn % len(workers)].send(due)


async def _all_idle(workers: Sequence[Connection]) -> None:
    async with asyncio.timeout(_DRAIN_SECONDS):
        await asyncio.gather(*(worker.idle.wait() for worker in workers))


async def _measured(
    load: Load, tally: Tally, workers: Sequence[Connection], work: Coroutine[object, object, None]
) -> dict[str, object]:
    """Do the work, wait for the last answer, and say what came of it."""
    gc.collect()
    gc.freeze()
    cpu, start = time.process_time(), time.perf_counter()
    await work
    for worker in workers:
        worker.stop()
    await _all_idle(workers)
    elapsed = time.perf_counter() - start
    latencies = sorted(tally.latencies_s)
    for worker in workers:
        worker.transport.close()
    return {
        "mode": load.mode,
        "seconds": elapsed,
        "requests": tally.requests,
        "records": tally.records,
        "bytes": tally.bytes,
        "mb_per_s": tally.bytes / elapsed / 1e6,
        "requests_per_s": tally.requests / elapsed,
        "p50_ms": _percentile(latencies, 0.50),
        "p99_ms": _percentile(latencies, 0.99),
        "p999_ms": _percentile(latencies, 0.999),
        "max_ms": _percentile(latencies, 1.0),
        "client_cpu_s": time.process_time() - cpu,
        "late": tally.late,
        "errors": tally.errors,
    }


def _percentile(ordered: Sequence[float], part: float) -> float:
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, math.ceil(part * len(ordered)) - 1)] * 1000


def main() -> None:
    load = parse(sys.argv[1:])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, load.connections + 256)), hard))
    run = {"produce": produce, "fetch": fetch, "commit": commit, "hold": hold}[load.mode]
    print(json.dumps(uvloop.run(run(load))), flush=True)


if __name__ == "__main__":
    main()
