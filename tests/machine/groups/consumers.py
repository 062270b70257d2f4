"""A consumer group on a tape, with brokers that live and die and clients that remember what they were told."""

from dataclasses import dataclass, field

from dray.groups.assignors import Subscriber, assign_range
from dray.machine.groups.beats import Beat, Beaten, OwnedRow, SetTarget, SetTopics, TargetPart, TargetRow, TopicRow
from dray.machine.groups.commands import Removal, RemovalRow, RemoveMembers
from dray.machine.groups.consumer import ConsumerGroup
from dray.machine.groups.masks import Masks, pack, partitions_of, to_bytes
from dray.machine.names import TopicId
from dray.machine.verdict import Verdict

from ..scribe import Tape, Writer

GROUP = "orders"
IDS = {name: TopicId(name.encode() * 16) for name in "abc"}
SIZES = {"a": 4, "b": 3, "c": 1}


def views(names=IDS, sizes=SIZES) -> tuple[TopicRow, ...]:
    return tuple(TopicRow(name=name, topic_id=IDS[name], partitions=sizes[name]) for name in names)


def owned_rows(masks: Masks | None) -> tuple[OwnedRow, ...] | None:
    if masks is None:
        return None
    return tuple(OwnedRow(topic_id=topic, mask=to_bytes(mask)) for topic, mask in masks.items())


def target_rows(target: dict[str, Masks]) -> tuple[TargetRow, ...]:
    return tuple(
        TargetRow(
            member=member,
            parts=tuple(
                TargetPart(topic_id=topic, partitions=pack(partitions_of(mask))) for topic, mask in mine.items()
            ),
        )
        for member, mine in target.items()
    )


@dataclass
class Client:
    """A member as its own process knows it."""

    id: str
    instance: str | None = None
    epoch: int = 0
    owned: Masks = field(default_factory=dict)


class Scene:
    """One group and three brokers."""

    def __init__(self) -> None:
        self.tape = Tape(version=2)
        self.machine = self.tape.machine
        self.brokers = [self.tape.open(f"b{number}") for number in range(3)]

    @property
    def group(self) -> ConsumerGroup:
        found = self.machine.groups.consumer(GROUP)
        assert found is not None
        return found

    def restart(self, index: int) -> Writer:
        """The broker dies and comes back: its session ends."""
        self.brokers[index] = self.tape.open(f"b{index}", owner=True)
        return self.brokers[index]

    def beat(
        self, client: Client, epoch: int | None = None, owned: Masks | None = None, at: int = 0, **more
    ) -> Verdict:
        command = Beat(
            group=GROUP, member=client.id, instance=client.instance, epoch=client.epoch if epoch is None else epoch,
            owned=owned_rows(owned), **more,
        )  # fmt: skip
        verdict = self.brokers[at].do(command)
        if isinstance(verdict, Beaten):
            client.epoch = verdict.epoch
            if verdict.sent:
                client.owned = dict(verdict.assigned)
        return verdict

    def join(self, client: Client, names=("a",), at: int = 0, **more) -> Verdict:
        return self.beat(
            client, 0, {}, at, names=tuple(names), rebalance_ms=60_000, topics=views(names),
            catalog=self.machine.position, **more,
        )  # fmt: skip

    def retarget(self, at: int = 0, epoch: int | None = None) -> Verdict:
        """What whoever keeps the group does, in one slice."""
        group = self.group
        members = [
            Subscriber(id=member.id, instance=member.instance, topics=frozenset(group.subscribed(member)))
            for member in group.members.values()
        ]
        target = assign_range(members, group.topics.sizes())
        command = SetTarget(
            group=GROUP, epoch=group.epoch if epoch is None else epoch, slice=0, last=True, rows=target_rows(target)
        )  # fmt: skip
        return self.brokers[at].do(command)

    def settle(self, *clients: Client) -> None:
        """Let everybody beat until nothing changes."""
        for _ in range(6):
            if self.group.is_behind:
                self.retarget()
            for client in clients:
                self.beat(client, owned=client.owned)

    def leave(self, client: Client, reason: Removal = Removal.LEFT, at: int = 0, seen: int = -1) -> Verdict:
        row = RemovalRow(member=client.id, instance=client.instance, seen=seen)
        return self.brokers[at].do(RemoveMembers(group=GROUP, reason=reason, rows=(row,)))

    def expire(
        self, client: Client, home: int, at: int = 0, reason: Removal = Removal.EXPIRED, seen: int = -1
    ) -> Verdict:  # fmt: skip
        row = RemovalRow(member=client.id, home=home, since=client.epoch, seen=seen)
        return self.brokers[at].do(RemoveMembers(group=GROUP, reason=reason, rows=(row,)))

    def see(self, *rows: TopicRow, catalog: int | None = None, **more) -> Verdict:
        position = self.machine.position if catalog is None else catalog
        return self.brokers[0].do(SetTopics(group=GROUP, catalog=position, topics=rows, **more))
