"""How a consumer group stands after each entry, held against how it stood before.

Checked: a target leaves no partition without a member, and gives none to two
(G8, GA1); a topic, which only grows here, never gets smaller (G8); nobody's
epoch moves while it has to let go of something (G7); who begins to wait waits
for what somebody else owns (G6); who is removed because it did not let go had
its whole time for it (GS3).
"""

from typing import Final, NamedTuple

from dray.machine.groups.commands import RemovalRow
from dray.machine.groups.consumer import ConsumerGroup
from dray.machine.groups.masks import first, masks_of
from dray.machine.groups.members import ConsumerMember
from dray.machine.groups.names import MemberId
from dray.machine.groups.reconcile import MemberState
from dray.sim.world import World

_SLACK_S: Final = 0.1


class _Debt(NamedTuple):
    """A member must let go of something."""

    epoch: int
    since: float
    time_s: float
    """How long it may take."""


class Standings:
    """The members of one group that have to let go of something, and the topics that it knows."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._sizes: dict[str, int] = {}
        self._owing: dict[MemberId, _Debt] = {}
        self._waiting: set[tuple[MemberId, int]] = set()
        """Who waits for what others own, since which epoch."""

    def look(self, group: ConsumerGroup, *, alone: bool = True) -> None:
        """After an entry; `alone`: of one command, so that nobody let go of anything behind it."""
        for name, view in group.topics.views.items():
            known = self._sizes.get(name, 0)
            self._world.check(view.partitions >= known, "a view of a topic went back", known=known, now=view.partitions)
            self._sizes[name] = view.partitions
        owing = {}
        for member in group.members.values():
            if member.state is MemberState.UNREVOKED:
                begun = _Debt(member.epoch, self._world.loop.time(), member.rebalance_ms / 1_000)
                owing[member.id] = debt = self._owing.get(member.id, begun)
                self._check_epoch(member, debt.epoch)
        self._owing = owing
        here = [one for one in group.members.values() if one.epoch >= 0]  # who is away begins nothing
        waiting = {one.id: one for one in here if one.state is MemberState.UNRELEASED}
        now = {(one.id, one.epoch) for one in waiting.values()}
        for name, _ in sorted(now - self._waiting) if alone else ():
            self._check_wait(group, waiting[name])
        self._waiting = now

    def _check_wait(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        owned = [
            topic
            for other in group.members.values()
            if other is not member
            for topic, mask in [*masks_of(other.assigned).items(), *masks_of(other.revoking).items()]
            if mask & member.target.get(topic, 0)
        ]
        self._world.check(bool(owned), "a member waits for what nobody else owns", member=member.id)

    def _check_epoch(self, member: ConsumerMember, epoch: int) -> None:
        away = member.epoch < 0
        self._world.check(
            away or member.epoch == epoch, "an epoch moved before its member let go", member=member.id,
            before=epoch, now=member.epoch, revoking=masks_of(member.revoking),
        )  # fmt: skip

    def check_target(self, group: ConsumerGroup) -> None:
        """A target was taken: every partition that somebody wants is somebody's."""
        wanted = {topic for member in group.members.values() for topic in group.subscribed(member)}
        for topic, partitions in group.topics.sizes().items():
            if topic not in wanted:
                continue
            covered = 0
            for member in group.members.values():
                mine = member.target.get(topic, 0)
                self._world.check(not covered & mine, "a target gives a partition twice", member=member.id)
                covered |= mine
            self._world.check(
                covered == first(partitions), "a target leaves partitions out", covered=bin(covered), all=partitions
            )

    def check_unrevoked(self, rows: list[RemovalRow]) -> None:
        """Members were removed because they did not let go."""
        for row in rows:
            debt = self._owing[row.member]
            lasted = self._world.loop.time() - debt.since
            self._world.check(
                lasted >= debt.time_s - _SLACK_S, "a member was removed before it had to let go", member=row.member,
                lasted=round(lasted, 3), time=debt.time_s,
            )  # fmt: skip
