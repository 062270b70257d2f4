"""What a gigabyte costs in requests: a broker on a real S3 server, through a proxy that counts.

produced at N MB/s    random bytes from one client into four partitions of one domain, read by a consumer that keeps up
read again            all of it by a consumer that begins at the start, after the broker was started anew

Below about 16 MB/s a domain the number of objects follows time, not bytes: each waits a quarter of a second for more.
"""

import asyncio
import os
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # exported without saying so

from bench._brokers import BadRun
from bench.harness import Case, Report
from tests.durability.daemon import Drayd
from tests.objects.fault_proxy import FaultProxy, fault_proxy
from tests.objects.servers import versity

SECONDS: Final = 20.0
RATES_MB: Final = (1, 4, 8)
RECORD: Final = 8192
PARTITIONS: Final = 4
DOLLARS: Final = {"PUT": 5e-6, "LIST": 5e-6, "POST": 5e-6, "GET": 0.4e-6, "HEAD": 0.4e-6}
"""S3 Standard, us-east-1; a deletion costs nothing."""
_MOST_S: Final = 300.0


def cases() -> list[Case]:
    return [
        Report(f"a GB at {rate} MB/s", partial(_run, rate), "one domain, one consumer that keeps up, one again")
        for rate in RATES_MB
    ]


def _run(rate: int) -> dict[str, float]:
    return asyncio.run(_measured(rate))


async def _measured(rate: int) -> dict[str, float]:
    async with AsyncExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dray-bench-")))
        server = stack.enter_context(versity(root))
        assert server.options.endpoint is not None
        proxy = await stack.enter_async_context(fault_proxy(server.options.endpoint))
        proxy.remembers = False
        store = {
            "url": server.url(), "endpoint": proxy.endpoint, "allow_http": "true", "region": server.options.region,
            "access_key_id": server.options.access_key, "secret_access_key": server.options.secret_key,
        }  # fmt: skip
        sets = [part for name, value in store.items() for part in ("--set", f"objects.{name}={value}")]
        broker = Drayd(root / "broker", *sets, "--set", "cluster.domains=1")
        stack.push(broker.__exit__)
        await asyncio.to_thread(broker.start)
        await asyncio.to_thread(_create, broker.bootstrap)
        before = proxy.counts.copy()
        reading = asyncio.create_task(asyncio.to_thread(_consume, broker.bootstrap, rate, follow=True))
        sent, seconds = await asyncio.to_thread(_produce, broker.bootstrap, rate)
        await reading
        figures = _by_gb(proxy, before, sent)
        await asyncio.to_thread(broker.terminate)
        await asyncio.to_thread(broker.start)
        before = proxy.counts.copy()
        await asyncio.to_thread(_consume, broker.bootstrap, rate, follow=False)
        again = _by_gb(proxy, before, sent)
        return {"MB/s": sent / 1e6 / seconds, **figures, **{f"again {name}": value for name, value in again.items()}}


def _by_gb(proxy: FaultProxy, before: Counter[str], sent: int) -> dict[str, float]:
    asked = proxy.counts - before
    return {
        **{f"{kind}/GB": asked[kind] / (sent / 1e9) for kind in ("PUT", "GET", "HEAD", "LIST") if asked[kind]},
        "$/GB": sum(count * DOLLARS.get(kind, 0) for kind, count in asked.items()) / (sent / 1e9),
    }


def _records(rate: int) -> int:
    return int(rate * 1e6 * SECONDS / RECORD)


def _create(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", PARTITIONS)])["t"].result(60)


def _produce(bootstrap: str, rate: int) -> tuple[int, float]:
    """At a steady rate; bytes that were acknowledged, and how long it took."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "acks": "all"})
    begun = time.monotonic()
    for number in range(_records(rate)):
        due = begun + number * RECORD / (rate * 1e6)
        while time.monotonic() < due:
            producer.poll(max(0.0, due - time.monotonic()))
        producer.produce(
            "t", os.urandom(RECORD), partition=number % PARTITIONS,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )  # fmt: skip
    if producer.flush(_MOST_S) or failed:
        raise BadRun(f"not everything was acknowledged: {failed[:1]}")
    return _records(rate) * RECORD, time.monotonic() - begun


def _consume(bootstrap: str, rate: int, *, follow: bool) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"g-{follow}", "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", number, 0) for number in range(PARTITIONS)])
    left, until = _records(rate), time.monotonic() + _MOST_S
    while left:
        left -= sum(1 for one in consumer.consume(1000, 1.0) if one.error() is None)
        if time.monotonic() > until:
            raise BadRun(f"{left} records were not read")
    consumer.close()
