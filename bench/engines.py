"""The engines of the log, side by side: entries of 50 appends, client processes that write and follow.

one writer            one append in flight: commits/s, latency, lag of its follower, CPU of the client a commit
bare put              the same bytes, one put to etcd or Oxia by the same client
three writers         three processes with one append in flight each, against one process with three

Oxia is our double of it, a process in Python: what it says is how the client compares with itself, and nothing about
the speed of a server.
"""

import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import uvloop

from bench.harness import Comparison, Report
from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.log.opening import LogEffects, open_log
from dray.log.port import BEFORE_ALL
from dray.log.server import LogServer
from dray.log.urls import EtcdLogs, LocalLogs, OxiaLogs, parse_log_url
from dray.offload import ThreadOffload
from dray.telemetry import configure_logging

ENTRY = os.urandom(2147)
"""50 appends of a partition each, as the machine writes them."""
SECONDS = 3.0
CLUSTER = uuid.UUID(int=1)


def cases() -> list[Comparison | Report]:
    configure_logging("error")
    return [
        *(
            Report(f"{name}, one writer", partial(_one, where), "one in flight, followed by itself")
            for name, where in ENGINES.items()
        ),
        *(
            Comparison(
                f"append to {name}", partial(_speed, where, "write"), partial(_speed, where, "put"), 0.5, "1/p50",
                "p50 at most twice that of a bare put",
            )
            for name, where in PUT_INTO.items()
        ),
        *(
            Comparison(
                f"three writers on {name}", partial(_rate, where, 3, 1), partial(_rate, where, 1, 3), 0.8, "commits/s",
                "three processes against one with as many in flight",
            )
            for name, where in PUT_INTO.items()
        ),
    ]  # fmt: skip


@contextmanager
def _local() -> Iterator[str]:
    directory = tempfile.mkdtemp(prefix="dray-bench-")
    try:
        yield f"local:{directory}"
    finally:
        shutil.rmtree(directory)


@contextmanager
def _served() -> Iterator[str]:
    with _local() as url:
        socket = f"{url.removeprefix('local:')}/meta.sock"
        command = [sys.executable, "-m", "bench.engines", url, "serve", "0"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE)
        try:
            assert server.stdout is not None
            server.stdout.readline()
            yield f"unix:{socket}"
        finally:
            server.terminate()
            server.wait()


@contextmanager
def _postgres() -> Iterator[str]:
    from tools.peers.postgres import postgres

    with postgres() as server:
        yield server.url


@contextmanager
def _etcd() -> Iterator[str]:
    from tools.peers.etcd import etcd

    with etcd() as server:
        yield server.url()


@contextmanager
def _oxia() -> Iterator[str]:
    from tools.peers.oxia_double import oxia_double

    with oxia_double() as server:
        yield server.url()


PUT_INTO: dict[str, Callable] = {"etcd": _etcd, "Oxia (double)": _oxia}
ENGINES: dict[str, Callable] = {"local": _local, "log server": _served, "PostgreSQL": _postgres, **PUT_INTO}


