"""`dray` between other programs: pipes that close early, signals, and inputs that do not end."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dray.testing import broker
from tests.cli.command_story import Shop
from tests.cli.daemon import environment

DRAY = str(Path(sys.executable).with_name("dray"))
LIMIT_S = 120

pytestmark = pytest.mark.slow  # each starts processes


@pytest.fixture(scope="module")
def shop():
    with broker(topics__auto_create="false") as running:
        yield Shop(running.bootstrap)


@pytest.fixture
def topic(shop, request):
    shop.good("topics", "create", request.node.name, "-p", 1)
    return request.node.name


def started(shop, *argv, **streams):
    everything = {**environment(), "DRAY_BOOTSTRAP": shop.bootstrap}
    return subprocess.Popen([DRAY, *map(str, argv)], env=everything, **streams)


def ended(process) -> tuple[int, bytes, bytes]:
    out, err = process.communicate(timeout=LIMIT_S)
    return process.returncode, out, err


def test_a_reader_that_has_enough_ends_it_quietly(shop, topic):
    """`| head -1`, of much more than a pipe holds."""
    shop.good("produce", topic, stdin=b"x" * 100 + b"\n" + b"y" * 100_000 + b"\n" + (b"z" * 1000 + b"\n") * 2000)
    with started(shop, "consume", topic, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"x" * 100 + b"\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(LIMIT_S) == 0


def test_a_follow_ends_when_nobody_reads_it_although_nothing_comes(shop, topic):
    shop.good("produce", topic, stdin=b"one\n")
    with started(shop, "consume", topic, "-f", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"one\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(LIMIT_S) == 0


@pytest.mark.parametrize("command", [("topics", "list"), ("--help",), ("topics", "list", "--format", "json")])
def test_an_answer_that_nobody_reads_is_no_failure(shop, command):
    reader, writer = os.pipe()
    os.close(reader)
    with started(shop, *command, stdout=writer, stderr=subprocess.PIPE) as process:
        os.close(writer)
        assert process.stderr.read() == b""
        assert process.wait(LIMIT_S) == 0


def test_an_error_that_nobody_reads_is_still_one(shop):
    reader, writer = os.pipe()
    os.close(reader)
    with started(shop, "consume", "nowhere", "--format", "json", stdout=writer, stderr=subprocess.PIPE) as process:
        os.close(writer)
        assert b"Traceback" not in process.stderr.read()
        assert process.wait(LIMIT_S) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_follow_that_is_told_to_end_leaves_its_group_with_all_it_printed_committed(shop, number):
    """CL2: exit code 0, for a follow has no other end."""
    name = f"followed-{number}"
    shop.good("topics", "create", name, "-p", 1)
    shop.good("produce", name, stdin=b"1\n2\n3\n")
    with started(shop, "consume", name, "-f", "--group", name, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as one:
        assert [one.stdout.readline() for _ in range(3)] == [b"1\n", b"2\n", b"3\n"]
        one.send_signal(number)
        assert ended(one) == (0, b"", b"")
    described = shop.good("groups", "describe", name)
    assert (described["state"], described["members"]) == ("Empty", [])
    assert described["partitions"][0]["committed"] == 3


def test_what_a_closed_pipe_did_not_take_is_read_again(shop, topic):
    """CL2: a group's offset does not move over records that could not be printed."""
    shop.good("produce", topic, stdin=b"".join(b"%06d %s\n" % (number, b"x" * 1000) for number in range(1000)))
    with started(shop, "consume", topic, "--group", topic, stdout=subprocess.PIPE) as process:
        first = process.stdout.readline()
        process.stdout.close()
        assert process.wait(LIMIT_S) == 0
    assert first.startswith(b"000000")
    described = shop.good("groups", "describe", topic)["partitions"]
    committed = described[0]["committed"] or 0 if described else 0
    assert committed < 1000
    rest = shop("consume", topic, "--group", topic).out.splitlines()
    assert [int(line.split()[0]) for line in rest] == list(range(committed, 1000))


def test_an_interrupted_producer_stores_what_it_has_read_and_says_so(shop, topic):
    """Exit code 130; half a line is no record."""
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started(shop, "produce", topic, "--format", "json", **streams) as process:
        process.stdin.write(b"first\nsecond\nhalf")
        process.stdin.flush()
        while len(shop.read(topic)) < 2:
            pass  # they arrive while the pipe stays open; the test's own limit ends this
        process.send_signal(signal.SIGINT)
        code, out, _ = ended(process)
    assert code == 130
    assert b'"taken": 2, "stored": 2, "failed": 0, "unknown": 0' in out
    assert shop("consume", topic).out == b"first\nsecond\n"


def test_memory_does_not_grow_with_the_input(shop, topic):
    """200 MB of records through processes that may have 320 MiB, the stacks of threads and libraries included."""

    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (320 << 20, 320 << 20))

    chunk = (b"x" * 10_000 + b"\n") * 100
    with started(shop, "produce", topic, stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=bounded) as process:
        for _ in range(200):
            process.stdin.write(chunk)
        process.stdin.close()
        process.stdin = None
        code, out, _ = ended(process)
    assert code == 0, out
    with started(shop, "consume", topic, stdout=subprocess.PIPE, preexec_fn=bounded) as process:
        size = 0
        while piece := process.stdout.read(1 << 20):
            size += len(piece)
        assert process.wait(LIMIT_S) == 0
    assert size == 200 * len(chunk)
