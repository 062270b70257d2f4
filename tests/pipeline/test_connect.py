"""Spark Connect: sessions come and go, and leave neither processes of ours nor pins behind."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from dray.pipeline.connecting import BadServerAddress, NoServer, connect_session
from tests.pipeline.parts import broker_process, consumed, holds_of, numbered, produce, wait_until
from tests.pipeline.test_drayd_compactor import DRAYD, table_of

pytestmark = pytest.mark.slow  # Spark


def ours(directory) -> list[list[str]]:
    """The processes that were started for this data directory, whoever their parents are."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if str(directory) in words and "dev" not in words and "tests.pipeline.connect_job" not in words:
            found.append(words)
    return found


def words_of(process: psutil.Process) -> list[str]:
    """What it was started with; nothing if it has just ended."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:  # a zombie is one, too
        return []


@contextmanager
def connect_server(directory: Path, topic: str, sessions: int) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """A Spark Connect server, which has had so many sessions that read a topic; and its port."""
    command = [sys.executable, "-m", "tests.pipeline.connect_job", str(directory), topic, str(sessions)]
    log = directory.with_name("connect.log")  # a pipe that nobody reads would hold the server when it is full
    with log.open("wb") as stderr:
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True)
    try:
        said = []
        while not said or said[-1] not in ("", "done"):
            said.append(server.stdout.readline().strip())
        port, *counted = said
        assert counted == ["100"] * sessions + ["done"], log.read_text()[-3_000:]
        yield int(port), server
    finally:
        server.kill()
        server.communicate()


@pytest.mark.parametrize("sessions", [2, pytest.param(20, marks=pytest.mark.long)])
def test_sessions_leave_no_process_and_no_pin_behind(tmp_path, sessions):
    """SP7, X9, R-111: a planner's daemon lives as long as the Connect server, and has nothing of ours below it."""
    with broker_process(tmp_path / "data") as broker:
        produce(broker.bootstrap, "orders", numbered(0, 100))
        with connect_server(broker.directory, "orders", sessions) as (_, server):
            assert len(holds_of(broker.directory)) <= sessions
            assert ours(broker.directory) == []
            below = [words_of(process) for process in psutil.Process(server.pid).children(recursive=True)]
            assert not [words for words in below if any(str(broker.directory) in word for word in words)]
            wait_until(lambda: not holds_of(broker.directory))  # the server lives, and its time is over
        assert ours(broker.directory) == []


@pytest.mark.timeout(1_800)
def test_a_compactor_makes_tables_with_the_spark_of_a_connect_server(tmp_path):
    """R-143: it starts no Spark of its own; log and table are compared there, too."""
    with broker_process(tmp_path / "data", "compaction.enabled=false") as broker:
        produce(broker.bootstrap, "orders", numbered(0, 100))
        with connect_server(broker.directory, "orders", 0) as (port, _):
            there = ("--set", f"compaction.master=sc://127.0.0.1:{port}", "--format", "json")
            command = [DRAYD, "compactor", "--data", str(broker.directory), "--once", "--set", "compaction.max_age=0s"]
            told = json.loads(answer_of([*command, *there]))
            assert [(one["topic"], one["records"], one["state"]) for one in told["topics"]] == [("orders", 100, "done")]
            assert table_of(broker.directory, "orders") == consumed(broker.bootstrap, "orders", 1)
            verify = [DRAYD, "admin", "table", "verify", "orders", "--data", str(broker.directory)]
            compared = json.loads(answer_of([*verify, *there]))
            assert (compared["records"], compared["rows"], compared["equal"]) == (100, 100, True)


def test_a_connect_server_that_is_not_there_is_told_at_once_and_one_that_is_none_too():
    """Spark's own client would wait for minutes."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        port = taken.getsockname()[1]
        with pytest.raises(NoServer, match=f"no Spark Connect server answers address=127.0.0.1:{port}"):
            connect_session(f"sc://127.0.0.1:{port}")
    for wrong in ("sc://", "sc://:15002", "sc://host:port", "http://127.0.0.1:1"):
        with pytest.raises(BadServerAddress):
            connect_session(wrong)


def answer_of(command: list[str]) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
