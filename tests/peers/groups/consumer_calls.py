"""The same random calls of members of a consumer group to Kafka and to Dray, and what each answers.

Kafka computes a target inside the call that needs one. Dray does it beside,
so here its rules are made to have the target at once: what is compared is what
members are told, call by call. All members ask for `range`, which is the same
in both; topic ids differ, so topics are compared by name.
"""

import asyncio
import random
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from dray.groups.assignors import assign_range
from dray.groups.targets import subscribers
from dray.machine.groups.consumer import ConsumerGroup
from dray.machine.groups.group import Moment
from dray.servers.kafka.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from dray.servers.kafka.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from dray.servers.kafka.messages.find_coordinator import FindCoordinatorRequest
from dray.servers.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dray.servers.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.golden.asking import FIND_COORDINATOR, OFFSET_COMMIT, OFFSET_FETCH, Asker

HEARTBEAT, DESCRIBE = 68, 69
SIZES = {"a": 5, "b": 3, "c": 1}
CALLS = 30
"""In one group."""
NOT_READY = (14, 15, 16)
KINDS = {
    "beat": 8, "null": 4, "partial": 2, "super": 1, "join": 3, "sub": 3, "leave": 1, "stay": 2, "stale": 2, "high": 1,
    "full": 2, "commit": 8, "fetch": 3, "odd": 1,
}  # fmt: skip

Owned = dict[str, tuple[int, ...]]


@contextmanager
def targets_at_once() -> Iterator[None]:
    """Let Dray's groups have a target as soon as they need one, as Kafka's do."""
    original = ConsumerGroup._advance_epoch

    def advance(self: ConsumerGroup, moment: Moment) -> None:
        original(self, moment)
        target = assign_range(subscribers(self), self.topics.sizes())
        for member in self.members.values():
            member.target = target[member.id]
        self.assignment_epoch = self.epoch

    ConsumerGroup._advance_epoch = advance
    try:
        yield
    finally:
        ConsumerGroup._advance_epoch = original


class Side:
    """One of the two servers."""

    def __init__(self, asker: Asker) -> None:
        self.asker = asker
        self.ids: dict[str, bytes] = {}
        self.names: dict[bytes, str] = {}

    async def begin(self) -> None:
        for name, partitions in SIZES.items():
            await self.asker.create(name, partitions)
        for _ in range(200):
            found = await self.asker.metadata(*SIZES)
            if all(not topic.error_code and len(topic.partitions) == SIZES[topic.name] for topic in found.topics):
                break
            await asyncio.sleep(0.1)
        self.ids = {topic.name: topic.topic_id for topic in found.topics}
        self.names = {topic: name for name, topic in self.ids.items()}
        for _ in range(300):  # who asks for a coordinator makes Kafka get one
            await self.asker.call(FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=["warm"]))
            told = await self.beat("warm", {"member": "m", "epoch": 5})
            if told[0] not in NOT_READY:
                return
            await asyncio.sleep(0.2)
        raise AssertionError(f"no coordinator: {told}")

    async def beat(self, group: str, call: dict) -> tuple:
        owned = call.get("owned")
        request = ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=call["member"], member_epoch=call["epoch"], instance_id=call.get("instance"),
            subscribed_topic_names=call.get("names"), rebalance_timeout_ms=call.get("rebalance", -1),
            server_assignor=call.get("assignor"), rack_id=call.get("rack"),
            topic_partitions=None if owned is None else [
                TopicPartitions(topic_id=self.ids[name], partitions=parts) for name, parts in owned.items() if parts
            ],
        )  # fmt: skip
        told = await self.asker.call(HEARTBEAT, 1, request)
        if told.error_code:
            return (told.error_code,)
        return 0, told.member_epoch, told.heartbeat_interval_ms, self._named(told.assignment)

    def _named(self, assignment) -> Owned | None:
        if assignment is None:
            return None
        return {
            self.names[row.topic_id]: tuple(sorted(row.partitions))
            for row in sorted(assignment.topic_partitions, key=lambda row: self.names[row.topic_id])
            if row.partitions
        }

    async def commit(self, group: str, call: dict) -> tuple:
        topic, partition = call["partition"]
        request = OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=call["epoch"], member_id=call["member"],
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[
                OffsetCommitRequestPartition(partition_index=partition, committed_offset=1, committed_metadata="")
            ])],
        )  # fmt: skip
        told = await self.asker.call(OFFSET_COMMIT, 9, request)
        return (told.topics[0].partitions[0].error_code,)

    async def fetch(self, group: str, call: dict) -> tuple:
        topics = [OffsetFetchRequestTopics(name="a", partition_indexes=[0])]
        asked = OffsetFetchRequestGroup(
            group_id=group, member_id=call["member"], member_epoch=call["epoch"], topics=topics
        )
        told = (await self.asker.call(OFFSET_FETCH, 9, OffsetFetchRequest(groups=[asked]))).groups[0]
        offsets = [one.committed_offset for topic in told.topics for one in topic.partitions]
        return (told.error_code, *offsets)

    async def describe(self, group: str) -> tuple:
        request = ConsumerGroupDescribeRequest(group_ids=[group])
        [told] = (await self.asker.call(DESCRIBE, 1, request)).groups
        members = {
            one.member_id: (
                one.instance_id, one.member_epoch, sorted(one.subscribed_topic_names), one.member_type,
                one.client_host.partition(":")[0], self._named(one.assignment), self._named(one.target_assignment),
            )
            for one in told.members
        }  # fmt: skip
        return told.error_code, told.group_state, told.group_epoch, told.assignment_epoch, told.assignor_name, members


