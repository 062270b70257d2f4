"""Committed offsets, as a service: remembered and told, for groups without members.

An offset is kept under its topic's id. A topic that was deleted and made again
under the same name has another id, so its predecessor's offsets are nobody's.

Only simple commits are taken here (generation -1, no member), as a consumer
that assigns its own partitions makes them; whoever names a generation or a
member is told that there is none. The empty group id is such a group too.

Invariants
    RT11  An offset that was acknowledged through any broker is seen by every
          fetch that begins later: fetch answers after a sync.
    RT12  A commit is answered as committed only for the offsets that are
          durable; each partition is judged for itself.
    RT13  No command carries more rows or bytes than an entry takes.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from dray.errors import Unavailable, Unknown
from dray.groups.errors import BadGroupId, UnknownGroup, UnknownMember
from dray.groups.placement import domain_of_group
from dray.machine.commands import MAX_TIME_MS, CommitOffsets, OffsetRow
from dray.machine.names import TopicId
from dray.machine.offsets import MAX_METADATA
from dray.machine.topics import Topic
from dray.machine.verdicts import OffsetCode, OffsetsCommitted
from dray.pace import Pace
from dray.replica.domains import Domains
from dray.replica.freshness import Freshness
from dray.replica.replica import Replica
from dray.topics.service import TopicService

MAX_GROUP_BYTES: Final = 32_767
ROWS: Final = 1_000
BYTES: Final = 256 << 10
"""Of the rows of one command: an entry takes more, but others want to be in it too."""
ROW_BYTES: Final = 64
"""Of a row without its metadata, at most."""
MAX_OFFSET: Final = (1 << 63) - 1

NO_GENERATION: Final = -1
NO_OFFSET: Final = -1


class CommitCode(Enum):
    """What became of one partition of a commit."""

    COMMITTED = "it is durable"
    UNKNOWN_PARTITION = "there is no such topic or partition"
    METADATA_TOO_LARGE = "metadata has at most 4,096 bytes"
    BAD_OFFSET = "an offset is from -1 on"
    FAILED = "nothing happened; try again"
    UNSURE = "it may have happened; committing it again is harmless"


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition by the name of its topic."""

    topic: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetToCommit:
    """How far a group has come in a partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedOffset:
    """A committed offset; -1: there is none, which is no error (R-187)."""

    offset: int = NO_OFFSET
    leader_epoch: int = -1
    metadata: str = ""


NOTHING: Final = FetchedOffset()


Part: TypeAlias = list[tuple[Partition, OffsetRow]]
Codes: TypeAlias = dict[Partition, CommitCode]


class OffsetService:
    """What handlers of OffsetCommit and OffsetFetch ask."""

    def __init__(self, *, domains: Domains, topics: TopicService) -> None:
        self._domains = domains
        self._topics = topics

    async def commit(
        self,
        group: str,
        offsets: Mapping[Partition, OffsetToCommit],
        *,
        generation: int = NO_GENERATION,
        member: str = "",
        retention_ms: int = -1,
    ) -> Codes:
        """Remember how far a group has come; one code for each partition (RT12).

        Raises:
            BadGroupId: nothing was committed.
            UnknownMember, UnknownGroup: nothing was committed; groups have no members here.
        """
        check_group(group)
        if generation >= 0:
            raise await self._no_generation(group, generation, member)
        if not all(self._topic_of(partition) for partition in offsets):
            await self._domains.catalog.sync()  # TS1: unknown is not said from memory
        codes: Codes = {}
        rows: Part = []
        pace = Pace()
        for partition, wanted in offsets.items():
            if pace.is_due():
                await asyncio.sleep(0)
            judged = self._judge(partition, wanted)
            if isinstance(judged, CommitCode):
                codes[partition] = judged
            else:
                rows.append((partition, judged))
        replica = self._replica(group)
        for part in split(rows):
            codes |= await self._commit_part(replica, group, part, retention_ms)
        return {partition: codes[partition] for partition in offsets}

    async def fetch(
        self, group: str, partitions: Sequence[Partition], fresh: Freshness | None = None
    ) -> dict[Partition, FetchedOffset]:
        """The committed offsets of these partitions (RT11)."""
        check_group(group)
        replica = self._replica(group)
        await self._sync(replica, fresh)
        found, pace = {}, Pace()
        for partition in partitions:
            if pace.is_due():
                await asyncio.sleep(0)
            topic = self._topic_of(partition)
            found[partition] = NOTHING if topic is None else _told(replica, group, topic.id, partition.number)
        return found

    async def fetch_all(self, group: str, fresh: Freshness | None = None) -> dict[Partition, FetchedOffset]:
        """All committed offsets of a group, of topics that exist, by topic and partition (RT11)."""
        check_group(group)
        replica = self._replica(group)
        await self._sync(replica, fresh)
        names = {topic.id: topic for topic in self._topics.visible()}
        found, pace = {}, Pace()
        for topic_id, number, _ in list(replica.machine.offsets.of_group(group)):
            if pace.is_due():
                await asyncio.sleep(0)
            topic = names.get(topic_id)
            if topic is not None and number < topic.visible:
                found[Partition(topic=topic.name, number=number)] = _told(replica, group, topic_id, number)
        return dict(sorted(found.items(), key=lambda item: (item[0].topic, item[0].number)))

    async def _no_generation(self, group: str, generation: int, member: str) -> UnknownMember | UnknownGroup:
        """Without a generation whoever commits is taken, as by Kafka of a group without members; with one, nobody."""
        replica = self._replica(group)
        await self._sync(replica)
        if any(True for _ in replica.machine.offsets.of_group(group)):
            return UnknownMember("the group has no such member", group=group[:100], member=member[:100])
        return UnknownGroup("the group does not exist", group=group[:100], generation=generation)

    def _replica(self, group: str) -> Replica:
        return self._domains[domain_of_group(group, self._domains.catalog.machine.domains)]

    async def _sync(self, replica: Replica, fresh: Freshness | None = None) -> None:
        """The group's domain first: a topic is older than any offset in it."""
        known = fresh or Freshness()
        await known.of(replica)  # RT11
        await known.of(self._domains.catalog)

    def _topic_of(self, partition: Partition) -> Topic | None:
        """The topic of a partition that exists, as far as this replica knows."""
        topic = self._topics.peek(partition.topic)
        return topic if topic is not None and 0 <= partition.number < topic.visible else None

    def _judge(self, partition: Partition, wanted: OffsetToCommit) -> OffsetRow | CommitCode:
        """What can be said without the group's machine."""
        if len(wanted.metadata) > MAX_METADATA or len(wanted.metadata.encode()) > MAX_METADATA:
            return CommitCode.METADATA_TOO_LARGE
        if not NO_OFFSET <= wanted.offset <= MAX_OFFSET:
            return CommitCode.BAD_OFFSET
        topic = self._topic_of(partition)
        if topic is None:
            return CommitCode.UNKNOWN_PARTITION
        return OffsetRow(
            topic_id=topic.id, partition=partition.number, offset=wanted.offset,
            leader_epoch=wanted.leader_epoch, metadata=wanted.metadata,
        )  # fmt: skip

    async def _commit_part(self, replica: Replica, group: str, part: Part, retention_ms: int) -> Codes:
        """Commit some rows; an error is theirs alone (RT12)."""
        command = CommitOffsets(
            group=group, rows=tuple(row for _, row in part), retention_ms=max(-1, min(retention_ms, MAX_TIME_MS))
        )
        try:
            match await replica.propose(command):
                case [OffsetsCommitted(codes=given)]:
                    return {partition: _MEANING[code] for (partition, _), code in zip(part, given, strict=True)}
                case _:
                    return {partition: CommitCode.FAILED for partition, _ in part}
        except Unknown:
            return {partition: CommitCode.UNSURE for partition, _ in part}
        except Unavailable:
            return {partition: CommitCode.FAILED for partition, _ in part}


_MEANING: Final = {
    OffsetCode.COMMITTED: CommitCode.COMMITTED,
    OffsetCode.METADATA_TOO_LARGE: CommitCode.METADATA_TOO_LARGE,
}


def check_group(group: str) -> None:
    """Raise unless it can be the id of a simple group; the empty text can."""
    if len(group) > MAX_GROUP_BYTES or len(group.encode()) > MAX_GROUP_BYTES:
        raise BadGroupId("a group id has at most 32,767 bytes", group=group[:100])


def split(rows: Part) -> Iterator[Part]:
    """Rows in parts that fit into an entry (RT13)."""
    part: Part = []
    size = 0
    for partition, row in rows:
        weight = ROW_BYTES + len(row.metadata.encode())
        if part and (len(part) >= ROWS or size + weight > BYTES):
            yield part
            part, size = [], 0
        part.append((partition, row))
        size += weight
    if part:
        yield part


def _told(replica: Replica, group: str, topic_id: TopicId, partition: int) -> FetchedOffset:
    found = replica.machine.offsets.find(group, topic_id, partition)
    if found is None:
        return NOTHING
    return FetchedOffset(offset=found.offset, leader_epoch=found.leader_epoch, metadata=found.metadata)
