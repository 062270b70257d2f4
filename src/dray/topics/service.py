"""Topics, as a service: names and ids found, topics made and deleted by sagas that any replica can finish.

    create:  CreateTopic (catalog) -> OpenStream (each domain) -> TopicReady (catalog)
    delete:  DeleteTopic (catalog) -> CloseStream (each domain) -> TopicGone (catalog)

Every step is idempotent and judged by the machine, so two drivers of one saga
do no harm. "No such topic" is never said from memory alone: only after a sync.

Invariants
    TS1  A negative answer about a topic or one of its partitions is given
         after a sync.
    TS2  DeleteTopic is answered after every stream is closed.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dray.clock import Clock
from dray.errors import DrayError, Unavailable
from dray.ids import Entropy, new_uuid
from dray.machine.command import MAX_ROWS, Command
from dray.machine.names import StreamId, TopicId, domain_for, domain_of
from dray.machine.streams import CloseStream, OpenStream, StreamClosed
from dray.machine.topics import (
    SLICES,
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    GivePartitions,
    PartitionsGiven,
    Topic,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    TopicGone,
    TopicReady,
    TopicState,
)
from dray.machine.verdict import Refused, Verdict, Why
from dray.replica.domains import Domains
from dray.replica.freshness import Freshness
from dray.telemetry import logger
from dray.topics import configs as topic_configs
from dray.topics import telemetry
from dray.topics.altering import Wish, altered, replaced
from dray.topics.errors import (
    BadPartitions,
    BadReplication,
    BadTopicName,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
    UnknownTopicId,
)

_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
MAX_PARTITIONS: Final = 10_000
SLICE: Final = 1_000
"""Streams that are given, opened or closed in one entry (Q8)."""
MAX_REPLICATION: Final = 32_767
ALTER_TRIES: Final = 5
DRAWS: Final = 64
"""How often an id is drawn for each domain, until a topic lies in a certain one."""
STALE_MS: Final = 10_000
"""A saga that has not moved for this long of machine time is finished by whoever looks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic as somebody wants it."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str | None]


def check_name(name: str) -> None:
    """Raise unless Kafka would take this name."""
    if name in (".", "..") or _NAME.fullmatch(name) is None:
        raise BadTopicName(
            "a topic name is 1 to 249 letters, digits, '.', '_' or '-', and neither '.' nor '..'", name=name[:300]
        )


