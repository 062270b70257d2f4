"""Used a second time: the same consumer after a restart, the same topic after it was made again."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from dray.testing import broker
from tests.clients.failing import FailingBroker
from tests.clients.kinds import AT_MS, Written, confluent_write
from tests.clients.lasting import KINDS, Lasting


@pytest.fixture(scope="module")
def strict() -> Iterator[str]:
    """A broker that makes no topic by itself: a client that asks for a deleted one would bring it back."""
    with broker(topics__auto_create="false") as running:
        yield running.bootstrap


def write(bootstrap: str, topic: str, *values: bytes) -> list[int]:
    return confluent_write(bootstrap, topic, [Written(None, value, AT_MS) for value in values])


def make(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})  # kept: it ends with its last reference
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)


def delete(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(60)


@pytest.mark.slow
def test_the_same_consumers_go_on_after_their_broker_was_killed(tmp_path: Path) -> None:
    """R-187: and whoever begins anew begins where its group had come to."""
    with FailingBroker(tmp_path) as dray, ExitStack() as stack:
        make(dray.bootstrap, "orders")
        write(dray.bootstrap, "orders", b"0", b"1", b"2")
        consumers = {
            kind: stack.enter_context(opened(dray.bootstrap, "orders", f"shop-{kind}"))
            for kind, opened in KINDS.items()
        }
        for kind, consumer in consumers.items():
            assert [consumer.read() for _ in range(2)] == [(0, b"0"), (1, b"1")], kind
            consumer.commit(2)
        dray.kill()
        dray.start()
        assert write(dray.bootstrap, "orders", b"3") == [3]
        for kind, consumer in consumers.items():
            assert [consumer.read() for _ in range(2)] == [(2, b"2"), (3, b"3")], kind
            with KINDS[kind](dray.bootstrap, "orders", f"shop-{kind}") as again:
                assert again.read() == (2, b"2"), kind


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_consumer_reads_a_topic_that_was_made_again_from_its_start(strict: str, kind: str) -> None:
    """R-126, R-193: nothing of the old one, and the group begins anew too."""
    opened: type[Lasting] = KINDS[kind]
    topic, group = f"again-{kind}", f"group-{kind}"
    make(strict, topic)
    write(strict, topic, b"old 0", b"old 1", b"old 2")
    with opened(strict, topic, group) as consumer:
        assert [consumer.read()[0] for _ in range(3)] == [0, 1, 2]
        consumer.commit(3)
        delete(strict, topic)
        make(strict, topic)
        assert write(strict, topic, b"new 0", b"new 1") == [0, 1]
        assert [consumer.read() for _ in range(2)] == [(0, b"new 0"), (1, b"new 1")]
    with opened(strict, topic, group) as fresh:
        assert fresh.read() == (0, b"new 0")


@pytest.mark.slow
def test_the_same_topic_is_made_and_deleted_many_times(strict: str) -> None:
    """R-193: each has offsets of its own from 0, and only its own records."""
    for turn in range(10):
        make(strict, "many-times")
        assert write(strict, "many-times", b"%d" % turn) == [0]
        with KINDS["confluent"](strict, "many-times", "reader") as consumer:
            assert consumer.read() == (0, b"%d" % turn)
            consumer.commit(1)
        delete(strict, "many-times")
