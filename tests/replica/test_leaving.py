"""A state that nobody asks any more is freed in pieces."""

import asyncio

from dray.machine.heaps.packets import EnqueueRow
from dray.replica import leaving
from tests.machine.heaps.jobs import Jobs


async def test_what_is_large_goes_and_others_get_their_turn_meanwhile(monkeypatch) -> None:
    """Q8: so many turns as there are pieces."""
    monkeypatch.setattr(leaving, "PIECE", 100)
    jobs = Jobs()
    jobs.enqueue(*[EnqueueRow(0)] * 1_000)
    jobs.enqueue(*[EnqueueRow(0, wait=60_000, flags=4)] * 500)
    messages = jobs.shard.messages
    assert (len(messages.ready), len(messages.delays)) == (1_000, 500)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await leaving.leave(jobs.tape.machine)
    counting.cancel()
    assert turns >= 15
    assert (len(messages.ready), len(messages.delays), len(messages.rows.data)) == (0, 0, 0)
