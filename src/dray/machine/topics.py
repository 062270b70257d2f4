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
        partitions become visible together.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

from dray.machine.commands import AlterTopic, CreateTopic, DeleteTopic, TopicGone, TopicReady
from dray.machine.names import (
    MAX_STREAM_COUNTER,
    ZERO_TOPIC,
    ProducerId,
    StreamId,
    TopicId,
    domain_for,
    stream_id,
)
from dray.machine.packing import Reader, Writer
from dray.machine.step import Step
from dray.machine.timeline import Timeline
from dray.machine.verdicts import DONE, Refused, TopicAltered, TopicCreated, TopicDeleted, Verdict, Why, refused

MAX_FORMER_NAMES: Final = 100_000
MAX_CONFIGS: Final = 400

TopicCommand: TypeAlias = CreateTopic | TopicReady | DeleteTopic | TopicGone | AlterTopic


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

    def unfinished(self) -> bool:
        """Is a saga of it under way?"""
        return self.state is not TopicState.READY or self.visible < len(self.streams)


class Topics:
    """The topics of a cluster, kept in domain 0."""

    def __init__(self, timeline: Timeline) -> None:
        self.domains = 1
        self.all: dict[TopicId, Topic] = {}
        self._names: dict[str, TopicId] = {}
        self._former: dict[str, None] = {}
        """Names of deleted topics, oldest deletion first; the oldest are forgotten."""
        self._next_stream = 1
        self._timeline = timeline

    def named(self, name: str) -> Topic | None:
        """The topic that holds a name, visible or still creating."""
        number = self._names.get(name)
        return None if number is None else self.all[number]

    def find(self, topic_id: TopicId) -> Topic | None:
        return self.all.get(topic_id)

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

    def apply(self, step: Step, command: TopicCommand, next_producer: ProducerId) -> Verdict:
        match command:
            case CreateTopic():
                verdict = self._create(step, command, next_producer)
            case AlterTopic():
                verdict = self._alter(step, command)
            case TopicReady():
                verdict = self._ready(command)
            case DeleteTopic():
                verdict = self._delete(command)
            case TopicGone():
                verdict = self._gone(command)
        if not isinstance(verdict, Refused):
            step.catalog_changed = True
        return verdict

    def _create(self, step: Step, command: CreateTopic, next_producer: ProducerId) -> Verdict:
        if command.topic_id == ZERO_TOPIC:
            return refused(Why.MALFORMED, "a topic id is not zero")  # T2
        known = self.all.get(command.topic_id)
        if known is not None:
            return self._again(known, command)
        if command.name in self._names:
            return refused(Why.EXISTS, "a topic has that name")  # T3
        if not self._room_for(command.partitions):
            return refused(Why.LIMIT, "no stream ids are left")
        now = self._timeline.time_ms
        existed = command.name in self._former
        topic = Topic(
            id=command.topic_id, name=command.name, state=TopicState.CREATING,
            replication_factor=command.replication_factor, created_ms=now, changed_ms=now, revision=0,
            name_existed_before=existed, producer_floor=next_producer if existed else ProducerId(0), visible=0,
            configs=dict(sorted(command.configs.items())),
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

    def _room_for(self, partitions: int) -> bool:
        return self._next_stream + partitions <= MAX_STREAM_COUNTER

    def _give_streams(self, step: Step, topic: Topic, upto: int) -> tuple[StreamId, ...]:
        added = []
        for partition in range(len(topic.streams), upto):
            added.append(stream_id(self._next_stream, domain_for(topic.id, partition, self.domains)))
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
        topic.state = TopicState.READY
        topic.visible = len(topic.streams)  # T5
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
        del self.all[topic.id]
        return DONE

    def _alter(self, step: Step, command: AlterTopic) -> Verdict:
        topic = self.all.get(command.topic_id)
        if topic is None or topic.state is TopicState.DELETING:
            return refused(Why.NOT_FOUND, "no such topic")
        if command.expected_revision not in (-1, topic.revision):
            return refused(Why.STALE, "the topic was altered meanwhile")
        if 0 < command.partitions < len(topic.streams):
            return refused(Why.STATE, "partitions are never taken away")
        configs = {key: value for key, value in topic.configs.items() if key not in command.remove} | command.set
        if len(configs) > MAX_CONFIGS or not self._room_for(command.partitions):
            return refused(Why.LIMIT, "too many configs, or no stream ids are left")
        topic.configs = dict(sorted(configs.items()))
        topic.revision += 1
        topic.changed_ms = self._timeline.time_ms
        return TopicAltered(revision=topic.revision, added=self._give_streams(step, topic, command.partitions))

    def dump(self, out: Writer) -> None:
        out.values([self.domains, self._next_stream, len(self.all), len(self._former)])
        for name in self._former:
            out.values([name])
        for _, topic in sorted(self.all.items()):
            out.values([
                topic.id, topic.name, topic.state.value, topic.replication_factor, topic.created_ms, topic.changed_ms,
                topic.revision, int(topic.name_existed_before), topic.producer_floor, topic.visible,
                topic.streams, topic.opened_ms, list(topic.configs), list(topic.configs.values()),
            ])  # fmt: skip

    def load(self, source: Reader) -> None:
        self.domains, self._next_stream, topics, former = source.ints(4)
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
            )  # fmt: skip
            self.all[topic.id] = topic
            if topic.state is not TopicState.DELETING:
                self._names[topic.name] = topic.id


def _created(topic: Topic) -> TopicCreated:
    return TopicCreated(
        topic_id=topic.id, streams=tuple(topic.streams),
        name_existed_before=topic.name_existed_before, producer_floor=topic.producer_floor,
    )  # fmt: skip
