"""Metadata and FindCoordinator: whom to ask about what."""

import pytest

from dray.servers.kafka.messages.find_coordinator import FindCoordinatorRequest
from dray.servers.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.golden.asking import FIND_COORDINATOR, METADATA, Asker

NOWHERE = bytes(range(16))


@pytest.mark.parametrize("version", range(14))
async def test_all_none_and_one_topic_in_every_version(ask: Asker, name: str, version: int) -> None:
    await ask.create(name, 3)
    everything = MetadataRequest(topics=None if version else (), allow_auto_topic_creation=False)
    assert name in {topic.name for topic in (await ask.call(METADATA, version, everything)).topics}
    if version:
        nothing = await ask.call(METADATA, version, MetadataRequest(topics=()))
        assert nothing.brokers
        assert not nothing.topics
    answer = await ask.metadata(name, name, version=version)
    [topic] = answer.topics
    assert (topic.error_code, [part.partition_index for part in topic.partitions]) == (0, [0, 1, 2])
    brokers = {one.node_id for one in answer.brokers}
    assert {part.leader_id for part in topic.partitions} <= brokers
    if version >= 1:
        assert answer.controller_id in brokers
    if version >= 2:
        assert answer.cluster_id
    if version >= 10:
        assert topic.topic_id != bytes(16)


async def test_unknown_topics_are_told_apart_from_names_that_cannot_be(ask: Asker, name: str) -> None:
    bad = "x" * 250
    answer = await ask.metadata(name, "a/b", "..", "", bad, create=True)
    codes = {topic.name: topic.error_code for topic in answer.topics}
    assert codes == {name: 3, "a/b": 17, "..": 17, "": 17, bad: 17}
    assert not [topic for topic in answer.topics if topic.partitions or topic.topic_id != bytes(16)]


async def test_topics_are_found_by_id_from_version_12_on(ask: Asker, name: str) -> None:
    made = await ask.create(name)
    found = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=made.topic_id)])
    [topic] = (await ask.call(METADATA, 12, found)).topics
    assert (topic.error_code, topic.name) == (0, name)
    unknown = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=NOWHERE)])
    [topic] = (await ask.call(METADATA, 12, unknown)).topics
    assert (topic.error_code, topic.name, topic.topic_id) == (100, None, NOWHERE)
    early = MetadataRequest(topics=[MetadataRequestTopic(name="", topic_id=made.topic_id)])
    [topic] = (await ask.call(METADATA, 10, early)).topics
    assert topic.error_code == 42


async def test_a_topic_made_again_has_another_id(ask: Asker, name: str) -> None:
    """R-193."""
    first = await ask.create(name)
    assert await ask.delete(name) == 0
    second = await ask.create(name)
    assert first.topic_id != second.topic_id


@pytest.mark.parametrize("version", range(7))
async def test_the_coordinator_of_a_group_is_a_broker_and_nothing_else_has_one(ask: Asker, version: int) -> None:
    """E-1: transactions are refused with what the clients of the version do not retry."""
    brokers = {(one.node_id, one.host, one.port) for one in (await ask.metadata()).brokers}

    async def find(key_type: int):
        request = FindCoordinatorRequest(key="g", coordinator_keys=["g"], key_type=key_type)
        answer = await ask.call(FIND_COORDINATOR, version, request)
        return answer.coordinators[0] if version >= 4 else answer

    group = await find(0)
    assert (group.error_code, (group.node_id, group.host, group.port) in brokers) == (0, True)
    for other in (1, 2) if version else ():
        refused = await find(other)
        code = 53 if other == 1 and version < 4 else 42
        assert (refused.error_code, refused.node_id, refused.host, refused.port) == (code, -1, "", -1)
        assert "there are no transactions" in refused.error_message
