"""The lag of groups as metrics: told by one broker, taken back when it is over."""

import asyncio
from dataclasses import dataclass
from urllib.request import urlopen

from confluent_kafka import Consumer, Producer, TopicPartition

from dray.clock import ManualClock
from dray.groups import lag
from dray.groups.lag import LagWatch
from dray.groups.offsets import OffsetService, OffsetToCommit, Partition
from dray.telemetry import REGISTRY
from dray.testing import broker
from tests.retention.shop import Broker, Cluster

LAG = "dray_consumer_group_lag_records"


def told(name: str = LAG) -> dict[tuple[str, ...], float]:
    """The samples of a metric by their labels, in the order of their declaration."""
    return {
        tuple(sample.labels.values()): sample.value
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.name == name
    }


def metrics_of(address: object) -> str:
    with urlopen(f"http://{address}/metrics", timeout=60) as answer:
        return answer.read().decode()


@dataclass
class Ranks:
    """This broker is the keeper of these groups, and the second one of all others; None: of all."""

    mine: set[str] | None = None

    def rank(self, group: str) -> int:
        return 0 if self.mine is None or group in self.mine else 1


def watch_of(running: Broker, ranks: Ranks | None = None) -> LagWatch:
    return LagWatch(domains=running.domains, topics=running.topics, routing=ranks or Ranks(), clock=ManualClock())


async def commit(running: Broker, group: str, offset: int, topic: str = "orders", number: int = 0) -> None:
    service = OffsetService(domains=running.domains, topics=running.topics)
    await service.commit(group, {Partition(topic=topic, number=number): OffsetToCommit(offset=offset)})


async def test_lag_is_what_can_still_be_read() -> None:
    """Never less than nothing, and nothing that retention took."""
    cluster = await Cluster().begin(3)
    async with cluster.broker() as running:
        topic = await running.topic(partitions=2)
        await running.produce((topic.streams[0], 10))
        watch = watch_of(running)
        end = running.stream(topic.streams[0]).end
        await commit(running, "g", end - 4)
        await commit(running, "ahead", end + 4)
        await commit(running, "g", 0, number=1)
        await watch.look()
        assert told() == {("g", "orders", "0"): 4, ("g", "orders", "1"): 0, ("ahead", "orders", "0"): 0}
        assert told("kafka_consumergroup_lag") == told()
        assert told("kafka_consumergroup_lag_sum") == {("g", "orders"): 4, ("ahead", "orders"): 0}
        assert told("kafka_consumergroup_current_offset")["g", "orders", "0"] == end - 4
        assert told("kafka_consumergroup_current_offset_sum")["g", "orders"] == end - 4
        running.stream(topic.streams[0]).start = end - 1
        await watch.look()
        assert told()["g", "orders", "0"] == 1
        await watch._tell({}, 0)


async def test_only_its_keeper_tells_a_group_and_takes_it_back_when_it_moves() -> None:
    cluster = await Cluster().begin(3)
    async with cluster.broker() as running:
        await running.topic()
        for group in ("a", "b"):
            await commit(running, group, 0)
        ranks = Ranks({"a"})
        watch = watch_of(running, ranks)
        await watch.look()
        assert told() == {("a", "orders", "0"): 0}
        ranks.mine = {"b"}
        await watch.look()
        assert told() == {("b", "orders", "0"): 0}
        task = asyncio.create_task(watch.run())
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait((task,))
        assert told() == {}
        assert told("kafka_consumergroup_lag_sum") == {}


async def test_more_than_can_be_told_is_counted(monkeypatch) -> None:
    monkeypatch.setattr(lag, "MOST", 2)
    cluster = await Cluster().begin(3)
    async with cluster.broker() as running:
        await running.topic(partitions=4)
        for number in range(4):
            await commit(running, "g", 0, number=number)
        watch = watch_of(running)
        await watch.look()
        assert len(told()) == 2
        assert told("dray_consumer_group_lag_left_out") == {(): 2}
        await watch._tell({}, 0)


async def test_whatever_is_told_others_have_the_loop_in_between() -> None:
    """GL1: 20,000 partitions were told in one go, and clients waited for half a second, every ten."""
    cluster = await Cluster().begin(3)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with cluster.broker() as running:
        watch = watch_of(running)
        places = {lag.GroupPartition("g", "orders", str(n)): lag.Progress(committed=n, lag=1) for n in range(1_000)}
        counting = asyncio.create_task(count())
        for found in (places, {}):
            turns = 0
            await watch._tell(found, 0)
            assert turns >= 30
            assert len(told()) == len(found)
        counting.cancel()


def test_a_broker_tells_it_on_its_own_and_nothing_more_when_it_has_stopped(monkeypatch) -> None:
    monkeypatch.setattr(lag, "EVERY_S", 0.05)
    with broker(topics__partitions=1) as running:
        config = {"bootstrap.servers": running.bootstrap}
        producer = Producer(config)
        for _ in range(10):
            producer.produce("orders", b"v")
        assert producer.flush(60) == 0
        consumer = Consumer({**config, "group.id": "readers"})
        consumer.commit(offsets=[TopicPartition("orders", 0, 4)], asynchronous=False)
        consumer.close()
        line = f'{LAG}{{group="readers",partition="0",topic="orders"}} 6.0'
        while line not in metrics_of(running.http):
            pass  # the test's own limit ends this
    assert told() == {}
