"""What a program may count on, over every transport."""

import asyncio

import pytest

from dray.client import (
    AlreadyExists,
    Client,
    ClientClosed,
    InvalidRequest,
    LeaseLost,
    LimitReached,
    Mode,
    NewMessage,
    NotConfirmed,
    NotFound,
    Reject,
    Retry,
    State,
)

LONG_S = 60.0


async def test_messages_come_best_first_as_they_were_sent(client: Client, name: str):
    """D-001, D-031, D-034, D-191, D-197, D-200, D-231"""
    info = await client.make_heap(name, mode=Mode.MAX)
    assert (info.mode, info.partitions) == (Mode.MAX, 1)
    heap = client.heap(name)
    payloads = [b"", b"\0\xff", {"n": [1, None, "é"]}, b"x" * 100_000]
    taken = [
        await heap.enqueue(payload, priority=at, headers={"at": str(at)}, key="k")
        for at, payload in enumerate(payloads)
    ]
    assert len({one.message_id for one in taken}) == len(taken)
    async with heap.pop() as consumer:
        for at in reversed(range(len(payloads))):
            async with consumer.item() as job:
                assert (job.payload, job.priority, job.id) == (payloads[at], at, taken[at].message_id)
                assert {"at": str(at)}.items() <= job.headers.items()
                assert job.lease_left.total_seconds() > 0
    assert (await heap.stats()).acked_total == len(payloads)


async def test_equal_priorities_come_in_the_order_in_which_they_were_enqueued(client: Client, name: str):
    """D-037, D-038"""
    await client.make_heap(name)
    heap = client.heap(name)
    for n in range(20):
        await heap.enqueue({"n": n})
    async with heap.pop(concurrency=20) as consumer:
        jobs = [await consumer.next() for _ in range(20)]
        assert [job.payload for job in jobs] == [{"n": n} for n in range(20)]
        await asyncio.gather(*(job.ack() for job in jobs))


@pytest.mark.parametrize(
    ("leave", "ready", "delayed", "dead", "attempts"),
    [
        ("normally", 0, 0, 0, 0),
        ("acked", 0, 0, 0, 0),
        ("failed", 0, 1, 0, 1),
        ("retry", 0, 1, 0, 1),
        ("reject", 0, 0, 1, 1),
        ("cancelled", 1, 0, 0, 0),
        ("released", 1, 0, 0, 0),
    ],
)
async def test_each_way_out_of_a_job_does_one_thing_once(
    client: Client, name: str, leave: str, ready: int, delayed: int, dead: int, attempts: int
):
    """D-234, A-35: CJ1"""
    await client.make_heap(name, backoff_base=600, jitter=False)
    heap = client.heap(name)
    await heap.enqueue({"leave": leave})
    consumer = heap.pop()
    job = await consumer.next()
    try:
        async with job:
            match leave:
                case "acked":
                    await job.ack()
                case "failed":
                    raise ValueError("no")
                case "retry":
                    raise Retry(600)
                case "reject":
                    raise Reject("never")
                case "cancelled":
                    raise asyncio.CancelledError
                case "released":
                    await job.release()
    except (ValueError, asyncio.CancelledError):
        assert leave in ("failed", "cancelled")
    with pytest.raises(InvalidRequest):
        await job.ack()
    await consumer.close()
    stats = await heap.stats()
    assert (stats.ready, stats.delayed, stats.dead, stats.leased) == (ready, delayed, dead, 0)
    for state in State:
        for found in await heap.peek(state=state):
            assert found.attempts == attempts
            assert found.last_error == {"failed": "ValueError: no", "retry": "try again", "reject": "never"}.get(
                leave, ""
            )


async def test_a_job_left_unsettled_without_auto_ack_comes_back(client: Client, name: str):
    """A-35"""
    await client.make_heap(name, backoff_base=0, backoff_cap=0)
    heap = client.heap(name)
    await heap.enqueue(b"x")
    async with heap.pop(auto_ack=False) as consumer:
        async with consumer.item():
            pass
        async with consumer.item() as again:
            assert again.attempts == 1
            await again.ack()


async def test_no_more_than_prefetch_are_unsettled(client: Client, name: str):
    """D-100, D-101, D-233, D-237: CC1, GW2"""
    await client.make_heap(name)
    heap = client.heap(name)
    await heap.enqueue_batch([NewMessage(payload={"n": n}) for n in range(30)])
    async with heap.pop(prefetch=3) as consumer:
        jobs = [await consumer.next() for _ in range(3)]
        stats = await heap.stats()
        assert (stats.ready, stats.leased) == (27, 3)
        for _ in range(27):
            await jobs.pop(0).ack()
            jobs.append(await consumer.next())
            assert (await heap.stats()).leased <= 3
        for job in jobs:
            await job.ack()


