"""Frames that lie: fuzzed, cut, and of lengths that never come."""

import asyncio
import random
import struct

import pytest

from dray.servers.kafka.messages.api_versions import ApiVersionsRequest
from tests.durability.daemon import Drayd
from tests.golden.asking import API_VERSIONS, Asker
from tests.hostile.frames import TOPIC, good_frames, newest_frames, sealed, spoiled
from tests.hostile.watching import MIB, unharmed

pytestmark = pytest.mark.slow

SEED = 20261115
ANSWER_S = 60
WORKERS = 8


async def say(bootstrap: str, frame: bytes) -> None:
    """Send a frame and no more; whatever the server does with it, it comes to an end."""
    async with Asker(bootstrap) as liar, asyncio.timeout(ANSWER_S):
        try:
            liar.writer.write(frame)
            await liar.writer.drain()
            liar.writer.write_eof()
            while await liar.reader.read(1 << 16):
                pass
        except (ConnectionError, OSError):
            pass  # closed while we spoke


async def fuzz(drayd: Drayd, count: int, seed: int, topic: str) -> None:
    print(f"seed {seed}")
    dice = random.Random(seed)
    golden = good_frames()
    frames = [spoiled(dice, dice.choice(golden)) for _ in range(count)]

    async def work(own: list[bytes]) -> None:
        for frame in own:
            await say(drayd.bootstrap, frame)

    async with unharmed(drayd, topic):
        await asyncio.gather(*(work(frames[n::WORKERS]) for n in range(WORKERS)))
    async with Asker(drayd.bootstrap) as ask:
        hello = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        assert (await ask.call(API_VERSIONS, 3, hello)).error_code == 0
    assert "Traceback" not in "".join(drayd.log)
    assert "kafka.handler_failed" not in "".join(drayd.log)


@pytest.fixture(scope="module", autouse=True)
def fuzzed_topic(drayd: Drayd) -> None:
    async def make() -> None:
        async with Asker(drayd.bootstrap) as ask:
            await ask.create(TOPIC, 2)

    asyncio.run(make())


async def test_five_thousand_fuzzed_frames_do_no_harm(drayd: Drayd) -> None:
    """R-075, T06, small."""
    await fuzz(drayd, 5_000, SEED, "beside-fuzz")


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
async def test_a_hundred_thousand_fuzzed_frames_do_no_harm(drayd: Drayd, part: int) -> None:
    """R-075, T06."""
    await fuzz(drayd, 20_000, SEED + 1 + part, f"beside-fuzz-{part}")


async def test_every_request_cut_at_each_byte_ends_its_connection_only(drayd: Drayd) -> None:
    """R-075: with a right length around what is left."""
    cuts = [sealed(frame[4:end]) for frame in newest_frames() for end in range(4, len(frame))]

    async def work(own: list[bytes]) -> None:
        for frame in own:
            await say(drayd.bootstrap, frame)

    async with unharmed(drayd, "beside-cuts"):
        await asyncio.gather(*(work(cuts[n::WORKERS]) for n in range(WORKERS)))


def liars() -> list[bytes]:
    """Beginnings of requests that declare more than they bring."""
    head = struct.pack(">hhih", 0, 9, 1, -1) + b"\0"
    metadata = struct.pack(">hhih", 3, 1, 1, -1)
    versions = struct.pack(">hhih", 18, 3, 1, -1)
    return [
        struct.pack(">i", 100 * MIB) + head,
        struct.pack(">i", (1 << 31) - 1) + head,
        sealed(head + b"\0" + struct.pack(">hi", -1, 1000) + b"\xff\xff\xff\xff\x07"),
        sealed(metadata + struct.pack(">i", (1 << 31) - 1)),
        sealed(metadata + struct.pack(">i", -2)),
        sealed(versions + b"\xc0\x84\x3d" + b"\x63\x00" * 30_000),
        sealed(versions + b"\x01\x00\xff\xff\xff\xff\x07"),
    ]


async def test_two_hundred_connections_that_lie_about_lengths_cost_little(drayd: Drayd) -> None:
    """R-075, T07: all are open at the same time."""
    lies = liars()
    async with unharmed(drayd, "beside-liars"):
        open_ = []
        for n in range(200):
            liar = Asker(drayd.bootstrap)
            await liar.__aenter__()
            liar.writer.write(lies[n % len(lies)])
            open_.append((lies[n % len(lies)], liar))
        for lie, liar in open_:
            if lie is not lies[0]:  # the only one that may still come true
                async with asyncio.timeout(ANSWER_S):
                    assert await liar.closed()
        for _, liar in open_:
            liar.close()
