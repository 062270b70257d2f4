"""Spark Connect: sessions come and go, and leave neither processes of ours nor pins behind."""

import subprocess
import sys

import psutil
import pytest

from tests.pipeline.parts import broker_process, holds_of, numbered, produce, wait_until

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


@pytest.mark.parametrize("sessions", [2, pytest.param(20, marks=pytest.mark.long)])
def test_sessions_leave_no_process_and_no_pin_behind(tmp_path, sessions):
    """SP7, X9, R-111: a planner's daemon lives as long as the Connect server, and has nothing of ours below it."""
    with broker_process(tmp_path / "data") as broker:
        produce(broker.bootstrap, "orders", numbered(0, 100))
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.pipeline.connect_job", str(broker.directory), "orders", str(sessions)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            said = []
            while not said or said[-1] not in ("", "done"):
                said.append(server.stdout.readline().strip())
            assert said == ["100"] * sessions + ["done"], server.stderr.read()[-3_000:]
            assert len(holds_of(broker.directory)) <= sessions
            assert ours(broker.directory) == []
            below = [words_of(process) for process in psutil.Process(server.pid).children(recursive=True)]
            assert not [words for words in below if any(str(broker.directory) in word for word in words)]
            wait_until(lambda: not holds_of(broker.directory))  # the server lives, and its time is over
        finally:
            server.kill()
            server.communicate()
        assert ours(broker.directory) == []
