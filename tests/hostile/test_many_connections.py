"""As many connections as a broker has room for, most of them from clients that do nothing right."""

import asyncio
import resource
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from tests.durability.daemon import Drayd
from tests.golden.asking import Asker, batch
from tests.hostile.watching import MIB

pytestmark = pytest.mark.slow

SPARE = 500
"""Descriptors of this process besides those connections."""
BYTES_EACH = 64 * 1024
RESET = struct.pack("ii", 1, 0)
WHILE = 20


@contextmanager
def room_for(count: int) -> Iterator[None]:
    """Let this process open so many files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard == resource.RLIM_INFINITY or hard >= count + SPARE, f"this process may open {hard} files: raise that"
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + SPARE), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def half_open(one: socket.socket, number: int) -> None:
    """What clients leave behind that are gone, or never knew what they wanted."""
    match number % 4:
        case 0:
            pass  # it says nothing
        case 1:
            one.sendall(b"\0\0")  # half a length
        case 2:
            one.sendall(struct.pack(">ihhih", 60_000, 3, 9, 1, -1))  # the beginning of a request
        case _:
            one.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))  # a request, and then no more
            one.shutdown(socket.SHUT_WR)


async def served(ask: Asker, topic: str) -> None:
    for _ in range(WHILE):
        assert (await ask.produce(topic, batch(b"x" * 1000))).error_code == 0
        assert (await ask.metadata(topic)).topics[0].error_code == 0


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.long)])
async def test_many_half_open_connections_cost_little_and_stop_nobody(tmp_path: Path, count: int) -> None:
    """R-075: some are reset in the middle; memory is bounded, and there is room again when they are gone."""
    limit = count + count // 10
    with ExitStack() as stack:
        stack.enter_context(room_for(limit))  # the daemon inherits it
        drayd = stack.enter_context(Drayd(tmp_path / "data", "--set", f"kafka.max_connections={limit}"))
        process = psutil.Process(drayd.pid)
        host, port = drayd.bootstrap.rsplit(":", 1)
        async with Asker(drayd.bootstrap) as ask:
            await ask.create("others")
            await served(ask, "others")
            before = process.memory_info().rss
            crowd = []
            for number in range(count):
                one = stack.enter_context(socket.socket())
                one.settimeout(60)
                await asyncio.to_thread(one.connect, (host, int(port)))
                half_open(one, number)
                crowd.append(one)
            await served(ask, "others")
            grown = process.memory_info().rss - before
            print(f"{grown / count / 1024:.1f} KiB each")
            assert grown < count * BYTES_EACH + 32 * MIB
            for number, one in enumerate(crowd):
                if number % 2:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                one.close()
            await served(ask, "others")
            async with asyncio.timeout(120):  # they are counted out, so as many fit again
                again = 0
                while again < limit // 2:
                    async with Asker(drayd.bootstrap) as new:
                        await new.metadata("others")
                    again += limit // 8
        assert drayd.terminate() == 0


async def test_a_connection_too_many_is_closed_and_those_that_are_there_are_served(tmp_path: Path) -> None:
    """With the limit reached, whoever was there goes on; one that leaves makes room for one that comes."""
    with Drayd(tmp_path / "data", "--set", "kafka.max_connections=50") as drayd, ExitStack() as stack:
        host, port = drayd.bootstrap.rsplit(":", 1)
        async with Asker(drayd.bootstrap) as ask:
            await ask.create("others")
            crowd = [stack.enter_context(socket.create_connection((host, int(port)), 60)) for _ in range(200)]
            await served(ask, "others")
            closed = 0
            for one in crowd:
                one.setblocking(False)
            async with asyncio.timeout(60):
                while closed < 151:
                    closed = sum(is_closed(one) for one in crowd)
                    await asyncio.sleep(0.05)
            for one in crowd:
                one.close()
            async with asyncio.timeout(60):
                while True:
                    try:
                        async with Asker(drayd.bootstrap) as new:
                            await new.metadata("others")
                            break
                    except (OSError, EOFError):
                        await asyncio.sleep(0.05)


def is_closed(one: socket.socket) -> bool:
    try:
        return one.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
