"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: members of consumer groups, and their offsets."""

from collections.abc import Sequence

from dray.servers.kafka.codec import Message
from dray.servers.kafka.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from dray.servers.kafka.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from dray.servers.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.golden.asking import OFFSET_FETCH
from tests.golden.comparison.scenes import classic_calls as classic
from tests.golden.comparison.scenes.groups import commit
from tests.golden.comparison.talking import Talk

BEAT, DESCRIBE = 68, 69
_LEAVES, _GOES_AWAY = -1, -2


def beating(group: str, member: str = "m", epoch: int = 0, **fields) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **fields)


def joining(group: str, *topics: str, member: str = "m", **fields) -> ConsumerGroupHeartbeatRequest:
    """Everybody asks for `range`, which is the same in both."""
    given = {
        "rebalance_timeout_ms": 60_000, "topic_partitions": [], "subscribed_topic_names": topics,
        "server_assignor": "range",
    } | fields  # fmt: skip
    return beating(group, member, **given)


def owning(talk: Talk, topic: str, partitions: Sequence[int]) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id=talk.ids[topic], partitions=partitions)] if partitions else []


async def beat(talk: Talk, shape: str, message: ConsumerGroupHeartbeatRequest, version: int = 1) -> Message:
    answer = await talk.ask(shape, BEAT, version, message)
    assert answer is not None
    return answer


async def describe(talk: Talk, shape: str, *groups: str, version: int = 1, **fields) -> None:
    await talk.ask(shape, DESCRIBE, version, ConsumerGroupDescribeRequest(group_ids=groups, **fields))


async def consumer_members_in_every_version(talk: Talk) -> None:
    topic = await talk.topic(3)
    for version in (0, 1):
        group, at = await talk.group(), f"in version {version}"
        joined = await beat(talk, f"join {at}", joining(group, topic, member="m" if version else ""), version)
        member, epoch, owned = joined.member_id, joined.member_epoch, owning(talk, topic, [0, 1, 2])
        await beat(talk, f"heartbeat {at}", beating(group, member, epoch), version)
        await beat(talk, f"heartbeat with what it owns {at}", beating(group, member, epoch, topic_partitions=owned), 1)
        full = joining(group, topic, member=member, epoch=epoch, topic_partitions=owned)
        await beat(talk, f"a whole heartbeat {at}", full, version)
        await describe(talk, f"described {at}", group, version=version)
        await beat(talk, f"leave {at}", beating(group, member, _LEAVES), version)
        await describe(talk, f"described when it has left {at}", group, version=version)


async def consumer_heartbeats_that_make_no_sense(talk: Talk) -> None:
    group, topic = await talk.group(), await talk.topic()
    for version in (0, 1):
        at = f"in version {version}"
        for shape, message in (
            ("no group", joining("", topic)),
            ("an empty instance", joining(group, topic, instance_id="")),
            ("an empty rack", joining(group, topic, rack_id="")),
            ("nobody goes on", beating(group, "", 1)),
            ("nobody leaves", beating(group, "", _LEAVES)),
            ("a join without a timeout", joining(group, topic, rebalance_timeout_ms=-1)),
            ("a join that owns", joining(group, topic, topic_partitions=owning(talk, topic, [0]))),
            ("a join that says nothing of what it owns", joining(group, topic, topic_partitions=None)),
            ("a join without topics", joining(group, subscribed_topic_names=None)),
            ("an epoch of -2 without an instance", beating(group, "m", _GOES_AWAY)),
            ("an epoch of -3", beating(group, "m", -3)),
            ("an unknown assignor", joining(group, topic, server_assignor="nobody's")),
            ("an empty assignor", joining(group, topic, server_assignor="")),
        ):
            await beat(talk, f"{shape} {at}", message, version)
    await beat(talk, "a join of nobody in version 1", joining(group, topic, member=""))
    await beat(talk, "a pattern that is none", joining(group, subscribed_topic_names=None, subscribed_topic_regex="("))


