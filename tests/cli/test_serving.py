"""`drayd dev` and `drayd broker`: where they serve, what they make, how they end."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from dray.cli.main import run
from dray.disk import LocalDisk
from dray.node.directory import DataDirectory
from dray.node.inspection import current_machine, inspect
from tests.golden.asking import Asker, batch

DRAYD = str(Path(sys.executable).with_name("drayd"))
ANY = ("--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grpc", "")
STOP_S = 30

pytestmark = pytest.mark.slow  # each test starts a broker


@dataclass
class Serving:
    process: "subprocess.Popen[str]"
    kafka: str
    http: str

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_S)


@contextmanager
def serving(*arguments: object, directory: Path, environment: dict[str, str] | None = None) -> Iterator[Serving]:
    """The process, when it has told where it serves."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DRAY__")}
    command, own = [DRAYD, *map(str, arguments)], {**clean, **(environment or {})}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=directory, env=own
    )
    try:
        assert process.stdout is not None
        word, kafka, http = process.stdout.readline().split()
        assert word == "ready"
        yield Serving(process, kafka.removeprefix("kafka="), http.removeprefix("http=http://").removesuffix("/"))
    finally:
        process.kill()
        process.wait(STOP_S)


def makes_topics(bootstrap: str) -> bool:
    async def ask() -> bool:
        async with Asker(bootstrap) as asker:
            [topic] = (await asker.metadata("orders", create=True)).topics
            return topic.error_code == 0

    return asyncio.run(ask())


def produce(bootstrap: str) -> None:
    async def store() -> None:
        async with Asker(bootstrap) as asker:
            await asker.metadata("orders", create=True)
            assert (await asker.produce("orders", batch(b"x"))).error_code == 0

    asyncio.run(store())


def live_sessions(data: Path, meta: Path | None = None) -> int:
    async def look() -> int:
        async with inspect(DataDirectory(data, meta), 0, LocalDisk()) as inspected:
            return len((await current_machine(inspected)).sessions.live)

    return asyncio.run(look())


def test_the_defaults_are_one_directory_and_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "show", "--format", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)["settings"]
    values = {key: shown[key]["value"] for key in ("broker.data", "kafka.listen", "http.listen", "topics.auto_create")}
    assert values == {
        "broker.data": "dray-data",
        "kafka.listen": "127.0.0.1:9092",
        "http.listen": "127.0.0.1:7433",
        "topics.auto_create": False,
    }


def test_dev_serves_on_free_ports_in_its_directory_and_gives_its_session_back(tmp_path: Path) -> None:
    """D-005: One line on stdout; SIGTERM ends it with 0, and nothing in the log says that it still lives."""
    with serving("dev", *ANY, directory=tmp_path) as dray:
        assert not dray.kafka.endswith(":0")
        assert not dray.http.endswith(":0")
        produce(dray.kafka)
        assert live_sessions(tmp_path / "dray-data") == 1
        assert dray.stop() == 0
        assert dray.process.stdout is not None
        assert dray.process.stdout.read() == ""
    assert live_sessions(tmp_path / "dray-data") == 0


def test_a_broker_serves_what_its_file_says(tmp_path: Path) -> None:
    """`drayd broker --config FILE`: topics are not made for whoever asks."""
    file = tmp_path / "dray.yaml"
    file.write_text(
        f"broker:\n  data: {tmp_path / 'here'}\nkafka:\n  listen: 127.0.0.1:0\nhttp:\n  listen: 127.0.0.1:0\n"
        "grpc:\n  listen: ''\n"
    )
    with serving("broker", "--config", file, directory=tmp_path) as dray:
        assert not makes_topics(dray.kafka)
        assert dray.stop() == 0
    assert (tmp_path / "here" / "identity.json").exists()


@pytest.mark.parametrize("source", ["file", "environment"])
def test_who_wants_no_topics_made_gets_none_in_dev_either(tmp_path: Path, source: str) -> None:
    file = tmp_path / "dray.yaml"
    file.write_text("topics:\n  auto_create: false\n" if source == "file" else "{}\n")
    environment = {"DRAY__TOPICS__AUTO_CREATE": "false"} if source == "environment" else {}
    with serving("dev", *ANY, "--config", file, directory=tmp_path, environment=environment) as dray:
        assert not makes_topics(dray.kafka)


def test_the_log_may_lie_elsewhere(tmp_path: Path) -> None:
    meta, data = tmp_path / "meta", tmp_path / "data"
    arguments = ("dev", *ANY, "--data", data, "--log", f"local:{meta}")
    for _ in range(2):
        with serving(*arguments, directory=tmp_path) as dray:
            produce(dray.kafka)
            assert dray.stop() == 0
    assert (meta / "domain-00000" / "log").is_dir()
    assert not (data / "meta").exists()
    assert live_sessions(data, meta) == 0


def test_a_log_in_memory_leaves_nothing_behind(tmp_path: Path) -> None:
    """W-36"""
    with serving("dev", *ANY, "--log", "memory:", directory=tmp_path) as dray:
        produce(dray.kafka)
        assert dray.stop() == 0
    assert list(tmp_path.iterdir()) == []
