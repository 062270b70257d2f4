"""`drayd admin meta export` and `import`: a cluster goes on elsewhere with all that it had."""

import asyncio
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from dray.cli.main import run
from dray.client.sync import Client
from dray.errors import Corrupt, Invalid
from dray.node.exports import ClusterExport, pack_export, unpack_export
from dray.testing import broker
from tests.golden.asking import Asker

LIMIT_S = 60


@pytest.fixture
def drayd(capsys):
    """One command of `drayd admin meta`, and what it told."""

    def do(*arguments: object, code: int = 0, group: str = "meta") -> str:
        assert run(["admin", group, *map(str, arguments)]) == code, capsys.readouterr()
        found = capsys.readouterr()
        return found.out if code == 0 else found.err

    return do


def fill(bootstrap: str, grpc: str) -> None:
    """Records, a committed offset, and messages of a heap."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(100):
        producer.produce("orders", value=b"%d" % number, partition=0)
    assert producer.flush(LIMIT_S) == 0
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": "readers"})) as consumer:
        consumer.commit(offsets=[TopicPartition("orders", 0, 40)], asynchronous=False)
    with Client(grpc) as client:
        client.make_heap("jobs")
        client.heap("jobs").enqueue({"id": 1}, priority=5)


def whole(bootstrap: str, grpc: str) -> None:
    """Everything of `fill` is there, and more can be written."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "readers", "enable.auto.commit": False}
    with closing(Consumer(settings)) as consumer:
        (at,) = consumer.committed([TopicPartition("orders", 0)], LIMIT_S)
        assert at.offset == 40
        consumer.assign([TopicPartition("orders", 0, 0)])
        values: list[bytes] = []
        while len(values) < 100:
            found = consumer.consume(100, 1.0)
            values += [message.value() for message in found if message.error() is None]
        assert values[:100] == [b"%d" % number for number in range(100)]
    with Client(grpc) as client:
        (job,) = client.heap("jobs").peek()
        assert (job.payload, job.priority) == ({"id": 1}, 5)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("orders", value=b"after", partition=0)
    assert producer.flush(LIMIT_S) == 0


async def epoch(bootstrap: str) -> int:
    async with Asker(bootstrap) as ask:
        [topic] = (await ask.metadata("orders")).topics
        return topic.partitions[0].leader_epoch


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Path]:
    """A directory that was used."""
    with broker(tmp_path / "old", cluster__domains=2) as running:
        fill(running.bootstrap, running.grpc)
    return tmp_path / "old"


@pytest.mark.slow
def test_a_cluster_goes_on_in_another_directory(old, tmp_path, drayd):
    """D-282, MV3, MV4, R-027: records, offsets and messages are there; the log is another one, and clients are told"""
    told = json.loads(drayd("export", old, tmp_path / "cluster.dray", "--format", "json"))
    assert told["domains"] == 3
    moved = json.loads(drayd("import", tmp_path / "cluster.dray", tmp_path / "new", "--format", "json"))
    assert moved["cluster"] == told["cluster"]
    assert [one["generation"] for one in moved["domains"]] == [1, 1, 1]
    shutil.copytree(old / "objects", tmp_path / "new" / "objects")
    with broker(tmp_path / "old") as before:
        assert asyncio.run(epoch(before.bootstrap)) == 0
    with broker(tmp_path / "new") as running:
        whole(running.bootstrap, running.grpc)
        assert asyncio.run(epoch(running.bootstrap)) == 1
    with broker(tmp_path / "new") as again:
        assert asyncio.run(epoch(again.bootstrap)) == 1


@pytest.mark.slow
def test_a_running_cluster_is_exported_and_what_was_acknowledged_before_is_in_it(tmp_path, drayd):
    """T34: a backup needs no stop; what it names stays in the store for as long as was asked"""
    with broker(tmp_path / "old") as running:
        fill(running.bootstrap, running.grpc)
        drayd("export", tmp_path / "old", tmp_path / "backup.dray", "--hold", "2h")
        assert re.search(r"7,\d\d\d s left  export-[0-9a-f]{12}", drayd("ls", tmp_path / "old", group="pins"))
        shutil.copytree(tmp_path / "old" / "objects", tmp_path / "objects")
    drayd("import", tmp_path / "backup.dray", tmp_path / "new")
    shutil.move(tmp_path / "objects", tmp_path / "new" / "objects")
    with broker(tmp_path / "new") as running:
        whole(running.bootstrap, running.grpc)


@pytest.mark.slow
def test_what_is_there_is_never_written_over(old, tmp_path, drayd):
    """MV2: neither a log, nor a file, nor a directory of somebody else"""
    file = tmp_path / "cluster.dray"
    drayd("export", old, file)
    assert "there is a file of this name" in drayd("export", old, file, code=1)
    assert "holds a log already" in drayd("import", file, old, code=1)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letters").write_text("dear")
    assert "not empty" in drayd("import", file, tmp_path / "home", code=1)
    assert sorted(path.name for path in (tmp_path / "home").iterdir()) == ["LOCK", "letters"]
    assert "no such" in drayd("import", tmp_path / "missing", tmp_path / "new", code=1)


@pytest.mark.slow
def test_without_its_records_the_cluster_does_not_start(old, tmp_path, drayd):
    """ND3"""
    drayd("export", old, tmp_path / "cluster.dray")
    drayd("import", tmp_path / "cluster.dray", tmp_path / "new")
    with pytest.raises(Corrupt, match="restore the objects"), broker(tmp_path / "new"):
        pass


def test_a_file_that_was_cut_off_or_changed_is_refused_whole():
    """MV1: at every length, and with any byte changed"""
    data = b"".join(pack_export(ClusterExport(cluster_id="c", made_ms=1, checkpoints={})))
    assert unpack_export(data).cluster_id == "c"
    for length in range(len(data)):
        with pytest.raises((Corrupt, Invalid)):
            unpack_export(data[:length])
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1
        with pytest.raises((Corrupt, Invalid)):
            unpack_export(bytes(changed))
