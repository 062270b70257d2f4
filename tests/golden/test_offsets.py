"""OffsetCommit and OffsetFetch without membership."""

import pytest

from dray.servers.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dray.servers.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.golden.asking import OFFSET_COMMIT, OFFSET_FETCH, Asker


async def commit(
    ask: Asker, group: str, name: str, offsets: dict[int, int], *, version: int = 8, **options
) -> list[int]:
    metadata = options.pop("metadata", "m")
    parts = [
        OffsetCommitRequestPartition(partition_index=number, committed_offset=offset, committed_metadata=metadata)
        for number, offset in offsets.items()
    ]
    request = OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=name, partitions=parts)], **options
    )
    [topic] = (await ask.call(OFFSET_COMMIT, version, request)).topics
    return [part.error_code for part in topic.partitions]


async def committed(ask: Asker, group: str, name: str | None, *numbers: int, version: int = 7):
    """(partition, offset, metadata, error) of each, whatever form the version has; a name of None asks for all."""
    if version >= 8:
        wanted = None if name is None else [OffsetFetchRequestTopics(name=name, partition_indexes=numbers)]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=wanted)])
        [answer] = (await ask.call(OFFSET_FETCH, version, request)).groups
    else:
        named = None if name is None else [OffsetFetchRequestTopic(name=name, partition_indexes=numbers)]
        answer = await ask.call(OFFSET_FETCH, version, OffsetFetchRequest(group_id=group, topics=named))
    if version >= 2:
        assert answer.error_code == 0
    return [
        (part.partition_index, part.committed_offset, part.metadata, part.error_code)
        for topic in answer.topics
        for part in topic.partitions
    ]


@pytest.mark.parametrize("version", range(2, 10))
async def test_a_commit_is_read_back_in_every_version(ask: Asker, name: str, version: int) -> None:
    """R-186, R-187."""
    await ask.create(name, 2)
    assert await commit(ask, name, name, {0: 5, 1: 1 << 40}, version=version) == [0, 0]
    for reading in range(1, 10):
        assert await committed(ask, name, name, 0, 1, version=reading) == [(0, 5, "m", 0), (1, 1 << 40, "m", 0)]


@pytest.mark.parametrize("version", range(1, 10))
async def test_an_unknown_group_has_no_offsets_and_no_error(ask: Asker, name: str, version: int) -> None:
    """R-187: the most common trap for clients."""
    await ask.create(name)
    assert await committed(ask, f"nobody-{name}", name, 0, version=version) == [(0, -1, "", 0)]


@pytest.mark.parametrize("version", range(2, 10))
async def test_no_topics_at_all_means_all(ask: Asker, name: str, version: int) -> None:
    """R-187."""
    await ask.create(name, 3)
    await commit(ask, name, name, {0: 1, 2: 3})
    assert sorted(await committed(ask, name, None, version=version)) == [(0, 1, "m", 0), (2, 3, "m", 0)]
    assert await committed(ask, f"nobody-{name}", None, version=version) == []


async def test_two_groups_in_one_request(ask: Asker, name: str) -> None:
    """R-187."""
    await ask.create(name)
    await commit(ask, f"a-{name}", name, {0: 1})
    await commit(ask, f"b-{name}", name, {0: 2})
    groups = [OffsetFetchRequestGroup(group_id=f"{one}-{name}", topics=None) for one in "ab"]
    answer = await ask.call(OFFSET_FETCH, 8, OffsetFetchRequest(groups=groups))
    found = [(one.group_id, one.topics[0].partitions[0].committed_offset) for one in answer.groups]
    assert found == [(f"a-{name}", 1), (f"b-{name}", 2)]


@pytest.mark.parametrize(("version", "code"), [(2, 22), (8, 22), (9, 69)])
async def test_a_generation_of_a_group_that_does_not_exist_is_refused(
    ask: Asker, name: str, version: int, code: int
) -> None:
    """R-185."""
    await ask.create(name)
    options = {"generation_id_or_member_epoch": 3, "member_id": "me"}
    assert await commit(ask, name, name, {0: 5}, version=version, **options) == [code]
    assert await committed(ask, name, name, 0) == [(0, -1, "", 0)]
    assert await commit(ask, name, name, {0: 6}, version=version, member_id="me") == [0]
    assert await commit(ask, name, name, {0: 5}, version=version, **options) == [25]
    assert await committed(ask, name, name, 0) == [(0, 6, "m", 0)]


async def test_metadata_has_a_limit(ask: Asker, name: str) -> None:
    """R-186."""
    await ask.create(name)
    assert await commit(ask, name, name, {0: 5}, metadata="x" * 4096) == [0]
    assert await commit(ask, name, name, {0: 6}, metadata="x" * 4097) == [12]
    assert await commit(ask, name, name, {0: 6}, metadata="é" * 4096) == [0]  # letters, not bytes
    assert await commit(ask, name, name, {0: 6}, metadata="😀" * 2048) == [0]  # two UTF-16 units each, as Java counts
    assert await commit(ask, name, name, {0: 6}, metadata="😀" * 2049) == [12]
    assert await commit(ask, name, name, {0: 7}, metadata=None) == [0]
    assert await committed(ask, name, name, 0) == [(0, 7, "", 0)]


async def test_unknown_partitions_are_refused_one_by_one(ask: Asker, name: str) -> None:
    """R-086."""
    await ask.create(name)
    assert await commit(ask, name, name, {0: 5, 1: 5}) == [0, 3]
    assert await commit(ask, name, "no-such-topic", {0: 5}) == [3]


async def test_offsets_go_with_their_topic(ask: Asker, name: str) -> None:
    """R-188: a topic made again under the name does not inherit them."""
    await ask.create(name)
    await commit(ask, name, name, {0: 5})
    await ask.delete(name)
    assert await committed(ask, name, name, 0) == [(0, -1, "", 0)]
    await ask.create(name)
    assert await committed(ask, name, name, 0) == [(0, -1, "", 0)]
    assert await committed(ask, name, None) == []
