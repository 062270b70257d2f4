"""The loads of the benchmarks do what they say: against a Kafka broker every record they count is there."""

from collections.abc import Iterator

import psutil
import pytest

from bench._brokers import BadRun, cpu_seconds, raw_load, rdkafka_consume, rdkafka_produce, records_in, topic_on
from bench._targets import KAFKA, Running

pytestmark = pytest.mark.peers


@pytest.fixture(scope="module")
def broker() -> Iterator[Running]:
    with KAFKA.start() as running:
        yield running


def test_what_the_raw_producer_counts_is_there_and_the_raw_fetcher_reads_it(broker: Running) -> None:
    with topic_on(broker, 4) as topic:
        produced = raw_load(broker, "produce", topic, partitions=4, connections=3, seconds=1.0)
        assert produced.records == records_in(broker, topic, 4) == produced.requests * 128
        fetched = raw_load(broker, "fetch", topic, partitions=4, connections=4, seconds=1.0)
        assert fetched.records > 0
        assert fetched.bytes > 1024 * fetched.records
        assert produced.spent.broker_s > 0


def test_requests_of_many_partitions_at_a_rate_reach_each_partition_alike(broker: Running) -> None:
    with topic_on(broker, 20) as topic:
        produced = raw_load(
            broker, "produce", topic, partitions=20, partitions_per_request=10, connections=2, rate=50, batch_records=1,
            seconds=2.0,
        )  # fmt: skip
        assert produced.requests == 100
        assert records_in(broker, topic, 20) == produced.records == 1000


def test_librdkafka_writes_and_reads_every_record(broker: Running) -> None:
    with topic_on(broker, 4) as topic:
        rdkafka_produce(broker, topic, 20_000, 1024)
        assert records_in(broker, topic, 4) == 20_000
        assert rdkafka_consume(broker, topic, 4, 20_000).records == 20_000


def test_a_load_that_the_broker_refuses_is_no_measurement(broker: Running) -> None:
    with pytest.raises(BadRun, match="error 3"):
        raw_load(broker, "produce", "there-is-no-such-topic", seconds=0.5)


def test_the_cpu_time_of_a_broker_only_grows(broker: Running) -> None:
    before = cpu_seconds(broker.pid)
    with topic_on(broker, 1) as topic:
        raw_load(broker, "produce", topic, partitions=1, seconds=0.5)
    assert cpu_seconds(broker.pid) > before > 0
    assert psutil.pid_exists(broker.pid)
