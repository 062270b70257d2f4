"""Lists of messages and of settlements: what comes while two are unanswered shares the third."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from dray.client import Client, sharing
from dray.client.sharing import EARLY_LISTS, LIST_ITEMS
from dray.testing.heaps import TestHeaps, heaps

LONG_S = 60.0


class HeldStream:
    """Lists that are written are noted and reach the broker; answers are read while the gate is open."""

    def __init__(self, inner, gate: asyncio.Event, sizes: list[int]) -> None:
        self._inner = inner
        self._gate = gate
        self._sizes = sizes
        self.done_writing = inner.done_writing
        self.cancel = inner.cancel

    async def write(self, message) -> None:
        items = message.settle.items if hasattr(message, "settle") else message.items
        if items:
            self._sizes.append(len(items))
        await self._inner.write(message)

    async def read(self):
        found = await self._inner.read()
        await self._gate.wait()
        return found


class HeldTransport:
    def __init__(self, inner) -> None:
        self._inner = inner
        self.gate = asyncio.Event()
        self.gate.set()
        self.sizes: list[int] = []
        """Of the lists that were written."""
        self.call = inner.call
        self.call_from_thread = inner.call_from_thread
        self.move = inner.move
        self.close = inner.close

    def stream(self, method):
        return HeldStream(self._inner.stream(method), self.gate, self.sizes)


@pytest.fixture
async def dray() -> AsyncIterator[TestHeaps]:
    async with heaps() as running:
        yield running


async def turns() -> None:
    """Everything that can happen now has happened."""
    for _ in range(20):
        await asyncio.sleep(0)


async def begun(calls) -> list[asyncio.Task]:
    """Each in a turn of its own."""
    tasks = []
    for call in calls:
        tasks.append(asyncio.ensure_future(call))
        await turns()
    return tasks


async def until(sizes: list[int], wanted: list[int]) -> None:
    async with asyncio.timeout(LONG_S):
        while sizes != wanted:
            await asyncio.sleep(0.001)


async def test_messages_share_a_list_until_one_of_two_is_answered(
    dray: TestHeaps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "LINGER_S", LONG_S)
    transport = HeldTransport(dray.client._transport)
    async with Client(transport=transport) as client:
        await client.make_heap("shared")
        heap = client.heap("shared")
        transport.gate.clear()
        tasks = await begun(heap.enqueue(n) for n in range(EARLY_LISTS + 3))
        assert transport.sizes == [1] * EARLY_LISTS
        transport.gate.set()
        await asyncio.gather(*tasks)
        assert transport.sizes == [1] * EARLY_LISTS + [3]


async def test_who_was_answered_shares_the_list_that_waited_for_the_answer(
    dray: TestHeaps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "LINGER_S", LONG_S)
    transport = HeldTransport(dray.client._transport)
    async with Client(transport=transport) as client:
        await client.make_heap("again")
        heap = client.heap("again")

        async def enqueue_twice(n: int) -> None:
            await heap.enqueue(n)
            await heap.enqueue(-n)

        transport.gate.clear()
        tasks = await begun(enqueue_twice(n) for n in range(EARLY_LISTS + 1))
        assert transport.sizes == [1] * EARLY_LISTS
        transport.gate.set()
        await asyncio.gather(*tasks)
        assert transport.sizes[EARLY_LISTS] == 2, "the one that waited, and the next of who was answered"


async def test_a_full_list_goes_at_once(dray: TestHeaps, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "LINGER_S", LONG_S)
    transport = HeldTransport(dray.client._transport)
    async with Client(transport=transport) as client:
        await client.make_heap("full")
        heap = client.heap("full")
        transport.gate.clear()
        tasks = await begun(heap.enqueue(n) for n in range(EARLY_LISTS))
        tasks += [asyncio.ensure_future(heap.enqueue(n)) for n in range(LIST_ITEMS + 1)]
        await until(transport.sizes, [1] * EARLY_LISTS + [LIST_ITEMS])
        transport.gate.set()
        await asyncio.gather(*tasks)
        assert transport.sizes[-1] == 1


async def test_a_list_goes_after_a_while_although_nothing_is_answered(dray: TestHeaps) -> None:
    transport = HeldTransport(dray.client._transport)
    async with Client(transport=transport) as client:
        await client.make_heap("slow")
        heap = client.heap("slow")
        transport.gate.clear()
        tasks = await begun(heap.enqueue(n) for n in range(EARLY_LISTS))
        tasks.append(asyncio.ensure_future(heap.enqueue(9)))
        await until(transport.sizes, [1] * (EARLY_LISTS + 1))
        transport.gate.set()
        await asyncio.gather(*tasks)


async def test_settlements_share_a_list_and_credits_wait_for_them(
    dray: TestHeaps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CC1"""
    monkeypatch.setattr(sharing, "LINGER_S", LONG_S)
    transport = HeldTransport(dray.client._transport)
    async with Client(transport=transport) as client:
        await client.make_heap("settled")
        heap = client.heap("settled")
        count = EARLY_LISTS + 3
        for n in range(2 * count):
            await dray.client.heap("settled").enqueue(n)
        async with heap.pop(concurrency=count) as consumer:
            jobs = [await consumer.next() for _ in range(count)]
            transport.gate.clear()
            tasks = await begun(job.ack() for job in jobs)
            assert transport.sizes == [1] * EARLY_LISTS
            transport.gate.set()
            await asyncio.gather(*tasks)
            assert transport.sizes == [1] * EARLY_LISTS + [3]
            for _ in range(count):
                await (await consumer.next()).ack()
        stats = await heap.stats()
        assert stats.ready + stats.leased == 0
