"""What a client leaves behind: nothing that waits for the collector."""

import gc
import weakref
from collections.abc import AsyncIterator, Iterator

import pytest

from dray.client import Consumer, Job
from dray.testing.heaps import TestHeaps, heaps


@pytest.fixture
async def dray() -> AsyncIterator[TestHeaps]:
    async with heaps() as running:
        yield running


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def settle_by_leaving(consumer: Consumer) -> "weakref.ref[Job]":
    async with await consumer.next() as job:
        return weakref.ref(job)


async def settle_by_hand(consumer: Consumer) -> "weakref.ref[Job]":
    job = await consumer.next()
    await job.nack()
    return weakref.ref(job)


@pytest.mark.parametrize("settle", [settle_by_leaving, settle_by_hand])
@pytest.mark.parametrize("auto_extend", [True, False])
@pytest.mark.usefixtures("no_collector")
async def test_a_job_that_is_settled_is_freed_at_once(dray: TestHeaps, settle, auto_extend: bool) -> None:
    await dray.client.make_heap("freed")
    heap = dray.client.heap("freed")
    for n in range(10):
        await heap.enqueue(n)
    async with heap.pop(auto_extend=auto_extend) as consumer:
        settled = [await settle(consumer) for _ in range(5)]
        assert [one() for one in settled] == [None] * 5
