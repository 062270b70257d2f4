"""Where partitions begin and end, of brokers that are not ready for each of them."""

import pytest

from dray.kafka_client.cluster import LATEST, Cluster, TopicPartition
from dray.kafka_client.errors import NoLeader, SaidNo
from dray.servers.kafka.codec import Message
from dray.servers.kafka.codes import ErrorCode
from dray.servers.kafka.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from dray.servers.kafka.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic

from .scripted import LIST_OFFSETS, METADATA, Scripted

ENDS = (5, 7)


class Unready:
    """A broker whose partition 1 has no leader until it was asked so often."""

    def __init__(self, refusals: int, code: ErrorCode) -> None:
        self.refusals = refusals
        self.code = code
        self.broker = Scripted(says={LIST_OFFSETS: self.say}, topics={"growing": [(0, end) for end in ENDS]})

    def say(self, request: Message) -> Message:
        rows = []
        for one in request.topics[0].partitions:
            refused = one.partition_index == 1 and self.refusals > 0
            self.refusals -= refused
            rows.append(
                ListOffsetsPartitionResponse(
                    partition_index=one.partition_index, error_code=self.code if refused else 0,
                    offset=-1 if refused else ENDS[one.partition_index],
                )
            )  # fmt: skip
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="growing", partitions=rows)])


async def ends(broker: Scripted) -> dict[TopicPartition, int]:
    async with Cluster([("127.0.0.1", broker.port)]) as cluster:
        await cluster.topics(["growing"])
        return await cluster.offsets_at({TopicPartition("growing", n): LATEST for n in range(2)})


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE])
async def test_a_partition_without_a_leader_is_asked_for_again_and_the_others_are_not(code: ErrorCode):
    unready = Unready(2, code)
    with unready.broker as broker:
        assert await ends(broker) == {TopicPartition("growing", n): end for n, end in enumerate(ENDS)}
    asked = [
        [one.partition_index for one in request.topics[0].partitions]
        for key, _, request in broker.asked
        if key == LIST_OFFSETS
    ]
    assert asked == [[0, 1], [1], [1]]
    assert [key for key, _, _ in broker.asked].count(METADATA) == 4, "who leads it is asked anew each time"


async def test_a_partition_that_nobody_leads_yet_is_asked_for_when_somebody_does():
    """The cluster itself says so."""
    unready = Unready(0, ErrorCode.NONE)
    seen = []

    def say(request: Message) -> Message:
        told = unready.broker._metadata([one.name for one in request.topics])
        seen.append(told)
        if len(seen) > 3 or not told.topics:
            return told
        led, _ = told.topics[0].partitions
        rows = [led, MetadataResponsePartition(partition_index=1, leader_id=-1)]
        return MetadataResponse(brokers=told.brokers, topics=[MetadataResponseTopic(name="growing", partitions=rows)])

    unready.broker.says = {**unready.broker.says, METADATA: say}
    with unready.broker as broker:
        assert await ends(broker) == {TopicPartition("growing", n): end for n, end in enumerate(ENDS)}
    assert len(seen) == 4


@pytest.mark.slow
async def test_a_partition_that_never_gets_a_leader_is_told():
    unready = Unready(1_000, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    with unready.broker as broker, pytest.raises(NoLeader, match="partition=1"):
        await ends(broker)


async def test_what_is_refused_for_good_is_not_asked_for_again():
    unready = Unready(1_000, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with unready.broker as broker, pytest.raises(SaidNo, match="TOPIC_AUTHORIZATION_FAILED"):
        await ends(broker)
    assert [key for key, _, _ in broker.asked].count(LIST_OFFSETS) == 1
