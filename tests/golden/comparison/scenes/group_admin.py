"""DescribeGroups, ListGroups, DeleteGroups and OffsetDelete: groups as an administrator sees them."""

from collections.abc import Sequence

from dray.servers.kafka.messages.delete_groups import DeleteGroupsRequest
from dray.servers.kafka.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from dray.servers.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.golden.comparison.scenes.classic_calls import LEAVE, describe, leaving, settled, stable, subscription
from tests.golden.comparison.scenes.consumer_members import BEAT, joining
from tests.golden.comparison.scenes.groups import commit, look
from tests.golden.comparison.talking import Talk

LIST, DELETE, OFFSET_DELETE = 16, 42, 47


class Kinds:
    """A group of every kind."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self.topic = self.offsets = self.emptied = self.classic = self.connect = self.consumer = ""

    async def make(self, when: str = "") -> None:
        talk = self._talk
        self.topic = await talk.topic(2)
        self.offsets, self.emptied, self.classic, self.connect, self.consumer = [await talk.group() for _ in range(5)]
        await commit(talk, f"offsets{when}", self.offsets, (self.topic, [(0, 1)]))
        await settled(talk, LEAVE, leaving(self.emptied, await stable(talk, self.emptied)))
        await stable(talk, self.classic, metadata=subscription(self.topic))
        await stable(talk, self.connect, protocol_type="connect")
        await talk.settled(BEAT, 1, joining(self.consumer, self.topic))

    @property
    def all(self) -> tuple[str, ...]:
        return self.offsets, self.emptied, self.classic, self.connect, self.consumer


async def describe_groups(talk: Talk) -> None:
    kinds = Kinds(talk)
    await kinds.make()
    nobody = talk.name("nobody")
    for version in (0, 4, 5, 6):
        at = f"in version {version}"
        await describe(talk, f"nobody {at}", nobody, version=version)
        await describe(talk, f"no name {at}", "", version=version)
        await describe(talk, f"one of each kind {at}", *kinds.all, version=version)
        await describe(talk, f"one twice {at}", kinds.classic, kinds.classic, version=version)
        await describe(talk, f"none {at}", version=version)
    await describe(talk, "with authorized operations", kinds.classic, include_authorized_operations=True)


async def list_groups(talk: Talk) -> None:
    kinds = Kinds(talk)
    await kinds.make()
    for version in range(6):
        await _list(talk, f"version {version}", kinds, version=version)
    for state in ("Stable", "stable", "EMPTY", "Dead", "PreparingRebalance", "Assigning", "bogus", ""):
        await _list(talk, f"state {state!r}", kinds, states=[state])
    for kind in ("classic", "Consumer", "share", "bogus", ""):
        await _list(talk, f"type {kind!r}", kinds, types=[kind])
    await _list(talk, "a state and one that is none", kinds, states=["Stable", "bogus"])
    await _list(talk, "a state and a type", kinds, states=["Stable"], types=["consumer"])
    await _list(talk, "a state in version 4", kinds, states=["Empty"], version=4)


async def _list(
    talk: Talk, shape: str, kinds: Kinds, *, version: int = 5, states: Sequence[str] = (), types: Sequence[str] = ()
) -> None:
    """Groups of other scenes are left out."""

    def of_this_scene(answer: ListGroupsResponse) -> ListGroupsResponse:
        groups = [one for one in answer.groups if one.group_id in kinds.all]
        return ListGroupsResponse(error_code=answer.error_code, groups=groups)

    request = ListGroupsRequest(states_filter=states, types_filter=types)
    await talk.ask(shape, LIST, version, request, only=of_this_scene)


async def delete_groups(talk: Talk) -> None:
    for version in range(3):
        kinds, at = Kinds(talk), f"in version {version}"
        await kinds.make(f" {at}")
        await _delete(talk, f"nobody {at}", talk.name("nobody"), version=version)
        await _delete(talk, f"no name {at}", "", version=version)
        await _delete(talk, f"none {at}", version=version)
        await _delete(talk, f"one of each kind {at}", *kinds.all, version=version)
        await _delete(talk, f"again {at}", *kinds.all, version=version)
        await look(talk, f"offsets of a deleted group {at}", kinds.offsets, (kinds.topic, [0]))
        await describe(talk, f"described {at}", *kinds.all)
    await commit(talk, "offsets after it", kinds.offsets, (kinds.topic, [(0, 1)]))
    await _delete(talk, "one twice", kinds.offsets, kinds.offsets)


async def _delete(talk: Talk, shape: str, *groups: str, version: int = 2) -> None:
    await talk.ask(shape, DELETE, version, DeleteGroupsRequest(groups_names=groups))


async def delete_offsets(talk: Talk) -> None:
    kinds = Kinds(talk)
    await kinds.make()
    other, nowhere = await talk.topic(), talk.name("nowhere")
    for shape, group in (
        ("no name", ""),
        ("nobody", talk.name("nobody")),
        ("offsets only", kinds.offsets),
        ("offsets only, again", kinds.offsets),
        ("an empty group", kinds.emptied),
        ("a classic group", kinds.classic),
        ("a group of another type", kinds.connect),
        ("a consumer group", kinds.consumer),
    ):
        await _forget(talk, shape, group, (kinds.topic, [0, 1, 9]), (other, [0]), (nowhere, [0]))
    await look(talk, "what is left", kinds.offsets, (kinds.topic, [0, 1]))
    group = await talk.group()
    await commit(talk, "some offsets", group, (kinds.topic, [(0, 1), (1, 2)]))
    await _forget(talk, "one of two", group, (kinds.topic, [0]))
    await look(talk, "one of two is left", group, (kinds.topic, [0, 1]))
    await _forget(talk, "no topics", group)
    await _forget(talk, "no partitions", group, (kinds.topic, []))
    await _forget(talk, "a partition twice", group, (kinds.topic, [1, 1]))
    await _forget(talk, "the last has gone", group, (kinds.topic, [1]))


async def _forget(talk: Talk, shape: str, group: str, *topics: tuple[str, Sequence[int]]) -> None:
    wanted = [
        OffsetDeleteRequestTopic(
            name=name, partitions=[OffsetDeleteRequestPartition(partition_index=number) for number in numbers]
        )
        for name, numbers in topics
    ]
    await talk.ask(shape, OFFSET_DELETE, 0, OffsetDeleteRequest(group_id=group, topics=wanted))


SCENES = (describe_groups, list_groups, delete_groups, delete_offsets)
