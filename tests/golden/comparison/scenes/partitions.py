"""CreatePartitions and DeleteRecords."""

from collections.abc import Sequence

from dray.servers.kafka.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from dray.servers.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from dray.servers.kafka.messages.metadata import MetadataRequest
from tests.golden.asking import METADATA
from tests.golden.comparison.talking import Talk

CREATE_PARTITIONS, DELETE_RECORDS = 37, 21


def wanted(name: str, count: int, assignments: Sequence[Sequence[int]] | None = None) -> CreatePartitionsTopic:
    given = None if assignments is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=given)


async def more(talk: Talk, shape: str, *topics: CreatePartitionsTopic, version: int = 3, only: bool = False) -> None:
    request = CreatePartitionsRequest(topics=topics, timeout_ms=30_000, validate_only=only)
    await talk.ask(shape, CREATE_PARTITIONS, version, request)


async def partitions_added(talk: Talk) -> None:
    topic, other, nowhere = await talk.topic(), await talk.topic(2), talk.name("nowhere")
    for version in range(4):
        await more(talk, f"version {version}", wanted(topic, version + 2), version=version)
    await talk.leads(topic, 5)
    await talk.offsets("of what was added", (topic, [(number, -1) for number in range(6)]))
    for count in (-1, 0, 1, 2):
        await more(talk, f"to {count} of 2", wanted(other, count))
        await more(talk, f"to {count} of 2, checked", wanted(other, count), only=True)
    await more(talk, "only checked", wanted(other, 9), only=True)
    await more(talk, "a topic that is not there", wanted(nowhere, 3))
    await more(talk, "a topic without a name", wanted("", 3))
    await more(talk, "a topic that cannot be", wanted("a/b", 3))
    await more(talk, "good and bad", wanted(nowhere, 3), wanted(other, 3))
    await more(talk, "one twice", wanted(other, 5), wanted(other, 6), wanted(nowhere, 2))
    await more(talk, "nothing")


async def partitions_added_with_assignments(talk: Talk) -> None:
    answer = await talk.call(METADATA, 12, MetadataRequest(topics=[]))
    assert answer is not None
    own = answer.brokers[0].node_id
    for shape, count, assignments in (
        ("as many", 3, [[own], [own]]),
        ("none", 3, []),
        ("too few", 3, [[own]]),
        ("too many", 3, [[own], [own], [own]]),
        ("without brokers", 2, [[]]),
        ("one broker twice", 2, [[own, own]]),
        ("a broker that is not there", 2, [[own + 99]]),
        ("of two sizes", 3, [[own], [own, own + 99]]),
    ):
        await more(talk, shape, wanted(await talk.topic(), count, assignments))


async def delete(talk: Talk, shape: str, *topics: tuple[str, Sequence[tuple[int, int]]], version: int = 2) -> None:
    named = [
        DeleteRecordsTopic(
            name=name, partitions=[DeleteRecordsPartition(partition_index=at, offset=offset) for at, offset in spots]
        )
        for name, spots in topics
    ]
    await talk.ask(shape, DELETE_RECORDS, version, DeleteRecordsRequest(topics=named, timeout_ms=30_000))


async def records_deleted(talk: Talk) -> None:
    topic, nowhere = await talk.filled(4), talk.name("nowhere")
    for version in range(3):
        await delete(talk, f"version {version}", (topic, [(0, version + 1)]), version=version)
    await talk.offsets("the earliest", (topic, [(0, -2)]))
    await talk.offsets("the latest", (topic, [(0, -1)]))
    await talk.fetch("fetched below", (topic, [(0, 2)]))
    await talk.fetch("fetched from the start", (topic, [(0, 3)]))
    await delete(talk, "back", (topic, [(0, 1)]))
    await delete(talk, "the same again", (topic, [(0, 3)]))
    await delete(talk, "zero", (topic, [(1, 0)]))
    await delete(talk, "to the end", (topic, [(1, 10)]))
    await delete(talk, "beyond the end", (topic, [(2, 11)]))
    await delete(talk, "below -1", (topic, [(2, -2)]))
    await delete(talk, "all", (topic, [(2, -1)]))
    await delete(talk, "all again", (topic, [(2, -1)]))
    await talk.offsets("ends of what is empty", (topic, [(2, -2)]))
    await talk.fetch("fetched at the end of what is empty", (topic, [(2, 10)]))
    await talk.store(topic, talk.batch(b"after"), partition=2)
    await talk.fetch("fetched what came after", (topic, [(2, 10)]))
    await delete(talk, "many", (topic, [(3, 2), (9, 2)]), (nowhere, [(0, 1)]))
    await delete(talk, "a partition twice", (topic, [(3, 4), (3, 6)]))
    await delete(talk, "no partitions", (topic, []))
    await delete(talk, "a topic that cannot be", ("a/b", [(0, 1)]))
    await delete(talk, "partition -1", (topic, [(-1, 1)]))
    await delete(talk, "nothing")
    keyed = await talk.topic(cleanup_policy="compact,delete")
    await talk.store(keyed, talk.batch(b"v"))
    await delete(talk, "of a topic that compacts and deletes", (keyed, [(0, 1)]))


SCENES = (partitions_added, partitions_added_with_assignments, records_deleted)