async def test_closing_a_consumer_gives_back_what_nobody_began(client: Client, name: str):
    """D-105, D-238: GW3"""
    await client.make_heap(name)
    heap = client.heap(name)
    await heap.enqueue_batch([NewMessage(payload=b"") for _ in range(10)])
    consumer = heap.pop(prefetch=8)
    job = await consumer.next()
    await consumer.close()
    with pytest.raises(ClientClosed):
        await consumer.next()
    stats = await heap.stats()
    assert (stats.ready, stats.leased, stats.failed_total) == (9, 1, 0)
    await job.ack()
    assert (await heap.stats()).ready == 9


async def test_a_handler_is_run_so_many_times_at_once_and_ends_when_it_is_cancelled(client: Client, name: str):
    """D-237, D-238"""
    await client.make_heap(name, backoff_base=0, backoff_cap=0)
    heap = client.heap(name)
    await heap.enqueue_batch([NewMessage(payload={"n": n}) for n in range(40)])
    done, running, most = [], 0, 0
    finished = asyncio.Event()

    async def handle(job):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        if job.payload["n"] == 7 and not job.attempts:
            raise RuntimeError("once")
        done.append(job.payload["n"])
        if len(done) == 40:
            finished.set()

    pool = asyncio.create_task(heap.run(handle, concurrency=4))
    await asyncio.wait_for(finished.wait(), LONG_S)
    pool.cancel()
    await asyncio.gather(pool, return_exceptions=True)
    assert sorted(done) == list(range(40))
    assert most <= 4
    stats = await heap.stats()
    assert (stats.ready, stats.leased, stats.acked_total, stats.failed_total) == (0, 0, 40, 1)


async def test_the_same_dedup_key_is_one_message(client: Client, name: str):
    """D-111, D-118"""
    await client.make_heap(name)
    heap = client.heap(name)
    first = await heap.enqueue(b"a", dedup_key="order-1")
    again = await heap.enqueue(b"a", dedup_key="order-1")
    assert (again.message_id, again.duplicate) == (first.message_id, True)
    async with heap.pop() as consumer, consumer.item():
        pass
    assert (await heap.enqueue(b"a", dedup_key="order-1")).duplicate


async def test_a_batch_is_taken_whole_or_not_at_all_and_the_bad_one_is_named(client: Client, name: str):
    """D-110, D-140, D-141, D-142"""
    await client.make_heap(name, max_payload_bytes=10)
    heap = client.heap(name)
    with pytest.raises(InvalidRequest, match="index=1"):
        await heap.enqueue_batch([NewMessage(payload=b"ok"), NewMessage(payload=b"x" * 11)])
    with pytest.raises(InvalidRequest):
        await heap.enqueue_batch([])
    with pytest.raises(InvalidRequest):
        await heap.enqueue_batch([NewMessage(payload=b"") for _ in range(1_001)])
    assert (await heap.stats()).ready == 0
    assert len(await heap.enqueue_batch([NewMessage(payload=b"x" * 10) for _ in range(1_000)])) == 1_000
    assert (await heap.stats()).ready == 1_000


async def test_a_batch_over_two_heaps_is_taken_whole_or_not_at_all(client: Client, name: str):
    """D-130, D-140, D-141"""
    other = f"{name}-too"
    await client.make_heap(name)
    await client.make_heap(other, max_payload_bytes=10)
    large = NewMessage(payload=b"x" * 11)
    with pytest.raises(InvalidRequest, match="index=1"):
        await client.enqueue_batch([(name, large), (other, large)])
    with pytest.raises(NotFound, match="index=1"):
        await client.enqueue_batch([(name, large), (f"{name}-none", large)])
    assert [(await client.heap(one).stats()).ready for one in (name, other)] == [0, 0]
    items = [(client.heap(name), NewMessage(payload=b"1", dedup_key="1")), (other, NewMessage(payload=b"2"))]
    first, second = await client.enqueue_batch(items)
    assert (first.duplicate, second.duplicate) == (False, False)
    assert [(await client.heap(one).stats()).ready for one in (name, other)] == [1, 1]
    assert (await client.heap(name).enqueue(b"1", dedup_key="1")).message_id == first.message_id


async def test_a_batch_that_is_sent_twice_is_there_once(client: Client, name: str):
    """D-132, D-232: SQ1"""
    await client.make_heap(name)
    async with Client(producer_id="p", epoch=7, transport=client._transport) as counted:
        heap = counted.heap(name)
        items = [NewMessage(payload={"n": n}, seq=n) for n in range(5)]
        first = await heap.enqueue_batch(items)
        again = await heap.enqueue_batch(items)
        assert [one.message_id for one in again] == [one.message_id for one in first]
        assert all(one.duplicate for one in again)
        with pytest.raises(InvalidRequest, match="seq"):
            await heap.enqueue(b"")


