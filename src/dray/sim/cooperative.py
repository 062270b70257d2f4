"""Model members of a classic group that rebalance cooperatively, as KIP-429 does.

A member goes on reading through a rebalance. It says with each join what it
reads, and since which generation; the leader gives what nobody reads, and
leaves out what is to move, so that its reader lets go of it and all join once
more. So nobody reads what another still does, as long as the leader is told
what each member said last: the ledger holds that.
"""

import struct
from typing import Final

from dray.machine.groups.codes import GroupCode, Joined
from dray.machine.groups.names import MemberId
from dray.sim.brokers import Cluster
from dray.sim.ledger import Ledger
from dray.sim.members import ClassicMember, Habits

_SINCE: Final = struct.Struct("<i")


class CooperativeMember(ClassicMember):
    """A member that gives up only what another is to have."""

    protocol = "cooperative-sticky"

    def __init__(self, cluster: Cluster, ledger: Ledger, habits: Habits) -> None:
        super().__init__(cluster, ledger, habits)
        self._joins_again = False

    @property
    def must_join(self) -> bool:
        return self._joins_again or super().must_join

    @property
    def wish(self) -> bytes:
        return _SINCE.pack(self.generation) + bytes(sorted(self.held))

    def refused(self, code: GroupCode) -> None:
        if code is GroupCode.REBALANCING and self.generation >= 0:
            self._joins_again = True
        else:
            super().refused(code)

    async def take(self, generation: int, mine: list[int]) -> None:
        """Let go of what is not its own any more, and join again if there was something."""
        lost = self.held.keys() - set(mine)
        for number in lost:
            del self.held[number]
        self._joins_again = True  # until it knows where to begin
        self.held |= await self.find_offsets([number for number in mine if number not in self.held])
        self.generation = generation
        self._joins_again = bool(lost)

    def share(self, joined: Joined) -> dict[MemberId, list[int]]:
        """Everyone keeps what it reads, up to its part; what nobody reads goes to who has least."""
        said = {
            one.member: (_SINCE.unpack_from(one.metadata)[0], one.metadata[_SINCE.size :]) for one in joined.members
        }
        readers: dict[int, MemberId] = {}
        for member, (_, parts) in sorted(said.items(), key=lambda one: (one[1][0], one[0])):
            readers |= dict.fromkeys(parts, member)  # who reads it since a later generation
        most = -(-self.ledger.partitions // len(said))
        shares: dict[MemberId, list[int]] = {member: [] for member in said}
        for number, member in sorted(readers.items()):
            if len(shares[member]) < most:
                shares[member].append(number)
        for number in range(self.ledger.partitions):
            if number not in readers:
                min(shares.values(), key=len).append(number)
        return shares
