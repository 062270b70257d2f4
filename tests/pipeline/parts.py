"""What tests of the pipeline share: a broker process, a store, an oracle, a read without Spark."""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.ids import SystemEntropy
from dray.log.files import FileLog
from dray.machine.head import Genesis, founding
from dray.machine.holds import HeldObjects
from dray.node.directory import DataDirectory, mark_born
from dray.node.reaching import reach
from dray.objects.cluster import bind
from dray.objects.files import FileObjects
from dray.offload import InlineOffload
from dray.pipeline.opening import effects, read_directory
from dray.pipeline.options import parse_options
from dray.pipeline.plan import Plan
from dray.pipeline.planning import plan_read
from dray.pipeline.reading import FIELDS, read_pieces

COLUMNS = tuple(FIELDS)
HASTY = ("retention.interval=1s", "retention.grace=0s")
"""Settings under which nothing but a pin keeps a dead object; see `found_hasty`."""


def found_hasty(directory: Path, version: int = 2) -> Path:
    """A data directory whose machine asks for no grace: in others a dead object lives for a minute at least."""
    directory.mkdir()
    disk, entropy, clock = LocalDisk(), SystemEntropy(), SystemClock()
    places = DataDirectory(directory)
    identity = places.claim(disk, entropy)
    log_id = entropy.random_bytes(8)
    genesis = Genesis(
        cluster_id=identity.cluster.bytes, log_id=log_id, domain=0, domains=1, min_grace_ms=0, version=version
    )
    entry = founding(genesis, clock.wall_ms())

    async def begin() -> None:
        log = await FileLog.open(places.log(0), disk=disk, offload=InlineOffload(), clock=clock)
        await log.append(entry)
        await log.close()
        objects = FileObjects(places.objects, disk, InlineOffload(), entropy)
        await objects.open()
        await bind(objects, identity.cluster_id)

    asyncio.run(begin())
    mark_born(disk, places.home(0))
    return directory


def holds_of(directory: Path) -> dict[str, HeldObjects]:
    """What is held now, by the machine's time."""

    async def look() -> dict[str, HeldObjects]:
        async with reach(read_directory(str(directory))[0], effects()) as reached:
            return (await reached.machine(0, effects())).holds.current()

    return asyncio.run(look())


@contextmanager
def changed_footer(file: Path) -> Iterator[None]:
    """A Parquet file whose footer says something else, and can still be read."""
    whole = file.read_bytes()
    at = whole.rindex(b"parquet-cpp")  # who wrote it
    file.chmod(0o600)
    file.write_bytes(whole[:at] + b"parquet-CPP" + whole[at + 11 :])
    try:
        yield
    finally:
        file.write_bytes(whole)


class ObjectServer:
    """The objects of a directory by HTTP, as S3 serves them: `s3://bucket/...`.

    `before` is called with the name of each WAL object that is asked for; it may wait, or return a status.
    `after_put` is called with the name of each object that was put, before that is answered; it may wait.
    """

    def __init__(self) -> None:
        self.root = Path()
        self.before: Callable[[str], int | None] = lambda _: None
        self.after_put: Callable[[str], None] = lambda _: None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"store": self}))
        self._server.daemon_threads = True

    @property
    def environ(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._server.server_port}", "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
        }  # fmt: skip

    def serve(self, root: Path) -> str:
        """Serve this directory as usual; returns its address."""
        self.root, self.before, self.after_put = root, lambda _: None, lambda _: None
        return "s3://bucket"

    def __enter__(self) -> "ObjectServer":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    store: ObjectServer
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        name = unquote(self.path).removeprefix("/bucket/")
        status = self.store.before(name) if name.endswith(".wo") else None
        path = self.store.root / name
        body = path.read_bytes() if status is None and path.is_file() else b""
        if status is None:
            status = 200 if path.is_file() else 404
        total, asked = len(body), self.headers.get("range")
        if status == 200 and asked:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            status, body = 206, body[int(first) : int(last) + 1]
        self.send_response(status)
        if status == 206:
            self.send_header("content-range", f"bytes {first}-{int(first) + len(body) - 1}/{total}")
        self.send_header("content-length", str(len(body)))
        self.send_header("etag", '"0"')
        self.send_header("last-modified", "Sun, 15 Nov 2026 12:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_PUT(self) -> None:
        """Created once: what is there already is not put again."""
        name = unquote(self.path.partition("?")[0]).removeprefix("/bucket/")
        body, path = self.rfile.read(int(self.headers["content-length"])), self.store.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with path.open("xb") as file:
                file.write(body)
            status = 200
            self.store.after_put(name)
        except FileExistsError:
            status = 412
        self.send_response(status)
        self.send_header("content-length", "0")
        self.send_header("etag", '"0"')
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Broker:
    """`drayd dev` as a process that may be killed."""

    def __init__(self, directory: Path, *settings: str) -> None:
        self.directory = directory
        self._settings = settings
        self.start()

    def start(self) -> None:
        command = [str(Path(sys.executable).parent / "drayd"), "dev", "--data", str(self.directory)]
        command += ["--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grpc", "", "--set", "logging.level=error"]
        for setting in self._settings:
            command += ["--set", setting]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self._process.stdout.readline()
        assert line.startswith("ready "), f"the broker did not start: {self._process.wait()}"
        self.bootstrap = line.split()[1].removeprefix("kafka=")
        self.http = line.split()[2].removeprefix("http=").rstrip("/")

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(30)
        self._process.stdout.close()


@contextmanager
def broker_process(directory: Path, *settings: str) -> Iterator[Broker]:
    broker = Broker(directory, *settings)
    try:
        yield broker
    finally:
        broker.stop()


def create(bootstrap: str, topic: str, partitions: int = 1, **config: object) -> None:
    made = NewTopic(topic, partitions, 1, config={key.replace("_", "."): str(value) for key, value in config.items()})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([made])[topic].result(30)


def delete(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(30)


def start_of(bootstrap: str, topic: str) -> int:
    """Where a topic's first partition begins."""
    return watermarks(bootstrap, topic)[0][0]


def watermarks(bootstrap: str, topic: str, partitions: int = 1) -> list[tuple[int, int]]:
    """Start and end of each partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "looker"})
    try:
        return [consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30) for p in range(partitions)]
    finally:
        consumer.close()


def let_garbage_pass(broker: Broker, topic: str) -> None:
    """Return after at least one whole turn of garbage; the topic keeps few bytes, so that each turn raises its start.

    A turn raises starts first and deletes after that: the second rise proves that the deletions of the first are over.
    """
    for _ in range(2):
        before = start_of(broker.bootstrap, topic)
        produce(broker.bootstrap, topic, numbered(0, 100), batch_size=1_000)
        wait_until(lambda before=before: start_of(broker.bootstrap, topic) > before)


def numbered(first: int, count: int, partitions: int = 1) -> list[tuple[bytes, bytes, None, int]]:
    return [(f"k{n}".encode(), f"value {n}".encode() * 5, None, n % partitions) for n in range(first, first + count)]


def wait_until(condition, limit_s: float = 90) -> None:
    """Poll for what another process does."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        threading.Event().wait(0.05)


def produce(bootstrap: str, topic: str, records, **config: object) -> None:
    """Send records (key, value, headers, partition) and wait until each is acknowledged.

    What fits into one batch of a partition is one request, so one object: nothing is sent before it is full or all
    are given.
    """
    failed = []
    chosen = {key.replace("_", "."): value for key, value in config.items()}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 60_000} | chosen)
    for key, value, headers, partition in records:
        while True:
            try:
                producer.produce(
                    topic, key=key, value=value, headers=headers, partition=partition,
                    on_delivery=lambda error, _: failed.append(error) if error else None,
                )  # fmt: skip
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0
    assert not failed


