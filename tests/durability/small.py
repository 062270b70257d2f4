"""Brokers that have few domains loaded, and clients that send and read everything meanwhile."""

import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.durability.daemon import Drayd

PARTITIONS = 8
ROUND = 200
LIMIT_S = 60


@contextmanager
def small_brokers(home: Path, log: str) -> Iterator[list[Drayd]]:
    """Three processes on a log, with a directory for records that they share; a budget of one domain."""
    flags = [
        "--log", log, "--set", "session.ttl=3s", "--set", "session.keepalive=1s",
        "--set", f"objects.url=file://{home / 'objects'}",
        "--set", "cluster.domains=4", "--set", "cluster.loaded_domains=1", "--set", "cluster.idle=1s",
    ]  # fmt: skip
    found = [Drayd(home / f"broker-{n}", *flags, "--set", f"broker.id={n}") for n in (1, 2, 3)]
    with ExitStack() as stack, ThreadPoolExecutor(len(found)) as threads:
        for one in found:
            stack.push(one.__exit__)
        list(threads.map(Drayd.start, found))
        yield found


def ask(broker: Drayd, path: str) -> str:
    with urllib.request.urlopen(f"http://{broker.http}{path}", timeout=10) as answer:
        return str(answer.read().decode())


def metric(broker: Drayd, name: str) -> float:
    lines = ask(broker, "/metrics").splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(f"{name} "))


def until(condition, what: str) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.1)  # between two looks at another process


def send(producer: Producer, first: int) -> set[bytes]:
    sent: set[bytes] = set()
    for number in range(first, first + ROUND):
        value = b"%d" % number
        producer.produce("orders", value, partition=number % PARTITIONS, on_delivery=_delivered)
        sent.add(value)
    assert producer.flush(LIMIT_S) == 0
    return sent


def _delivered(error, _message) -> None:
    assert error is None, error


def read(consumer: Consumer, found: list[bytes], wanted: set[bytes]) -> None:
    """Until the group has read as much as there is."""
    end = time.monotonic() + LIMIT_S
    while len(found) < len(wanted) and time.monotonic() < end:
        found += [one.value() for one in consumer.consume(ROUND, 0.5) if one.error() is None]
    assert sorted(found) == sorted(wanted)


def serve_while_domains_come_and_go(brokers: list[Drayd]) -> None:
    """Each has what it leads and one more; others take the domains of a dead one; nothing is lost or read twice."""
    bootstrap = ",".join(one.bootstrap for one in brokers)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result(LIMIT_S)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    sent = send(producer, 0)
    until(lambda: all(metric(one, "dray_domains_loaded") <= 4 for one in brokers), "nobody drops a domain")
    assert sum(metric(one, "dray_domain_drops_total") for one in brokers) > 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    sent |= send(producer, ROUND)
    found: list[bytes] = []
    read(consumer, found, sent)
    dead, *alive = brokers
    before = sum(metric(one, "dray_domain_loads_total") for one in alive)
    dead.kill()
    sent |= send(producer, 2 * ROUND)
    until(lambda: sum(metric(one, "dray_domain_loads_total") for one in alive) > before, "nobody takes its domains")
    read(consumer, found, sent)
    consumer.close()
    for one in alive:
        assert '"domains": "ok"' in ask(one, "/readyz").replace('":"', '": "')
