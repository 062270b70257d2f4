"""What the rest of the world notices while somebody misbehaves: it should be nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psutil

from tests.durability.daemon import Drayd
from tests.golden.asking import Asker, batch

MIB = 1 << 20
LASTING_BYTES = 32 * MIB
"""What may stay afterwards: buffers that are kept for reuse."""


@asynccontextmanager
async def unharmed(drayd: Drayd, topic: str, *, growth_bytes: int = 64 * MIB) -> AsyncIterator[None]:
    """While the block runs, another connection goes on producing, and the process hardly grows."""
    process = psutil.Process(drayd.pid)
    async with Asker(drayd.bootstrap) as other:
        await other.create(topic)
        for _ in range(20):  # what any first use costs is not the misbehaviour's
            assert (await other.produce(topic, batch(b"x" * 1000))).error_code == 0
        before = peak = process.memory_info().rss
        done = False

        async def go_on() -> int:
            nonlocal peak
            offset = 20
            while not done:
                answer = await other.produce(topic, batch(b"x" * 1000))
                assert (answer.error_code, answer.base_offset) == (0, offset)
                offset += 1
                peak = max(peak, process.memory_info().rss)
                await asyncio.sleep(0.005)
            return offset

        going = asyncio.ensure_future(go_on())
        try:
            yield
        finally:
            done = True
            sent = await going
        assert (await other.offset_at(topic, -1)).offset == sent
        peak = max(peak, process.memory_info().rss)
        print(f"memory {before / MIB:.1f} MiB, at most {(peak - before) / MIB:+.1f} MiB")
        assert peak - before <= growth_bytes
        assert process.memory_info().rss - before <= LASTING_BYTES
