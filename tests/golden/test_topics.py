"""CreateTopics and DeleteTopics."""

import asyncio

import pytest

from dray.servers.kafka.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from dray.servers.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.golden.asking import CREATE_TOPICS, DELETE_TOPICS, Asker, batch, records_in


async def create(ask: Asker, *topics: CreatableTopic, version: int = 7, validate_only: bool = False):
    request = CreateTopicsRequest(topics=topics, validate_only=validate_only)
    return (await ask.call(CREATE_TOPICS, version, request)).topics


def wanted(name: str, partitions: int = 1, factor: int = 1, **configs: str) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


@pytest.mark.parametrize("version", range(2, 8))
async def test_a_topic_is_there_with_all_its_partitions_when_it_is_answered(
    ask: Asker, name: str, version: int
) -> None:
    """R-191."""
    [made] = await create(ask, wanted(name, 5, 3), version=version)
    assert made.error_code == 0
    [found] = (await ask.metadata(name)).topics
    assert len(found.partitions) == 5
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (5, 3)
        assert {config.config_source for config in made.configs} <= {1, 5}
    if version >= 7:
        assert made.topic_id == found.topic_id


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ({"name": "a/b"}, 17),
        ({"name": ""}, 17),
        ({"name": "."}, 17),
        ({"name": "x" * 250}, 17),
        ({"partitions": 0}, 37),
        ({"partitions": -2}, 37),
        ({"factor": 0}, 38),
        ({"factor": -2}, 38),
        ({"no_such_config": "1"}, 40),
        ({"retention_ms": "soon"}, 40),
        ({"compression_gzip_level": "0"}, 40),
        ({"retention_ms": "-2"}, 40),
        ({"cleanup_policy": "burn"}, 40),
        ({"compression_zstd_level": "99"}, 40),
        ({"max_message_bytes": "-1"}, 40),
    ],
    ids=str,
)
@pytest.mark.parametrize("validate_only", [False, True])
async def test_what_cannot_be_made_is_refused_with_its_own_code(
    ask: Asker, name: str, topic: dict[str, str], code: int, validate_only: bool
) -> None:
    """R-191, R-195."""
    [answer] = await create(ask, wanted(**{"name": name, **topic}), validate_only=validate_only)
    assert (answer.error_code, bool(answer.error_message)) == (code, True)
    assert (await ask.metadata(name)).topics[0].error_code == 3


async def test_keys_that_tools_send_are_taken(ask: Asker, name: str) -> None:
    """R-195."""
    configs = {"retention_ms": "1000", "retention_bytes": "-1", "min_insync_replicas": "2"}
    configs |= {"cleanup_policy": "compact,delete"}
    [made] = await create(ask, wanted(name, **configs))
    kept = {one.name: one.value for one in made.configs if one.config_source == 1}
    assert kept == {key.replace("_", "."): value for key, value in configs.items()}


async def test_defaults_twice_existing_and_validate_only(ask: Asker, name: str) -> None:
    """R-191."""
    [checked] = await create(ask, wanted(name), validate_only=True)
    assert checked.error_code == 0
    assert (await ask.metadata(name)).topics[0].error_code == 3
    [made] = await create(ask, wanted(name, -1, -1))
    assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 1, 1)
    assert [one.error_code for one in await create(ask, wanted(name))] == [36]
    assert [one.error_code for one in await create(ask, wanted(name), validate_only=True)] == [36]
    twice = await create(ask, wanted(f"{name}-x"), wanted(f"{name}-x"), wanted(f"{name}-y"))
    assert {(one.name, one.error_code) for one in twice} == {(f"{name}-x", 42), (f"{name}-y", 0)}


async def test_manual_assignments_are_counted(ask: Asker, name: str) -> None:
    def assigned(name: str, *numbers: int, partitions: int = -1, brokers: tuple[int, ...] = (0,)) -> CreatableTopic:
        places = [CreatableReplicaAssignment(partition_index=number, broker_ids=brokers) for number in numbers]
        return CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1, assignments=places)

    answers = await create(
        ask, assigned(f"{name}-a", 0, 1), assigned(f"{name}-b", 0, 2), assigned(f"{name}-c", 0, partitions=1)
    )
    assert [one.error_code for one in answers] == [0, 39, 42]
    odd = await create(ask, assigned(f"{name}-d", 0, brokers=()), assigned(f"{name}-e", 0, brokers=(0, 0)))
    assert [one.error_code for one in odd] == [39, 39]
    assert len((await ask.metadata(f"{name}-a")).topics[0].partitions) == 2


async def test_one_of_many_that_want_the_same_name_gets_it(ask: Asker, dray, name: str) -> None:
    """R-191."""

    async def one() -> int:
        async with Asker(dray.bootstrap) as other:
            return (await create(other, wanted(name, 3)))[0].error_code

    codes = await asyncio.gather(*(one() for _ in range(8)))
    assert sorted(codes) == [0, *[36] * 7]


@pytest.mark.parametrize("version", range(1, 7))
async def test_a_deleted_topic_is_gone_and_its_name_is_free(ask: Asker, name: str, version: int) -> None:
    """R-193: records and offsets begin anew."""
    await ask.create(name)
    await ask.produce(name, batch(b"old"))
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)] if version >= 6 else (), topic_names=[name])
    answer = await ask.call(DELETE_TOPICS, version, request)
    assert [one.error_code for one in answer.responses] == [0]
    assert (await ask.metadata(name)).topics[0].error_code == 3
    assert (await ask.produce(name, batch())).error_code == 3
    assert (await ask.fetch(name)).error_code == 3
    assert (await ask.offset_at(name, -1)).error_code == 3
    await ask.create(name)
    assert (await ask.produce(name, batch(b"new"))).base_offset == 0
    assert b"old" not in records_in(await ask.fetch(name))


async def test_delete_by_id_and_what_cannot_be_deleted(ask: Asker, name: str) -> None:
    """R-193."""
    made = await ask.create(name)
    topics = [
        DeleteTopicState(topic_id=made.topic_id),
        DeleteTopicState(name="no-such-topic"),
        DeleteTopicState(topic_id=bytes(range(16))),
        DeleteTopicState(),
    ]
    answer = await ask.call(DELETE_TOPICS, 6, DeleteTopicsRequest(topics=topics))
    assert sorted(one.error_code for one in answer.responses) == [0, 3, 42, 100]
    assert [one.name for one in answer.responses if not one.error_code] == [name]
    assert all(one.error_message for one in answer.responses if one.error_code)


async def test_a_topic_that_is_named_twice_is_not_deleted(ask: Asker, name: str) -> None:
    """As by Kafka: nobody can know what such a request means."""
    made = await ask.create(name)
    by_name, by_id = DeleteTopicState(name=name), DeleteTopicState(name=None, topic_id=made.topic_id)
    for topics in ([by_name, by_name], [by_id, by_id], [by_name, by_id]):
        [answer] = (await ask.call(DELETE_TOPICS, 6, DeleteTopicsRequest(topics=topics))).responses
        assert answer.error_code == 42
        assert (await ask.metadata(name)).topics[0].error_code == 0
