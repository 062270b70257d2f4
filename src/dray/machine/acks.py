"""Acknowledged offsets: a floor, and what is settled above it.

Consumers that settle record by record finish out of order. All offsets below
`next` are settled; above it lie the ranges that are, and the offsets that
failed, with how often. `next` is the committed offset that Kafka tools see.

Invariants
    AO1  An offset that was acknowledged stays so until its group commits
         another offset, or its row expires; acknowledging it again changes
         nothing (W-22, W-26, W-27).
    AO2  `next` passes no offset that is neither acknowledged nor below the
         log start.
    AO3  At most `MAX_RANGES` ranges and as many failed offsets are kept; what
         would need more is refused whole.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Final, TypeAlias

from msgspec import Meta

from dray.machine.command import Count, Packed, Partition, TopicField
from dray.machine.verdict import Verdict

MAX_RANGES: Final = 1_000
MAX_ATTEMPTS: Final = (1 << 31) - 1
RANGE_BYTES: Final = 140
FAILED_BYTES: Final = 110
"""What one takes in memory, about."""

Span: TypeAlias = tuple[int, int]
"""[start, end)"""


class AckOffsets(Packed, frozen=True, kw_only=True):
    """Offsets of a partition are settled for a group, or failed once more."""

    number = 100
    since: ClassVar[int] = 2

    group: Annotated[str, Meta(max_length=32_767)]
    topic_id: TopicField
    partition: Partition
    start: Count
    """The log start as the writer saw it: nothing below it can be asked for any more."""
    ranges: Annotated[tuple[tuple[Count, Count], ...], Meta(max_length=MAX_RANGES)] = ()
    failed: Annotated[tuple[Count, ...], Meta(max_length=MAX_RANGES)] = ()

    def needs(self) -> int:
        return max(1, len(self.ranges) + len(self.failed))


@dataclass(frozen=True, slots=True, kw_only=True)
class Acked(Verdict):
    """All below `next` is settled; how often each offset that was named as failed has done so, 0: it is settled."""

    next: int
    grew: bool
    attempts: tuple[int, ...] = ()


@dataclass(slots=True, kw_only=True)
class Acks:
    """What is known above the committed offset of one partition."""

    ranges: list[Span] = field(default_factory=list)
    """Sorted, apart from each other, all above the committed offset."""
    failed: dict[int, int] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return RANGE_BYTES * len(self.ranges) + FAILED_BYTES * len(self.failed)

    def covers(self, offset: int) -> bool:
        at = bisect_right(self.ranges, (offset, 1 << 63)) - 1
        return at >= 0 and offset < self.ranges[at][1]

    def covers_all(self, span: Span) -> bool:
        """Is the whole range settled?"""
        at = bisect_right(self.ranges, (span[0], 1 << 63)) - 1
        return at >= 0 and span[1] <= self.ranges[at][1]


def merge(floor: int, known: Iterable[Span], added: Iterable[Span]) -> tuple[int, list[Span]]:
    """The offset below which all is settled, and the ranges above it (AO2)."""
    merged: list[Span] = []
    for start, end in sorted((*known, *added)):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    kept = []
    for start, end in merged:
        if start <= floor:
            floor = max(floor, end)
        else:
            kept.append((start, end))
    return floor, kept


def count_failed(acks: Acks, floor: int, offsets: Iterable[int]) -> tuple[dict[int, int], tuple[int, ...]]:
    """The counts with these offsets failed once more, and theirs; what is settled does not fail."""
    counts = dict(acks.failed)
    attempts = []
    for offset in offsets:
        if offset < floor or acks.covers(offset):
            attempts.append(0)
            continue
        counts[offset] = min(MAX_ATTEMPTS, counts.get(offset, 0) + 1)
        attempts.append(counts[offset])
    return counts, tuple(attempts)


def without_settled(acks: Acks, floor: int, counts: Mapping[int, int]) -> dict[int, int]:
    """The counts of what is not settled."""
    return {offset: count for offset, count in counts.items() if offset >= floor and not acks.covers(offset)}
