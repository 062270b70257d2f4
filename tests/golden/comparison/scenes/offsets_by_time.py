"""ListOffsets: ends and times."""

from dray.records import Codec
from tests.golden.comparison.talking import Talk


async def list_offsets_special_times(talk: Talk) -> None:
    topic = await talk.filled(batches=2)
    for version in (1, 2, 4, 6, 7, 8, 9, 10):
        for special in (-1, -2, -3, -4, -5, -6, -7):
            await talk.offsets(f"version {version}, {special}", (topic, [(0, special)]), version=version)


async def list_offsets_of_an_empty_partition(talk: Talk) -> None:
    topic = await talk.topic()
    for at in (-1, -2, -3, -4, -5, 0, talk.now_ms, 2**62):
        name = "the run's time" if at == talk.now_ms else str(at)
        await talk.offsets(name, (topic, [(0, at)]))


async def list_offsets_by_time(talk: Talk) -> None:
    for codec in (Codec.NONE, Codec.GZIP):
        topic = await talk.topic()
        for base in (1000, 500, 3000, 3000, 2000):
            await talk.store(topic, talk.batch(b"a", b"b", b"c", at=base, codec=codec))
        for at in (0, 500, 502, 503, 1001, 1003, 2000, 3000, 3002, 3003):
            await talk.offsets(f"{codec.name}, {at} ms", (topic, [(0, talk.now_ms + at)]))
        await talk.offsets(f"{codec.name}, the newest", (topic, [(0, -3)]))
    await talk.offsets("read committed", (topic, [(0, -1)]), isolation_level=1)


async def list_offsets_places(talk: Talk) -> None:
    topic, nowhere = await talk.filled(2, batches=1), talk.name("nowhere")
    await talk.offsets("good and bad", (topic, [(0, -1), (5, -1), (1, -1, 0), (-1, -1)]), (nowhere, [(0, -1)]))
    await talk.offsets("leader epochs", (topic, [(0, -1, 5), (1, -1, -9)]))
    await talk.offsets("a partition twice", (topic, [(0, -1), (0, -2), (1, -1)]))
    await talk.offsets("a topic twice", (topic, [(0, -1)]), (topic, [(0, -2), (1, -1)]))
    await talk.offsets("a partition of an unknown topic twice", (nowhere, [(0, -1), (0, -1)]))
    await talk.offsets("an unknown partition twice", (topic, [(5, -1), (5, -1)]))
    await talk.offsets("no topics")
    await talk.offsets("no partitions", (topic, []))


SCENES = (
    list_offsets_special_times,
    list_offsets_of_an_empty_partition,
    list_offsets_by_time,
    list_offsets_places,
)
