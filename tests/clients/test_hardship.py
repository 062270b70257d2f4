"""Idempotent producers live on when a topic is made again under them, and when the store fails them."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from dray.clock import SystemClock
from dray.ids import SeededEntropy
from dray.objects.memory import MemoryObjects
from dray.objects.opening import StoreEffects, StoreOptions
from dray.objects.retry import LOCAL, RetryingObjects
from dray.sim.objects import FaultyObjects, ObjectFaults
from dray.testing import broker
from tests.clients.kinds import AT_MS, CONFLUENT, KAFKA_PYTHON, Written

pytestmark = pytest.mark.slow

SEED = 20261115


class Deliveries:
    """A librdkafka producer and what became of each record."""

    def __init__(self, bootstrap: str, **config: object) -> None:
        self.fatal: list[KafkaError] = []
        self.offsets: dict[bytes, int | None] = {}
        """Where each record is; None if the answer was lost, and a later one told only that it had been stored."""
        self.failed: dict[bytes, KafkaError] = {}
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "error_cb": self._error,
                "topic.metadata.refresh.interval.ms": 500,
                **config,
            }
        )

    def _error(self, error: KafkaError) -> None:
        if error.fatal():
            self.fatal.append(error)

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        def delivered(error: KafkaError | None, message) -> None:
            if error is None:
                self.offsets[value] = message.offset()
            else:
                self.failed[value] = error

        self.producer.produce(topic, value, partition=partition, on_delivery=delivered)

    def flush(self) -> None:
        assert self.producer.flush(60) == 0


def make(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=1)])[name].result(20)


def make_again(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})  # kept by its name: without it the call is given up
    admin.delete_topics([name])[name].result(20)
    try:
        make(bootstrap, name)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise  # else a producer that asked for its topic was faster


def test_a_topic_made_again_does_not_end_an_idempotent_producer(bootstrap: str, name: str) -> None:
    """R-100, R-193: its next sequence is not 0, and the new topic does not know it."""
    make(bootstrap, name)
    sender = Deliveries(bootstrap)
    for round_ in range(3):
        for n in range(20):
            sender.send(name, b"%d-%d" % (round_, n))
        sender.flush()
        make_again(bootstrap, name)
    sender.send(name, b"last")
    sender.flush()
    assert not sender.fatal
    assert not sender.failed
    assert sender.offsets[b"last"] == 0
    [found] = CONFLUENT.read(bootstrap, name, 0, 1)
    assert found.record.value == b"last"


def test_a_topic_made_again_while_records_are_in_flight_ends_no_producer(bootstrap: str, name: str) -> None:
    """R-193: what was in flight is told what became of it; what is sent afterwards arrives."""
    make(bootstrap, name)
    sender = Deliveries(bootstrap)
    with ThreadPoolExecutor(1) as other:
        again = None
        for n in range(4000):
            sender.send(name, b"%d" % n)
            sender.producer.poll(0)
            if n == 500:
                again = other.submit(make_again, bootstrap, name)
        assert again is not None
        again.result(60)
    sender.flush()
    assert not sender.fatal
    sender.send(name, b"last")
    sender.flush()
    assert not sender.fatal
    assert b"last" in sender.offsets
    count = sender.offsets[b"last"] + 1
    values = [one.record.value for one in CONFLUENT.read(bootstrap, name, 0, count)]
    assert values[-1] == b"last"
    assert len(set(values)) == len(values), "a record is there twice"


class Store:
    """An object store whose faults a test may change while a broker runs on it."""

    def __init__(self, seed: int = SEED) -> None:
        print(f"seed {seed}")
        self._entropy = SeededEntropy(seed)
        self.faulty: FaultyObjects | None = None

    async def open(self, address: str, options: StoreOptions, effects: StoreEffects) -> RetryingObjects:
        inner = MemoryObjects(effects.clock)
        self.faulty = FaultyObjects(inner, SystemClock(), self._entropy, ObjectFaults())
        return RetryingObjects(self.faulty, effects.clock, effects.entropy, LOCAL)

    def faults(self, **shares: float) -> None:
        assert self.faulty is not None
        self.faulty.faults = ObjectFaults(**shares)


@pytest.mark.parametrize("fault", ["unavailable", "lost_request", "lost_reply"])
def test_a_first_batch_whose_put_failed_does_not_end_an_idempotent_producer(fault: str) -> None:
    """R-092, R-097: later batches do not overtake it, none is stored twice, and all arrive when the store is back."""
    store = Store()
    with broker(open_objects=store.open) as running:
        make(running.bootstrap, "orders")
        sender = Deliveries(running.bootstrap, **{"linger.ms": 0, "batch.num.messages": 5})
        store.faults(**{fault: 1.0})
        for n in range(50):
            sender.send("orders", b"%d" % n)
            sender.producer.poll(0.01)
        assert not sender.offsets or fault == "lost_reply"
        store.faults()
        sender.flush()
        assert (sender.fatal, sender.failed) == ([], {})
        found = CONFLUENT.read(running.bootstrap, "orders", 0, 50)
        assert [one.record.value for one in found] == [b"%d" % n for n in range(50)]
        assert CONFLUENT.at(running.bootstrap, "orders", 1 << 45) is None


def test_kafka_python_lives_through_a_store_that_fails_at_first() -> None:
    store = Store()
    with broker(open_objects=store.open) as running:
        make(running.bootstrap, "orders")
        store.faults(unavailable=1.0)
        threading.Timer(1.0, store.faults).start()
        sent = [Written(None, b"%d" % n, AT_MS) for n in range(50)]
        assert KAFKA_PYTHON.write(running.bootstrap, "orders", sent) == list(range(50))
