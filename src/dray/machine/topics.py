"""The catalog: topics, their names and their streams.

    CreateTopic --> creating --TopicReady--> ready --DeleteTopic--> deleting --TopicGone--> (forgotten)

Creating and deleting span domains, so they are sagas that begin and end here:
a topic is invisible until all its streams are open, and its name is free the
moment it is deleted. Whoever finds a saga unfinished goes on with it.

Invariants
    T2  A topic id is never zero and never taken by two topics at once.
    T3  A name belongs to at most one topic that is not deleting.
    T4  Stream ids come from a counter and are never given twice; adding
        partitions changes none that exist.
    T5  A topic is visible with all its partitions or not at all; added
        partitions become visible together, and since version 2 none that
        came after whoever shows them has opened its streams. Where they are
        more than one command may give (since version 2), the topic remembers
        how many it is to have, and whoever goes on with the saga asks for
        the rest.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, ClassVar, Final, Protocol, TypeAlias

import msgspec
from msgspec import Meta

from dray.machine.command import MAX_ROWS, MAX_SIGNED, Command, Configs, Key, Limit, Packed, TopicField
from dray.machine.head import Head
from dray.machine.keys import Shape
from dray.machine.names import (
    MAX_STREAM_COUNTER,
    ZERO_TOPIC,
    ProducerId,
    SessionId,
    StreamId,
    TopicId,
    domain_for,
    domain_of,
    stream_id,
)
from dray.machine.noun import Fields, Listing, stray
from dray.machine.packing import Reader, Writer
from dray.machine.producer_ids import ProducerIds
from dray.machine.step import Step
from dray.machine.timeline import Timeline
from dray.machine.verdict import DONE, Refused, Verdict, Why, refused

MAX_FORMER_NAMES: Final = 100_000
MAX_CONFIGS: Final = 400
TOPIC_KEY: Final = Shape("topics/$")
PARTITION_KEY: Final = Shape("topics/$/partitions/#")
SLICES: Final = 2
"""The version since which a topic may have more partitions than one command gives."""
Total: TypeAlias = Annotated[int, Meta(ge=0, le=1_000_000)]


class CreateTopic(Packed, frozen=True, kw_only=True):
    """Reserve a name, give a topic its streams; invisible until `TopicReady`."""

    number = 9

    topic_id: TopicField
    name: Key
    partitions: Limit
    replication_factor: Annotated[int, Meta(ge=-1, le=(1 << 15) - 1)] = 1
    configs: Configs = msgspec.field(default_factory=dict)
    total: Total = 0
    """How many it is to have, if that is more than `partitions`, which it gets now."""

    fields_since: ClassVar[Mapping[str, int]] = {"total": SLICES}

    def needs(self) -> int:
        return self.partitions


class TopicReady(Packed, frozen=True, kw_only=True):
    """The streams of the topic are open: show it, and any added partitions."""

    number = 10

    topic_id: TopicField
    partitions: Total = 0
    """Those of how many are; others may have added more meanwhile. 0, in version 1: of all that it has by then."""

    fields_since: ClassVar[Mapping[str, int]] = {"partitions": SLICES}


class DeleteTopic(Packed, frozen=True, kw_only=True):
    """Free the name at once; the streams are closed next."""

    number = 11

    topic_id: TopicField


class TopicGone(Packed, frozen=True, kw_only=True):
    """Every stream of a deleted topic is closed: forget it."""

    number = 12

    topic_id: TopicField


class AlterTopic(Packed, frozen=True, kw_only=True):
    """Change configs, add partitions, or both."""

    number = 13

    topic_id: TopicField
    set: Configs = msgspec.field(default_factory=dict)
    remove: Annotated[tuple[Key, ...], Meta(max_length=200)] = ()
    partitions: Annotated[int, Meta(ge=0, le=MAX_ROWS)] = 0
    """The new number of partitions; 0: as it is."""
    expected_revision: Annotated[int, Meta(ge=-1, le=MAX_SIGNED)] = -1
    """Refuse if the topic was altered since this revision; -1: do not ask."""
    total: Total = 0
    """As in `CreateTopic`; 0: as `partitions` says."""

    fields_since: ClassVar[Mapping[str, int]] = {"total": SLICES}

    def needs(self) -> int:
        return max(1, self.partitions)


class GivePartitions(Packed, frozen=True, kw_only=True):
    """Give a topic that is to have more partitions the next ones. A slice: ask again while some are left."""

    number = 112
    since = SLICES

    topic_id: TopicField
    limit: Limit = MAX_ROWS

    def needs(self) -> int:
        return self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCreated(Verdict):
    """The streams to open, by partition, and what `OpenStream` must say about the name."""

    topic_id: TopicId
    streams: tuple[StreamId, ...]
    name_existed_before: bool
    producer_floor: ProducerId


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAltered(Verdict):
    """`added` are the streams of new partitions, to open before `TopicReady`."""

    revision: int
    added: tuple[StreamId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsGiven(Verdict):
    """`left` partitions remain to be given."""

    left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDeleted(Verdict):
    """The streams to close, in their domains."""

    topic_id: TopicId
    streams: tuple[StreamId, ...]


class OpenStreams(Protocol):
    """What the catalog asks about the streams of its own domain."""

    def is_open(self, number: StreamId) -> bool: ...

    def is_known(self, number: StreamId) -> bool:
        """Open, or closed with rows that are left to drop."""
        ...


class OtherNames(Protocol):
    """Who else holds names of the same namespace."""

    def holds_name(self, name: str) -> bool: ...


class TopicState(Enum):
    CREATING = 0
    READY = 1
    DELETING = 2


@dataclass(slots=True, kw_only=True)
class Topic:
    """One topic. Services read it and change nothing."""

    id: TopicId
    name: str
    state: TopicState
    replication_factor: int
    created_ms: int
    changed_ms: int
    """Machine time of the last step of its saga."""
    revision: int
    """Counts alterations."""
    name_existed_before: bool
    producer_floor: ProducerId
    visible: int
    """How many partitions may be shown."""
    streams: list[StreamId] = field(default_factory=list)
    opened_ms: list[int] = field(default_factory=list)
    """Since when each partition exists."""
    configs: dict[str, str] = field(default_factory=dict)
    wanted: int = 0
    """How many partitions it is to have, where that is more than it was given yet."""

    @property
    def lacking(self) -> int:
        """How many partitions are still to be given."""
        return max(0, self.wanted - len(self.streams))

    def unfinished(self) -> bool:
        """Is a saga of it under way?"""
        return self.state is not TopicState.READY or self.visible < len(self.streams) or self.lacking > 0


class Topics:
    """The topics of a cluster, kept in domain 0."""

    name: ClassVar[str] = "topics"
    since: ClassVar[int] = 1
    commands: ClassVar[tuple[type[Command], ...]] = (
        CreateTopic, TopicReady, DeleteTopic, TopicGone, AlterTopic, GivePartitions,
    )  # fmt: skip

    def __init__(self, head: Head, timeline: Timeline, streams: OpenStreams, producer_ids: ProducerIds) -> None:
        self.all: dict[TopicId, Topic] = {}
        self.others: OtherNames | None = None
        self._names: dict[str, TopicId] = {}
        self._former: dict[str, None] = {}
        """Names of deleted topics, oldest deletion first; the oldest are forgotten."""
        self._next_stream = 1
        self._head = head
        self._timeline = timeline
        self._streams = streams
        self._producer_ids = producer_ids

    def named(self, name: str) -> Topic | None:
        """The topic that holds a name, visible or still creating."""
        number = self._names.get(name)
        return None if number is None else self.all[number]

    def find(self, topic_id: TopicId) -> Topic | None:
        return self.all.get(topic_id)

    def has_stream(self, topic_id: TopicId, partition: int, stream: StreamId) -> bool:
        """May the stream be opened for this partition?"""
        topic = self.all.get(topic_id)
        if topic is None or topic.state is TopicState.DELETING:
            return False
        return topic.streams[partition : partition + 1] == [stream]

    def visible(self) -> Iterator[Topic]:
        """The topics that clients may see, by name."""
        for _, number in sorted(self._names.items()):
            topic = self.all[number]
            if topic.state is TopicState.READY:
                yield topic

    def unfinished(self) -> Iterator[Topic]:
        """Topics whose saga somebody must go on with, once it has stood still for long."""
        for _, topic in sorted(self.all.items()):
            if topic.unfinished():
                yield topic

    def apply(self, step: Step, command: Command) -> Verdict:
        if not self._head.is_catalog:
            return refused(Why.FOREIGN, "the catalog is domain 0")
        match command:
            case CreateTopic():
                verdict = self._create(step, command)
            case AlterTopic():
                verdict = self._alter(step, command)
            case GivePartitions():
                verdict = self._give(step, command)
            case TopicReady():
                verdict = self._ready(command)
            case DeleteTopic():
                verdict = self._delete(command)
            case TopicGone():
                verdict = self._gone(command)
            case _:
                return stray(command)
        if not isinstance(verdict, Refused):
            step.catalog_changed = True
        return verdict

    def session_ended(self, step: Step, session: SessionId) -> None:
        """Topics belong to no session."""

    def _create(self, step: Step, command: CreateTopic) -> Verdict:
        if command.topic_id == ZERO_TOPIC:
            return refused(Why.MALFORMED, "a topic id is not zero")  # T2
        known = self.all.get(command.topic_id)
        if known is not None:
            return self._again(known, command)
        if command.name in self._names:
            return refused(Why.EXISTS, "a topic has that name")  # T3
        if self.others is not None and self.others.holds_name(command.name):
            return refused(Why.EXISTS, "a heap has that name")  # HP1
        if not self._room_for(max(command.partitions, command.total)):
            return refused(Why.LIMIT, "no stream ids are left")
        now = self._timeline.time_ms
        existed = command.name in self._former
        topic = Topic(
            id=command.topic_id, name=command.name, state=TopicState.CREATING,
            replication_factor=command.replication_factor, created_ms=now, changed_ms=now, revision=0,
            name_existed_before=existed, visible=0,
            producer_floor=self._producer_ids.next if existed else ProducerId(0),
            configs=dict(sorted(command.configs.items())), wanted=command.total,
        )  # fmt: skip
        self.all[topic.id] = topic
        self._names[topic.name] = topic.id
        self._give_streams(step, topic, command.partitions)
        return _created(topic)

    def _again(self, topic: Topic, command: CreateTopic) -> Verdict:
        """The same creation once more is answered like the first."""
        if topic.name != command.name or topic.state is TopicState.DELETING:
            return refused(Why.EXISTS, "a topic has that id")  # T2
        return _created(topic)

    def holds_name(self, name: str) -> bool:
        return name in self._names

    def give_stream(self, step: Step, domain: int) -> StreamId | None:
        """The next id of the counter, for whoever else needs one (T4); None: none is left."""
        if not self._room_for(1):
            return None
        number = stream_id(self._next_stream, domain)
        self._next_stream += 1
        step.given.append(number)
        return number

    def _room_for(self, partitions: int) -> bool:
        return self._next_stream + partitions <= MAX_STREAM_COUNTER

    def _give_streams(self, step: Step, topic: Topic, upto: int) -> tuple[StreamId, ...]:
        added = []
        for partition in range(len(topic.streams), upto):
            added.append(stream_id(self._next_stream, domain_for(topic.id, partition, self._head.domains)))
            self._next_stream += 1  # T4
        topic.streams.extend(added)
        topic.opened_ms.extend([self._timeline.time_ms] * len(added))
        step.given.extend(added)
        return tuple(added)

    def _ready(self, command: TopicReady) -> Verdict:
        topic = self.all.get(command.topic_id)
        if topic is None:
            return refused(Why.NOT_FOUND, "no such topic")
        if topic.state is TopicState.DELETING:
            return refused(Why.STATE, "the topic is being deleted")
        opened = command.partitions or len(topic.streams)
        own = [number for number in topic.streams[:opened] if domain_of(number) == self._head.domain]
        if topic.lacking or opened > len(topic.streams) or not all(map(self._streams.is_known, own)):
            return refused(Why.STATE, "a stream of the topic is not open")  # T5
        topic.state = TopicState.READY
        topic.visible = max(topic.visible, opened)  # T5
        topic.changed_ms = self._timeline.time_ms
        return DONE

    def _delete(self, command: DeleteTopic) -> Verdict:
        topic = self.all.get(command.topic_id)
        if topic is None:
            return refused(Why.NOT_FOUND, "no such topic")
        if topic.state is not TopicState.DELETING:
            topic.state = TopicState.DELETING
            topic.changed_ms = self._timeline.time_ms
            del self._names[topic.name]  # T3
            self._former.pop(topic.name, None)
            self._former[topic.name] = None
            if len(self._former) > MAX_FORMER_NAMES:
                del self._former[next(iter(self._former))]
        return TopicDeleted(topic_id=topic.id, streams=tuple(topic.streams))

    def _gone(self, command: TopicGone) -> Verdict:
        topic = self.all.get(command.topic_id)
        if topic is None:
            return DONE
        if topic.state is not TopicState.DELETING:
            return refused(Why.STATE, "the topic was not deleted")
        if any(map(self._streams.is_open, topic.streams)):
            return refused(Why.STATE, "a stream of the topic is open")
        del self.all[topic.id]
        return DONE

    def _alter(self, step: Step, command: AlterTopic) -> Verdict:
        topic = self.all.get(command.topic_id)
        if topic is None or topic.state is TopicState.DELETING:
            return refused(Why.NOT_FOUND, "no such topic")
        if command.expected_revision not in (-1, topic.revision):
            return refused(Why.STALE, "the topic was altered meanwhile")
        if 0 < command.partitions < len(topic.streams) or 0 < command.total < len(topic.streams):
            return refused(Why.STATE, "partitions are never taken away")
        configs = {key: value for key, value in topic.configs.items() if key not in command.remove} | command.set
        if len(configs) > MAX_CONFIGS or not self._room_for(max(command.partitions, command.total)):
            return refused(Why.LIMIT, "too many configs, or no stream ids are left")
        topic.wanted = max(topic.wanted, command.total)
        topic.configs = dict(sorted(configs.items()))
        topic.revision += 1
        topic.changed_ms = self._timeline.time_ms
        return TopicAltered(revision=topic.revision, added=self._give_streams(step, topic, command.partitions))

    def _give(self, step: Step, command: GivePartitions) -> Verdict:
        topic = self.all.get(command.topic_id)
        if topic is None or topic.state is TopicState.DELETING:
            return refused(Why.NOT_FOUND, "no such topic")
        self._give_streams(step, topic, len(topic.streams) + min(command.limit, topic.lacking))
        topic.changed_ms = self._timeline.time_ms
        return PartitionsGiven(left=topic.lacking)

    def dump(self, out: Writer, version: int) -> None:
        out.values([self._head.domains, self._next_stream, len(self.all), len(self._former)])
        for name in self._former:
            out.values([name])
        for _, topic in sorted(self.all.items()):
            out.values([
                topic.id, topic.name, topic.state.value, topic.replication_factor, topic.created_ms, topic.changed_ms,
                topic.revision, int(topic.name_existed_before), topic.producer_floor, topic.visible,
                topic.streams, topic.opened_ms, list(topic.configs), list(topic.configs.values()),
                *([topic.wanted] if version >= SLICES else []),
            ])  # fmt: skip

    def load(self, source: Reader, version: int) -> None:
        _, self._next_stream, topics, former = source.ints(4)
        for _ in range(former):
            self._former[source.row().text()] = None
        for _ in range(topics):
            row = source.row()
            topic = Topic(
                id=TopicId(row.raw()), name=row.text(), state=TopicState(row.number()),
                replication_factor=row.number(), created_ms=row.number(), changed_ms=row.number(),
                revision=row.number(), name_existed_before=bool(row.number()),
                producer_floor=ProducerId(row.number()), visible=row.number(),
                streams=[StreamId(number) for number in row.numbers()], opened_ms=row.numbers(),
                configs=dict(zip(row.texts(), row.texts(), strict=True)),
                wanted=row.number() if version >= SLICES else 0,
            )  # fmt: skip
            self.all[topic.id] = topic
            if topic.state is not TopicState.DELETING:
                self._names[topic.name] = topic.id

    def show(self, prefix: str) -> Listing:
        found = []
        for topic in self.all.values():
            if topic.state is TopicState.DELETING:
                continue  # its name may be another's by now
            found.append((TOPIC_KEY.build(topic.name), _fields(topic)))
            for partition in range(len(topic.streams)):
                key = PARTITION_KEY.build(topic.name, partition)
                found.append((key, _partition_fields(topic, partition)))
        yield from sorted(found, key=lambda item: item[0])


def _fields(topic: Topic) -> Fields:
    return {
        "topicId": topic.id.hex(), "partitionCount": len(topic.streams), "replicationFactor": topic.replication_factor,
        "createdAt": topic.created_ms, "revision": topic.revision, "state": topic.state.name,
        "config": dict(topic.configs),
    }  # fmt: skip


def _partition_fields(topic: Topic, partition: int) -> Fields:
    return {
        "streamId": topic.streams[partition], "state": "READY" if partition < topic.visible else "CREATING",
        "createdAt": topic.opened_ms[partition],
        "configOverrides": {},
    }  # fmt: skip


def _created(topic: Topic) -> TopicCreated:
    return TopicCreated(
        topic_id=topic.id, streams=tuple(topic.streams),
        name_existed_before=topic.name_existed_before, producer_floor=topic.producer_floor,
    )  # fmt: skip
