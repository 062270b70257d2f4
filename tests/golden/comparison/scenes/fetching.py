"""Fetch: what comes, how much of it, and when."""

from dray.records import Codec
from dray.servers.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.golden.asking import FETCH
from tests.golden.comparison.talking import Talk

LONG_MS = 20_000
"""Neither server waits it out."""
SHORT_MS = 2_000
"""At least one of them does."""


async def fetch_in_every_version(talk: Talk) -> None:
    topic = await talk.filled()
    for version in range(4, 17):
        await talk.fetch(f"version {version}", (topic, [(0, 1)]), version=version)


async def fetch_offsets(talk: Talk) -> None:
    topic = await talk.filled()
    for offset in (0, 1, 9, 10, 11, -1, -2, 2**62):
        await talk.fetch(f"offset {offset}", (topic, [(0, offset)]))
    for epoch in (0, 1, -2):
        await talk.fetch(f"leader epoch {epoch}", (topic, [(0, 0, 1 << 20, epoch)]))
    for level in (1, 7):
        await talk.fetch(f"isolation level {level}", (topic, [(0, 0)]), isolation_level=level)
    await talk.fetch("out of range in version 4", (topic, [(0, 99)]), version=4)


async def fetch_sizes(talk: Talk) -> None:
    topic = await talk.filled(3)
    await talk.fetch("one byte in all", (topic, [(0, 0, 1), (1, 0, 1), (2, 3, 1)]), max_bytes=1)
    await talk.fetch("one byte, the first at its end", (topic, [(0, 10, 1), (1, 0, 1), (2, 3, 1)]), max_bytes=1)
    await talk.fetch("no bytes", (topic, [(0, 0, 0), (1, 0, 0)]), max_bytes=0)
    await talk.fetch("1,000 bytes of one, one byte of the other", (topic, [(0, 0, 1000), (1, 0, 1)]))
    await talk.fetch("less than no bytes of a partition", (topic, [(0, 0, -5)]))
    await talk.fetch("less than no bytes in all", (topic, [(0, 0)]), max_bytes=-1)
    await talk.fetch("negative least and wait", (topic, [(0, 0)]), min_bytes=-7, max_wait_ms=-3)


async def fetch_places(talk: Talk) -> None:
    topic, nowhere = await talk.filled(2), talk.name("nowhere")
    await talk.fetch("good and bad", (topic, [(0, 0), (9, 0), (1, 999), (-1, 0)]), (nowhere, [(0, 0)]))
    await talk.fetch("good and bad by id", (topic, [(0, 0), (9, 0)]), (nowhere, [(0, 0), (1, 0)]), version=13)
    await talk.fetch("a bad one among others", (topic, [(0, 10), (9, 0)]), waits_ms=LONG_MS // 2, min_bytes=1)
    await talk.fetch("no topics do not wait", waits_ms=LONG_MS, min_bytes=1)
    await talk.fetch("a partition twice", (topic, [(0, 0), (0, 4)]))
    await talk.fetch("a partition twice, other way round", (topic, [(0, 4), (0, 0)]))
    await talk.fetch("a topic twice", (topic, [(0, 0)]), (topic, [(0, 4), (1, 2)]))
    await talk.fetch("a topic twice by id", (topic, [(0, 0)]), (topic, [(0, 4), (1, 2)]), version=13)
    await talk.fetch("a bad partition twice", (topic, [(9, 0), (9, 4)]))
    await talk.fetch("an unknown topic twice", (nowhere, [(0, 0)]), (nowhere, [(0, 4)]))


async def fetch_waits(talk: Talk) -> None:
    topic = await talk.filled(batches=30, size=1000)
    await talk.fetch("least above most", (topic, [(0, 0)]), waits_ms=LONG_MS, min_bytes=1_000_000, max_bytes=5_000)
    await talk.fetch("least above most of the partition", (topic, [(0, 0, 5_000)]), waits_ms=SHORT_MS, min_bytes=20_000)
    await talk.fetch("at the end", (topic, [(0, 60)]), waits_ms=SHORT_MS, min_bytes=1)
    await talk.fetch("at the end, least 0", (topic, [(0, 60)]), waits_ms=LONG_MS, min_bytes=0)
    await talk.fetch("out of range", (topic, [(0, 61)]), waits_ms=LONG_MS, min_bytes=1)


async def fetch_sessions(talk: Talk) -> None:
    topic = await talk.filled(batches=1)
    for number, epoch in ((0, -1), (0, 0), (0, 1), (0, -7), (123, 0), (123, -1), (123, 5), (-1, 1)):
        shape = f"session {number}, epoch {epoch}"
        await talk.fetch(shape, (topic, [(0, 0)]), session_id=number, session_epoch=epoch)


async def fetch_after_a_topic_is_made_again(talk: Talk) -> None:
    topic = await talk.filled()
    old = talk.ids[topic]
    await talk.delete(topic)
    await talk.fetch("by the id that is gone", (topic, [(0, 0)]), version=13)
    await talk.fetch("by the name that is gone", (topic, [(0, 0)]))
    await talk.topic(name=topic)
    await talk.fetch("by the name, an offset of the old one", (topic, [(0, 3)]))
    await talk.fetch("by the new id", (topic, [(0, 0)]), version=13)
    talk.ids[topic] = old
    await talk.fetch("by the old id", (topic, [(0, 0)]), version=13)


async def fetch_zstd(talk: Talk) -> None:
    topic = await talk.topic()
    await talk.store(topic, talk.batch())
    await talk.store(topic, talk.batch(codec=Codec.ZSTD))
    for version in (4, 9, 10):
        await talk.fetch(f"version {version}", (topic, [(0, 0)]), version=version)


async def fetch_as_a_follower(talk: Talk) -> None:
    topic = await talk.filled(batches=1)
    wanted = [FetchTopic(topic=topic, partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)])]
    request = FetchRequest(replica_id=2, max_bytes=1 << 20, topics=wanted)
    await talk.ask("replica 2", FETCH, 12, request, patient=False)


SCENES = (
    fetch_in_every_version,
    fetch_offsets,
    fetch_sizes,
    fetch_places,
    fetch_waits,
    fetch_sessions,
    fetch_after_a_topic_is_made_again,
    fetch_zstd,
    fetch_as_a_follower,
)
