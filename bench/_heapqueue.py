"""A heap of Dray, as its SDK has it: one client, one consumer, as many jobs at a time as there are workers."""

import asyncio
from collections.abc import Callable

from dray.client import BYTES, Client
from dray.client.consumer import Consumer


class DrayHeap:
    def __init__(self, address: str) -> None:
        endpoint, _, self._name = address.partition("/")
        self._client = Client(endpoint, codec=BYTES, timeout=30.0)
        self._heap = self._client.heap(self._name)

    async def open(self) -> None:
        await self._client.make_heap(self._name)

    async def put(self, body: bytes) -> None:
        await self._heap.enqueue(body)

    async def work(self, workers: int, taken: Callable[[bytes], None], acked: Callable[[], None]) -> None:
        async with self._heap.pop(concurrency=workers) as consumer, asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(_work(consumer, taken, acked))

    async def settled(self) -> None:
        """Every ack was answered."""

    async def close(self) -> None:
        await self._client.delete_heap(self._name, force=True)
        await self._client.close()


async def _work(consumer: Consumer, taken: Callable[[bytes], None], acked: Callable[[], None]) -> None:
    while True:
        async with await consumer.next() as job:
            taken(job.raw)
        acked()
