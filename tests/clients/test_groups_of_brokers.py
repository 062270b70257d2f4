"""Groups on three brokers: one is stopped, one is killed, and nobody loses its place."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from .grouped import PATIENCE_S, Member, eventually, fill, make_topic, share
from .three import Three, are_at_home, kept_by, place
from .watching import watched

pytestmark = pytest.mark.slow

TOPIC, PARTITIONS, EACH = "orders", 6, 20
KINDS = ["confluent-patient", "confluent-consumer"]


class Load(threading.Thread):
    """Writes a record to each partition, again and again."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({
            "bootstrap.servers": bootstrap, "enable.idempotence": True, "reconnect.backoff.max.ms": 500,
        })  # fmt: skip
        self._stopping = threading.Event()
        self.each = 0
        """Records in each partition."""
        self.acknowledged = 0

    def run(self) -> None:
        while not self._stopping.wait(0.05):
            for partition in range(PARTITIONS):
                self._producer.produce(TOPIC, str(self.each), partition=partition, on_delivery=self._delivered)
            self.each += 1
            self._producer.poll(0)
        assert self._producer.flush(PATIENCE_S) == 0

    def _delivered(self, error, _) -> None:
        assert error is None, error
        self.acknowledged += 1

    def stop(self) -> None:
        self._stopping.set()
        self.join()


@contextmanager
def writing(bootstrap: str) -> Iterator[Load]:
    load = Load(bootstrap)
    load.start()
    try:
        yield load
    finally:
        load.stop()
    assert load.acknowledged == load.each * PARTITIONS


def sees_all(members: Sequence[Member], each: int) -> None:
    wanted = {(partition, offset) for partition in range(PARTITIONS) for offset in range(each)}
    eventually(
        f"{len(wanted)} records are delivered", lambda: wanted <= {seen for member in members for seen in member.seen}
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_outlives_the_brokers_that_keep_it(tmp_path: Path, kind: str) -> None:
    """R-169, R-184, R-190: a broker that is stopped costs no rebalance, one that is killed no record."""
    with ExitStack() as stack:
        three = Three(stack, tmp_path, "groups.consumer_heartbeat=500ms")
        group = kept_by(3, 2, 1)
        make_topic(three.bootstrap, TOPIC, PARTITIONS)
        fill(three.bootstrap, TOPIC, PARTITIONS, EACH)
        members = [
            stack.enter_context(Member(kind, broker.kafka, TOPIC, group)) for broker in three.brokers.values()
        ]  # fmt: skip
        commits = stack.enter_context(watched(three.bootstrap, TOPIC, PARTITIONS, group))
        share(members, PARTITIONS)
        sees_all(members, EACH)
        assert three.coordinator(group) == three.brokers[3].kafka

        eventually("all is committed", lambda: commits.have_come_to(EACH))
        before, changes = place(three.state(), group), [member.changes for member in members]
        three.stop(3)
        eventually("the members have other homes", lambda: are_at_home(three.state(), group))
        fill(three.bootstrap, TOPIC, PARTITIONS, EACH)
        sees_all(members, 2 * EACH)
        assert place(three.state(), group) == before
        assert [member.changes for member in members] == changes, "nobody was told to do anything else"
        assert three.coordinator(group) == three.brokers[2].kafka

        fill(three.bootstrap, TOPIC, PARTITIONS, EACH)
        middle = sum(len(member.seen) for member in members)
        eventually("they are at work", lambda: sum(len(member.seen) for member in members) > middle)
        three.kill(2)
        fill(three.bootstrap, TOPIC, PARTITIONS, EACH)
        sees_all(members, 4 * EACH)
        share(members, PARTITIONS)
        eventually("the members have other homes", lambda: are_at_home(three.state(), group))
        eventually("all is committed", lambda: commits.have_come_to(4 * EACH))
        assert three.coordinator(group) == three.brokers[1].kafka

        reads = [read for member in members for read in member.reads]
        assert len(reads) == len(set(reads)), "what a member has committed is not read again"


@pytest.mark.parametrize("kind", KINDS)
def test_brokers_are_restarted_one_after_the_other_under_load(tmp_path: Path, kind: str) -> None:
    """R-169, R-184, R-190: no member is told to do anything else, and no record is lost."""
    with ExitStack() as stack:
        three = Three(stack, tmp_path, "groups.consumer_heartbeat=500ms")
        group = kept_by(3, 2, 1)
        make_topic(three.bootstrap, TOPIC, PARTITIONS)
        members = [stack.enter_context(Member(kind, three.bootstrap, TOPIC, group)) for _ in range(3)]
        commits = stack.enter_context(watched(three.bootstrap, TOPIC, PARTITIONS, group))
        share(members, PARTITIONS)
        before, changes = place(three.state(), group), [member.changes for member in members]
        with writing(three.bootstrap) as written:
            for broker_id in (3, 2, 1):
                three.stop(broker_id)
                begun = written.acknowledged
                eventually("records are taken", lambda begun=begun: written.acknowledged > begun + EACH)
                three.start(broker_id)
                begun = written.acknowledged
                eventually("records are taken", lambda begun=begun: written.acknowledged > begun + EACH)
                eventually("the members have homes", lambda: are_at_home(three.state(), group))
        sees_all(members, written.each)
        assert place(three.state(), group) == before
        assert [member.changes for member in members] == changes, "nobody was told to do anything else"
        eventually("all is committed", lambda: commits.have_come_to(written.each))
        reads = [read for member in members for read in member.reads]
        assert len(reads) == len(set(reads)), "what a member has committed is not read again"
