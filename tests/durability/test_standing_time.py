"""All brokers die: time stands in their domains, and goes on when one is back."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from dray.client import Client, Heap
from tests.durability.daemon import Drayd, free_port

pytestmark = pytest.mark.slow

LONG_S = 90.0
HEAPS = [f"jobs-{number}" for number in range(6)]


async def fill(grpc: str) -> None:
    """In each heap a message whose worker is gone, and one that is delayed."""
    async with Client(grpc, timeout=LONG_S) as client:
        for name in HEAPS:
            await client.make_heap(name, visibility_timeout=timedelta(seconds=1))
            await client.heap(name).enqueue({"kind": "leased"})
            await client.heap(name).pop(auto_extend=False).next()
            await client.heap(name).enqueue({"kind": "delayed"}, delay=timedelta(seconds=5))


async def kinds(grpc: str) -> list[set[str]]:
    """What comes out of each heap, though nothing is put in."""

    async def both(heap: Heap) -> set[str]:
        async with heap.pop(concurrency=2) as consumer:
            return {(await consumer.next()).payload["kind"] for _ in range(2)}

    async with Client(grpc, timeout=LONG_S) as client, asyncio.timeout(LONG_S):
        return await asyncio.gather(*(both(client.heap(name)) for name in HEAPS))


def test_what_waits_for_time_comes_after_a_kill_though_nobody_writes(tmp_path: Path) -> None:
    """HK1: in domains that hold heaps alone, delays and leases"""
    grpc = f"127.0.0.1:{free_port()}"
    with Drayd(tmp_path, "--grpc", grpc, "--set", "cluster.domains=4") as drayd:
        asyncio.run(fill(grpc))
        drayd.kill()
        drayd.start()
        assert asyncio.run(kinds(grpc)) == [{"leased", "delayed"}] * len(HEAPS)
