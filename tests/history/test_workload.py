"""The workload over a cluster in memory: an honest one, and ones that lie."""

import asyncio
import io

import pytest

from dray.clock import SystemClock
from dray.ids import SeededEntropy
from dray.testing.history import (
    Limits,
    Outcome,
    Recorder,
    Verdict,
    as_text,
    check,
    decode_events,
    fold_history,
    judge,
    make_report,
)
from dray.testing.history.clients import ClientFailed, Fetched
from dray.testing.history.events import ProducerOpened, partition
from dray.testing.history.workload import Fault, Plan, Workload

SEED = 20261115


class Cluster:
    """Logs in memory, shared by all clients. `up` is what a fault takes away."""

    name = "memory"

    def __init__(self):
        self.logs = {}
        self.offsets = {}
        self.up = True
        self.sends = 0

    def append(self, tp, payload):
        self.logs[tp].append(payload)
        return len(self.logs[tp]) - 1

    def check_up(self):
        if not self.up:
            raise ClientFailed(Outcome.INFO, "no broker")

    async def producer(self, promises):
        return MemoryProducer(self)

    async def consumer(self, group):
        self.check_up()
        return MemoryConsumer(self, group)

    async def create_topic(self, topic, partitions):
        self.logs.update({partition(topic, n): [] for n in range(partitions)})
        return f"id of {topic}"


class MemoryProducer:
    def __init__(self, cluster):
        self.cluster = cluster
        self.waiting = set()

    async def send(self, tp, payload):
        future = asyncio.ensure_future(self._deliver(tp, payload))
        self.waiting.add(future)
        return future

    async def _deliver(self, tp, payload):
        self.cluster.check_up()
        offset = self.cluster.append(tp, payload)
        self.cluster.sends += 1
        await asyncio.sleep(0)
        return offset

    async def close(self, timeout_s):
        await asyncio.gather(*self.waiting, return_exceptions=True)


class MemoryConsumer:
    def __init__(self, cluster, group):
        self.cluster = cluster
        self.group = group
        self.positions = {}

    async def assign(self, positions):
        self.positions = dict(positions)

    async def poll(self, timeout_s):
        await asyncio.sleep(0.002)
        self.cluster.check_up()
        got = {}
        for tp, at in self.positions.items():
            records = list(enumerate(self.cluster.logs[tp]))[at : at + 50]
            if records:
                got[tp] = [(offset, raw) for offset, raw in records if raw is not None]
                self.positions[tp] = records[-1][0] + 1
        return Fetched(records=got, ends={tp: len(self.cluster.logs[tp]) for tp in self.positions})

    async def latest(self, tp):
        self.cluster.check_up()
        return len(self.cluster.logs[tp])

    async def earliest(self, tp):
        self.cluster.check_up()
        return 0

    async def commit(self, tp, offset):
        self.cluster.offsets[self.group, tp] = offset

    async def committed(self, tp):
        return self.cluster.offsets.get((self.group, tp), -1)

    async def close(self):
        self.positions = {}


class Forgetful(Cluster):
    """Loses one record that it has acknowledged."""

    def append(self, tp, payload):
        offset = super().append(tp, payload)
        if self.sends == 40:
            self.logs[tp][offset] = None
        return offset


class Confused(Cluster):
    """Writes one record to another partition as well."""

    def append(self, tp, payload):
        if self.sends == 40:
            next(log for other, log in self.logs.items() if other != tp).append(payload)
        return super().append(tp, payload)


class Careless(Cluster):
    """Flips one bit."""

    def append(self, tp, payload):
        return super().append(tp, bytes([payload[0] ^ 1]) + payload[1:] if self.sends == 40 else payload)


async def run(cluster, *, faults=()):
    sink, clock = io.BytesIO(), SystemClock()
    plan = Plan(
        topics=["a", "b"],
        seed=SEED,
        partitions=2,
        producers=2,
        consumers=2,
        seconds=0.6,
        sends_per_second=400,
        promises=ProducerOpened(producer="", idempotent=True, ordered=True),
        faults=faults,
        fault_seconds=0.05,
        quiet_seconds=0.1,
        drain_seconds=0.5,
    )
    await Workload(plan, cluster, Recorder(sink, clock.boot_ns), clock, SeededEntropy(SEED)).run()
    events, cut = decode_events(sink.getvalue())
    return check(fold_history(events, cut=cut), Limits(retention=False))


async def test_an_honest_cluster_gets_the_verdict_valid():
    judgement = await run(Cluster())
    assert judge(judgement)[0] is Verdict.VALID, as_text(make_report(judgement))
    assert judgement.counts.drained
    assert judgement.counts.ops["send"]["ok"] > 40


@pytest.mark.slow
async def test_each_fault_has_its_turn_before_any_has_a_second_one():
    """What a test is about has happened, however slow the machine is and whatever the dice say."""
    seen = []

    def fault(number):
        async def start():
            seen.append(number)

        async def stop():
            pass

        return Fault(name="nothing", target=str(number), start=start, stop=stop)

    numbers = set(range(12))
    await run(Cluster(), faults=[fault(number) for number in numbers])
    assert set(seen[:12]) == numbers
    for at in range(12, len(seen), 12):
        assert len(set(seen[at : at + 12])) == len(seen[at : at + 12])


async def test_faults_are_written_down_and_excuse_no_safety():
    cluster = Cluster()

    async def down():
        cluster.up = False

    async def back():
        cluster.up = True

    judgement = await run(cluster, faults=[Fault(name="down", target="all", start=down, stop=back)])
    assert not judgement.findings.counts, as_text(make_report(judgement))
    assert judgement.history.faults
    assert judgement.counts.info_causes["send: no broker"] > 0


@pytest.mark.parametrize(
    ("cluster", "found"),
    [(Forgetful, "lost-write"), (Confused, "misrouted"), (Careless, "corrupt-payload")],
)
async def test_a_cluster_that_lies_is_found_out(cluster, found):
    """R-012, R-226."""
    judgement = await run(cluster())
    assert judge(judgement)[0] is Verdict.INVALID
    assert found in {anomaly.value for anomaly in judgement.findings.counts}


@pytest.mark.slow
async def test_a_cluster_that_never_comes_back_is_not_valid():
    cluster = Cluster()

    async def down():
        cluster.up = False

    async def forget():
        pass

    judgement = await run(cluster, faults=[Fault(name="down", target="all", start=down, stop=forget)])
    assert judgement.counts.drained
    assert {anomaly.value for anomaly in judgement.findings.counts} == {"unseen"}
