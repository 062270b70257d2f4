"""Consumers that catch up, slowly or all at once: nobody is cut, and memory does not grow with their number."""

import asyncio
import socket
import struct
from collections.abc import Iterator

import psutil
import pytest

from dray.servers.kafka.messages.api_versions import ApiVersionsRequest
from tests.durability.daemon import Drayd
from tests.golden.asking import API_VERSIONS, FETCH, Asker, batch, fetch_request, produce_request, records_in, schema
from tests.hostile.watching import MIB
from tests.kafka.wire import request_bytes

PARTITIONS = 16
BATCHES = 12
READ_FROM = 10
BATCH_BYTES = 1_000_000
TOPIC = "cold"
HELLO = ApiVersionsRequest(client_software_name="a", client_software_version="1")


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drayd]:
    """A broker that gives answers 8 MiB of memory, and remembers 16 MiB of what was written."""
    flags = ("--set", "kafka.unsent_bytes=8MiB", "--set", "fetch.cache_bytes=16MiB")
    with Drayd(tmp_path_factory.mktemp("catching-up") / "data", *flags) as running:
        asyncio.run(fill(running.bootstrap))
        yield running


async def fill(bootstrap: str) -> None:
    async with Asker(bootstrap) as ask:
        await ask.create(TOPIC, PARTITIONS)
        for number in range(PARTITIONS):
            for _ in range(BATCHES):
                request = produce_request(TOPIC, {number: batch(bytes(BATCH_BYTES))})
                answer = await ask.call(0, 9, request)
                assert answer.responses[0].partition_responses[0].error_code == 0


def whole_topic(offsets: dict[int, int], partition_max_bytes: int = 64 * MIB) -> bytes:
    places = [(TOPIC, number, offset) for number, offset in offsets.items()]
    wanted = fetch_request(places, max_wait_ms=500, partition_max_bytes=partition_max_bytes)
    return request_bytes(schema(FETCH), 12, wanted, 1)


class SlowReader:
    """Takes what it is sent in small sips, so that its answers wait at the broker."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        self.socket.connect((host, int(port)))
        self.socket.setblocking(False)

    async def send(self, frame: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, frame)

    async def take(self, size: int, bytes_per_s: int) -> bytes:
        loop, taken = asyncio.get_running_loop(), bytearray()
        while len(taken) < size:
            sip = await loop.sock_recv(self.socket, min(65_536, size - len(taken)))
            assert sip, "cut in the middle of an answer"
            taken += sip
            await asyncio.sleep(len(sip) / bytes_per_s)
        return bytes(taken)


async def read_all(bootstrap: str, bytes_per_s: int) -> int:
    """Read the end of the topic at a pace; the bytes of records that came."""
    reader, offsets, total = SlowReader(bootstrap), dict.fromkeys(range(PARTITIONS), READ_FROM), 0
    fetch = schema(FETCH)
    while offsets:
        await reader.send(whole_topic(offsets))
        (size,) = struct.unpack(">i", await reader.take(4, bytes_per_s))
        answer = memoryview(await reader.take(size, bytes_per_s))
        response, _, _ = fetch.response.read[12](answer, 5)  # behind the correlation id and no tags
        for one in response.responses[0].partitions:
            assert one.error_code == 0
            total += len(records_in(one))
            offsets[one.partition_index] += len(records_in(one)) // BATCH_BYTES
        offsets = {number: offset for number, offset in offsets.items() if offset < BATCHES}
    reader.socket.close()
    return total


@pytest.mark.slow
async def test_fetches_that_nobody_reads_take_no_memory_beyond_the_limit(crowded: Drayd) -> None:
    """Each asks for other 16 MB, at once: 192 MB, if all of it were read before anybody waited."""
    process = psutil.Process(crowded.pid)
    before = peak = process.memory_info().rss
    dead = [SlowReader(crowded.bootstrap) for _ in range(BATCHES)]
    for offset, reader in enumerate(dead):
        await reader.send(whole_topic(dict.fromkeys(range(PARTITIONS), offset), partition_max_bytes=1 * MIB))
    async with Asker(crowded.bootstrap) as other:
        await other.create("beside", 1)
        for number in range(100):  # small fetches, and all else, are served meanwhile
            assert (await other.produce("beside", batch(b"x" * 1000))).base_offset == number
            assert len(records_in(await other.fetch("beside", number))) > 1000
            assert (await other.call(API_VERSIONS, 3, HELLO)).error_code == 0
            peak = max(peak, process.memory_info().rss)
    for reader in dead:
        reader.socket.close()
    print(f"memory {before / MIB:.0f} MiB, at most {(peak - before) / MIB:+.0f} MiB")
    assert peak - before < 96 * MIB


@pytest.mark.slow
async def test_slow_readers_read_everything_and_nobody_is_cut(crowded: Drayd) -> None:
    """R-090: six of them together want many times the memory that there is for answers."""
    async with asyncio.timeout(120):
        totals = await asyncio.gather(*(read_all(crowded.bootstrap, 16 * MIB) for _ in range(6)))
    assert min(totals) >= PARTITIONS * (BATCHES - READ_FROM) * BATCH_BYTES
    assert "answers not taken" not in "".join(crowded.log)
