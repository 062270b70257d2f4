"""The power goes right after an answer, whatever the answer was to: what it said is so when the broker is back."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from dray.clock import SystemClock
from dray.heaps.errors import UnknownHeap
from dray.heaps.ids import LeaseToken
from dray.heaps.service import HeapMessage, Settlement
from dray.ids import SeededEntropy
from dray.log.files import FileLog
from dray.machine.heaps.catalog import Heap
from dray.machine.heaps.config import Mode
from dray.machine.heaps.rows import State
from dray.objects.files import FileObjects
from dray.sim import disk as sim
from tests.log.crash import TurnOffload
from tests.replica.domain import genesis

from .stand import Stand, stand

LOG = Path("/data/log")
OBJECTS = Path("/data/objects")
STATES = (State.READY, State.DELAYED, State.LEASED, State.DEAD)


class Story:
    """What is done to one heap, an answer at a time."""

    def __init__(self) -> None:
        self.held: list[LeaseToken] = []

    async def enqueue(self, broker: Stand, heap: Heap) -> None:
        for number in range(6):
            await broker.service.enqueue(heap, HeapMessage(payload=b"small", priority=number, producer="p", seq=number))

    async def enqueue_large(self, broker: Stand, heap: Heap) -> None:
        await broker.service.enqueue(heap, HeapMessage(payload=bytes(range(256)) * 200, priority=9))

    async def enqueue_batch(self, broker: Stand, heap: Heap) -> None:
        await broker.service.enqueue_batch(heap, [HeapMessage(payload=b"b", priority=7, delay_ms=9_000_000)] * 3)

    async def pop(self, broker: Stand, heap: Heap) -> None:
        taken = await broker.service.pop(heap, most=5, holder="c", wait_s=30, visibility_ms=3_600_000)
        self.held = [delivery.token for delivery in taken]

    async def ack(self, broker: Stand, heap: Heap) -> None:
        await broker.service.settle(heap, Settlement.ACK, self.held.pop())

    async def nack(self, broker: Stand, heap: Heap) -> None:
        await broker.service.settle(heap, Settlement.NACK, self.held.pop(), argument=9_000_000, note="no")

    async def reject(self, broker: Stand, heap: Heap) -> None:
        await broker.service.settle(heap, Settlement.REJECT, self.held.pop(), note="never")

    async def extend(self, broker: Stand, heap: Heap) -> None:
        await broker.service.settle(heap, Settlement.EXTEND, self.held[-1], argument=3_600_000)

    async def release(self, broker: Stand, heap: Heap) -> None:
        await broker.service.settle(heap, Settlement.RELEASE, self.held.pop())

    async def repeat(self, broker: Stand, heap: Heap) -> None:
        told = await broker.service.enqueue(heap, HeapMessage(payload=b"small", priority=0, producer="p", seq=0))
        assert told.duplicate

    async def bury(self, broker: Stand, heap: Heap) -> None:
        page = await broker.service.peeking.page(heap, State.READY, limit=1)
        await broker.service.dead_letters.bury(heap, [page.messages[0].id], reason="by hand")

    async def replay(self, broker: Stand, heap: Heap) -> None:
        page = await broker.service.peeking.page(heap, State.DEAD, limit=1)
        await broker.service.dead_letters.replay(heap, [page.messages[0].id])

    async def delete(self, broker: Stand, heap: Heap) -> None:
        await broker.service.dead_letters.delete(heap, None)

    async def alter(self, broker: Stand, heap: Heap) -> None:
        await broker.service.admin.alter(heap, replace(heap.config, max_retries=3))

    async def purge(self, broker: Stand, heap: Heap) -> None:
        await broker.service.dead_letters.purge(heap)

    def steps(self) -> list[Callable[[Stand, Heap], Awaitable[None]]]:
        return [
            self.enqueue, self.enqueue_large, self.enqueue_batch, self.pop, self.ack, self.nack, self.reject,
            self.extend, self.release, self.repeat, self.bury, self.replay, self.delete, self.alter, self.purge,
        ]  # fmt: skip


async def seen(broker: Stand, name: str) -> object:
    """Everything that clients can see of a heap, and whose each lease is."""
    heap = await broker.service.admin.find(name)
    pages = [await broker.service.peeking.page(heap, state, limit=100) for state in STATES]
    shown = [
        (one.id, one.state, one.row.priority, one.row.attempts, one.holder, one.not_before_ms, one.last_error, one.body)
        for page in pages
        for one in page.messages
    ]
    held = {slot: lease.nonce for slot, lease in broker.shard(heap).leases.by_slot.items()}
    stats = await broker.service.stats.of(heap)
    return shown, held, stats.totals.values(), heap.config, heap.revision


async def lives(disk: sim.FakeDisk) -> int:
    """Each step in a life of its own, which a power cut ends right after the answer."""
    story, before, number = Story(), None, 0
    for step in [None, *story.steps(), None]:
        number += 1
        clock = SystemClock()
        log = await FileLog.open(LOG, disk=disk, offload=TurnOffload(), clock=clock)
        if not await log.tail():
            await log.append(genesis(version=2))
        objects = FileObjects(OBJECTS, disk, TurnOffload(), SeededEntropy(number))
        async with stand(log, objects, f"broker-{number}", inline_max_bytes=1_024) as broker:
            if before is None:
                await broker.service.admin.make("jobs", mode=Mode.MIN)
            else:
                assert await seen(broker, "jobs") == before, f"what was answered before life {number} is not so"
            if step is not None:
                await step(broker, await broker.service.admin.find("jobs"))
            before = await seen(broker, "jobs")
            disk.crash()
        await log.close()
    return number


@pytest.mark.parametrize("seed", [None, 1])
async def test_what_was_answered_is_so_after_a_power_cut_right_behind_the_answer(seed: int | None) -> None:
    """D-004, D-083, D-151, D-161: GH1"""
    assert await lives(sim.FakeDisk(seed)) == 17


async def test_a_log_that_answers_before_its_sync_is_found(monkeypatch) -> None:
    monkeypatch.setattr(sim.FakeFile, "sync", lambda self: None)
    with pytest.raises(UnknownHeap):
        await lives(sim.FakeDisk(None))
