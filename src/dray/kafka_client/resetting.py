"""Where the offsets of a group are to go: a place that somebody named, for each of its partitions."""

from collections.abc import Sequence
from dataclasses import dataclass

from dray.errors import NotFound
from dray.kafka_client.cluster import Cluster, TopicPartition
from dray.kafka_client.errors import TopicNotThere
from dray.kafka_client.groups import GroupView
from dray.kafka_client.places import Shifted, WantedPlace, find, what_they_hold


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What becomes of one partition."""

    place: TopicPartition
    before: int | None
    after: int


async def plan_moves(cluster: Cluster, view: GroupView, target: WantedPlace, topics: Sequence[str]) -> list[Move]:
    """Where each partition would go: of the topics that are named, or of all that the group has committed.

    Raises:
        NotFound: a topic does not exist, or there is nothing to move.
    """
    before = {lag.place: lag.committed for lag in view.lags if lag.committed is not None}
    there = await cluster.partitions(topics or {place.topic for place in before})
    if missing := sorted(set(topics) - there.keys()):
        raise TopicNotThere("there is no such topic", topic=missing[0])
    if topics:
        places = [TopicPartition(topic, number) for topic in sorted(there) for number in there[topic]]
    else:
        places = sorted(place for place in before if place.partition in there.get(place.topic, ()))
    if isinstance(target, Shifted):
        places = [place for place in places if place in before]
    if not places:
        raise NotFound("the group has no offsets to move: name a topic", group=view.group)
    after = await find(cluster, await what_they_hold(cluster, places), target, before)
    return [Move(place=place, before=before.get(place), after=after[place]) for place in places]
