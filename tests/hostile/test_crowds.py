"""A few clients that take much: half requests, idle connections, and compressed batches without end."""

import asyncio
import resource
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from dray.records import Codec, NewRecord, build_batch
from dray.servers.kafka.messages.api_versions import ApiVersionsRequest
from tests.durability.daemon import Drayd
from tests.golden.asking import API_VERSIONS, PRODUCE, Asker, batch, produce_request, schema
from tests.hostile.watching import MIB
from tests.kafka.wire import request_bytes

pytestmark = pytest.mark.slow

HELLO = ApiVersionsRequest(client_software_name="a", client_software_version="1")
WHILE = 40
"""Requests that others make while somebody misbehaves."""


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drayd]:
    """A broker that gives all connections together 32 MiB."""
    flags = ("--set", "kafka.process_inflight_bytes=32MiB", "--set", "kafka.frame_bytes=16MiB")
    flags += ("--set", "kafka.connection_inflight_bytes=16MiB")
    with Drayd(tmp_path_factory.mktemp("crowds") / "data", *flags) as running:
        yield running


async def test_half_sent_requests_stop_nobody(narrow: Drayd) -> None:
    """KP18, KP19: six send most of 15 MiB and no more; others produce small and large requests meanwhile."""
    large = produce_request("halves", {n: batch(bytes(900_000)) for n in range(8)})
    async with Asker(narrow.bootstrap) as other, Asker(narrow.bootstrap) as sender:
        await other.create("halves", 8)
        await sender.metadata("halves")
        bad = [Asker(narrow.bootstrap) for _ in range(6)]
        for liar in bad:
            await liar.__aenter__()
            await liar.call(API_VERSIONS, 3, HELLO)
            liar.writer.write(struct.pack(">ihhih", 15 * MIB, 0, 9, 1, -1) + bytes(14 * MIB))
        sending = asyncio.create_task(sender.call(PRODUCE, 9, large))
        for _ in range(WHILE):
            assert (await other.produce("halves", batch(b"x"))).error_code == 0
            assert (await other.metadata("halves")).topics[0].error_code == 0
        answer = await sending  # within its 30 s: the quietest were dropped
        assert {one.error_code for one in answer.responses[0].partition_responses} == {0}
        for liar in bad:
            liar.close()


async def test_a_stranger_cannot_declare_much(narrow: Drayd) -> None:
    async with Asker(narrow.bootstrap) as stranger, asyncio.timeout(60):
        stranger.writer.write(struct.pack(">ihhih", 15 * MIB, 0, 9, 1, -1))
        assert await stranger.closed()
        while "a request is too large" not in "".join(narrow.log):  # so it was refused for that, not for being late
            await asyncio.sleep(0.01)


async def test_one_that_sends_many_compressed_batches_does_not_hold_up_another(narrow: Drayd) -> None:
    """KP22: forty that expand to 12 MiB each are on their way; another's batch waits for one of them at most."""
    heavy = build_batch([NewRecord(value=bytes(12 * MIB), timestamp=0)], codec=Codec.GZIP)
    light = batch(b"q" * 1000, codec=Codec.LZ4)
    answered = 0
    async with Asker(narrow.bootstrap) as greedy, Asker(narrow.bootstrap) as other:
        await other.create("packed", 2)
        assert (await other.produce("packed", light, partition=1)).error_code == 0
        frame = request_bytes(schema(PRODUCE), 9, produce_request("packed", {0: heavy}), 1)
        greedy.writer.write(frame * 40)

        async def take() -> None:
            nonlocal answered
            for _ in range(40):
                _, response = await greedy.answer(schema(PRODUCE), 9)
                assert response.responses[0].partition_responses[0].error_code == 0
                answered += 1

        taking = asyncio.create_task(take())
        while not answered:
            await asyncio.sleep(0)
        assert (await other.produce("packed", light, partition=1)).error_code == 0
        print(f"{answered} of 40 were answered before the other")
        assert answered < 30
        async with asyncio.timeout(60):
            await taking


async def test_idle_connections_leave_the_store_its_files(tmp_path: Path) -> None:
    """ND20: three hundred of them, where a process may open 256 files if it asks for as many as it may have."""
    with Drayd(tmp_path / "data", files=256) as running:
        assert resource.prlimit(running.pid, resource.RLIMIT_NOFILE) == (256, 256)
        async with Asker(running.bootstrap) as ask:
            await ask.create("files")
            host, port = running.bootstrap.rsplit(":", 1)
            idle = [socket.socket() for _ in range(300)]
            for one in idle:
                one.setblocking(False)
                one.connect_ex((host, int(port)))
            for number in range(WHILE):
                answer = await ask.produce("files", batch(b"x" * 1000))
                assert (answer.error_code, answer.base_offset) == (0, number)
            for one in idle:
                one.close()
        assert "Too many open files" not in "".join(running.log)