@dataclass
class Member:
    """A member as its process knows it."""

    id: str
    instance: str | None = None
    epoch: int = 0
    owned: Owned = field(default_factory=dict)


class Game:
    """One group on both sides."""

    def __init__(self, seed: int, kafka: Side, dray: Side) -> None:
        self.seed = seed
        self.dice = random.Random(seed)
        self.sides = kafka, dray
        self.group = f"g{seed}-{uuid.UUID(int=self.dice.getrandbits(128)).hex[:6]}"
        self.members = [Member(self._new_id(), f"i{number}" if number >= 2 else None) for number in range(4)]
        self.trail: list[str] = []
        self.counts: Counter[str] = Counter()

    def _new_id(self) -> str:
        return str(uuid.UUID(int=self.dice.getrandbits(128)))

    async def play(self) -> str | None:
        """What differed, with the calls that led there; none if nothing did."""
        for _ in range(CALLS):
            difference = await self.call()
            if difference is not None:
                return difference
        kafka, dray = [await side.describe(self.group) for side in self.sides]
        if kafka[1] == "Assigning":
            return None  # it computes its target with the next heartbeat
        return self.judged("describe", {}, kafka, dray)

    async def call(self) -> str | None:
        member = self.dice.choice(self.members)
        kind = self.dice.choices(list(KINDS), list(KINDS.values()))[0]
        if kind in ("commit", "fetch"):
            return await self.offsets(kind, member)
        if member.epoch == 0 and kind not in ("leave", "stay", "odd"):
            kind = "join"
        if kind == "stay" and member.instance is None:
            kind = "leave"
        if kind == "join" and member.epoch > 0 and member.instance is not None:
            kind = "beat"  # meant difference: Dray takes a repeated join of a static member, Kafka does not (111)
        call = {"member": member.id, "instance": member.instance, "epoch": member.epoch, **self.said(kind, member)}
        kafka, dray = [await side.beat(self.group, call) for side in self.sides]
        self.remember(kind, member, dray)
        return self.judged(kind, call, kafka, dray)

    def said(self, kind: str, member: Member) -> dict:
        """What a call of this kind has besides its member."""
        names = sorted(self.dice.sample(sorted(SIZES), self.dice.randint(1, 3)))
        everything = {name: tuple(range(size)) for name, size in SIZES.items()}
        part = {name: tuple(one for one in held if self.dice.random() < 0.5) for name, held in member.owned.items()}
        join = {"epoch": 0, "owned": {}, "rebalance": 60_000, "names": names, "assignor": "range"}
        odd = [
            {"epoch": -3}, {"instance": "", "epoch": 1}, {"rack": "", "epoch": 1}, {"epoch": 1, "instance": "nobody"},
            {"epoch": -2, "instance": None}, {"member": "", "epoch": 0}, {"member": "", "epoch": 1},
            join | {"rebalance": -1}, join | {"names": None}, join | {"owned": {"a": (0,)}}, join | {"assignor": "no"},
            join | {"instance": "i2", "member": self._new_id()},
        ]  # fmt: skip
        return {
            "beat": {"owned": member.owned},
            "null": {},
            "partial": {"owned": part},
            "super": {"owned": everything},
            "join": join,
            "sub": {"names": names, "owned": self.dice.choice([None, member.owned])},
            "full": {"names": names, "owned": member.owned, "rebalance": 60_000},
            "leave": {"epoch": -1},
            "stay": {"epoch": -2},
            "stale": {"epoch": max(1, member.epoch - self.dice.choice([1, 1, 2])), "owned": member.owned},
            "high": {"epoch": member.epoch + 1},
            "odd": self.dice.choice(odd),
        }[kind]

    def remember(self, kind: str, member: Member, told: tuple) -> None:
        if kind == "odd":
            return
        if told[0]:
            if told[0] in (25, 110) and member.instance is None:
                member.epoch, member.owned = 0, {}
        elif kind in ("leave", "stay"):
            member.epoch, member.owned = 0, {}
            if kind == "stay":
                member.id = self._new_id()  # it comes back as another process
        else:
            member.epoch = told[1]
            member.owned = member.owned if told[3] is None else told[3]

    async def offsets(self, kind: str, member: Member) -> str | None:
        topic = self.dice.choice(sorted(SIZES))
        call = {
            "member": self.dice.choice([member.id] * 8 + ["", "stranger"]),
            "epoch": max(-1, member.epoch - self.dice.choice([0, 0, 0, 1, 2, -1])),
            "partition": (topic, self.dice.randrange(SIZES[topic])),
        }
        if kind == "fetch" and self.dice.random() < 0.2:
            call |= {"member": None, "epoch": -1}
        kafka, dray = [await getattr(side, kind)(self.group, call) for side in self.sides]
        return self.judged(kind, call, kafka, dray)

    def judged(self, kind: str, call: dict, kafka: tuple, dray: tuple) -> str | None:
        self.counts[f"{kind} {dray[0]}"] += 1
        self.trail.append(f"{kind} {call} kafka={kafka} dray={dray}")
        if kafka == dray:
            return None
        return f"seed={self.seed}\n" + "\n".join(self.trail[-8:])
