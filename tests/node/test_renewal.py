"""A broker whose session is spent again and again, seen by a client."""

import json
import urllib.request

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from dray.replica import writer
from dray.replica.replica import Replica
from dray.replica.session import OwnSession
from dray.testing import broker

FEW = 24
COUNT = 300


@pytest.mark.slow
def test_clients_do_not_notice_that_sessions_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """RP10: one object for each record, two dozen for each session; every record once and in order."""
    monkeypatch.setitem(Replica.__init__.__kwdefaults__, "counters", FEW)
    opened: list[OwnSession] = []

    def open_session(**parts: int) -> OwnSession:
        opened.append(OwnSession(**parts))
        return opened[-1]

    monkeypatch.setattr(writer, "OwnSession", open_session)
    errors: list[object] = []
    offsets: list[int] = []

    def delivered(error: object, message: object) -> None:
        if error is not None:
            errors.append(error)
        else:
            offsets.append(message.offset())

    with broker() as dray:
        producer = Producer({"bootstrap.servers": dray.bootstrap, "enable.idempotence": True, "linger.ms": 0})
        for number in range(COUNT):
            producer.produce("t", b"%d" % number, partition=0, callback=delivered)
            assert producer.flush(60) == 0
        assert not errors
        assert offsets == list(range(COUNT))
        consumer = Consumer({"bootstrap.servers": dray.bootstrap, "group.id": "g", "enable.auto.commit": False})
        consumer.assign([TopicPartition("t", 0, 0)])
        values: list[bytes] = []
        while len(values) < COUNT:
            values += [message.value() for message in consumer.consume(COUNT - len(values), 60)]
        assert values == [b"%d" % number for number in range(COUNT)]
        consumer.close()
        with urllib.request.urlopen(f"http://{dray.http}/readyz", timeout=30) as answer:
            assert json.load(answer)["ready"] is True
    assert len(opened) >= COUNT // FEW