async def consumer_heartbeats_refused(talk: Talk) -> None:
    topic = await talk.topic(2)
    for version in (0, 1):
        group, at = await talk.group(), f"in version {version}"
        await beat(talk, f"no such group {at}", beating(group, "m", 1), version)
        await beat(talk, f"leave of no such group {at}", beating(group, "m", _LEAVES), version)
        await talk.settled(BEAT, 1, joining(group, topic))
        for shape, message in (
            ("a stranger", beating(group, "stranger", 2)),
            ("a stranger leaves", beating(group, "stranger", _LEAVES)),
            ("an older epoch", beating(group, "m", 1)),
            ("an older epoch that owns all", beating(group, "m", 1, topic_partitions=owning(talk, topic, [0, 1]))),
            ("a later epoch", beating(group, "m", 3)),
            ("an instance that nobody has", beating(group, "m", 2, instance_id="nobody's")),
            ("a join again", joining(group, topic)),
        ):
            await beat(talk, f"{shape} {at}", message, version)


async def consumer_members_that_share(talk: Talk) -> None:
    """One has all, another comes: what is let go, and when it is given on."""
    group, topic = await talk.group(), await talk.topic(4)
    await beat(talk, "the first joins", joining(group, topic, member="a"))
    await describe(talk, "described alone", group)
    await beat(talk, "the second joins", joining(group, topic, member="b"))
    await describe(talk, "described when the second has joined", group)
    everything, half = owning(talk, topic, [0, 1, 2, 3]), owning(talk, topic, [0, 1])
    await beat(talk, "a third finds no room", joining(group, topic, member="c"))
    await beat(talk, "the first is to let go", beating(group, "a", 2, topic_partitions=everything))
    await describe(talk, "described while the first lets go", group)
    await beat(talk, "the second waits", beating(group, "b", 3, topic_partitions=[]))
    await beat(talk, "the first has not let go", beating(group, "a", 2, topic_partitions=everything))
    await beat(talk, "the first has let go", beating(group, "a", 2, topic_partitions=half))
    await beat(talk, "the first in its older epoch", beating(group, "a", 2, topic_partitions=half))
    await beat(talk, "the second is given the rest", beating(group, "b", 3, topic_partitions=[]))
    await beat(talk, "the second has the rest", beating(group, "b", 3, topic_partitions=owning(talk, topic, [2, 3])))
    await describe(talk, "described when they share", group)
    await beat(talk, "the first leaves", beating(group, "a", _LEAVES))
    await talk.until(
        "the second is given all", BEAT, 1, beating(group, "b", 3, topic_partitions=owning(talk, topic, [2, 3])),
        lambda it: it.error_code != 0 or it.member_epoch == 4,
    )  # fmt: skip
    await describe(talk, "described when the first has left", group)


async def consumer_members_with_instances(talk: Talk) -> None:
    group, topic = await talk.group(), await talk.topic(2)
    static = {"instance_id": "instance"}
    await beat(talk, "join", joining(group, topic, member="a", **static))
    await beat(talk, "heartbeat", beating(group, "a", 2, **static))
    await beat(talk, "heartbeat without the instance", beating(group, "a", 2))
    await beat(talk, "another with the instance joins", joining(group, topic, member="b", **static))
    await beat(talk, "another with the instance goes on", beating(group, "b", 2, **static))
    await beat(talk, "another with the instance leaves", beating(group, "b", _LEAVES, **static))
    await beat(talk, "the same joins again", joining(group, topic, member="a", **static))
    await beat(talk, "goes away", beating(group, "a", _GOES_AWAY, **static))
    await describe(talk, "described while it is away", group)
    await beat(talk, "goes on as if it had not been away", beating(group, "a", 2, **static))
    await beat(talk, "comes back as another", joining(group, topic, member="b", **static))
    await beat(talk, "the one before goes on", beating(group, "a", 2, **static))
    await describe(talk, "described when it is back", group)
    await beat(talk, "leaves for good", beating(group, "b", _LEAVES, **static))
    await describe(talk, "described when it has left", group)


async def consumer_members_by_a_pattern(talk: Talk) -> None:
    """Who matches is found out beside; both are asked until they know."""
    group, topic = await talk.group(), await talk.topic(2)
    pattern = {"subscribed_topic_names": None, "subscribed_topic_regex": topic.replace("-topic-", "-[tT]opic-")}
    await talk.until(
        "is given what it matches", BEAT, 1, joining(group, **pattern),
        lambda it: it.error_code != 0 or bool(it.assignment.topic_partitions),
    )  # fmt: skip