async def test_dead_letters_are_listed_replayed_and_deleted(client: Client, name: str):
    """D-174, D-175, D-176, D-177, D-178"""
    await client.make_heap(name)
    heap = client.heap(name)
    ids = [(await heap.enqueue({"n": n}, priority=n)).message_id for n in range(4)]
    async with heap.pop() as consumer:
        for n in range(2):
            async with consumer.item():
                raise Reject(f"bad {n}")
    assert await heap.bury(ids[2:3], reason="by hand") == 1
    dead = await heap.dlq.list()
    assert [(one.id, one.payload, one.last_error) for one in dead] == [
        (ids[0], {"n": 0}, "bad 0"), (ids[1], {"n": 1}, "bad 1"), (ids[2], {"n": 2}, "by hand"),
    ]  # fmt: skip
    assert all(one.dead_at is not None for one in dead)
    assert await heap.dlq.replay([ids[1]], dry_run=True) == 1
    assert await heap.dlq.replay([ids[1]]) == 1
    assert [one.id for one in await heap.peek()] == [ids[1], ids[3]]
    assert await heap.dlq.delete([ids[0]]) == 1
    assert await heap.dlq.delete() == 1
    assert await heap.dlq.list() == []
    with pytest.raises(NotFound):
        await heap.dlq.replay([ids[0]])


async def test_heaps_are_made_listed_altered_purged_and_deleted(client: Client, name: str):
    """D-020, D-191, D-192, D-193, D-194, D-195, D-196, D-212"""
    await client.make_heap(name, visibility_timeout=5, max_retries=0, dead_letters=False, k=4)
    with pytest.raises(AlreadyExists):
        await client.make_heap(name)
    info = await client.describe_heap(name)
    assert (info.visibility_timeout.total_seconds(), info.max_retries, info.config.k) == (5, 0, 4)
    altered = await client.alter_heap(name, max_retries=3, expected_revision=info.revision)
    assert altered.max_retries == 3
    assert (await client.describe_heap(name)).visibility_timeout.total_seconds() == 5
    with pytest.raises(Exception, match="altered meanwhile"):
        await client.alter_heap(name, max_retries=4, expected_revision=info.revision)
    with pytest.raises(InvalidRequest):
        await client.alter_heap(name, visibility_timeout=0.5)
    heap = client.heap(name)
    await heap.enqueue_batch([NewMessage(payload=b"", delay=60 * (n % 2) or None) for n in range(6)])
    stats = await heap.stats()
    assert (stats.ready, stats.delayed) == (3, 3)
    with pytest.raises(NotConfirmed):
        await heap.purge(force=False)
    assert await heap.purge() == 6
    assert name in [one.name for one in await client.heaps(name)]
    with pytest.raises(NotConfirmed):
        await client.delete_heap(name, force=False)
    await client.delete_heap(name)
    for call in (heap.stats(), heap.enqueue(b""), client.delete_heap(name), heap.pop().next()):
        with pytest.raises(NotFound):
            await call


@pytest.mark.slow
async def test_a_full_heap_says_so_and_takes_again_when_there_is_room(client: Client, name: str):
    """D-225, D-283, L11"""
    await client.make_heap(name, max_messages=1)
    heap = client.heap(name)
    await heap.enqueue(b"1")
    client.timeout = 3.0  # it is tried again for as long
    with pytest.raises(LimitReached):
        await heap.enqueue(b"2")
    client.timeout = 10.0
    async with heap.pop() as consumer, consumer.item():
        pass
    await heap.enqueue(b"2")


async def test_a_lease_can_be_prolonged_and_ends_where_it_was_given_back(client: Client, name: str):
    """D-094, D-096, D-088"""
    await client.make_heap(name, visibility_timeout=30)
    heap = client.heap(name)
    await heap.enqueue(b"")
    async with heap.pop(prefetch=1) as consumer:
        job = await consumer.next()
        assert 60 < (await job.extend(60)).total_seconds() <= 90
        await job.release()
        again = await consumer.next()
        assert again.lease_token != job.lease_token
        job.settled = False  # as if it did not know
        with pytest.raises(LeaseLost):
            await job.ack()
        await again.ack()


@pytest.mark.parametrize(
    "fields",
    [{"priority": 1 << 63}, {"priority": -(1 << 63) - 1}, {"dedup_key": "x" * 2_000}, {"headers": {"h": "x" * 20_000}},
     {"delay": -1}, {"max_retries": 40_000}],
)  # fmt: skip
async def test_a_message_that_can_never_be_taken_is_refused_at_once(client: Client, name: str, fields):
    """D-032, D-220, D-241"""
    await client.make_heap(name)
    with pytest.raises(InvalidRequest) as refused:
        await client.heap(name).enqueue(b"", **fields)
    assert not refused.value.retryable
    assert not refused.value.may_have_happened
    assert (await client.heap(name).stats()).enqueued_total == 0


async def test_closing_a_client_leaves_no_task_behind(client: Client, name: str):
    """D-238"""
    before = asyncio.all_tasks()
    other = Client(transport=client._transport)
    await other.make_heap(name)
    heap = other.heap(name)
    await heap.enqueue(b"")
    consumer = heap.pop()
    async with await consumer.next():
        pass
    await consumer.close()
    await other.producer.close(1.0)
    other._renewal.close()
    assert not [task for task in asyncio.all_tasks() - before if "dray/client" in str(task.get_coro())]
