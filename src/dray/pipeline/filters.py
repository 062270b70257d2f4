"""Filters that the index can judge, so that what they leave out is not read.

All of them are given back to Spark, which filters again: pruning is coarse
(whole batches), and being wrong here may cost time, never a record (SP2).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from dray.pipeline.plan import Span

T = TypeVar("T")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning:
    """What a record must be like; None says nothing."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    start: int = 0
    end: int = 2**63 - 1
    since_ms: int | None = None

    def apply(self, span: Span) -> Span | None:
        """The part of a span that can hold such records."""
        if self.topics is not None and span.topic not in self.topics:
            return None
        if self.partitions is not None and span.stream.partition not in self.partitions:
            return None
        start, end = max(span.start, self.start), min(span.end, self.end)
        return replace(span, start=start, end=end, since_ms=self.since_ms) if start < end else None


def pruning_of(filters: Iterable[Filter]) -> Pruning:
    """All filters together: each only makes the rest smaller."""
    pruning = Pruning()
    for found in filters:
        pruning = _narrow(pruning, found)
    return pruning


def _narrow(pruning: Pruning, found: Filter) -> Pruning:
    match found:
        case EqualTo(attribute=("topic",), value=str(name)):
            return replace(pruning, topics=_both(pruning.topics, [name]))
        case In(attribute=("topic",), value=names):
            return replace(pruning, topics=_both(pruning.topics, [name for name in names if isinstance(name, str)]))
        case EqualTo(attribute=("partition",), value=int(number)):
            return replace(pruning, partitions=_both(pruning.partitions, [number]))
        case In(attribute=("partition",), value=numbers):
            chosen = [number for number in numbers if isinstance(number, int)]
            return replace(pruning, partitions=_both(pruning.partitions, chosen))
        case (
            EqualTo(attribute=("timestamp",), value=datetime() as when)
            | GreaterThan(attribute=("timestamp",), value=datetime() as when)
            | GreaterThanOrEqual(attribute=("timestamp",), value=datetime() as when)
        ) if when.tzinfo is not None:
            since = (when - _EPOCH) // timedelta(milliseconds=1)
            return replace(pruning, since_ms=since if pruning.since_ms is None else max(since, pruning.since_ms))
        case _:
            return _narrow_offsets(pruning, found)


def _narrow_offsets(pruning: Pruning, found: Filter) -> Pruning:
    match found:
        case EqualTo(attribute=("offset",), value=int(offset)):
            return _between(pruning, offset, offset + 1)
        case GreaterThan(attribute=("offset",), value=int(offset)):
            return _between(pruning, offset + 1, pruning.end)
        case GreaterThanOrEqual(attribute=("offset",), value=int(offset)):
            return _between(pruning, offset, pruning.end)
        case LessThan(attribute=("offset",), value=int(offset)):
            return _between(pruning, pruning.start, offset)
        case LessThanOrEqual(attribute=("offset",), value=int(offset)):
            return _between(pruning, pruning.start, offset + 1)
        case _:
            return pruning


def _between(pruning: Pruning, start: int, end: int) -> Pruning:
    return replace(pruning, start=max(pruning.start, start), end=min(pruning.end, end))


def _both(known: frozenset[T] | None, given: Iterable[T]) -> frozenset[T]:
    chosen = frozenset(given)
    return chosen if known is None else known & chosen