async def consumer_offsets(talk: Talk) -> None:
    group, topic = await talk.group(), await talk.topic(2)
    await talk.settled(BEAT, 1, joining(group, topic))
    for version in (2, 8, 9):
        for shape, member, epoch in (
            ("its epoch", "m", 2),
            ("an older epoch", "m", 1),
            ("a later epoch", "m", 3),
            ("no epoch", "m", -1),
            ("a stranger", "stranger", 2),
            ("nobody", "", -1),
        ):
            who = {"member_id": member, "generation_id_or_member_epoch": epoch}
            await commit(
                talk, f"commit by {shape} in version {version}", group, (topic, [(0, 1)]), version=version, **who
            )
    for shape, member, epoch in (
        ("its epoch", "m", 2),
        ("an older epoch", "m", 1),
        ("a later epoch", "m", 3),
        ("no epoch", "m", -1),
        ("a stranger", "stranger", 2),
        ("the empty id", "", -1),
        ("nobody", None, -1),
    ):
        await talk.ask(f"fetch by {shape}", OFFSET_FETCH, 9, _looking(group, topic, member, epoch))
    await talk.settled(BEAT, 1, beating(group, "m", _LEAVES))
    await commit(
        talk, "commit when it has left", group, (topic, [(0, 1)]), member_id="m", generation_id_or_member_epoch=2
    )
    await commit(talk, "commit by nobody when it has left", group, (topic, [(0, 7)]))
    await talk.ask("fetch when it has left", OFFSET_FETCH, 9, _looking(group, topic, "m", 2))
    await talk.ask("fetch by nobody when it has left", OFFSET_FETCH, 9, _looking(group, topic, None, -1))


def _looking(group: str, topic: str, member: str | None, epoch: int) -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, member_id=member, member_epoch=epoch, topics=topics)]
    )


async def consumer_groups_described(talk: Talk) -> None:
    offsets, old, new, topic = await talk.group(), await talk.group(), await talk.group(), await talk.topic()
    await commit(talk, "offsets", offsets, (topic, [(0, 1)]))
    await classic.stable(talk, old)
    await talk.settled(BEAT, 1, joining(new, topic))
    for version in (0, 1):
        at = f"in version {version}"
        await describe(talk, f"no name {at}", "", version=version)
        await describe(talk, f"nobody {at}", talk.name("nobody"), version=version)
        await describe(talk, f"offsets only {at}", offsets, version=version)
        await describe(talk, f"a classic group {at}", old, version=version)
        await describe(talk, f"several {at}", new, old, new, version=version)
        await describe(talk, f"none {at}", version=version)
        await describe(talk, f"authorized operations {at}", new, version=version, include_authorized_operations=True)


async def groups_of_the_other_protocol(talk: Talk) -> None:
    """Members of one keep the group from the other; an empty group changes."""
    old, new, topic = await talk.group(), await talk.group(), await talk.topic()
    member = await classic.stable(talk, old)
    await talk.settled(BEAT, 1, joining(new, topic))
    await beat(talk, "a new member to a classic group", joining(old, topic))
    await beat(talk, "a new member goes on in a classic group", beating(old, "m", 1))
    for version in (0, 5, 9):
        await classic.tell(talk, f"classic join in version {version}", classic.JOIN, classic.joining(new), version)
    for shape, key, message in (
        ("classic join with the id", classic.JOIN, classic.joining(new, "m")),
        ("classic sync with the id", classic.SYNC, classic.syncing(new, "m", 2)),
        ("classic heartbeat with the id", classic.HEARTBEAT, classic.beating(new, "m", 2)),
        ("classic leave of a stranger", classic.LEAVE, classic.leaving(new, "stranger")),
        ("classic leave with the id", classic.LEAVE, classic.leaving(new, "m")),
        ("the classic member leaves", classic.LEAVE, classic.leaving(old, member)),
    ):
        await classic.tell(talk, shape, key, message)
    await classic.describe(talk, "the empty new group as a classic one", new)
    await describe(talk, "the empty classic group as a new one", old)
    await beat(talk, "a new member to the empty classic group", joining(old, topic))
    await classic.tell(talk, "a classic member to the empty new group", classic.JOIN, classic.joining(new))
    await classic.stable(talk, new)
    await classic.describe(talk, "the new group as a classic one", new)
    await describe(talk, "the classic group as a new one", old)


SCENES = (
    consumer_members_in_every_version,
    consumer_heartbeats_that_make_no_sense,
    consumer_heartbeats_refused,
    consumer_members_that_share,
    consumer_members_with_instances,
    consumer_members_by_a_pattern,
    consumer_offsets,
    consumer_groups_described,
    groups_of_the_other_protocol,
)