def _one(where: Callable) -> dict[str, float]:
    with where() as url:
        (output,) = _clients(url, "write", 1, 1)
    latencies, lags = sorted(output["latencies"]), sorted(output["lags"])
    return {
        "commits_per_s": len(latencies) / SECONDS,
        "p50_ms": latencies[len(latencies) // 2] * 1e3,
        "p99_ms": latencies[len(latencies) * 99 // 100] * 1e3,
        "lag_p50_ms": lags[len(lags) // 2] * 1e3,
        "client_cpu_us_per_commit": output["cpu"] / len(latencies) * 1e6,
    }


def _speed(where: Callable, what: str) -> float:
    with where() as url:
        (output,) = _clients(url, what, 1, 1)
    return 1 / statistics.median(output["latencies"])


def _rate(where: Callable, clients: int, in_flight: int) -> float:
    with where() as url:
        outputs = _clients(url, "write", clients, in_flight)
    return sum(len(output["latencies"]) for output in outputs) / SECONDS


def _clients(url: str, what: str, clients: int, in_flight: int) -> list[dict]:
    """What so many processes measured that began together."""
    command = [sys.executable, "-m", "bench.engines", url, what, str(in_flight)]
    with ExitStack() as stack:
        found = [
            stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
            for _ in range(clients)
        ]
        for one in found:
            assert one.stdout is not None
            one.stdout.readline()
        for one in found:
            assert one.stdin is not None
            one.stdin.close()
            one.stdin = None
        return [json.loads(one.communicate()[0]) for one in found]


async def _measure(append: Callable, in_flight: int, acked: dict[int, float]) -> dict:
    latencies: list[float] = []
    print("ready", flush=True)
    sys.stdin.read()
    end, cpu = time.monotonic() + SECONDS, time.process_time()

    async def write() -> None:
        while time.monotonic() < end:
            started = time.monotonic()
            position = await append(ENTRY)
            now = time.monotonic()
            acked[position] = now
            latencies.append(now - started)

    await asyncio.gather(*[write() for _ in range(in_flight)])
    return {"latencies": latencies, "cpu": time.process_time() - cpu}


async def _write(url: str, in_flight: int) -> None:
    offload = ThreadOffload(2)
    effects = LogEffects(clock=SystemClock(), disk=LocalDisk(), offload=offload)
    log = await open_log(parse_log_url(url), 0, effects)
    acked: dict[int, float] = {}
    seen: dict[int, float] = {}

    async def follow() -> None:
        async for position, _ in log.follow(BEFORE_ALL):
            seen[position] = time.monotonic()

    follower = asyncio.ensure_future(follow())
    await log.append(ENTRY)
    found = await _measure(log.append, in_flight, acked)
    follower.cancel()
    await asyncio.gather(follower, return_exceptions=True)
    lags = [seen[position] - at for position, at in acked.items() if position in seen]
    await log.close()
    offload.close()
    print(json.dumps({**found, "lags": lags}))


async def _put(url: str, in_flight: int) -> None:
    """Bare puts, by the client that the log has."""
    await (_put_into_oxia if isinstance(parse_log_url(url), OxiaLogs) else _put_into_etcd)(url, in_flight)


async def _put_into_oxia(url: str, in_flight: int) -> None:
    from dray.log.oxia import oxia_pb2 as pb
    from dray.log.oxia.servers import OxiaServers

    where = parse_log_url(url)
    assert isinstance(where, OxiaLogs)
    servers, counted = OxiaServers(where, 5.0), iter(range(1 << 30))

    async def append(entry: bytes) -> int:
        number = next(counted)
        route = await servers.route("bare")
        put = pb.Put(key=f"bare-{number}", value=entry, partition_key="bare")
        await servers.write(route, pb.WriteRequest(shard=route.shard, puts=[put]))
        return number

    await append(ENTRY)
    found = await _measure(append, in_flight, {})
    await servers.close()
    print(json.dumps({**found, "lags": [0.0]}))


async def _put_into_etcd(url: str, in_flight: int) -> None:
    from dray.log.etcd import etcd_pb2 as pb
    from dray.log.etcd.members import EtcdPeer, Members

    where = parse_log_url(url)
    assert isinstance(where, EtcdLogs)
    members, counted = Members(where, 5.0), iter(range(1 << 30))

    def put(member: EtcdPeer):
        return member.channel.unary_unary(
            "/etcdserverpb.KV/Put", pb.PutRequest.SerializeToString, pb.PutResponse.FromString
        )

    async def append(entry: bytes) -> int:
        number = next(counted)
        await members.call(put, pb.PutRequest(key=b"bare/%d" % number, value=entry))
        return number

    await append(ENTRY)
    found = await _measure(append, in_flight, {})
    await members.close()
    print(json.dumps({**found, "lags": [0.0]}))


async def _serve(url: str, _: int) -> None:
    where = parse_log_url(url)
    assert isinstance(where, LocalLogs)
    effects = LogEffects(clock=SystemClock(), disk=LocalDisk(), offload=ThreadOffload(2))
    server = LogServer({0: await open_log(where, 0, effects)}, cluster_id=CLUSTER)
    await server.listen_unix(Path(where.root) / "meta.sock")
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    configure_logging("error")
    work = {"write": _write, "put": _put, "serve": _serve}[sys.argv[2]]
    uvloop.run(work(sys.argv[1], int(sys.argv[3])))
