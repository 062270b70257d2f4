"""T15: brokers and workers are killed and frozen, a clock is ten minutes off, and what the workers saw is in order."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from dray.testing.history import Verdict, as_text, judge, make_report
from tests.durability.heap_histories import DRAIN_S, HeapCluster, HeapRun
from tools.peers.faketime import MovedClock

pytestmark = pytest.mark.peers

SEED = 20261117
OFF_S = 600


class Trouble:
    """What happens to brokers and workers."""

    def __init__(self, cluster: HeapCluster, run: HeapRun, clock: MovedClock, *, frozen_s: float) -> None:
        self._cluster = cluster
        self._run = run
        self._clock = clock
        self._frozen_s = frozen_s
        self._dice = random.Random(SEED)
        self._ahead = False
        self.all: tuple[Callable[[], Awaitable[None]], ...] = (self.worker_dies, self.freeze, self.broker_dies)

    async def worker_dies(self) -> None:
        self._run.kill_worker(0)
        self._run.start_worker()

    async def freeze(self) -> None:
        """SIGSTOP; longer than its session lives, in the long form."""
        number = self._dice.randrange(len(self._cluster.brokers))
        broker = self._cluster.brokers[number]
        self._run.fault("SIGSTOP", f"broker {number}", start=True)
        broker.freeze()
        await asyncio.sleep(self._frozen_s)
        broker.thaw()
        self._run.fault("SIGSTOP", f"broker {number}", start=False)

    async def broker_dies(self) -> None:
        """kill -9, and a start on the same port."""
        number = self._dice.randrange(len(self._cluster.brokers))
        broker = self._cluster.brokers[number]
        self._run.fault("kill -9", f"broker {number}", start=True)
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.start)
        self._run.fault("kill -9", f"broker {number}", start=False)

    async def move_clock(self) -> None:
        """Of the first broker, ten minutes ahead and then ten behind, to the end.

        So whether a delay ended early is not judged here: clients' clocks cannot, for brokers' lines of time lie apart
        by what the opening of their sessions took (ADR-0189). The simulator judges it by machine time, exactly.
        """
        self._ahead = not self._ahead
        self._run.fault("clock", "broker 0", start=True)
        self._clock.move(OFF_S if self._ahead else -OFF_S)


async def tell_time(run: HeapRun, trouble: Trouble, *, rounds: int, messages: int) -> None:
    """Work, trouble, and the drain after it."""
    await run.make_heap()
    for _ in range(3):
        run.start_worker()
    await run.workers_began()
    async with run.client() as client, run.client() as other:
        producing = [
            asyncio.create_task(run.produce(client, "p", messages, delays=True, pace_s=0.005)),
            asyncio.create_task(run.produce(other, "q", messages, delays=True, pace_s=0.005)),
        ]
        for _ in range(rounds):
            await trouble.move_clock()
            for strike in trouble.all:
                await strike()
                await asyncio.sleep(0.2)
        await asyncio.gather(*producing)
        await run.produce(other, "r", messages // 3, delays=True, pace_s=0.005)
        await run.drain(client, seconds=max(DRAIN_S, messages))  # three workers, slow on purpose
    run.end()


def check_history(run: HeapRun, *, acked: int) -> None:
    judgement = run.judge()
    report = as_text(make_report(judgement))
    print(report)
    assert judge(judgement)[0] is Verdict.VALID, report
    assert len(judgement.history.faults) > 0
    assert judgement.counts.ops["settle"]["ok"] >= acked, report


@pytest.mark.parametrize(
    ("rounds", "messages", "frozen_s"),
    [(1, 150, 1.0), pytest.param(8, 1_000, 9.0, marks=[pytest.mark.long, pytest.mark.timeout(2 * 3_600)])],
)
async def test_what_workers_saw_is_in_order_whatever_happens_to_brokers_workers_and_clocks(
    tmp_path: Path, rounds: int, messages: int, frozen_s: float
) -> None:
    """D-003, D-180, D-304, T15: L1, L2, L8, L9, DD1."""
    print(f"seed {SEED}")
    clock = MovedClock(tmp_path / "clock")
    cluster = HeapCluster(tmp_path, brokers=3)
    cluster.brokers[0].environment = dict(clock.environment())
    with cluster:
        run = HeapRun(cluster, SEED, habit="slow", gives_back=True)
        try:
            trouble = Trouble(cluster, run, clock, frozen_s=frozen_s)
            await tell_time(run, trouble, rounds=rounds, messages=messages)
        finally:
            run.end()
        check_history(run, acked=messages)