class TopicService:
    """What handlers ask about topics."""

    def __init__(self, *, domains: Domains, entropy: Entropy, clock: Clock) -> None:
        self._domains = domains
        self._catalog = domains.catalog
        self._entropy = entropy
        self._clock = clock

    # -- questions ---------------------------------------------------------

    def visible(self) -> list[Topic]:
        """All topics, as far as this replica knows; `sync` first for an answer that is new."""
        return list(self._catalog.machine.topics.visible())

    def peek(self, name: str) -> Topic | None:
        """A topic from memory: a positive answer may be used, None means nothing (TS1)."""
        topic = self._catalog.machine.topics.named(name)
        return topic if topic is not None and topic.state is TopicState.READY else None

    def peek_id(self, topic_id: TopicId) -> Topic | None:
        topic = self._catalog.machine.topics.find(topic_id)
        return topic if topic is not None and topic.state is TopicState.READY else None

    async def find(self, name: str, fresh: Freshness | None = None) -> Topic:
        """The topic of a name; `UnknownTopic` only after a sync, which a request may share (TS1)."""
        topic = self.peek(name)
        if topic is None:
            await (fresh or Freshness()).of(self._catalog)
            topic = self.peek(name)
        if topic is None:
            raise UnknownTopic("no such topic", topic=name)
        return topic

    async def find_id(self, topic_id: TopicId, fresh: Freshness | None = None) -> Topic:
        """The topic of an id; `UnknownTopicId` only after a sync, which a request may share (TS1)."""
        topic = self.peek_id(topic_id)
        if topic is None:
            await (fresh or Freshness()).of(self._catalog)
            topic = self.peek_id(topic_id)
        if topic is None:
            raise UnknownTopicId("no topic has this id", topic_id=topic_id.hex())
        return topic

    async def find_partition(self, topic: Topic, partition: int, fresh: Freshness | None = None) -> Topic:
        """The topic, as it is known when it has a partition of this number.

        `UnknownPartition` only after a sync, which a request may share (TS1).
        """
        if 0 <= partition < topic.visible:
            return topic
        await (fresh or Freshness()).of(self._catalog)
        known = self.peek_id(topic.id)  # after a jump to a checkpoint it is another object
        if known is None or not 0 <= partition < known.visible:
            raise UnknownPartition("no such partition", topic=topic.name, partition=partition)
        return known

    # -- making ------------------------------------------------------------

    def check(self, wanted: NewTopic) -> dict[str, str]:
        """Everything that can be refused without asking the machine; the configs as they would be kept."""
        check_name(wanted.name)
        if not 1 <= wanted.partitions <= self.most_partitions:
            raise BadPartitions(
                "a topic has at least one partition, and not this many",
                partitions=wanted.partitions, most=self.most_partitions,
            )  # fmt: skip
        if not 1 <= wanted.replication_factor <= MAX_REPLICATION:
            raise BadReplication("a replication factor is at least 1", factor=wanted.replication_factor)
        return topic_configs.check(wanted.configs)

    @property
    def most_partitions(self) -> int:
        """Of one topic; what one command gives, until the rules know slices."""
        return MAX_PARTITIONS if self._catalog.machine.version >= SLICES else MAX_ROWS

    async def create(self, wanted: NewTopic, *, domain: int | None = None) -> Topic:
        """Make a topic; returns when it is visible with all its partitions (T5).

        `domain`: where its first partition is to live; anywhere, unless it is given.

        Raises:
            TopicExists, BadTopicName, BadPartitions, BadReplication, BadTopicConfig: nothing was made.
            Unavailable, Unknown: ask again; whoever finds the saga unfinished goes on with it.
        """
        kept = self.check(wanted)
        topic_id = self._new_id(domain)
        command = CreateTopic(
            topic_id=topic_id,
            name=wanted.name,
            partitions=wanted.partitions if wanted.partitions <= MAX_ROWS else SLICE,
            replication_factor=wanted.replication_factor,
            configs=kept,
            total=wanted.partitions if wanted.partitions > MAX_ROWS else 0,
        )
        match await self._ask(command):
            case TopicCreated():
                pass
            case Refused(why=Why.EXISTS):
                raise TopicExists("a topic of this name exists", topic=wanted.name)
            case verdict:
                raise _unexpected(verdict)
        await self.finish(topic_id)
        return await self.find_id(topic_id)

    def _new_id(self, domain: int | None) -> TopicId:
        domains = self._catalog.machine.head.domains
        for _ in range(DRAWS * domains):
            topic_id = TopicId(new_uuid(self._entropy).bytes)
            if domain is None or domain_for(topic_id, 0, domains) == domain:
                return topic_id
        raise Unavailable("no partition lives in that domain", domain=domain)

    def ensure_growth(self, topic: Topic, partitions: int) -> None:
        """Raise `BadPartitions` unless a topic may get this many."""
        if not len(topic.streams) < partitions <= self.most_partitions:
            raise BadPartitions(
                "partitions can only be added", has=len(topic.streams), wanted=partitions, most=self.most_partitions
            )

    async def add_partitions(self, topic: Topic, partitions: int) -> None:
        """Give a topic more partitions; they become visible together (T5).

        Raises:
            BadPartitions, UnknownTopic: nothing was added.
            Unavailable, Unknown: ask again; whoever finds the saga unfinished goes on with it.
        """
        self.ensure_growth(topic, partitions)
        few = partitions <= MAX_ROWS
        command = AlterTopic(topic_id=topic.id, partitions=partitions if few else 0, total=0 if few else partitions)
        match await self._ask(command):
            case TopicAltered():
                await self.finish(topic.id)
            case Refused(why=Why.STATE):
                raise BadPartitions("others added partitions meanwhile", has=len(topic.streams), wanted=partitions)
            case Refused(why=Why.NOT_FOUND):
                raise UnknownTopic("no such topic", topic=topic.name)
            case verdict:
                raise _unexpected(verdict)

    async def alter(
        self, topic: Topic, wishes: Sequence[Wish], *, whole: bool = False, validate_only: bool = False
    ) -> None:
        """Change configs of a topic, all of them or none; durable when it returns.

        `whole`: configs that are not named go back to their defaults.

        Raises:
            BadTopicConfig: nothing was changed.
            Unavailable, Unknown: ask again.
        """
        for _ in range(ALTER_TRIES):
            wanted = (replaced if whole else altered)(topic.configs, wishes)
            if validate_only or not (wanted.set or wanted.remove):
                return
            revision = topic.revision if wanted.depends else -1
            command = AlterTopic(
                topic_id=topic.id, set=wanted.set, remove=wanted.remove, expected_revision=revision
            )  # fmt: skip
            match await self._ask(command):
                case TopicAltered():
                    return
                case Refused(why=Why.NOT_FOUND):
                    raise UnknownTopic("no such topic", topic=topic.name)
                case Refused(why=Why.STALE):
                    pass  # others altered it meanwhile: what we know of it is what they made of it
                case verdict:
                    raise _unexpected(verdict)
        raise Unavailable("others alter this topic all the time: try again", topic=topic.name)

    async def delete(self, topic: Topic) -> None:
        """Delete a topic: its name is free at once, and when this returns it takes no record any more (TS2)."""
        match await self._ask(DeleteTopic(topic_id=topic.id)):
            case TopicDeleted():
                await self.finish(topic.id)
            case Refused(why=Why.NOT_FOUND | Why.STATE):
                raise UnknownTopic("no such topic", topic=topic.name)
            case verdict:
                raise _unexpected(verdict)

    # -- sagas -------------------------------------------------------------

    async def finish(self, topic_id: TopicId) -> None:
        """Bring the saga of a topic to its end, wherever it stands."""
        topic = self._catalog.machine.topics.find(topic_id)
        if topic is None or not topic.unfinished():
            return
        if topic.state is TopicState.DELETING:
            await self._close_streams(topic.streams)
            await self._ask(TopicGone(topic_id=topic_id))
            return
        while topic.lacking:
            match await self._ask(GivePartitions(topic_id=topic_id, limit=SLICE)):
                case PartitionsGiven():
                    pass
                case verdict:
                    raise _unexpected(verdict)
        opened = 0
        while opened < len(topic.streams):  # others may add partitions meanwhile
            opened = await self._open_streams(topic)
        names = self._catalog.machine.version >= SLICES
        await self._ask(TopicReady(topic_id=topic_id, partitions=opened if names else 0))  # T5

    async def go_on(self) -> None:
        """Finish sagas that their drivers left behind."""
        now = self._catalog.machine.time_ms
        for topic in list(self._catalog.machine.topics.unfinished()):
            if now - topic.changed_ms >= STALE_MS:
                logger().info(telemetry.SAGA_RESUMED, topic=topic.name, state=topic.state.name)
                await self.finish(topic.id)

    async def run(self, interval_s: float = 5.0) -> None:
        """Look for sagas left behind, for ever."""
        while True:
            await self._clock.sleep(interval_s)
            try:
                await self.go_on()
            except DrayError as error:
                logger().warning(telemetry.SAGA_FAILED, error=str(error))

    async def _open_streams(self, topic: Topic) -> int:
        """Open what is not shown yet; of how many partitions the streams are open then."""
        partitions = len(topic.streams)
        commands = [
            (
                domain_of(stream),
                OpenStream(
                    stream=stream,
                    topic_id=topic.id,
                    partition=partition,
                    name_existed_before=topic.name_existed_before,
                    producer_floor=topic.producer_floor,
                ),
            )
            for partition, stream in enumerate(topic.streams)
            if partition >= topic.visible
        ]
        for domain in sorted({domain for domain, _ in commands}):
            mine: list[Command] = [command for at, command in commands if at == domain]
            for verdict in await self._propose(domain, mine):
                if isinstance(verdict, Refused):
                    raise _unexpected(verdict)
        return partitions

    async def _close_streams(self, streams: Sequence[StreamId]) -> None:
        """Close all of them first (TS2); their rows are then dropped in slices (Q8) by retention."""
        for domain in sorted({domain_of(stream) for stream in streams}):
            closing: list[Command] = [
                CloseStream(stream=stream, limit=1) for stream in streams if domain_of(stream) == domain
            ]
            for verdict in await self._propose(domain, closing):
                if not isinstance(verdict, StreamClosed | Refused):
                    raise _unexpected(verdict)

    async def _propose(self, domain: int, commands: Sequence[Command]) -> list[Verdict]:
        """In slices (Q8)."""
        verdicts: list[Verdict] = []
        for first in range(0, len(commands), SLICE):
            verdicts += await self._domains[domain].propose(*commands[first : first + SLICE])
        return verdicts

    async def _ask(self, command: Command) -> Verdict:
        (verdict,) = await self._catalog.propose(command)
        return verdict


def _unexpected(verdict: Verdict) -> DrayError:
    return Unavailable("the machine refused: try again", verdict=verdict)
