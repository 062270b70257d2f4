"""What one group holds of one partition: in memory, at the broker that hands it out.

    ahead --hand out--> leased --ack--> settled (in the log)
      again <--------------+-- nack, or the lease passes (both counted in the log)

Who hands out is one broker at a time, but for moments in which two believe to
be it: a record may then be handed out twice, and is settled once.

Invariants
    CO4  An offset is leased once at a time, and never while it is settled.
    CO5  Every offset from the group's position on is ahead, leased, due
         again, or settled: none is passed over.
"""

from dataclasses import dataclass, field

from dray.machine.acks import Acks


@dataclass(slots=True)
class Flight:
    """A partition as a group goes through it."""

    cursor: int
    """The first offset that was never handed out."""
    leased: dict[int, int] = field(default_factory=dict)
    """Offsets, and when they may be handed out again, on the boot clock."""
    again: dict[int, int] = field(default_factory=dict)
    """Offsets that failed, and when they are due."""
    busy: bool = False
    """Somebody reads for it."""
    missed: bool = False
    """Somebody else came meanwhile, and wants to know when that is over."""

    def look(self, position: int, acks: Acks) -> None:
        """Take over what the log says of the group."""
        self.cursor = max(self.cursor, position)
        for held in (self.leased, self.again):
            for offset in [one for one in held if one < position or acks.covers(one)]:
                del held[offset]  # CO4, W-23
        settled = sum(max(0, min(end, self.cursor) - start) for start, end in acks.ranges)
        if settled + len(self.leased) + len(self.again) < self.cursor - position:
            # Somebody committed another offset: what was settled is not any more (CO5).
            self.cursor, self.leased, self.again = position, {}, {}

    def expired(self, now_ns: int) -> list[int]:
        """Leases that have passed."""
        return sorted(offset for offset, until_ns in self.leased.items() if until_ns <= now_ns)

    def due(self, now_ns: int) -> list[int]:
        """Offsets that are to be handed out again."""
        return sorted(offset for offset, at_ns in self.again.items() if at_ns <= now_ns)

    def next_ns(self) -> int | None:
        """When something is due that is not yet."""
        return min((*self.leased.values(), *self.again.values()), default=None)

    def lease(self, offset: int, until_ns: int) -> None:
        self.again.pop(offset, None)
        self.leased[offset] = until_ns
        self.cursor = max(self.cursor, offset + 1)  # CO5

    def return_at(self, offset: int, at_ns: int) -> None:
        self.leased.pop(offset, None)
        self.again[offset] = at_ns

    def settle(self, start: int, end: int) -> None:
        """Offsets need not come again."""
        for held in (self.leased, self.again):
            few = range(start, end) if end - start < len(held) else list(held)
            for offset in few:
                if start <= offset < end:
                    held.pop(offset, None)
