"""Told to stop, a broker is gone in time, whatever its disk and its clients do."""

import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from confluent_kafka import Producer

from dray.cli import serving as cli
from dray.node.pools import CLOSE_S
from dray.servers.kafka.settings import LONGEST_STOP
from tests.cli.daemon import LIMIT_S, environment, serving

ANY = ("--kafka", "0", "--http", "0", "--grpc", "")
HANGING_DISK = """
import sys, threading
from pathlib import Path
from dray.cli import main, serving
from dray.disk import LocalFile

serving.STOP_S = {seconds}
flag, part, sync = Path({flag!r}), {part!r}, LocalFile.sync

def hang(self):
    if flag.exists() and part in str(self._path):
        Path({told!r}).touch()
        threading.Event().wait()
    sync(self)

LocalFile.sync = hang
sys.argv = ["drayd", *sys.argv[1:]]
main.main()
"""


def wait_for(path: Path) -> None:
    pause = threading.Event()
    for _ in range(600):
        if path.exists():
            return
        pause.wait(0.1)
    pytest.fail(f"{path.name} never came")


def wait_until_stuck(server: int, client: int) -> None:
    """Until the server's end of a connection holds bytes and sends none of them."""
    pause, seen = threading.Event(), [0]
    for _ in range(300):
        for row in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            local, remote, _, queues = row.split()[1:5]
            if (local.rpartition(":")[2], remote.rpartition(":")[2]) == (f"{server:04X}", f"{client:04X}"):
                seen.append(int(queues.partition(":")[0], 16))
        if seen[-1] and len(seen) > 5 and len(set(seen[-5:])) == 1:
            return
        pause.wait(0.2)
    pytest.fail(f"it never got stuck: {seen[-10:]}")


@pytest.mark.slow
@pytest.mark.parametrize(("part", "seconds", "code"), [("/objects/", 50, 0), ("/log/", 4, 1)])
def test_a_disk_call_that_hangs_does_not_keep_the_process(tmp_path, part, seconds, code):
    """OF3, OF1: a put that hangs is left behind; a log that hangs cannot be closed, and the process goes anyway."""
    flag, told = tmp_path / "hang", tmp_path / "hangs"
    script = HANGING_DISK.format(seconds=seconds, flag=str(flag), told=str(told), part=part)
    flags = ("--data", tmp_path / "data", *ANY, "--set", "kafka.stop_timeout=1s")
    with serving(*flags, command=(sys.executable, "-c", script)) as drayd:
        producer = Producer({"bootstrap.servers": drayd.kafka, "message.timeout.ms": 1_000, "log_level": 0})
        producer.produce("orders", b"stored")
        assert producer.flush(30) == 0
        flag.touch()
        producer.produce("orders", b"hangs")
        wait_for(told)
        assert drayd.stop() == code, drayd.log
        producer.flush(30)
    if code:
        assert "a disk or a store does not answer" in "".join(drayd.log)


def test_the_longest_stop_fits_into_thirty_seconds():
    """OF3: requests get what the settings allow them, threads what they are given; then it is over anyway."""
    assert LONGEST_STOP.total_seconds() + CLOSE_S < cli.STOP_S < 30


@pytest.mark.slow
def test_a_client_that_reads_nothing_does_not_keep_the_process(tmp_path):
    """HT1"""
    with serving("--data", tmp_path / "data", *ANY) as drayd:
        host, _, port = drayd.http.rpartition(":")
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect((host, int(port)))
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: dray\r\n\r\n" * 400)  # more than all buffers hold
            wait_until_stuck(int(port), client.getsockname()[1])
            assert drayd.stop() == 0


@pytest.mark.slow
def test_told_to_stop_before_it_serves_it_stops(tmp_path):
    """A start that waits for a disk is no reason to stay either."""
    flag, told = tmp_path / "hang", tmp_path / "hangs"
    flag.touch()
    script = HANGING_DISK.format(seconds=4, flag=str(flag), told=str(told), part="/log/")
    command = [sys.executable, "-c", script, "dev", "--data", str(tmp_path / "data"), *ANY]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(told)
        process.terminate()
        assert process.wait(LIMIT_S) in (0, 1)
    finally:
        process.kill()
        process.wait(LIMIT_S)
