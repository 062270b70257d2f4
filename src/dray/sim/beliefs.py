"""What the members of a consumer group believe: which partitions each may use, and since which epoch.

A member uses what it was told until it lets go of it by itself. The group may
hand a partition on only when its member has said that it let go, or is a
member no more: so among those who are members, no two ever believe to own the
same partition (G6, G7, GS8), whatever was lost, repeated or late.
"""

from collections.abc import Callable, Iterable

from dray.machine.groups.names import MemberId
from dray.sim.world import World


class Beliefs:
    """Who believes to own what, and who was told of which epoch."""

    def __init__(self, world: World, is_member: Callable[[MemberId], bool]) -> None:
        self._world = world
        self._is_member = is_member
        self._owned: dict[MemberId, set[int]] = {}
        self._epochs: dict[MemberId, int] = {}

    def told_epoch(self, member: MemberId, epoch: int) -> None:
        """A member was told its epoch: it never falls (G1)."""
        known = self._epochs.get(member, 0)
        self._world.check(epoch >= known, "a member was told an older epoch", member=member, known=known, told=epoch)
        self._epochs[member] = epoch

    def took(self, member: MemberId, partitions: Iterable[int]) -> None:
        """A member begins to use partitions that it was told."""
        mine = self._owned.setdefault(member, set())
        mine.update(partitions)
        if not self._is_member(member):
            return  # it does not know yet that it was removed
        for other, theirs in self._owned.items():
            both = mine & theirs if other != member else set()
            if both and self._is_member(other):
                raise self._world.violate(
                    "two members own one partition", partitions=sorted(both), first=other, then=member
                )

    def committed(self, member: MemberId, partitions: Iterable[int]) -> None:
        """A commit was taken: it is of nobody but the owner (G9)."""
        for other, theirs in self._owned.items():
            both = theirs.intersection(partitions) if other != member else set()
            if both and self._is_member(other):
                raise self._world.violate(
                    "a commit was taken from a past owner", partitions=sorted(both), owner=other, committer=member
                )

    def let_go(self, member: MemberId, partitions: Iterable[int] | None = None) -> None:
        """It does not use them any more; or nothing at all."""
        if partitions is None:
            self._owned.pop(member, None)
        else:
            self._owned.get(member, set()).difference_update(partitions)