class Row(NamedTuple):
    """A record, column by column, as Spark's Kafka source shows it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    timestamp_type: int
    headers: tuple[tuple[str, bytes | None], ...] | None


def consumed(bootstrap: str, topic: str, partitions: int) -> list[Row]:
    """The oracle: what librdkafka reads by assignment."""
    quick = {"fetch.wait.max.ms": 10}  # a new assignment waits for the fetch of the old one
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "oracle", "enable.auto.commit": False} | quick)
    rows = []
    try:
        for partition in range(partitions):
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
            consumer.assign([TopicPartition(topic, partition, low)])
            while low < high:
                for message in consumer.consume(min(high - low, 5_000), timeout=10):
                    assert message.error() is None, message.error()
                    kind, stamp = message.timestamp()
                    headers = message.headers()
                    rows.append(
                        Row(
                            topic,
                            partition,
                            message.offset(),
                            message.key(),
                            message.value(),
                            stamp,
                            kind - 1,
                            None if not headers else tuple((name, value) for name, value in headers),
                        )
                    )
                    low = message.offset() + 1
    finally:
        consumer.close()
    return sorted(rows[:])


def make_plan(directory: Path, **options: object) -> Plan:
    given = {key: str(value) for key, value in options.items()} | {"path": str(directory)}
    return asyncio.run(plan_read(parse_options(given)))


def read(plan: Plan) -> list[Row]:
    """What the tasks of a plan give, one after another."""
    rows = []
    for pieces in plan.tasks:
        for batch in read_pieces(plan.address, pieces, COLUMNS):
            rows += [row_of(found, int(found["timestamp"].timestamp() * 1000 + 0.5)) for found in batch.to_pylist()]
    return sorted(rows)


def row_of(found, timestamp_ms: int) -> Row:
    """A row of Arrow or of Spark."""
    headers = found.get("headers")
    return Row(
        found["topic"], found["partition"], found["offset"], found["key"], found["value"], timestamp_ms,
        found["timestampType"],
        None if headers is None else tuple((header["key"], header["value"]) for header in headers),
    )  # fmt: skip


def planned_of(plan: Plan) -> set[str]:
    """The names of the objects that a plan needs."""
    return {piece.path(n).rpartition("/")[2] for task in plan.tasks for piece in task for n in piece.owners}


def names_of(directory: Path) -> set[str]:
    return {path.name for path in objects_of(directory)}


def objects_of(directory: Path) -> set[Path]:
    return set((directory / "objects" / "wal").rglob("*.wo"))


def source(spark, broker: Broker, **options: str):
    return spark.read.format("dray").options(**options).load(str(broker.directory))


def plan_only(frame) -> None:
    """Make the plan of a DataFrame, which it keeps, and read nothing."""
    frame._jdf.queryExecution().executedPlan().execute().getNumPartitions()


def collect(frame) -> list[Row]:
    return sorted(row_of(row.asDict(), int(row["timestamp"].timestamp() * 1000 + 0.5)) for row in frame.collect())


def workers_of(spark) -> list[int]:
    """The Python processes in which tasks of this session run: forked by a daemon that its JVM started."""
    jvm = spark.sparkContext._gateway.proc.pid
    parents, tasks = {}, set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if b"dray.pipeline.daemon" in (entry / "cmdline").read_bytes():
                    tasks.add(int(entry.name))
            except OSError:
                continue
    return [pid for pid in tasks if parents.get(parents[pid]) == jvm]
