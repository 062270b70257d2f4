"""A process that loads a log: `python -m bench._engineload WHAT PLACE [...]`.

write IN_FLIGHT SECONDS    append and follow, as a broker does
follow                     follow what another process writes, until our input ends
blocks IN_FLIGHT SECONDS   blocks of bare puts and blocks of appends in turns, by one client
serve                      the log server
delay                      in front of a bucket: every request takes 30 ms more

Each says a line when it is ready; those that measure begin when their input ends, and say what they found as JSON.
"""

import asyncio
import json
import os
import statistics
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import uvloop

from bench._engineplaces import REQUEST_S, Place
from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.ids import SystemEntropy
from dray.log.opening import LogEffects, open_log
from dray.log.port import BEFORE_ALL, Log
from dray.log.server import LogServer
from dray.log.urls import EtcdLogs, LocalLogs, OxiaLogs, parse_log_url
from dray.objects.opening import StoreEffects, StoreOptions, open_store
from dray.offload import ThreadOffload
from dray.telemetry import configure_logging

ENTRY: Final = os.urandom(2147)
"""As large as the machine writes 50 appends of a partition each."""
BLOCK: Final = 40
SKIPPED: Final = 5
"""Of a block: they meet what the block before has left behind."""
CLUSTER: Final = uuid.UUID(int=1)

Append = Callable[[bytes], Awaitable[int]]


@asynccontextmanager
async def _log(place: Place) -> AsyncIterator[Log]:
    clock, disk, offload = SystemClock(), LocalDisk(), ThreadOffload(4)
    objects = None
    if place.bucket is not None:
        options = StoreOptions(
            endpoint=place.bucket.endpoint, region="us-east-1", access_key=place.bucket.access_key,
            secret_key=place.bucket.secret_key,
        )  # fmt: skip
        effects = StoreEffects(clock=clock, entropy=SystemEntropy(), disk=disk, offload=offload)
        objects = await open_store(place.bucket.url, options, effects)
    log = await open_log(
        parse_log_url(place.url), 0, LogEffects(clock=clock, disk=disk, offload=offload, objects=objects)
    )
    try:
        yield log
    finally:
        await log.close()
        offload.close()


@asynccontextmanager
async def _followed(log: Log, seen: dict[int, float]) -> AsyncIterator[None]:
    async def follow() -> None:
        async for position, _ in log.follow(BEFORE_ALL):
            seen[position] = time.monotonic()

    follower = asyncio.ensure_future(follow())
    try:
        yield
    finally:
        follower.cancel()
        await asyncio.gather(follower, return_exceptions=True)


async def _write(place: Place, in_flight: str, seconds: str) -> dict:
    acked: dict[int, float] = {}
    seen: dict[int, float] = {}
    latencies: list[float] = []
    async with _log(place) as log, _followed(log, seen):
        for _ in range(SKIPPED):
            await log.append(ENTRY)
        print("ready", flush=True)
        sys.stdin.read()
        begun, cpu = time.monotonic(), time.process_time()
        end = begun + float(seconds)

        async def write() -> None:
            while (started := time.monotonic()) < end:
                position = await log.append(ENTRY)
                acked[position] = time.monotonic()
                latencies.append(acked[position] - started)

        await asyncio.gather(*[write() for _ in range(int(in_flight))])
        spent, took = time.process_time() - cpu, time.monotonic() - begun
    lags = [seen[position] - at for position, at in acked.items() if position in seen]
    return {"latencies": latencies, "acked": acked, "lags": lags, "cpu": spent, "seconds": took}


async def _follow(place: Place) -> dict:
    seen: dict[int, float] = {}
    async with _log(place) as log, _followed(log, seen):
        print("ready", flush=True)
        cpu = time.process_time()
        await asyncio.to_thread(sys.stdin.read)
        await asyncio.sleep(1.5)  # what is late counts, too
        return {"seen": seen, "cpu": time.process_time() - cpu}


async def _blocks(place: Place, in_flight: str, seconds: str) -> dict:
    """A follower runs all the time, and no block meets what the one before it has set off."""
    many, times = int(in_flight), {"append": list[float](), "put": list[float]()}
    async with AsyncExitStack() as stack:
        log = await stack.enter_async_context(_log(place))
        await stack.enter_async_context(_followed(log, {}))
        put = await stack.enter_async_context(_bare(place.url))
        calls: dict[str, Append] = {"put": put, "append": log.append}

        async def block(name: str, keep: bool) -> None:
            found: list[float] = []

            async def one() -> None:
                for _ in range(BLOCK):
                    began = time.monotonic()
                    await calls[name](ENTRY)
                    found.append(time.monotonic() - began)

            await asyncio.gather(*[one() for _ in range(many)])
            if keep:
                times[name] += found[SKIPPED * many :]

        for name in calls:
            await block(name, keep=False)
        print("ready", flush=True)
        sys.stdin.read()
        end = time.monotonic() + float(seconds)
        while time.monotonic() < end:
            for name in calls:
                await block(name, keep=True)
    return {name: statistics.median(found) for name, found in times.items()} | {"samples": len(times["put"])}


@asynccontextmanager
async def _bare(url: str) -> AsyncIterator[Append]:
    """Puts of the same bytes by the client that the log has."""
    where, counted = parse_log_url(url), iter(range(1 << 30))
    if isinstance(where, OxiaLogs):
        from dray.log.oxia import oxia_pb2 as oxia
        from dray.log.oxia.servers import OxiaServers

        servers = OxiaServers(where, 5.0)

        async def put_into_oxia(entry: bytes) -> int:
            number = next(counted)
            route = await servers.route("bare")
            put = oxia.Put(key=f"bare-{number:020d}", value=entry, partition_key="bare")
            await servers.write(route, oxia.WriteRequest(shard=route.shard, puts=[put]))
            return number

        yield put_into_oxia
        await servers.close()
        return
    from dray.log.etcd import etcd_pb2 as etcd
    from dray.log.etcd.members import EtcdPeer, Members

    assert isinstance(where, EtcdLogs)
    members = Members(where, 5.0)

    def put(member: EtcdPeer):
        return member.channel.unary_unary(
            "/etcdserverpb.KV/Put", etcd.PutRequest.SerializeToString, etcd.PutResponse.FromString
        )

    async def put_into_etcd(entry: bytes) -> int:
        number = next(counted)
        await members.call(put, etcd.PutRequest(key=b"bare/%d" % number, value=entry))
        return number

    yield put_into_etcd
    await members.close()


async def _serve(place: Place) -> None:
    where = parse_log_url(place.url)
    assert isinstance(where, LocalLogs)
    async with _log(place) as log:
        server = LogServer({0: log}, cluster_id=CLUSTER)
        await server.listen_unix(Path(where.root) / "meta.sock")
        print("ready", flush=True)
        await asyncio.Event().wait()


async def _delay(place: Place) -> None:
    from tests.objects.fault_proxy import fault_proxy

    assert place.bucket is not None
    async with fault_proxy(place.bucket.endpoint) as proxy:
        proxy.delay_s, proxy.remembers = REQUEST_S, False
        print(proxy.endpoint, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    configure_logging("error")
    work = {"write": _write, "follow": _follow, "blocks": _blocks, "serve": _serve, "delay": _delay}[sys.argv[1]]
    print(json.dumps(uvloop.run(work(Place.decode(sys.argv[2]), *sys.argv[3:]))))
