"""A workload of real clients, its history in a file, and the verdict."""

import asyncio
import itertools
import shutil
from collections.abc import Sequence
from pathlib import Path

from dray.clock import SystemClock
from dray.ids import SeededEntropy
from dray.testing.history import (
    Judgement,
    Limits,
    Recorder,
    Verdict,
    as_text,
    check,
    decode_events,
    fold_history,
    judge,
    make_report,
)
from dray.testing.history.aiokafka_clients import AiokafkaKit
from dray.testing.history.confluent_clients import ConfluentKit
from dray.testing.history.events import ProducerOpened
from dray.testing.history.workload import Fault, Plan, Workload
from tests.durability.daemon import Drayd

_runs = itertools.count()
KITS = {"confluent": ConfluentKit, "aiokafka": AiokafkaKit}


async def run_history(
    path: Path, bootstrap: str, kit: str, seed: int, *, faults: Sequence[Fault] = (), idempotent: bool = True,
    delivery_s: int = 20, **options,
) -> Judgement:  # fmt: skip
    """Run the workload and judge what its clients saw; the history stays in `path` for `python -m`.

    `delivery_s`: after so long a producer gives a record up, and then it forgets what it has sent: an idempotent one
    goes on with another epoch, and what was under way may be there twice.
    """
    print(f"seed {seed}")
    clock = SystemClock()
    run = next(_runs)
    plan = Plan(
        topics=[f"orders-{run}", f"parcels-{run}"],
        seed=seed,
        faults=faults,
        promises=ProducerOpened(producer="", idempotent=idempotent, ordered=idempotent),
        **{"partitions": 2, "producers": 2, "consumers": 2, "drain_seconds": 60, "sends_per_second": 150, **options},
    )
    client = (
        ConfluentKit(bootstrap, delivery_timeout_ms=delivery_s * 1000) if kit == "confluent" else KITS[kit](bootstrap)
    )
    with path.open("wb") as sink:
        recorder = Recorder(sink, clock.boot_ns)
        await Workload(plan, client, recorder, clock, SeededEntropy(seed)).run()
    events, cut = decode_events(path.read_bytes())
    return check(fold_history(events, cut=cut), Limits(retention=False))


def assert_valid(judgement: Judgement, least_sends: int) -> None:
    """Nothing is wrong, and enough happened to say so."""
    report = as_text(make_report(judgement))
    assert judge(judgement)[0] is Verdict.VALID, report
    assert judgement.counts.drained, report
    assert judgement.counts.ops["send"]["ok"] >= least_sends, report


def kills(drayd: Drayd) -> Fault:
    """kill -9, and a start on the same port and directory."""

    async def start() -> None:
        await asyncio.to_thread(drayd.kill)

    async def stop() -> None:
        await asyncio.to_thread(drayd.start)

    return Fault(name="kill -9", target="broker", start=start, stop=stop)


def freezes(drayd: Drayd) -> Fault:
    """SIGSTOP: the process is there and does nothing."""

    async def start() -> None:
        drayd.freeze()

    async def stop() -> None:
        drayd.thaw()

    return Fault(name="SIGSTOP", target="broker", start=start, stop=stop)


async def nothing() -> None:
    """What was done is not undone."""


def two_die(victims: list[Drayd]) -> Fault:
    """At once, for good, with all that they had."""

    def erase() -> None:
        while victims:
            lost = victims.pop()
            lost.kill()
            shutil.rmtree(lost.data)

    async def start() -> None:
        await asyncio.to_thread(erase)

    return Fault(name="kill -9 and erase", target="two brokers", start=start, stop=nothing)
