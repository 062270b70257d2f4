"""What a case does with a running broker: topics, loads from separate processes, and what the broker spent."""

import contextlib
import json
import os
import re
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # exported without saying so

from bench._targets import Running
from tools.peers.process import run
from tools.peers.rdkafka import performance_binary

ROOT: Final = Path(__file__).resolve().parent.parent
_MOST_SECONDS: Final = 120.0
_LEADER_SECONDS: Final = 120.0
_topics = iter(range(1_000_000))


class BadRun(RuntimeError):
    """The load did not do what it was told, so its figures mean nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """CPU seconds of one run."""

    broker_s: float
    client_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One run: what the client saw, and what both sides spent on it."""

    mb_per_s: float
    records: int
    bytes: int
    spent: Spent

    @property
    def broker_s_per_gb(self) -> float:
        return self.spent.broker_s / (self.bytes / 1e9)

    @property
    def client_s_per_gb(self) -> float:
        return self.spent.client_s / (self.bytes / 1e9)


@dataclass(frozen=True, slots=True, kw_only=True)
class RawFigures(Figures):
    """A run of `bench._rawload`, which also knows its requests."""

    requests: int
    requests_per_s: float
    p50_ms: float
    p99_ms: float
    late: int

    @property
    def broker_us_per_request(self) -> float:
        return self.spent.broker_s / self.requests * 1e6


@dataclass(slots=True)
class Samples:
    """What the runs of a comparison measured beside their rate, for a report that follows it."""

    taken: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, value: float) -> None:
        self.taken.setdefault(name, []).append(value)

    def medians(self) -> dict[str, float]:
        """The medians of the counted runs: the first one was a warm-up."""
        if not self.taken or any(len(values) < 2 for values in self.taken.values()):
            raise BadRun("the runs before this report took no samples")
        return {name: statistics.median(values[1:]) for name, values in self.taken.items()}


def interleaved(runs: int, sides: Mapping[str, Callable[[], Mapping[str, float]]]) -> dict[str, float]:
    """Medians of every figure of every side, after one warm-up each; the sides take turns."""
    samples = Samples()
    for _ in range(1 + runs):
        for side, run_once in sides.items():
            for name, value in run_once().items():
                samples.add(f"{side}: {name}", value)
    return samples.medians()


def create_topic(broker: Running, partitions: int, config: Mapping[str, str] | None = None) -> str:
    """A fresh topic whose partitions all answer; it stays until its broker ends."""
    name = f"bench-{next(_topics)}"
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(name, partitions, 1, config=dict(config or {}))])[name].result(60)
    _await_leaders(broker, name, partitions)
    return name


@contextmanager
def topic_on(broker: Running, partitions: int, config: Mapping[str, str] | None = None) -> Iterator[str]:
    """A fresh topic for the block; deleted after it, so that a run does not fill the disk of the next."""
    name = create_topic(broker, partitions, config)
    try:
        yield name
    finally:
        with contextlib.suppress(Exception):  # what the block raised is worth more
            AdminClient({"bootstrap.servers": broker.address}).delete_topics([name])[name].result(60)


