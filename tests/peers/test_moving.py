"""A cluster moves from a directory into a database and back, and is restored from a backup (T34)."""

import asyncio
import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from dray.cli.main import run
from dray.errors import DrayError
from dray.objects.opening import open_store
from dray.testing import broker
from tests.node.test_moving import epoch, fill, whole
from tests.objects.servers import S3Server, effects, versity
from tests.peers.test_clusters import database
from tools.peers.etcd import etcd, packaged
from tools.peers.oxia_double import oxia_double
from tools.peers.postgres import Postgres, postgres

pytestmark = pytest.mark.peers


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


@pytest.fixture(scope="module")
def buckets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with versity(tmp_path_factory.mktemp("s3")) as running:
        yield running


def of_bucket(buckets: S3Server, name: str) -> dict[str, object]:
    """Settings of a broker."""
    store = buckets.options
    return {
        "objects__url": f"s3://{name}/dray", "objects__endpoint": store.endpoint, "objects__allow_http": "true",
        "objects__region": store.region, "objects__access_key_id": store.access_key,
        "objects__secret_access_key": store.secret_key,
    }  # fmt: skip


def admin(settings: dict[str, object], *arguments: object, code: int = 0) -> None:
    """`drayd admin meta`, with the settings of a broker."""
    sets = [text for key, value in settings.items() for text in ("--set", f"{key.replace('__', '.')}={value}")]
    assert run(["admin", "meta", *map(str, arguments), *sets]) == code


async def copy_bucket(buckets: S3Server, source: str, target: str) -> int:
    """What an operator does with the tools of a cloud; how many objects."""
    old = await open_store(f"s3://{source}/dray", buckets.options, effects())
    new = await open_store(f"s3://{target}/dray", buckets.options, effects())
    count = 0
    async for found in old.list(""):
        await new.put(found.path, [bytes(await old.get(found.path))])
        count += 1
    await old.close()
    await new.close()
    return count


def test_a_cluster_moves_from_engine_to_engine_and_back(server, buckets, tmp_path, capsys):
    """R-027, MV2, MV3, MV4: the records stay in their bucket; each new log is another one"""
    bucket = of_bucket(buckets, buckets.new_bucket())
    url = asyncio.run(database(server, "moved"))
    with broker(tmp_path / "one", cluster__domains=2, **bucket) as running:
        fill(running.bootstrap, running.grpc)
    admin(bucket, "export", tmp_path / "one", tmp_path / "first.dray")
    admin(bucket, "import", tmp_path / "first.dray", url)
    with broker(tmp_path / "two", log__url=url, **bucket) as running:
        whole(running.bootstrap, running.grpc)
        assert asyncio.run(epoch(running.bootstrap)) == 1
        admin(bucket, "export", url, tmp_path / "second.dray", "--hold", "1h")
    admin(bucket, "import", tmp_path / "first.dray", url, code=1)  # there is a log
    other = asyncio.run(database(server, "moved_again"))
    admin(bucket, "import", tmp_path / "second.dray", other)
    with (
        pytest.raises(DrayError, match="of a log that was replaced"),
        broker(tmp_path / "two", log__url=other, **bucket),
    ):
        pass
    with broker(tmp_path / "three", log__url=other, **bucket) as running:
        whole(running.bootstrap, running.grpc)
        assert asyncio.run(epoch(running.bootstrap)) == 2
    delta = f"deltalog:{tmp_path / 'delta'}"
    admin(bucket, "export", other, tmp_path / "files.dray")
    admin(bucket, "import", tmp_path / "files.dray", delta)
    with broker(tmp_path / "in-files", log__url=delta, **bucket) as running:
        whole(running.bootstrap, running.grpc)
        assert asyncio.run(epoch(running.bootstrap)) == 3
    admin(bucket, "export", delta, tmp_path / "objects.dray")
    admin(bucket, "import", tmp_path / "objects.dray", "deltalog:")
    with broker(tmp_path / "in-bucket", log__url="deltalog:", **bucket) as running:
        whole(running.bootstrap, running.grpc)
        assert asyncio.run(epoch(running.bootstrap)) == 4
    admin(bucket, "export", "deltalog:", tmp_path / "third.dray")
    with etcd(program=packaged()) as member:
        admin(bucket, "import", tmp_path / "third.dray", member.url())
        admin(bucket, "import", tmp_path / "third.dray", member.url(), code=1)  # there is a log
        for _ in range(2):  # begun, and found again
            with broker(tmp_path / "in-etcd", log__url=member.url(), **bucket) as running:
                whole(running.bootstrap, running.grpc)
                assert asyncio.run(epoch(running.bootstrap)) == 5
        admin(bucket, "export", member.url(), tmp_path / "fourth.dray")
    with oxia_double(nodes=1, shards=2) as double:
        double.order("full", on=True)
        admin(bucket, "import", tmp_path / "fourth.dray", double.url("moved"), code=1)
        assert "Oxia has no room left" in capsys.readouterr().err
        double.order("full", on=False)
        admin(bucket, "import", tmp_path / "fourth.dray", double.url("moved"))
        admin(bucket, "import", tmp_path / "fourth.dray", double.url("moved"), code=1)  # there is a log
        with broker(tmp_path / "in-oxia", log__url=double.url("moved"), **bucket) as running:
            whole(running.bootstrap, running.grpc)
            assert asyncio.run(epoch(running.bootstrap)) == 6
        admin(bucket, "export", double.url("moved"), tmp_path / "fifth.dray")
    admin(bucket, "import", tmp_path / "fifth.dray", tmp_path / "five")
    with broker(tmp_path / "five", **bucket) as running:
        whole(running.bootstrap, running.grpc)
        assert asyncio.run(epoch(running.bootstrap)) == 7


