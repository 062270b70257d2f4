"""T16: four brokers, of which one after the other dies; nobody gets a message while a better one is ready."""

import asyncio
from itertools import cycle
from pathlib import Path

import pytest

from dray.testing.history import Verdict, as_text, judge, make_report
from dray.testing.history.heap_events import Popped
from tests.durability.heap_histories import HeapCluster, HeapRun, WorkerHabit

SEED = 20261117
pytestmark = pytest.mark.slow


async def brokers_die(cluster: HeapCluster, run: HeapRun, producing: "list[asyncio.Task[None]]", pause_s: float) -> int:
    """kill -9, one after the other, each back before the next, until everything is enqueued."""
    deaths = 0
    for number, broker in cycle(enumerate(cluster.brokers)):
        run.fault("kill -9", f"broker {number}", start=True)
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.start)
        run.fault("kill -9", f"broker {number}", start=False)
        deaths += 1
        _, working = await asyncio.wait(producing, timeout=pause_s)
        if not working:
            break
    return deaths


LONG = [pytest.mark.long, pytest.mark.timeout(2 * 3_600)]


@pytest.mark.parametrize(
    ("pops", "habit", "producers", "pause_s"),
    [
        (1_000, "quick", 20, 0.0),
        pytest.param(1_000_000, "greedy", 200, 4.0, marks=LONG),
    ],
)
async def test_every_pop_gets_the_best_message_while_brokers_die(
    tmp_path: Path, pops: int, habit: WorkerHabit, producers: int, pause_s: float
) -> None:
    """T16, D-002, D-049, D-050, D-181: L5. Rank error 0, below every K.

    Nobody gives back, so all that was fresh counts.
    """
    print(f"seed {SEED}")
    with HeapCluster(tmp_path, brokers=4) as cluster:
        run = HeapRun(cluster, SEED, habit=habit, gives_back=False)
        try:
            await run.make_heap()
            async with run.client() as client:
                producing = [
                    asyncio.create_task(run.produce(client, f"p{number}", pops // producers, delays=False))
                    for number in range(producers)
                ]
                for _ in range(2):
                    run.start_worker()
                await run.workers_began()
                deaths = await brokers_die(cluster, run, producing, pause_s)
                await asyncio.gather(*producing)
                await run.drain(client, seconds=max(120, pops / 100))
        finally:
            run.end()
        judgement = run.judge()
    report = as_text(make_report(judgement))
    print(f"{deaths} deaths\n{report}")
    assert judge(judgement)[0] is Verdict.VALID, report
    taken = [op for op in judgement.history.ops if isinstance(op.result, Popped)]
    assert sum(len(op.result.jobs) for op in taken) >= pops
    assert deaths
