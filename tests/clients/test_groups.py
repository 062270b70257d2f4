"""Consumers on their defaults: they subscribe, share, come, go and die, and every record is read."""

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, TopicPartition
from confluent_kafka.admin import AdminClient

from .grouped import PATIENCE_S, Member, eventually, fill, make_topic, share

PARTITIONS, EACH = 6, 5
KINDS = ["confluent", "aiokafka", "kafka-python"]


def committed(bootstrap: str, topic: str, group: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        asked = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        return [one.offset for one in consumer.committed(asked, timeout=PATIENCE_S)]
    finally:
        consumer.close()


def read_all(members: list[Member], rounds: int) -> None:
    wanted = {(partition, offset) for partition in range(PARTITIONS) for offset in range(rounds * EACH)}
    eventually(
        f"all of {len(wanted)} records are read",
        lambda: wanted <= {read for member in members for read in member.reads},
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_members_come_go_and_die_and_every_record_is_read(bootstrap: str, name: str, kind: str) -> None:
    """R-172, R-175, R-177, R-190: and whoever takes over goes on where the others were."""
    make_topic(bootstrap, name, PARTITIONS)
    fill(bootstrap, name, PARTITIONS, EACH)
    with Member(kind, bootstrap, name, name) as first:
        share([first], PARTITIONS)
        read_all([first], rounds=1)
        with Member(kind, bootstrap, name, name) as second, Member(kind, bootstrap, name, name) as third:
            share([first, second, third], PARTITIONS)
            fill(bootstrap, name, PARTITIONS, EACH)
            read_all([first, second, third], rounds=2)
            second.leave()
            share([first, third], PARTITIONS)
            third.kill()
            share([first], PARTITIONS)
            fill(bootstrap, name, PARTITIONS, EACH)
            read_all([first, second, third], rounds=3)
            again = [read for member in (first, second, third) for read in member.reads]
            assert len(again) == len(set(again)), "what was committed is not read again"
    assert committed(bootstrap, name, name) == [3 * EACH] * PARTITIONS


@pytest.mark.slow
def test_members_of_two_libraries_share_one_group(bootstrap: str, name: str) -> None:
    """R-173, R-177: they have one protocol in common."""
    make_topic(bootstrap, name, PARTITIONS)
    fill(bootstrap, name, PARTITIONS, EACH)
    members = [Member(kind, bootstrap, name, name) for kind in ("confluent", "kafka-python", "confluent")]
    try:
        share(members, PARTITIONS)
        read_all(members, rounds=1)
    finally:
        for member in members:
            member.kill()


@pytest.mark.slow
def test_an_administrator_sees_a_group_and_deletes_it_when_it_is_empty(bootstrap: str, name: str) -> None:
    """R-178"""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    make_topic(bootstrap, name, PARTITIONS)
    fill(bootstrap, name, PARTITIONS, EACH)
    with Member("confluent", bootstrap, name, name) as member:
        share([member], PARTITIONS)
        read_all([member], rounds=1)
        [found] = admin.describe_consumer_groups([name]).values()
        described = found.result(PATIENCE_S)
        assert described.state is ConsumerGroupState.STABLE
        [told] = described.members
        assert sorted(one.partition for one in told.assignment.topic_partitions) == list(range(PARTITIONS))
        listed = admin.list_consumer_groups().result(PATIENCE_S).valid
        assert [one.group_id for one in listed].count(name) == 1
        [refused] = admin.delete_consumer_groups([name]).values()
        with pytest.raises(Exception, match="NON_EMPTY_GROUP"):
            refused.result(PATIENCE_S)
        member.leave()
    [gone] = admin.delete_consumer_groups([name]).values()
    gone.result(PATIENCE_S)
    listed = admin.list_consumer_groups().result(PATIENCE_S).valid
    assert name not in [one.group_id for one in listed]
