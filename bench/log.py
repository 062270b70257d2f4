"""The local log and the log server.

local append          2 kB, one at a time, against a bare 2 kB write + fdatasync on the same disk
grouped appends       16 in flight against one at a time
log server            three client processes, each writing and following; commits/s, latency, lag of followers
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
from pathlib import Path

import uvloop

from bench.harness import Comparison, Report
from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.log.client import ClientLog
from dray.log.files import FileLog
from dray.log.port import Position
from dray.log.server import LogServer
from dray.offload import ThreadOffload
from dray.telemetry import configure_logging

ENTRY = os.urandom(2147)
APPENDS = 300
CLIENTS = 3
CLIENT_SECONDS = 3.0
CLUSTER = uuid.UUID(int=1)


def cases() -> list[Comparison | Report]:
    configure_logging("error")
    return [
        Comparison(
            "local append of 2 kB",
            _single_p50_rate,
            _bare_p50_rate,
            0.25,
            "1/p50",
            "p50 at most four times that of write + fdatasync",
        ),
        Comparison(
            "16 appends in flight",
            lambda: _throughput(16),
            lambda: _throughput(1),
            2.0,
            "appends/s",
            "group commit against one at a time",
        ),
        Report("log server, 3 writers x 1", lambda: _server(1), "one append in flight per client process"),
        Report("log server, 3 writers x 16", lambda: _server(16), "16 in flight per client process"),
        Report("open of a 64 MiB log", _open, "scan, checksums and syncs"),
    ]


def _bare_p50_rate() -> float:
    directory = Path(tempfile.mkdtemp(prefix="dray-bench-"))
    fd = os.open(directory / "bare", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    try:
        times = []
        for _ in range(APPENDS):
            started = time.perf_counter()
            os.write(fd, ENTRY)
            os.fdatasync(fd)
            times.append(time.perf_counter() - started)
        return 1 / statistics.median(times)
    finally:
        os.close(fd)
        shutil.rmtree(directory)


def _single_p50_rate() -> float:
    async def run(log: FileLog) -> float:
        times = []
        for _ in range(APPENDS):
            started = time.perf_counter()
            await log.append(ENTRY)
            times.append(time.perf_counter() - started)
        return 1 / statistics.median(times)

    return uvloop.run(_with_log(run))


def _throughput(in_flight: int) -> float:
    async def run(log: FileLog) -> float:
        async def lane() -> None:
            for _ in range(APPENDS):
                await log.append(ENTRY)

        started = time.perf_counter()
        await asyncio.gather(*[lane() for _ in range(in_flight)])
        return in_flight * APPENDS / (time.perf_counter() - started)

    return uvloop.run(_with_log(run))


async def _with_log(run) -> float:
    directory = Path(tempfile.mkdtemp(prefix="dray-bench-"))
    offload = ThreadOffload(2)
    log = await _open_log(directory, offload)
    try:
        return await run(log)
    finally:
        await log.close()
        offload.close()
        shutil.rmtree(directory)


async def _open_log(directory: Path, offload: ThreadOffload) -> FileLog:
    return await FileLog.open(directory, disk=LocalDisk(), offload=offload, clock=SystemClock())


def _open() -> dict[str, float]:
    return uvloop.run(_fill_and_open())


async def _fill_and_open() -> dict[str, float]:
    directory = Path(tempfile.mkdtemp(prefix="dray-bench-"))
    offload = ThreadOffload(2)
    try:
        log = await _open_log(directory, offload)
        for _ in range(64):
            await asyncio.gather(*[log.append(ENTRY) for _ in range(500)])
        await log.close()
        started = time.perf_counter()
        log = await _open_log(directory, offload)
        opened = time.perf_counter()
        async for position, _ in log.follow(Position(0)):
            if position == 64 * 500:
                break
        followed = time.perf_counter()
        await log.close()
        return {"open_s": opened - started, "follow_us_per_entry": (followed - opened) / (64 * 500) * 1e6}
    finally:
        offload.close()
        shutil.rmtree(directory)


def _server(in_flight: int) -> dict[str, float]:
    return uvloop.run(_serve(in_flight))


async def _serve(in_flight: int) -> dict[str, float]:
    directory = Path(tempfile.mkdtemp(prefix="dray-bench-"))
    offload = ThreadOffload(2)
    log = await _open_log(directory, offload)
    server = LogServer({0: log}, cluster_id=CLUSTER)
    await server.listen_unix(directory / "meta.sock")
    cpu = time.process_time()
    try:
        clients = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-m", "bench.log", str(directory / "meta.sock"), str(in_flight), stdout=subprocess.PIPE
            )
            for _ in range(CLIENTS)
        ]
        outputs = [json.loads((await client.communicate())[0]) for client in clients]
        cpu = time.process_time() - cpu
        return _figures(outputs, cpu)
    finally:
        await server.close()
        await log.close()
        offload.close()
        shutil.rmtree(directory)


def _figures(outputs: list[dict], server_cpu: float) -> dict[str, float]:
    latencies = sorted(latency for output in outputs for latency in output["latencies"])
    acked = {int(position): at for output in outputs for position, at in output["acked"].items()}
    all_follow = max(output["started"] for output in outputs) + 0.2  # before that, history is being caught up with
    lags = sorted(
        at - acked[int(position)]
        for output in outputs
        for position, at in output["seen"].items()
        if acked.get(int(position), 0.0) > all_follow
    )
    client_cpu = sum(output["cpu"] for output in outputs)
    return {
        "commits_per_s": len(latencies) / CLIENT_SECONDS,
        "p50_ms": latencies[len(latencies) // 2] * 1e3,
        "p99_ms": latencies[len(latencies) * 99 // 100] * 1e3,
        "lag_p50_ms": lags[len(lags) // 2] * 1e3,
        "lag_p99_ms": lags[len(lags) * 99 // 100] * 1e3,
        "server_cpu_us_per_commit": server_cpu / len(latencies) * 1e6,
        "client_cpu_us_per_commit": client_cpu / len(latencies) * 1e6,
    }


async def _client(path: Path, in_flight: int) -> None:
    """One client process: writers and a follower; prints what it measured as JSON."""
    log = ClientLog(path, 0, cluster_id=CLUSTER)
    latencies: list[float] = []
    acked: dict[int, float] = {}
    seen: dict[int, float] = {}

    async def follow() -> None:
        async for position, _ in log.follow(Position(0)):
            seen[position] = time.monotonic()

    async def write() -> None:
        while time.monotonic() < end:
            started = time.monotonic()
            position = await log.append(ENTRY)
            acked[position] = time.monotonic()
            latencies.append(acked[position] - started)

    follower = asyncio.ensure_future(follow())
    await log.tail()
    cpu = time.process_time()
    began = time.monotonic()
    end = began + CLIENT_SECONDS
    await asyncio.gather(*[write() for _ in range(in_flight)])
    cpu = time.process_time() - cpu
    follower.cancel()
    await log.close()
    print(json.dumps({"latencies": latencies, "acked": acked, "seen": seen, "cpu": cpu, "started": began}))


if __name__ == "__main__":
    configure_logging("error")
    uvloop.run(_client(Path(sys.argv[1]), int(sys.argv[2])))
