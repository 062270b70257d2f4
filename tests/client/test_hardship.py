"""The SDK where things go wrong: answers get lost, brokers stop, handlers block, leases end."""

import asyncio
import time

import pytest

from dray.client import BrokerUnavailable, Client, LeaseLost, NewMessage, OutcomeUnknown
from dray.client.errors import Disconnected
from dray.client.retrying import Deadlines, keep_trying, now_s
from dray.client.sync import Client as BlockingClient
from dray.testing import broker
from dray.testing.heaps import TestHeaps, heaps

LONG_S = 60.0


class LossyStream:
    """A stream that breaks after it has been written to so many times; what was written has arrived."""

    def __init__(self, inner, writes: int) -> None:
        self._inner = inner
        self._writes = writes

    async def write(self, message) -> None:
        await self._inner.write(message)
        self._writes -= 1

    async def read(self):
        found = await self._inner.read()
        if self._writes <= 0:
            self._inner.cancel()
            raise Disconnected("the answer got lost")
        return found

    async def done_writing(self) -> None:
        await self._inner.done_writing()

    def cancel(self) -> None:
        self._inner.cancel()


class LossyTransport:
    """The first `breaks` streams break when their answers are due."""

    def __init__(self, inner, breaks: int, writes: int = 1) -> None:
        self._inner = inner
        self.breaks = breaks
        self._writes = writes
        self.call = inner.call
        self.call_from_thread = inner.call_from_thread
        self.move = inner.move
        self.close = inner.close

    def stream(self, method):
        self.breaks -= 1
        stream = self._inner.stream(method)
        return LossyStream(stream, self._writes) if self.breaks >= 0 else stream


def lossy(dray: TestHeaps, breaks: int, writes: int = 1, **options) -> Client:
    return Client(transport=LossyTransport(dray.client._transport, breaks, writes), **options)


class OldStream:
    """As of a broker that does not know of credits in a list of settlements; what was written is kept."""

    def __init__(self, inner, written: list) -> None:
        self._written = written
        self._read = inner.read
        self._write = inner.write
        self.done_writing = inner.done_writing
        self.cancel = inner.cancel

    async def write(self, message) -> None:
        self._written.append(message)
        await self._write(message)

    async def read(self):
        found = await self._read()
        if found is not None:
            found.takes_credits = False
        return found


@pytest.mark.parametrize("old", [True, False])
async def test_credits_go_with_settlements_to_a_broker_that_takes_them_so_and_alone_to_an_older_one(old, monkeypatch):
    """D-104, D-237: CC1"""
    async with heaps() as dray:
        await dray.client.make_heap("jobs")
        heap = dray.client.heap("jobs")
        await asyncio.gather(*(heap.enqueue({"n": n}) for n in range(20)))
        opened, written = dray.client._transport.stream, []

        def recorded(method):
            stream = opened(method)
            if not old:
                write = stream.write

                async def noted(message) -> None:
                    written.append(message)
                    await write(message)

                stream.write = noted
                return stream
            return OldStream(stream, written)

        monkeypatch.setattr(dray.client._transport, "stream", recorded)
        async with heap.pop(concurrency=4) as consumer:
            for _ in range(20):
                async with asyncio.timeout(LONG_S), consumer.item():
                    pass
        assert (await heap.stats()).acked_total == 20
        alone = [message for message in written if message.WhichOneof("kind") == "fc"]
        joined = [message for message in written if message.WhichOneof("kind") == "settle" and message.settle.credits]
        assert bool(alone) == old
        assert bool(joined) == (not old)


async def test_a_job_wakes_one_who_waits_and_is_anothers_when_that_one_leaves():
    """CC1. Nobody misses a job because somebody else was cancelled just as it came."""
    async with heaps() as dray:
        await dray.client.make_heap("jobs")
        heap = dray.client.heap("jobs")
        async with heap.pop(concurrency=3) as consumer:
            waiting = [asyncio.create_task(consumer.next()) for _ in range(3)]
            await asyncio.sleep(0)
            consumer._wake(1)
            waiting[0].cancel()  # it has its turn, and leaves
            await heap.enqueue({"n": 1})
            async with asyncio.timeout(LONG_S):
                done, _ = await asyncio.wait(waiting[1:], return_when=asyncio.FIRST_COMPLETED)
            (job,) = [task.result() for task in done]
            await job.ack()
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)


async def test_what_is_not_done_in_its_time_is_told_and_what_is_done_is_not():
    """SQ2, CC2: one timer for all of them."""
    told: list[str] = []
    late = asyncio.Event()

    def tell(name: str) -> None:
        told.append(name)
        if name == "last":
            late.set()

    deadlines = Deadlines(tell)
    at_s = now_s()
    deadlines.add("last", at_s + 0.06)
    deadlines.add("first", at_s + 0.02)
    deadlines.add("done", at_s + 0.03)
    deadlines.done("done")
    async with asyncio.timeout(LONG_S):
        await late.wait()
    deadlines.add("closed", now_s())
    deadlines.close()
    await asyncio.sleep(0)
    assert told == ["first", "last"]


async def test_an_enqueue_whose_answer_got_lost_is_sent_again_as_the_same_message():
    """D-117, D-230, D-232: SQ1, SQ2"""
    async with heaps() as dray:
        await dray.client.make_heap("jobs")
        async with lossy(dray, 3) as client:
            taken = await asyncio.gather(*(client.heap("jobs").enqueue({"n": n}) for n in range(50)))
        assert len({one.message_id for one in taken}) == 50
        assert any(one.duplicate for one in taken)
        assert (await dray.client.heap("jobs").stats()).ready == 50


