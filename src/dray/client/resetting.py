"""Where the offsets of a group are to go: a place that somebody named, made into numbers."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias

from dray.client.cluster import EARLIEST, LATEST, Cluster, TopicPartition
from dray.client.groups import GroupView
from dray.errors import Invalid, NotFound

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
    """So many records from where the group is."""

    by: int


ResetTarget: TypeAlias = AtTime | AtOffset | Shifted


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What becomes of one partition."""

    place: TopicPartition
    before: int | None
    after: int


def parse_target(text: str) -> ResetTarget:
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


async def plan_moves(cluster: Cluster, view: GroupView, target: ResetTarget, topics: Sequence[str]) -> list[Move]:
    """Where each partition would go: of the topics that are named, or of all that the group has committed.

    What lies outside a partition is moved to its nearer end.

    Raises:
        NotFound: a topic does not exist, or there is nothing to move.
    """
    before = {lag.place: lag.committed for lag in view.lags if lag.committed is not None}
    there = await cluster.partitions(topics or {place.topic for place in before})
    if missing := sorted(set(topics) - there.keys()):
        raise NotFound("there is no such topic", topic=missing[0])
    if topics:
        places = [TopicPartition(topic, number) for topic in sorted(there) for number in there[topic]]
    else:
        places = sorted(place for place in before if place.partition in there.get(place.topic, ()))
    if isinstance(target, Shifted):
        places = [place for place in places if place in before]
    if not places:
        raise NotFound("the group has no offsets to move: name a topic", group=view.group)
    starts = await cluster.offsets_at(dict.fromkeys(places, EARLIEST))
    ends = await cluster.offsets_at(dict.fromkeys(places, LATEST))
    match target:
        case AtTime(time_ms=time_ms):
            found = await cluster.offsets_at(dict.fromkeys(places, time_ms))
            wanted = {place: ends[place] if offset < 0 else offset for place, offset in found.items()}
        case AtOffset(offset=offset):
            wanted = dict.fromkeys(places, offset)
        case Shifted(by=by):
            wanted = {place: before[place] + by for place in places}
    return [
        Move(place=place, before=before.get(place), after=min(max(wanted[place], starts[place]), ends[place]))
        for place in places
    ]
