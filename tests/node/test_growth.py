"""`drayd admin meta add-domains`: a cluster that began small spreads over more brokers."""

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.ids import SystemEntropy
from dray.machine.command import Command
from dray.machine.head import SUPPORTED
from dray.machine.verdict import Verdict
from dray.node import growth, metadata
from dray.node.directory import DataDirectory
from dray.node.growth import add_domains
from dray.node.metadata import Effects
from dray.offload import ThreadOffload
from dray.replica.errors import Stopped
from dray.replica.replica import Replica
from dray.testing import broker
from tests.cli.test_serving import DRAYD, produce
from tests.upgrade.recordings import unpack_directory

pytestmark = pytest.mark.slow


def committed(bootstrap: str, offset: int | None = None) -> int:
    """The offset of a group; stored first, if one is given."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers"})
    try:
        if offset is not None:
            consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
        (found,) = consumer.committed([TopicPartition("orders", 0)], 60)
        return int(found.offset)
    finally:
        consumer.close()


def end(bootstrap: str, topic: str = "orders") -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), 60)[1])
    finally:
        consumer.close()


def spread(bootstrap: str, topic: str) -> None:
    """A new topic, with more partitions than there are domains."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 8, 1)])[topic].result(60)


def meta(*arguments: object) -> dict[str, Any]:
    """What `drayd admin meta` answers, with its exit code."""
    command = [DRAYD, "admin", "meta", *map(str, arguments), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return {**json.loads(done.stdout), "code": done.returncode}


def grow(data: Path, domains: int) -> dict[str, Any]:
    return meta("add-domains", data, domains, "--yes")


def homes(data: Path) -> set[int]:
    """The domains in which streams are."""
    found = set()
    for domain in range(len(list((data / "meta").glob("domain-*")))):
        keys = [one["key"] for one in meta("ls", data, "--domain", domain)["keys"]]
        if any("/streams/" in key for key in keys):
            found.add(domain)
    return found


@pytest.mark.parametrize("born", [1, 2])
def test_what_was_there_stays_and_what_is_new_is_spread(tmp_path: Path, born: int) -> None:
    """M13, M14, ND5: records, offsets of groups and topics of before; under a live broker nothing is changed."""
    data = tmp_path / "data"
    with broker(data, cluster__domains=born) as dray:
        produce(dray.bootstrap)
        assert committed(dray.bootstrap, 1) == 1
        refused = grow(data, 4)
        assert refused["code"] == 1
        assert "stop all of them first" in json.dumps(refused)
    assert [grow(data, 4) for _ in range(2)] == [
        {"before": born, "domains": 4, "code": 0}, {"before": 4, "domains": 4, "code": 0},
    ]  # fmt: skip
    assert "none is ever taken away" in json.dumps(grow(data, 3))
    with broker(data) as dray:
        assert (end(dray.bootstrap), committed(dray.bootstrap)) == (1, 1)
        spread(dray.bootstrap, "wide")
        produce(dray.bootstrap)
    with broker(data) as dray:
        assert (end(dray.bootstrap), committed(dray.bootstrap)) == (2, 1)
    assert homes(data) == {*range(1, 5), *({0} if born == 1 else ())}


def test_a_step_that_was_cut_short_before_the_catalog_was_told_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ND5: meanwhile the directory opens, and the logs that nobody names are used by nobody."""
    data = tmp_path / "data"
    with broker(data) as dray:
        produce(dray.bootstrap)

    async def cut_short(self: Replica, *commands: Command) -> list[Verdict]:
        raise Stopped("before anything was sent")

    with monkeypatch.context() as cut:
        cut.setattr(Replica, "propose", cut_short)
        with pytest.raises(Stopped):
            grow_raw(data)
    assert len(list((data / "meta").glob("domain-*"))) == 4
    with broker(data) as dray:
        produce(dray.bootstrap)
    assert grow(data, 3)["domains"] == 3
    with broker(data) as dray:
        assert end(dray.bootstrap) == 2
        spread(dray.bootstrap, "wide")


def test_where_the_rules_know_no_such_step_nothing_is_begun(tmp_path: Path) -> None:
    """M10: a build of those rules still opens the directory."""
    data = unpack_directory(tmp_path)
    refused = grow(data, 3)
    assert refused["code"] == 1
    assert "drayd admin meta activate" in json.dumps(refused)
    assert [home.name for home in (data / "meta").glob("domain-*")] == ["domain-00000"]


def test_new_domains_begin_with_the_rules_that_are_active(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """M12: they are added by a build that knows newer ones, while the brokers are of an older build."""
    data = tmp_path / "data"
    with broker(data):
        pass
    with monkeypatch.context() as newer:
        for module in (metadata, growth):
            newer.setattr(module, "SUPPORTED", SUPPORTED + 1, raising=False)
        grow_raw(data)
    seen = [meta("get", data, "/dray/v1/machine", "--domain", domain) for domain in range(4)]
    assert [one["value"]["version"] for one in seen] == [SUPPORTED] * 4
    with broker(data) as dray:
        spread(dray.bootstrap, "wide")


def grow_raw(data: Path) -> None:
    offload = ThreadOffload(1)
    effects = Effects(clock=SystemClock(), entropy=SystemEntropy(), disk=LocalDisk(), offload=offload)
    try:
        asyncio.run(add_domains(DataDirectory.at(data, effects.disk), 3, effects))
    finally:
        offload.close()