@pytest.mark.slow
async def test_when_no_answer_comes_in_time_nobody_claims_to_know():
    """E1, D-241: CE1"""
    async with heaps() as dray:
        await dray.client.make_heap("jobs")
        async with lossy(dray, 1_000, timeout=2.0) as client:
            with pytest.raises(OutcomeUnknown) as unknown:
                await client.heap("jobs").enqueue(b"")
        assert (unknown.value.retryable, unknown.value.may_have_happened) == (True, True)
        assert (await dray.client.heap("jobs").stats()).ready == 1
    async with Client("127.0.0.1:1", timeout=2.0) as nobody:
        with pytest.raises((OutcomeUnknown, BrokerUnavailable)):
            await nobody.heap("jobs").enqueue(b"")


@pytest.mark.parametrize(("harmless", "times"), [(False, 1), (True, 3)])
async def test_what_may_have_happened_is_repeated_only_where_that_is_harmless(harmless: bool, times: int):
    """CR1"""
    asked = []

    async def call(seconds: float) -> str:
        asked.append(seconds)
        if len(asked) < 3:
            raise OutcomeUnknown("lost")
        return "done"

    try:
        assert await keep_trying(call, LONG_S, harmless=harmless) == "done"
    except OutcomeUnknown:
        assert not harmless
    assert len(asked) == times


async def test_a_stream_that_breaks_is_resumed_and_settlements_go_over_the_next_one():
    """D-105, A-12: CC2, L4"""
    async with heaps() as dray:
        await dray.client.make_heap("jobs", visibility_timeout=30)
        heap = dray.client.heap("jobs")
        await heap.enqueue_batch([NewMessage(payload={"n": n}) for n in range(20)])
        async with lossy(dray, 4, writes=3) as client:
            seen = []
            async with client.heap("jobs").pop(concurrency=5) as consumer:
                pending = []
                while len(seen) < 20:
                    try:
                        job = await asyncio.wait_for(consumer.next(), 1.0)
                    except TimeoutError:  # what a broken stream took along comes back with its deadline
                        await dray.advance(60)
                        continue
                    seen.append(job.payload["n"])
                    pending.append(asyncio.create_task(job.ack()))
                await asyncio.gather(*pending)
        stats = await heap.stats()
        assert (stats.ready, stats.leased, stats.delayed, stats.acked_total) == (0, 0, 0, 20)


async def test_a_lease_that_ended_is_never_told_as_success():
    """D-089, D-236: CJ2"""
    async with heaps() as dray:
        await dray.client.make_heap("jobs", visibility_timeout=30, backoff_base=0, backoff_cap=0)
        heap = dray.client.heap("jobs")
        await heap.enqueue(b"")
        async with heap.pop(prefetch=2) as consumer:
            job = await consumer.next()
            with pytest.raises(LeaseLost):
                async with job:
                    await dray.advance(31)
            assert job.lost.is_set()
            again = await consumer.next()
            assert (again.id, again.attempts) == (job.id, 1)
            await again.ack()


@pytest.mark.slow
async def test_a_handler_that_blocks_the_loop_keeps_its_lease_and_one_that_lost_it_is_told():
    """D-235, D-236: SR1, SR2"""
    with broker() as dray:
        async with Client(dray.grpc) as client:
            await client.make_heap("jobs", visibility_timeout=1.5, backoff_base=0, backoff_cap=0)
            heap = client.heap("jobs")
            await heap.enqueue(b"")
            async with heap.pop(prefetch=1) as consumer:
                async with consumer.item() as job:
                    time.sleep(4.0)  # noqa: ASYNC251  the loop is held for longer than the lease: that is what is tested
                stats = await heap.stats()
                assert (stats.acked_total, stats.lease_timeouts_total) == (1, 0)
                await heap.enqueue(b"")
                job = await consumer.next()
                await heap.bury([job.id], force=True)
                with pytest.raises(LeaseLost):
                    await _sleep_in(job)
                assert job.lost.is_set()


async def _sleep_in(job) -> None:
    """Cancelled when the renewal is refused."""
    async with job:
        await asyncio.sleep(LONG_S)


async def test_clients_move_to_the_next_endpoint_when_a_broker_is_gone():
    """D-230"""
    with broker() as dray:
        async with Client(["127.0.0.1:1", dray.grpc]) as client:
            await client.make_heap("jobs")
            heap = client.heap("jobs")
            await heap.enqueue(b"x")
            async with heap.pop() as consumer, consumer.item() as job:
                assert job.payload == b"x"


def test_programs_without_asyncio_have_the_same_client():
    """D-014"""
    with broker() as dray, BlockingClient(dray.grpc) as client:
        client.make_heap("jobs", backoff_base=0, backoff_cap=0)
        heap = client.heap("jobs")
        heap.enqueue({"n": 1}, priority=5)
        heap.enqueue({"n": 2}, priority=1)
        with heap.pop(prefetch=2) as consumer:
            first, second = next(consumer), next(consumer)
            with first:
                assert first.payload == {"n": 2}
            with pytest.raises(ValueError, match="no"), second:
                raise ValueError("no")
            with next(consumer) as again:
                assert (again.payload, again.attempts) == ({"n": 1}, 1)
            assert consumer.next(timeout=0.1) is None
        stats = heap.stats()
        assert (stats.ready, stats.leased, stats.acked_total) == (0, 0, 2)
        assert [one.name for one in client.heaps()] == ["jobs"]
        client.delete_heap("jobs")
