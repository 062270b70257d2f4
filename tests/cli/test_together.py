"""`drayd dev --brokers N`: a log server and brokers, started, watched and ended together."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from dray.cli.main import run
from tests.cli.test_serving import ANY, DRAYD, STOP_S, live_sessions
from tests.golden.asking import Asker, batch

pytestmark = pytest.mark.slow

PATIENCE_S = 120


@dataclass
class Together:
    process: "subprocess.Popen[str]"
    kafka: list[str]
    http: list[str]

    def children(self) -> dict[str, int]:
        """Process ids, by the directory that each serves."""
        found = {}
        for pid in subprocess.run(
            ["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True
        ).stdout.split():
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended between the list and the look
            if "--data" in words:
                found[Path(words[words.index("--data") + 1]).name] = int(pid)
        return found


@contextmanager
def together(directory: Path, *arguments: str) -> Iterator[Together]:
    command = [DRAYD, "dev", *ANY, "--data", "d", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=directory)
    try:
        assert process.stdout is not None
        word, kafka, http = process.stdout.readline().split()
        assert word == "ready"
        yield Together(process, kafka.removeprefix("kafka=").split(","), http.removeprefix("http=").split(","))
    finally:
        process.terminate()
        process.wait(STOP_S)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def eventually_gone(pids: list[int]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not all(map(gone, pids)):
            await asyncio.sleep(0.05)


async def leaders(bootstrap: str, topic: str) -> list[int]:
    async with Asker(bootstrap) as ask:
        (found,) = (await ask.metadata(topic)).topics
        return [partition.leader_id for partition in found.partitions]


async def test_all_serve_one_that_dies_is_back_and_all_end_together(tmp_path: Path) -> None:
    """R-213, FL1, FL2: the ready line lists all, each leads its share, a killed one is back where it listened."""
    with together(tmp_path, "--brokers", "3") as dray:
        assert (len(dray.kafka), len(dray.http)) == (3, 3)
        async with Asker(dray.kafka[0]) as ask:
            await ask.create("orders", partitions=4)
            assert {one.node_id for one in (await ask.metadata()).brokers} == {1, 2, 3}
            assert (await ask.produce("orders", batch(b"1"))).error_code == 0
        assert {len(set(await leaders(one, "orders"))) for one in dray.kafka} == {3}
        before = dray.children()
        assert sorted(before) == ["broker-1", "broker-2", "broker-3", "d"]
        os.kill(before["broker-2"], signal.SIGKILL)
        async with Asker(dray.kafka[0]) as ask:
            assert (await ask.produce("orders", batch(b"2"))).base_offset == 1
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    async with Asker(dray.kafka[1]) as ask:
                        assert (await ask.offset_at("orders", -1)).offset == 2
                        break
                except OSError:
                    await asyncio.sleep(0.1)
        after = dray.children()
        assert after["broker-2"] != before["broker-2"]
        os.kill(after["d"], signal.SIGKILL)  # the log server itself: brokers wait for it, and go on
        async with asyncio.timeout(PATIENCE_S):
            while dray.children().get("d", after["d"]) == after["d"]:
                await asyncio.sleep(0.1)
        async with Asker(dray.kafka[2]) as ask, asyncio.timeout(PATIENCE_S):
            while (await ask.produce("orders", batch(b"3"))).error_code:
                await asyncio.sleep(0.2)
        last = list(dray.children().values())
        began = time.monotonic()
        dray.process.terminate()
        assert dray.process.wait(STOP_S) == 0
        print(f"stopped in {time.monotonic() - began:.1f} s")
        assert all(map(gone, last))
    assert await asyncio.to_thread(live_sessions, tmp_path / "d") == 0


async def test_nothing_outlives_it_and_its_directory_can_be_served_by_one_broker(tmp_path: Path) -> None:
    """FL2: killed itself, it leaves no process behind; then `drayd dev` alone has everything, and back again."""
    with together(tmp_path, "--brokers", "2") as dray:
        async with Asker(dray.kafka[1]) as ask:
            await ask.create("orders", partitions=4)
            assert (await ask.produce("orders", batch(b"1"), partition=3)).error_code == 0
        children = list(dray.children().values())
        dray.process.kill()
        await eventually_gone(children)
    for arguments in ((), ("--brokers", "2")):
        with together(tmp_path, *arguments) as dray:
            async with Asker(dray.kafka[0]) as ask:
                assert (await ask.offset_at("orders", -1, partition=3)).offset == 1


def test_what_several_brokers_cannot_have_is_said_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for flags, said in (
        (("--log", "memory:"), "leave out --log"),
        (("--objects", "memory:"), "share no memory"),
        (("--set", "broker.id=3"), "leave out broker.id"),
        (("--brokers", "0"), "greater than or equal to 1"),
    ):
        assert run(["dev", "--brokers", "2", *flags]) == 2
        assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_process_that_does_not_come_up_is_why_none_does(tmp_path: Path) -> None:
    """FL1: with the exit code of that one, and nothing runs on."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "foreign").write_text("x")
    done = subprocess.run(
        [DRAYD, "dev", *ANY, "--data", "d", "--brokers", "2"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode not in (0, -9)
    assert "choose another one" in done.stderr
    assert "meta did not start" in done.stderr
    assert done.stdout == ""


@pytest.mark.slow
def test_a_fleet_without_grpc_has_no_broker_with_it(tmp_path: Path) -> None:
    """Each of them would ask for the same port of the defaults."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DRAY__")}
    with subprocess.Popen(
        [DRAYD, "dev", *ANY, "--grpc", "", "--data", tmp_path / "d", "--brokers", "2"],
        env=kept, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        ready = process.stdout.readline()
        process.terminate()
        _, said = process.communicate(timeout=120)
    assert ready.startswith("ready kafka="), said
    assert "grpc" not in ready
    assert "grpc.listening" not in said
