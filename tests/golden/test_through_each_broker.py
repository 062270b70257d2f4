"""Three brokers on one log: what is changed through one of them is so at once when another is asked."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from itertools import count, permutations

import pytest

from dray.servers.kafka.messages import describe_producers
from dray.servers.kafka.messages.describe_cluster import DescribeClusterRequest
from tests.clients.zoned import Zoned
from tests.golden.asking import Asker, batch
from tests.golden.test_cluster import PRODUCERS, ends, sizes
from tests.golden.test_configs import DELETE, GROUP, SET, TOPIC, alter_all, alter_some, resource, values
from tests.golden.test_partitions import delete, grow, to

pytestmark = pytest.mark.slow

_names = count()
ORDERS = list(permutations(range(3)))


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zoned]:
    running = Zoned(tmp_path_factory.mktemp("each"), "", "", "")
    try:
        yield running
    finally:
        running.close()


@pytest.fixture
async def asks(brokers: Zoned) -> AsyncIterator[list[Asker]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Asker(brokers.at(number))) for number in (1, 2, 3)]


@pytest.fixture
def topic() -> str:
    return f"each-{next(_names)}"


@pytest.mark.parametrize("order", ORDERS)
async def test_what_one_broker_does_the_others_know(asks: list[Asker], topic: str, order: tuple[int, ...]) -> None:
    """R-194, K-062, K-063, E-9: partitions, deleted records, ends of epochs."""
    one, two, three = (asks[at] for at in order)
    await one.create(topic, 2)
    assert await grow(two, to(topic, 6)) == [0]
    (found,) = (await three.metadata(topic)).topics
    assert [part.partition_index for part in found.partitions] == list(range(6))
    for number in range(6):
        assert (await one.produce(topic, batch(b"1", b"2"), partition=number)).base_offset == 0
    assert await delete(three, topic, *((number, 1) for number in range(6))) == [(0, 1)] * 6
    assert [one.offset for one in await two.offsets_at(topic, [(number, -2) for number in range(6)])] == [1] * 6
    assert await ends(two, topic, *((number, 0, 0) for number in range(6))) == [(0, 0, 2)] * 6
    told = [await sizes(ask, {topic: list(range(6))}) for ask in asks]
    assert sorted(place for part in told for place in part) == [(topic, number) for number in range(6)]
    assert set().union(*(part.values() for part in told)) == {len(batch(b"1", b"2"))}


@pytest.mark.parametrize("order", ORDERS)
async def test_configs_that_one_broker_takes_the_others_tell(
    asks: list[Asker], topic: str, order: tuple[int, ...]
) -> None:
    """R-195, K-062: of topics and of groups."""
    one, two, three = (asks[at] for at in order)
    await one.create(topic)
    assert await alter_some(two, resource(TOPIC, topic, ("retention.ms", SET, "86400000"))) == [0]
    assert (await values(three, TOPIC, topic))["retention.ms"][0] == "86400000"
    assert await alter_all(three, TOPIC, topic, ("max.message.bytes", "4096")) == 0
    assert {key: value for key, (value, _) in (await values(one, TOPIC, topic)).items()} == {
        "max.message.bytes": "4096"
    }
    assert (await two.produce(topic, batch(bytes(9_000)))).error_code == 10, "it counts at once, everywhere"
    group = f"group-of-{topic}"
    assert await alter_some(one, resource(GROUP, group, ("consumer.session.timeout.ms", SET, "50000"))) == [0]
    assert (await values(two, GROUP, group))["consumer.session.timeout.ms"][0] == "50000"
    assert await alter_some(three, resource(GROUP, group, ("consumer.session.timeout.ms", DELETE, None))) == [0]
    assert await values(one, GROUP, group) == {}


async def test_all_tell_the_same_producers_and_the_same_cluster(asks: list[Asker], topic: str) -> None:
    """R-198"""
    await asks[0].create(topic)
    producer = await asks[1].producer_id()
    for sequence, ask in enumerate(asks):
        records = batch(b"1", producer_id=producer, producer_epoch=0, base_sequence=sequence)
        assert (await ask.produce(topic, records)).base_offset == sequence
    wanted = [describe_producers.TopicRequest(name=topic, partition_indexes=[0])]
    told, clusters = [], []
    for ask in asks:
        answer = await ask.call(PRODUCERS, 0, describe_producers.DescribeProducersRequest(topics=wanted))
        told.append([(one.producer_id, one.last_sequence) for one in answer.topics[0].partitions[0].active_producers])
        cluster, metadata = await ask.call(60, 2, DescribeClusterRequest()), await ask.metadata()
        ids = [one.broker_id for one in cluster.brokers]
        assert ids == [one.node_id for one in metadata.brokers]
        assert (cluster.cluster_id, cluster.controller_id) == (metadata.cluster_id, metadata.controller_id)
        clusters.append((cluster.cluster_id, cluster.controller_id, ids))
    assert told == [[(producer, 2)]] * 3
    assert clusters[0] == clusters[1] == clusters[2]
