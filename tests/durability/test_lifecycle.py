"""How a broker process begins, tells how it is, and ends."""

import json
import shutil
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition

from tests.clients.kinds import AT_MS, CONFLUENT, Written, confluent_consumer
from tests.durability.daemon import DRAYD, Drayd

pytestmark = pytest.mark.slow

DRAIN_S = 30


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def ended(data: Path, *flags: str) -> "subprocess.CompletedProcess[str]":
    """A broker that is expected not to start."""
    command = [
        DRAYD,
        "dev",
        "--data",
        str(data),
        "--kafka",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--grpc",
        "",
        *flags,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def told_what_to_do(stderr: str) -> bool:
    return "drayd: " in stderr and "  next: " in stderr and "Traceback" not in stderr


class Sender:
    """A producer that goes on until it is stopped, and what was acknowledged to it."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1})
        self._stop = threading.Event()
        self._enough = threading.Event()
        self.acked: dict[int, bytes] = {}
        self._thread = threading.Thread(target=self._send)

    def __enter__(self) -> "Sender":
        self._thread.start()
        assert self._enough.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.purge()
        self._producer.flush(10)

    def _send(self) -> None:
        number = 0
        while not self._stop.is_set():
            if len(self._producer) < 1000:
                self._producer.produce("orders", b"%d" % number, partition=0, on_delivery=self._delivered)
                number += 1
            self._producer.poll(0 if number % 20 else 0.001)

    def _delivered(self, error, message) -> None:
        if error is None:
            self.acked[message.offset()] = message.value()
            if len(self.acked) >= 200:
                self._enough.set()


def test_sigterm_answers_what_was_taken_and_ends_with_0(data: Path) -> None:
    """Under load: nothing acknowledged is lost, and the next start finds a clean end."""
    with Drayd(data) as drayd:
        with Sender(drayd.bootstrap) as sender:
            watchdog = threading.Timer(DRAIN_S, drayd.kill)
            watchdog.start()
            code = drayd.terminate()
            watchdog.cancel()
            assert code == 0
        assert any("node.stopped" in line for line in drayd.log)
        drayd.start()
        found = CONFLUENT.read(drayd.bootstrap, "orders", 0, max(sender.acked) + 1)
        assert {one.offset: one.record.value for one in found if one.offset in sender.acked} == sender.acked
        values = [one.record.value for one in found]
        assert values == [b"%d" % n for n in range(len(values))]


def test_sigterm_does_not_wait_for_consumers_that_wait(data: Path) -> None:
    """A fetch at the end of a log is no reason to stay."""
    with Drayd(data) as drayd:
        CONFLUENT.write(drayd.bootstrap, "orders", [Written(None, b"v", AT_MS)])
        consumer = confluent_consumer(drayd.bootstrap, **{"fetch.wait.max.ms": 100_000, "socket.timeout.ms": 120_000})
        try:
            consumer.assign([TopicPartition("orders", 0, 0)])
            assert consumer.poll(30) is not None
            watchdog = threading.Timer(DRAIN_S, drayd.kill)
            watchdog.start()
            assert drayd.terminate() == 0
            watchdog.cancel()
        finally:
            consumer.close()


@pytest.mark.parametrize(
    "flags",
    [
        ("--set", "topics.partitions=none"),
        ("--set", "no.such=1"),
        ("--kafka", "nowhere"),
        ("--objects", "gopher://x"),
        ("--config", "no-such-file.yaml"),
    ],
    ids=" ".join,
)
def test_a_bad_configuration_ends_with_2(data: Path, flags: tuple[str, ...]) -> None:
    refused = ended(data, *flags)
    assert (refused.returncode, refused.stdout) == (2, ""), refused.stderr
    assert told_what_to_do(refused.stderr), refused.stderr


def test_a_directory_in_use_ends_with_3_and_does_no_harm(data: Path) -> None:
    with Drayd(data) as drayd:
        refused = ended(data)
        assert (refused.returncode, refused.stdout) == (3, ""), refused.stderr
        assert told_what_to_do(refused.stderr)
        assert CONFLUENT.write(drayd.bootstrap, "orders", [Written(None, b"v", AT_MS)]) == [0]


def test_a_damaged_log_ends_with_4_and_is_left_as_it_is(data: Path) -> None:
    with Drayd(data) as drayd:
        CONFLUENT.write(drayd.bootstrap, "orders", [Written(None, b"%d" % n, AT_MS) for n in range(50)])
        drayd.kill()
    [segment] = data.glob("meta/domain-*/log/*.log")
    damaged = bytearray(segment.read_bytes())
    damaged[len(damaged) // 3] ^= 0xFF
    segment.write_bytes(damaged)
    for _ in range(2):
        refused = ended(data)
        assert (refused.returncode, refused.stdout) == (4, ""), refused.stderr
        assert told_what_to_do(refused.stderr)
    assert segment.read_bytes() == damaged


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drayd]:
    with Drayd(tmp_path_factory.mktemp("health") / "data") as drayd:
        yield drayd


def get(drayd: Drayd, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{drayd.http}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_health_and_metrics_are_told(running: Drayd) -> None:
    CONFLUENT.write(running.bootstrap, "orders", [Written(None, b"v", AT_MS)])
    assert get(running, "/livez")[0] == get(running, "/healthz")[0] == 200
    status, body = get(running, "/readyz")
    said = {"ready": True, "metadata": "ok", "store": "ok", "disk": "ok", "tasks": "ok", "audit": "ok", "stop": "ok"}
    assert (status, json.loads(body)) == (200, said)
    status, metrics = get(running, "/metrics")
    assert status == 200
    assert 'dray_build_info{version="' in metrics
    assert "dray_event_loop_lag_seconds_bucket" in metrics
    assert get(running, "/nothing-here")[0] == 404


def test_a_store_that_is_gone_makes_it_unready_but_not_dead(tmp_path: Path) -> None:
    with Drayd(tmp_path / "data") as drayd:
        assert get(drayd, "/readyz")[0] == 200
        shutil.move(tmp_path / "data" / "objects", tmp_path / "elsewhere")
        pause = threading.Event()
        for _ in range(60):
            status, body = get(drayd, "/readyz")
            if status == 503:
                break
            pause.wait(0.2)  # a look at the store serves for two seconds
        assert status == 503
        states = json.loads(body)
        assert (states["ready"], states["metadata"]) == (False, "ok")
        assert states["store"] != "ok"
        assert get(drayd, "/livez")[0] == 200
        shutil.rmtree(tmp_path / "data" / "objects", ignore_errors=True)
        shutil.move(tmp_path / "elsewhere", tmp_path / "data" / "objects")
        for _ in range(60):
            if get(drayd, "/readyz")[0] == 200:
                break
            pause.wait(0.2)
        assert get(drayd, "/readyz")[0] == 200


def test_a_listener_beyond_loopback_is_said_loudly(data: Path) -> None:
    with Drayd(data) as quiet:
        assert not [line for line in quiet.log if "node.exposed" in line]
        assert quiet.terminate() == 0
    with Drayd(data, host="0.0.0.0") as loud:
        [line] = [json.loads(line) for line in loud.log if "node.exposed" in line]
        assert (line["level"], line["listener"], line["host"]) == ("warning", "kafka", "0.0.0.0")
