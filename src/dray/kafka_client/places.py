"""A place in partitions, as somebody writes it, made into offsets."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias

from dray.errors import Invalid
from dray.kafka_client.cluster import EARLIEST, LATEST, Cluster, TopicPartition

_OFFSET: Final = re.compile(r":([0-9]{1,18})")
_MILLIS: Final = re.compile(r"@([0-9]{1,15})")
_SHIFT: Final = re.compile(r"([+-][0-9]{1,18})")
FORMS: Final = "earliest, latest, :OFFSET, @TIME (milliseconds or 2026-11-17T08:00:00Z), +N or -N"


class BadTarget(Invalid):
    """No place in a partition is written like this."""

    advice = f"write one of: {FORMS}"


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record that is not older; EARLIEST and LATEST are times too, as Kafka counts."""

    time_ms: int


@dataclass(frozen=True, slots=True)
class AtOffset:
    offset: int


@dataclass(frozen=True, slots=True)
class Shifted:
    """So many records from where somebody is."""

    by: int


WantedPlace: TypeAlias = AtTime | AtOffset | Shifted


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """What a partition holds: offsets from `start` on, before `end`."""

    start: int
    end: int


def parse_target(text: str) -> WantedPlace:
    """What was asked for.

    Raises:
        BadTarget: nothing of what there is.
    """
    if text in ("earliest", "latest"):
        return AtTime(EARLIEST if text == "earliest" else LATEST)
    if offset := _OFFSET.fullmatch(text):
        return AtOffset(int(offset[1]))
    if shift := _SHIFT.fullmatch(text):
        return Shifted(int(shift[1]))
    if millis := _MILLIS.fullmatch(text):
        return AtTime(int(millis[1]))
    if text.startswith("@"):
        try:
            moment = datetime.fromisoformat(text[1:])
        except ValueError as error:
            raise BadTarget("this is no time", target=text) from error
        # Without a zone it is UTC: a plan must not depend on the machine it was made on.
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return AtTime(max(0, int(moment.timestamp() * 1000)))
    raise BadTarget("this is no place in a partition", target=text)


async def what_they_hold(
    cluster: Cluster, places: Iterable[TopicPartition], *, committed: bool = False
) -> dict[TopicPartition, Extent]:
    """The ends of partitions; `committed`: only what no open transaction may take back."""
    wanted = list(places)
    starts = await cluster.offsets_at(dict.fromkeys(wanted, EARLIEST))
    ends = await cluster.offsets_at(dict.fromkeys(wanted, LATEST), committed=committed)
    return {place: Extent(start=starts[place], end=ends[place]) for place in wanted}


async def find(
    cluster: Cluster,
    held: Mapping[TopicPartition, Extent],
    target: WantedPlace,
    here: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, int]:
    """The offset of a place in each partition; what lies outside a partition is moved to its nearer end.

    A shift counts from `here`; where nobody is anywhere, +N counts from the start and -N from the end.
    """
    match target:
        case AtTime(time_ms=time_ms):
            found = await cluster.offsets_at(dict.fromkeys(held, time_ms))
            wanted = {place: held[place].end if offset < 0 else offset for place, offset in found.items()}
        case AtOffset(offset=offset):
            wanted = dict.fromkeys(held, offset)
        case Shifted(by=by):
            ends = {place: one.end if by < 0 else one.start for place, one in held.items()}
            wanted = {place: offset + by for place, offset in (ends if here is None else here).items()}
    return {place: min(max(wanted[place], one.start), one.end) for place, one in held.items()}