def records_in(broker: Running, topic: str, partitions: int) -> int:
    """How many offsets the topic holds."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "bench"})
    try:
        marks = [consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=30) for n in range(partitions)]
    finally:
        consumer.close()
    return sum(high - low for low, high in marks)


def _await_leaders(broker: Running, topic: str, partitions: int) -> None:
    """Wait until every partition answers: Kafka acknowledges a topic before its last partition has a leader."""
    end = time.monotonic() + _LEADER_SECONDS
    while True:
        try:
            records_in(broker, topic, partitions)
        except KafkaException as error:
            if time.monotonic() > end:
                raise BadRun(f"{topic} has partitions that do not answer after {_LEADER_SECONDS:.0f} s") from error
            time.sleep(0.1)
        else:
            return


def cpu_seconds(pid: int) -> float:
    """What a process and its children have spent, those that are gone included."""
    root = psutil.Process(pid)
    times = root.cpu_times()
    spent = times.user + times.system + times.children_user + times.children_system
    for child in root.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            spent += child.cpu_times().user + child.cpu_times().system
    return spent


def resident_bytes(pid: int) -> int:
    """The resident memory of a process and its children."""
    root = psutil.Process(pid)
    return sum(int(one.memory_info().rss) for one in (root, *root.children(recursive=True)))


@contextmanager
def _metered(broker: Running) -> Iterator[list[Spent]]:
    """Collects what the broker, and the load as our child, spend in the block."""
    spent: list[Spent] = []
    before, children = cpu_seconds(broker.pid), _children_seconds()
    yield spent
    client = _children_seconds() - children
    spent.append(Spent(broker_s=cpu_seconds(broker.pid) - before, client_s=client))


def _children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def raw_load(broker: Running, mode: str, topic: str, **options: float) -> RawFigures:
    """Run `bench._rawload` against the broker; any error in it makes the run worthless."""
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    with _metered(broker) as spent:
        said = json.loads(
            run([sys.executable, "-m", "bench._rawload", mode, broker.address, topic, *flags], directory=ROOT)
        )
    if said["errors"] or not said["requests"]:
        raise BadRun(f"{mode}: {said['requests']} requests, errors {said['errors']}")
    client = Spent(broker_s=spent[0].broker_s, client_s=said["client_cpu_s"])  # without the start of Python
    figures = {name: said[name] for name in ("mb_per_s", "records", "bytes", "requests", "requests_per_s")}
    return RawFigures(spent=client, p50_ms=said["p50_ms"], p99_ms=said["p99_ms"], late=said["late"], **figures)


_PRODUCED: Final = re.compile(rb"% \d+ messages produced .*?, (\d+) delivered .*? (\d+) failed\) in (\d+)ms")
_CONSUMED: Final = re.compile(rb"% (\d+) messages \((\d+) bytes\) consumed in (\d+)ms")


def rdkafka_produce(broker: Running, topic: str, records: int, record_bytes: int) -> Figures:
    """One librdkafka producer: acks=all, linger 5 ms, partitions at random."""
    arguments = ["-P", "-a", "-1", "-s", str(record_bytes), "-c", str(records), "-X", "linger.ms=5"]
    said, spent = _rdkafka(broker, topic, arguments)
    delivered, failed, millis = map(int, _PRODUCED.findall(said)[-1])
    if (delivered, failed) != (records, 0):
        raise BadRun(f"of {records} records {delivered} were delivered and {failed} failed")
    return _figures(records, records * record_bytes, millis / 1000, spent)


def produce_values(
    address: str, places: Sequence[tuple[str, int]], records: int, record_bytes: int, *, keyed: bool = False
) -> None:
    """Records of which no two are alike, to all partitions in turn, so that each object has batches of many."""
    failed, rest = list[str](), bytes(record_bytes // 2)
    producer = Producer({"bootstrap.servers": address, "linger.ms": 20, "queue.buffering.max.messages": 200_000})

    def told(error: object, _message: object) -> None:
        if error is not None:
            failed.append(str(error))

    for number in range(records):
        topic, partition = places[number // 16 % len(places)]
        key = b"k%d" % number if keyed else None
        while True:
            try:
                producer.produce(topic, os.urandom(record_bytes // 2) + rest, key, partition, on_delivery=told)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(300) or failed:
        raise BadRun(f"records were not taken: {failed[:3]}")


def rdkafka_consume(broker: Running, topic: str, partitions: int, records: int) -> Figures:
    """One librdkafka consumer that reads all partitions from their start, to about `records` records."""
    chosen = [part for n in range(partitions) for part in ("-p", str(n))]
    said, spent = _rdkafka(broker, topic, ["-C", *chosen, "-o", "beginning", "-c", str(records)])
    got, size, millis = map(int, _CONSUMED.findall(said)[-1])
    if got < records:
        raise BadRun(f"{got} of {records} records were read")
    return _figures(got, size, millis / 1000, spent)


def _rdkafka(broker: Running, topic: str, arguments: Sequence[str]) -> tuple[bytes, Spent]:
    command = [str(performance_binary()), "-b", broker.address, "-t", topic, "-q", *arguments]
    with _metered(broker) as spent:
        # It ends with 1 when its own queue was full at the last record, though all were delivered.
        said = run(command, seconds=_MOST_SECONDS, fine=(0, 1))
    if not (_PRODUCED.search(said) or _CONSUMED.search(said)):
        raise BadRun(f"rdkafka_performance said {said[-2000:]!r}")
    return said, spent[0]


def _figures(records: int, size: int, seconds: float, spent: Spent) -> Figures:
    return Figures(mb_per_s=size / seconds / 1e6, records=records, bytes=size, spent=spent)
