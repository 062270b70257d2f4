"""The consumer group protocol of Kafka 4 (KIP-848), as librdkafka speaks it."""

import itertools
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from dray.testing import broker

_names = itertools.count()
LIMIT_S = 30.0
QUICK = {
    "topics__partitions": 6,
    "groups__consumer_heartbeat": "300ms",
    "groups__consumer_unsettled_heartbeat": "100ms",
    "groups__consumer_session": "2s",
    "groups__consumer_assignment_interval": "50ms",
    "groups__regex_refresh": "100ms",
}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A broker whose members are asked often, so that tests need not wait."""
    with broker(**QUICK) as running:
        yield running.bootstrap


@pytest.fixture
def name() -> str:
    return f"kip848-{next(_names)}"


class Reader:
    """A member of a group, and what it has read and lost."""

    def __init__(self, bootstrap: str, group: str, topics: Sequence[str], **options: str) -> None:
        self.consumer = Consumer({
            "bootstrap.servers": bootstrap, "group.id": group, "group.protocol": "consumer",
            "auto.offset.reset": "earliest", "enable.auto.commit": "false", "topic.metadata.refresh.interval.ms": "500",
            **{key.replace("_", "."): value for key, value in options.items()},
        })  # fmt: skip
        self.read: list[tuple[str, int, int]] = []
        self.revoked = 0
        self.consumer.subscribe(list(topics), on_revoke=self._on_revoke)

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.revoked += len(partitions)

    @property
    def owned(self) -> set[tuple[str, int]]:
        return {(one.topic, one.partition) for one in self.consumer.assignment()}

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is not None:
            assert message.error() is None, message.error()
            self.read.append((message.topic(), message.partition(), message.offset()))


def until(readers: Sequence[Reader], done: Callable[[], bool], why: str) -> None:
    """Let all of them poll until something is so."""
    end = time.monotonic() + LIMIT_S
    while not done():
        assert time.monotonic() < end, f"{why}: {[sorted(reader.owned) for reader in readers]}"
        for reader in readers:
            reader.poll()


def share(readers: Sequence[Reader], topics: Sequence[str], partitions: int = 6) -> None:
    """Until they have all partitions between them, evenly, and none twice."""
    wanted = {(topic, number) for topic in topics for number in range(partitions)}

    def even() -> bool:
        owned = [reader.owned for reader in readers]
        sizes = [len(one) for one in owned]
        return sum(sizes) == len(wanted) and set().union(*owned) == wanted and max(sizes) - min(sizes) <= 1

    until(readers, even, "they do not share")


def produce(bootstrap: str, topic: str, records: int) -> set[tuple[str, int, int]]:
    producer = Producer({"bootstrap.servers": bootstrap})
    sent: set[tuple[str, int, int]] = set()

    def acknowledged(error, message) -> None:
        assert error is None, error
        sent.add((message.topic(), message.partition(), message.offset()))

    for number in range(records):
        producer.produce(topic, str(number), partition=number % 6, on_delivery=acknowledged)
    assert producer.flush(LIMIT_S) == 0
    return sent


def test_one_member_reads_everything_and_goes_on_where_it_was(bootstrap: str, name: str) -> None:
    """R-184, R-190."""
    sent = produce(bootstrap, name, 60)
    first = Reader(bootstrap, name, [name])
    until([first], lambda: len(first.read) == 60, "not everything was read")
    assert set(first.read) == sent
    first.consumer.commit(asynchronous=False)
    first.consumer.close()
    more = produce(bootstrap, name, 30)
    second = Reader(bootstrap, name, [name])
    until([second], lambda: len(second.read) >= 30, "the rest was not read")
    assert set(second.read) == more
    second.consumer.close()


@pytest.mark.slow
def test_members_come_and_go_and_each_record_is_read_by_one(bootstrap: str, name: str) -> None:
    """R-179, R-184."""
    produce(bootstrap, name, 6)
    readers = [Reader(bootstrap, name, [name])]
    share(readers, [name])
    until(readers, lambda: len(readers[0].read) == 6, "what was there is read by the first")
    readers[0].consumer.commit(asynchronous=False)
    for _ in range(2):
        readers.append(Reader(bootstrap, name, [name]))
        share(readers, [name])
    sent = produce(bootstrap, name, 60)
    until(readers, lambda: sum(len(one.read) for one in readers) >= 66, "not everything was read")
    read = [row for reader in readers for row in reader.read]
    assert len(read) == len(set(read)) == 66
    assert sent <= set(read)
    for reader in readers:
        reader.consumer.commit(asynchronous=False)
    readers.pop().consumer.close()
    share(readers, [name])
    readers.pop(0).consumer.close()
    share(readers, [name])
    readers[0].consumer.close()


CRASHES = """
    import sys
    from confluent_kafka import Consumer
    bootstrap, group, topic = sys.argv[1:]
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": "consumer"})
    consumer.subscribe([topic])
    told = False
    while True:
        consumer.poll(0.05)
        if consumer.assignment() and not told:
            told = True
            print("has", flush=True)
"""


@pytest.mark.slow
def test_a_member_that_is_killed_is_missed_and_replaced(bootstrap: str, name: str) -> None:
    """R-169, R-181."""
    produce(bootstrap, name, 6)
    command = [sys.executable, "-c", textwrap.dedent(CRASHES), bootstrap, name, name]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"has\n"
        other = Reader(bootstrap, name, [name])
        until([other], lambda: len(other.owned) == 3, "they do not share")
        process.kill()
    share([other], [name])
    other.consumer.close()


@pytest.mark.slow
def test_a_static_member_is_restarted_and_nobody_notices(bootstrap: str, name: str) -> None:
    produce(bootstrap, name, 6)
    other = Reader(bootstrap, name, [name])
    static = Reader(bootstrap, name, [name], group_instance_id="static")
    share([other, static], [name])
    had, lost = static.owned, other.revoked
    for _ in range(3):
        static.consumer.close()
        static = Reader(bootstrap, name, [name], group_instance_id="static")
        until([other, static], lambda reader=static: reader.owned == had, "it did not get back what it had")
    assert other.revoked == lost
    static.consumer.close()
    other.consumer.close()


@pytest.mark.slow
def test_a_pattern_follows_topics_that_are_made_later(bootstrap: str, name: str) -> None:
    """R-183."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [made] = admin.create_topics([NewTopic(f"{name}.a", 2)]).values()
    made.result()
    one, two = (Reader(bootstrap, name, [f"^{name}[.].*"]) for _ in range(2))
    share([one, two], [f"{name}.a"], 2)
    [made] = admin.create_topics([NewTopic(f"{name}.b", 2)]).values()
    made.result()
    share([one, two], [f"{name}.a", f"{name}.b"], 2)
    for reader in (one, two):
        reader.consumer.close()


def test_a_group_is_described_and_listed_as_what_it_is(bootstrap: str, name: str) -> None:
    """R-178, R-184."""
    produce(bootstrap, name, 6)
    reader = Reader(bootstrap, name, [name], client_id="reads")
    share([reader], [name])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    told = admin.describe_consumer_groups([name])[name].result()
    assert (told.type.name, told.state.name, told.partition_assignor) == ("CONSUMER", "STABLE", "uniform")
    [member] = told.members
    assert (member.client_id, len(member.assignment.topic_partitions)) == ("reads", 6)
    listed = {one.group_id: one for one in admin.list_consumer_groups().result().valid}
    assert (listed[name].type.name, listed[name].state.name) == ("CONSUMER", "STABLE")
    reader.consumer.close()
