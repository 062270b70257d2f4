"""One group's life, as `dray groups` tells it: of whatever broker listens there."""

import json

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from dray.cli.main import DRAY, run

RECORDS = 10
READ = 4


def write_orders(bootstrap: str) -> None:
    """A topic of one partition, with some records."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(60)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce("orders", b"%d" % number)
    assert producer.flush(60) == 0


def tell_a_group(bootstrap: str, capsys: pytest.CaptureFixture[str], protocol: str) -> None:
    """A group is listed, described, moved and deleted."""

    def ask(*argv: str) -> tuple[int, dict]:
        code = run(["groups", *argv, "--bootstrap", bootstrap, "--format", "json"], DRAY)
        return code, json.loads(capsys.readouterr().out)

    group = f"readers-{protocol}"
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol, "client.id": "shop",
            "auto.offset.reset": "earliest", "enable.auto.commit": False,
        }
    )  # fmt: skip
    consumer.subscribe(["orders"])
    read = []
    while len(read) < READ:  # the test's own limit ends this
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            read.append(message)
    consumer.commit(message=read[-1], asynchronous=False)

    code, listed = ask("list")
    assert code == 0
    assert (group, protocol) in [(one["group"], one["type"]) for one in listed["groups"]]
    code, described = ask("describe", group)
    assert code == 0
    assert (described["state"], described["type"]) == ("Stable", protocol)
    (member,) = described["members"]
    assert member["client"] == "shop"
    assert member["partitions"] == [{"topic": "orders", "partition": 0}]
    (row,) = described["partitions"]
    assert (row["committed"], row["end"], row["lag"]) == (READ, RECORDS, RECORDS - READ)
    assert ask("reset", group, "--to", "earliest", "--yes")[0] == 1
    assert ask("delete", group, "--yes")[0] == 1

    consumer.close()
    assert ask("describe", group)[1]["state"] == "Empty"
    code, moved = ask("reset", group, "--to", "-1", "--yes")
    assert (code, moved["partitions"][0]["to"]) == (0, READ - 1)
    assert ask("describe", group)[1]["partitions"][0]["lag"] == RECORDS - READ + 1
    assert ask("delete", group, "--yes")[0] == 0
    code, refused = ask("describe", group)
    assert (code, refused["error"]["kind"]) == (1, "not_found")