class Steady:
    """A producer that goes on beside a backup, and knows when each of its records was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.acked_s: dict[bytes, float] = {}
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Steady":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        for number in itertools.count():
            self._producer.produce("orders", b"live-%d" % number, partition=0, on_delivery=self._told)
            self._producer.poll(0.01)
            if self._ended.is_set():
                break
        assert self._producer.flush(60) == 0

    def _told(self, error: object, message: Message) -> None:
        value = message.value()
        if error is None and value is not None:
            self.acked_s[value] = time.monotonic()


def values_in(bootstrap: str) -> set[bytes]:
    """Everything in the partition, as it is now."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "all", "enable.auto.commit": False}
    with closing(Consumer(settings)) as consumer:
        _, end = consumer.get_watermark_offsets(TopicPartition("orders", 0), 60)
        consumer.assign([TopicPartition("orders", 0, 0)])
        found: list[bytes] = []
        while len(found) < end:
            found += [one.value() or b"" for one in consumer.consume(1000, 1.0) if one.error() is None]
    return set(found)


def test_a_cluster_is_restored_from_its_bucket_and_a_backup(server, buckets, tmp_path):
    """T34: a new database and a copy of the bucket; everything acknowledged before the backup began is there"""
    first, copy = buckets.new_bucket(), buckets.new_bucket()
    url, other = asyncio.run(database(server, "lost")), asyncio.run(database(server, "restored"))
    with broker(tmp_path / "a", log__url=url, cluster__domains=2, **of_bucket(buckets, first)) as running:
        fill(running.bootstrap, running.grpc)
        with Steady(running.bootstrap) as steady:
            while len(steady.acked_s) < 100:
                time.sleep(0.01)  # until the producer is under way
            begun_s = time.monotonic()
            admin(of_bucket(buckets, first), "export", url, tmp_path / "backup.dray", "--hold", "1h")
            exported_s = time.monotonic()
            copied = asyncio.run(copy_bucket(buckets, first, copy))
    restore_s = time.monotonic()
    admin(of_bucket(buckets, copy), "import", tmp_path / "backup.dray", other)
    with broker(tmp_path / "b", log__url=other, **of_bucket(buckets, copy)) as running:
        ready_s = time.monotonic()
        kept = values_in(running.bootstrap)
        whole(running.bootstrap, running.grpc)
    missing = [at for value, at in steady.acked_s.items() if value not in kept]
    assert all(at > begun_s for at in missing)
    assert missing, "nothing was acknowledged after the backup: the test proves nothing"
    print(
        f"export {exported_s - begun_s:.2f} s; of {len(steady.acked_s)} records the first that is missing was "
        f"acknowledged {min(missing) - begun_s:.2f} s after it began; {copied} objects copied; "
        f"import and start {ready_s - restore_s:.2f} s"
    )


def test_a_bucket_of_another_cluster_is_refused_before_anything_is_begun(server, buckets, tmp_path):
    """O9, MV2"""
    theirs = of_bucket(buckets, buckets.new_bucket())
    with broker(tmp_path / "theirs", **theirs):
        pass
    with broker(tmp_path / "ours") as running:
        fill(running.bootstrap, running.grpc)
    admin({}, "export", tmp_path / "ours", tmp_path / "ours.dray")
    url = asyncio.run(database(server, "other_cluster"))
    admin(theirs, "import", tmp_path / "ours.dray", url, code=1)
    own = of_bucket(buckets, buckets.new_bucket())
    admin(own, "import", tmp_path / "ours.dray", url)
