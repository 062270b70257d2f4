"""Two of three brokers die with their disks: what holds on every log."""

import asyncio
from pathlib import Path

from dray.testing.history.workload import Fault
from tests.durability.daemon import Drayd
from tests.durability.histories import assert_valid, run_history, two_die
from tests.golden.asking import Asker, batch


async def the_third_has_everything(
    brokers: list[Drayd], directory: Path, seed: int, *others: Fault, seconds: float
) -> None:
    """None missing, none doubled; produce goes on, and a dead one comes back with nothing but addresses."""
    *victims, third = brokers
    judgement = await run_history(
        directory / "history", ",".join(one.bootstrap for one in brokers), "confluent", seed, partitions=4,
        faults=[*others, two_die(list(victims))], seconds=seconds, quiet_seconds=4, fault_seconds=2, drain_seconds=120,
    )  # fmt: skip
    assert_valid(judgement, 100)
    assert len(judgement.history.faults) > len(others)
    async with Asker(third.bootstrap) as ask:
        await ask.create("after")
        assert (await ask.produce("after", batch(b"x"))).error_code == 0
    await asyncio.to_thread(victims[0].start)
    async with Asker(victims[0].bootstrap) as ask:
        assert (await ask.offset_at("after", -1)).offset == 1
