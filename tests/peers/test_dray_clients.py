"""kcat and the Java client against Dray: they read what the others wrote, and live through what happens to topics."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from dray.buffers import Buffer
from dray.objects.memory import MemoryObjects
from dray.objects.opening import StoreEffects, StoreOptions
from dray.objects.port import StoreUnavailable
from dray.objects.retry import LOCAL, RetryingObjects
from dray.testing import broker
from tests.clients.forms import COUNT, offer_all
from tests.clients.kinds import AT_MS, KINDS, Kind, Written
from tools.peers.java import java_program
from tools.peers.kcat import kcat

pytestmark = pytest.mark.peers

JAVA = Path(__file__).parent / "java"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = (
    Written(b"key", "värde".encode(), AT_MS),
    Written(None, b"no key", AT_MS + 1),
    Written(b"", b"empty key", AT_MS + 2),
    Written(b"no value", None, AT_MS + 3),
    Written(b"empty value", b"", AT_MS + 4),
    Written(b"h", b"headers", AT_MS + 5, (("a", b"1"), ("b", b""), ("a", b"2"))),
    *(Written(b"%d" % n, b"v%d" % n, AT_MS + 10 + n) for n in range(300)),
    Written(None, b"x" * 900_000, AT_MS + 1000),
)


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with broker(topics__partitions=1) as running:
        yield running.bootstrap


def text(content: bytes | None) -> str | None:
    return None if content is None else content.decode()


def encoded(topic: str, records: tuple[Written, ...]) -> bytes:
    """The lines that Produce.java takes."""
    return b"\n".join(
        json.dumps(
            {
                "topic": topic,
                "partition": 0,
                "timestamp": one.timestamp,
                "key": text(one.key),
                "value": text(one.value),
                "headers": [[name, text(value)] for name, value in one.headers],
            }
        ).encode()
        for one in records
    )


def java_write(bootstrap: str, topic: str, records: tuple[Written, ...], codec: str = "none") -> list[int]:
    output = java_program(
        JAVA / "Produce.java",
        bootstrap,
        properties={"compression.type": codec},
        stdin=encoded(topic, records),
    )
    return [json.loads(line)["offset"] for line in output.splitlines()]


def java_read(bootstrap: str, topic: str) -> list[tuple[int, Written]]:
    found = []
    for line in java_program(JAVA / "Consume.java", bootstrap, topic).splitlines():
        record = json.loads(line)
        key, value = (None if one is None else one.encode() for one in (record["key"], record["value"]))
        headers = tuple((name, None if one is None else one.encode()) for name, one in record["headers"])
        found.append((record["offset"], Written(key, value, record["timestamp"], headers)))
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_everyone_reads_what_java_wrote(bootstrap: str, codec: str) -> None:
    """T22: on its defaults, so idempotent."""
    topic = f"by-java-{codec}"
    assert java_write(bootstrap, topic, RECORDS, codec) == list(range(len(RECORDS)))
    assert java_read(bootstrap, topic) == list(enumerate(RECORDS))
    for kind in KINDS:
        found = kind.read(bootstrap, topic, 0, len(RECORDS))
        assert [(one.offset, one.record) for one in found] == list(enumerate(RECORDS)), kind.name


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", KINDS, ids=lambda kind: kind.name)
def test_java_reads_what_others_wrote(bootstrap: str, writer: Kind, codec: str) -> None:
    """T22."""
    topic = f"for-java-{writer.name}-{codec}"
    writer.write(bootstrap, topic, RECORDS, codec)
    assert java_read(bootstrap, topic) == list(enumerate(RECORDS))


@pytest.mark.parametrize("codec", CODECS)
def test_kcat_writes_and_reads(bootstrap: str, codec: str) -> None:
    """T22: an old librdkafka, which knows no topic ids."""
    topic = f"kcat-{codec}"
    lines = b"".join(b"k%d:v%d\n" % (n, n) for n in range(200))
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", "-K", ":", "-z", codec, "-H", "a=1", stdin=lines)
    shown = kcat(bootstrap, "-C", "-t", topic, "-p", "0", "-e", "-q", "-f", "%o %k:%s %h\\n")
    assert shown == b"".join(b"%d k%d:v%d a=1\n" % (n, n, n) for n in range(200))
    from_middle = kcat(bootstrap, "-C", "-t", topic, "-p", "0", "-o", "198", "-e", "-q", "-f", "%o\\n")
    assert from_middle == b"198\n199\n"
    read = java_read(bootstrap, topic)
    assert [(offset, one.value) for offset, one in read] == [(n, b"v%d" % n) for n in range(200)]
    assert topic in kcat(bootstrap, "-L").decode()


async def test_java_reads_every_form_of_compression_that_is_taken() -> None:
    """K-022: an offset that Java cannot read would stop it for ever."""
    with broker(topics__auto_create="false") as running:
        taken = await offer_all(running.bootstrap, "forms")
        output = await asyncio.to_thread(java_program, JAVA / "Consume.java", running.bootstrap, "forms")
    found: dict[int, list[int]] = {}
    for line in output.splitlines():
        record = json.loads(line)
        found.setdefault(record["partition"], []).append(record["offset"])
    assert found == {number: list(range(COUNT)) for number in taken.values()}


def test_a_topic_made_again_does_not_end_a_java_producer(bootstrap: str) -> None:
    """R-100, R-193: one idempotent producer, the topic deleted and made again between its sends."""
    output = java_program(JAVA / "Recreate.java", bootstrap, "again", "3")
    rounds = [json.loads(line) for line in output.splitlines()]
    assert [one["offsets"] for one in rounds] == [list(range(20))] * 3


class Stumbling(MemoryObjects):
    """A store that refuses the first puts of records."""

    left = 5

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        if path.startswith("wal/") and self.left:
            self.left -= 1
            raise StoreUnavailable("not yet", op="put")
        await super().put(path, parts)


def test_first_batches_whose_puts_failed_do_not_end_a_java_producer() -> None:
    """R-092, R-097: nothing is stored twice or out of order, and all of it arrives."""
    stores: list[Stumbling] = []

    async def open_store(address: str, options: StoreOptions, effects: StoreEffects) -> RetryingObjects:
        stores.append(Stumbling(effects.clock))
        return RetryingObjects(stores[0], effects.clock, effects.entropy, LOCAL)

    with broker(topics__partitions=1, open_objects=open_store) as running:
        assert java_write(running.bootstrap, "orders", RECORDS) == list(range(len(RECORDS)))
        assert stores[0].left == 0
        assert java_read(running.bootstrap, "orders") == list(enumerate(RECORDS))


def test_the_java_admin_makes_describes_and_deletes(bootstrap: str) -> None:
    """R-191, R-193: createTopics().all() and deleteTopics().all()."""
    output = java_program(JAVA / "Recreate.java", bootstrap, "admin", "1")
    assert json.loads(output)["partitions"] == 1
