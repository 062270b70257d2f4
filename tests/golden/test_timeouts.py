"""Produce with a time: the producer is answered in time, whatever the store does."""

import asyncio
import threading
from collections.abc import Iterator, Sequence

import pytest

from dray.buffers import Buffer
from dray.objects.memory import MemoryObjects
from dray.objects.opening import StoreEffects, StoreOptions
from dray.objects.retry import LOCAL, RetryingObjects
from dray.servers.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dray.testing import broker
from tests.golden.asking import PRODUCE, Asker, batch, schema

FOREVER_MS = 600_000


class Slow(MemoryObjects):
    """A store whose puts of records wait until they are let go."""

    let_go = threading.Event()

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        while path.startswith("wal/") and not self.let_go.is_set():
            await asyncio.sleep(0.01)
        await super().put(path, parts)


@pytest.fixture
def slow() -> Iterator[tuple[str, threading.Event]]:
    """The address of a broker, and what lets its store go on."""
    Slow.let_go = let_go = threading.Event()

    async def open_store(address: str, options: StoreOptions, effects: StoreEffects) -> RetryingObjects:
        return RetryingObjects(Slow(effects.clock), effects.clock, effects.entropy, LOCAL)

    with broker(topics__auto_create="false", open_objects=open_store) as running:
        try:
            yield running.bootstrap, let_go
        finally:
            let_go.set()


def request(name: str, records: dict[int, bytes], timeout_ms: int, acks: int = -1) -> ProduceRequest:
    parts = [PartitionProduceData(index=number, records=one) for number, one in records.items()]
    return ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=[TopicProduceData(name=name, partition_data=parts)]
    )


async def test_a_producer_is_told_in_time_and_may_send_it_again(slow: tuple[str, threading.Event]) -> None:
    """E1, R-093: 7 says that nobody knows; the same batch again is stored once."""
    address, let_go = slow
    async with Asker(address) as ask:
        await ask.create("orders")
        one = batch(b"once", producer_id=await ask.producer_id(), producer_epoch=0, base_sequence=0)
        answer = await ask.call(PRODUCE, 9, request("orders", {0: one}, 200))
        [told] = answer.responses[0].partition_responses
        assert (told.error_code, told.base_offset) == (7, -1)
        assert "may still be" in told.error_message
        let_go.set()
        again = await ask.call(PRODUCE, 9, request("orders", {0: one}, FOREVER_MS))
        [told] = again.responses[0].partition_responses
        assert (told.error_code, told.base_offset) == (0, 0)
        assert (await ask.offset_at("orders", -1)).offset == 1


async def test_partitions_that_are_refused_at_once_keep_their_codes(slow: tuple[str, threading.Event]) -> None:
    address, _ = slow
    async with Asker(address) as ask:
        await ask.create("orders", 2)
        batches = {0: batch(), 1: batch()[:-1] + b"?", 9: batch()}
        answer = await ask.call(PRODUCE, 9, request("orders", batches, 100))
        codes = {one.index: one.error_code for one in answer.responses[0].partition_responses}
        assert codes == {0: 7, 1: 2, 9: 3}


@pytest.mark.parametrize("timeout_ms", [0, -1, FOREVER_MS])
async def test_whoever_gives_no_time_waits_for_the_store(slow: tuple[str, threading.Event], timeout_ms: int) -> None:
    address, let_go = slow
    async with Asker(address) as ask:
        await ask.create("orders")
        waiting = asyncio.ensure_future(ask.call(PRODUCE, 9, request("orders", {0: batch()}, timeout_ms)))
        async with Asker(address) as other:  # longer than a first look takes
            told = await other.call(PRODUCE, 9, request("orders", {0: batch()}, 100))
            assert told.responses[0].partition_responses[0].error_code == 7
        assert not waiting.done()
        let_go.set()
        assert (await waiting).responses[0].partition_responses[0].error_code == 0


@pytest.mark.slow
async def test_whoever_wants_no_answer_is_not_cut_off_for_want_of_time(slow: tuple[str, threading.Event]) -> None:
    """R-089: with acks=0 a late batch is no error."""
    address, let_go = slow
    async with Asker(address) as quiet, Asker(address) as other:
        await other.create("orders")
        quiet.send(schema(PRODUCE), 9, request("orders", {0: batch()}, 50, acks=0), 500)
        told = await other.call(PRODUCE, 9, request("orders", {0: batch()}, 200))
        assert told.responses[0].partition_responses[0].error_code == 7
        let_go.set()
        assert (await quiet.call(PRODUCE, 9, request("orders", {0: batch()}, FOREVER_MS))) is not None
