"""Topics as Metadata describes them, kept as bytes.

Clients ask for all topics again and again, and topics hardly change: what a
version says of a topic to the clients of a zone is encoded once, and again
after the topic or the set of brokers has changed.

Invariants
    SV1  A kept description is what would be encoded now: it is used only for
         the very topic it was made of, with as many visible partitions, and
         the very view.
"""

from dataclasses import dataclass
from typing import Final

from dray.machine.names import TopicId
from dray.machine.topics import Topic
from dray.routing.service import Routing
from dray.routing.view import RoutingView
from dray.servers.kafka.messages.metadata import (
    MetadataResponsePartition,
    MetadataResponseTopic,
    write_metadata_response_topic,
)

LIMIT_BYTES: Final = 32 << 20
"""All of it is forgotten above this, deleted topics with it."""
_ENTRY_BYTES: Final = 300
"""What a description takes besides its bytes."""


@dataclass(frozen=True, slots=True)
class _Kept:
    topic: Topic
    visible: int
    encoded: bytes


class Descriptions:
    """The descriptions of one broker."""

    def __init__(self, routing: Routing, limit_bytes: int = LIMIT_BYTES) -> None:
        self._routing = routing
        self._limit_bytes = limit_bytes
        self._change = 0
        self._kept: dict[tuple[TopicId, int, int], _Kept] = {}
        self.size = 0

    def of(self, topic: Topic, version: int, view: RoutingView) -> bytes:
        """The topic, encoded as an element of a Metadata response of this version."""
        if view.change > self._change:  # nobody asks for the older ones any more
            self._forget()
            self._change = view.change
        found = self._kept.get((topic.id, version, view.number))
        if found is not None and found.topic is topic and found.visible == topic.visible:  # SV1
            return found.encoded
        encoded = write_metadata_response_topic(version, describe(topic, self._routing, view))
        self._keep((topic.id, version, view.number), _Kept(topic, topic.visible, encoded))
        return encoded

    def _keep(self, key: tuple[TopicId, int, int], new: _Kept) -> None:
        old = self._kept.pop(key, None)
        if old is not None:
            self.size -= _ENTRY_BYTES + len(old.encoded)
        if self.size > self._limit_bytes:
            self._forget()
        self._kept[key] = new
        self.size += _ENTRY_BYTES + len(new.encoded)

    def _forget(self) -> None:
        self._kept.clear()
        self.size = 0


def describe(topic: Topic, routing: Routing, view: RoutingView) -> MetadataResponseTopic:
    """What clients are told of a topic that exists."""
    partitions = []
    for partition, stream in enumerate(topic.streams[: topic.visible]):
        leader = view.leader(stream)
        partitions.append(
            MetadataResponsePartition(
                partition_index=partition,
                leader_id=leader,
                leader_epoch=routing.epoch(stream),
                replica_nodes=(leader,),
                isr_nodes=(leader,),
            )
        )
    return MetadataResponseTopic(name=topic.name, topic_id=topic.id, partitions=partitions)
