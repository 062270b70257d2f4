"""Committed offsets, as a service: remembered and told.

An offset is kept under its topic's id. A topic that was deleted and made again
under the same name has another id, so its predecessor's offsets are nobody's.

Whether a member may commit is for its group to say; a group without members
takes commits from anyone who names no generation, as a consumer that assigns
its own partitions makes them. The empty group id is such a group too.

Invariants
    RT11  An offset that was acknowledged through any broker is seen by every
          fetch that begins later: fetch answers after a sync.
    RT12  A commit is answered as committed only for the offsets that are
          durable; each partition is judged for itself.
    RT13  No command carries more rows or bytes than an entry takes.
    RT14  A broker that slept commits nothing that reached it before: its
          clients have gone on elsewhere, and an old offset would go back.
    RT21  The offsets of all groups together stay within a budget: a commit
          that would add to them is refused when it is used up, one that only
          moves an offset is not.
    RT23  What the machine calls stale (C4) is proposed again only while its
          client still waits: by work that was not cancelled, for who has not
          closed its side of the connection, in a process that may serve, at
          the age that it has, and a few times at most.
    GS9  A commit that its group does not take writes nothing: it is refused
         by what a sync has brought. Only one that seems right is proposed.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from dray.errors import Unavailable, Unknown
from dray.groups import telemetry
from dray.groups.errors import BadGroupId, GroupSaysNo
from dray.groups.placement import domain_of_group
from dray.machine.command import MAX_TIME_MS
from dray.machine.groups.codes import Denied, GroupCode
from dray.machine.names import TopicId
from dray.machine.offsets import MAX_METADATA, MEMBERS_SINCE, CommitOffsets, OffsetCode, OffsetRow, OffsetsCommitted
from dray.machine.topics import Topic
from dray.pace import Pace
from dray.replica.domains import Domains
from dray.replica.freshness import Freshness
from dray.replica.replica import Replica
from dray.telemetry import logger
from dray.topics.service import TopicService

MAX_GROUP_BYTES: Final = 32_767
ROWS: Final = 1_000
BYTES: Final = 256 << 10
"""Of the rows of one command: an entry takes more, but others want to be in it too."""
ROW_BYTES: Final = 64
"""Of a row without its metadata, at most."""
MAX_OFFSET: Final = (1 << 63) - 1
BUDGET_BYTES: Final = 256 << 20
TRIES: Final = 8
"""How often a row is proposed that others are ahead of each time."""

NO_GENERATION: Final = -1
NO_OFFSET: Final = -1


class CommitCode(Enum):
    """What became of one partition of a commit."""

    COMMITTED = "it is durable"
    UNKNOWN_PARTITION = "there is no such topic or partition"
    METADATA_TOO_LARGE = "metadata has at most 4,096 letters"
    BAD_OFFSET = "an offset is from -1 on"
    NO_ROOM = "the offsets of all groups have used up their budget"
    STALE = "others committed meanwhile, again and again; nothing happened, try again"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Committer:
    """Who commits: anyone, of a group without members; else a member, in its generation or epoch."""

    group: str
    generation: int = NO_GENERATION
    member: str = ""
    instance: str | None = None
    knows_epochs: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """Who asks for offsets: anyone, or a member of a consumer group in its epoch."""

    member: str | None = None
    epoch: int = NO_GENERATION


ANYONE: Final = Asker()


Part: TypeAlias = list[tuple[Partition, OffsetRow]]
Codes: TypeAlias = dict[Partition, CommitCode | GroupCode]


class OffsetService:
    """What handlers of OffsetCommit and OffsetFetch ask."""

    def __init__(self, *, domains: Domains, topics: TopicService, budget_bytes: int = BUDGET_BYTES) -> None:
        self._domains = domains
        self._topics = topics
        self._budget_bytes = budget_bytes
        self._full = False

    async def commit(
        self,
        committer: "str | Committer",
        offsets: Mapping[Partition, OffsetToCommit],
        *,
        retention_ms: int = -1,
        is_awaited: Callable[[], bool] = lambda: True,
    ) -> Codes:
        """Remember how far a group has come; one code for each partition (RT12). The group judges who commits (G9).

        `is_awaited`: whether somebody still waits for the answer, as far as one can tell (RT23).

        Raises:
            BadGroupId: nothing was committed.
            Unavailable: nothing was committed; this process may not serve (RT14).
        """
        committer = committer if isinstance(committer, Committer) else Committer(group=committer)
        group = committer.group
        check_group(group)
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
        self._check_serving(replica)
        rows, crowded = self._with_room(replica, group, rows)
        codes |= dict.fromkeys(crowded, CommitCode.NO_ROOM)
        for part in split(rows):
            codes |= await self._commit_part(replica, committer, part, retention_ms, is_awaited)
        return {partition: codes[partition] for partition in offsets}

    async def fetch(
        self, group: str, partitions: Sequence[Partition], fresh: Freshness | None = None, asker: Asker = ANYONE
    ) -> dict[Partition, FetchedOffset]:
        """The committed offsets of these partitions (RT11).

        Raises:
            GroupSaysNo: a consumer group has no such member, or not in that epoch.
        """
        check_group(group)
        replica = self._replica(group)
        await self._sync(replica, fresh)
        _check_asker(replica, group, asker)
        found, pace = {}, Pace()
        for partition in partitions:
            if pace.is_due():
                await asyncio.sleep(0)
            topic = self._topic_of(partition)
            found[partition] = NOTHING if topic is None else _told(replica, group, topic.id, partition.number)
        return found

    async def fetch_all(
        self, group: str, fresh: Freshness | None = None, asker: Asker = ANYONE
    ) -> dict[Partition, FetchedOffset]:
        """All committed offsets of a group, of topics that exist, by topic and partition (RT11); raises as `fetch`."""
        check_group(group)
        replica = self._replica(group)
        await self._sync(replica, fresh)
        _check_asker(replica, group, asker)
        names = {topic.id: topic for topic in self._topics.visible()}
        found, pace = {}, Pace()
        for topic_id, number, _ in list(replica.machine.offsets.of_group(group)):
            if pace.is_due():
                await asyncio.sleep(0)
            topic = names.get(topic_id)
            if topic is not None and number < topic.visible:
                found[Partition(topic=topic.name, number=number)] = _told(replica, group, topic_id, number)
        return dict(sorted(found.items(), key=lambda item: (item[0].topic, item[0].number)))

    def _replica(self, group: str) -> Replica:
        return self._domains[domain_of_group(group, self._domains.catalog.machine.head.group_domains)]

    def _check_serving(self, replica: Replica) -> None:
        self._domains.catalog.check_serving()
        if replica.session is not None:
            replica.check_serving()  # RT14

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
        if letters_of(wanted.metadata) > MAX_METADATA:
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

    def _with_room(self, replica: Replica, group: str, rows: Part) -> tuple[Part, list[Partition]]:
        """The rows that the budget takes, and the partitions of those that it does not (RT21)."""
        kept = replica.machine.offsets
        left = self._budget_bytes - sum(one.machine.offsets.bytes for _, one in self._domains)
        taken: Part = []
        crowded = []
        for partition, row in rows:
            growth = kept.growth(group, row.topic_id, row.partition, row.metadata)
            if growth <= max(0, left):
                taken.append((partition, row))
                left -= growth
            else:
                crowded.append(partition)
        if bool(crowded) != self._full:
            self._full = bool(crowded)
            logger().warning(telemetry.OFFSETS_FULL, refusing=self._full, budget_bytes=self._budget_bytes)
        return taken, crowded

    async def _commit_part(
        self, replica: Replica, committer: Committer, part: Part, retention_ms: int, is_awaited: Callable[[], bool]
    ) -> Codes:
        """Commit some rows, and those again that were stale (RT23)."""
        if replica.machine.version < MEMBERS_SINCE:  # nobody can be a member yet
            if committer.generation >= 0:
                return {partition: GroupCode.UNKNOWN_MEMBER for partition, _ in part}
            committer = Committer(group=committer.group)
        send_by_ns = replica.send_by_ns()
        codes: Codes = {}
        for _ in range(TRIES):
            codes |= await self._propose(replica, committer, part, retention_ms, send_by_ns)
            part = [(partition, row) for partition, row in part if codes[partition] is CommitCode.STALE]
            if not part or not is_awaited():
                break
        return codes

    async def _propose(
        self, replica: Replica, committer: Committer, part: Part, retention_ms: int, send_by_ns: int
    ) -> Codes:
        """Propose some rows; an error is theirs alone (RT12)."""
        command = CommitOffsets(
            group=committer.group, rows=tuple(row for _, row in part),
            retention_ms=max(-1, min(retention_ms, MAX_TIME_MS)), generation=committer.generation,
            member=committer.member, instance=committer.instance, knows_epochs=committer.knows_epochs,
        )  # fmt: skip
        try:
            self._check_serving(replica)
            denied = await self._foresee(replica, command)
            if denied is not None:
                return {partition: denied for partition, _ in part}
            match await replica.propose(command, send_by_ns=send_by_ns):
                case [OffsetsCommitted(codes=given)]:
                    return {partition: _MEANING[code] for (partition, _), code in zip(part, given, strict=True)}
                case [Denied(code=code)]:
                    return {partition: code for partition, _ in part}
                case _:
                    return {partition: CommitCode.FAILED for partition, _ in part}
        except Unknown:
            return {partition: CommitCode.UNSURE for partition, _ in part}
        except Unavailable:
            return {partition: CommitCode.FAILED for partition, _ in part}

    async def _foresee(self, replica: Replica, command: CommitOffsets) -> GroupCode | None:
        """Why the group would not take it; that is not said from memory (GS9)."""
        groups = replica.machine.groups
        if groups.may_commit(command) is GroupCode.ACCEPTED:
            return None
        await replica.sync()
        code = groups.may_commit(command)
        return None if code is GroupCode.ACCEPTED else code


_MEANING: Final = {
    OffsetCode.COMMITTED: CommitCode.COMMITTED,
    OffsetCode.METADATA_TOO_LARGE: CommitCode.METADATA_TOO_LARGE,
    OffsetCode.STALE: CommitCode.STALE,
}


def check_group(group: str) -> None:
    """Raise unless it can be the id of a simple group; the empty text can."""
    if len(group) > MAX_GROUP_BYTES or len(group.encode()) > MAX_GROUP_BYTES:
        raise BadGroupId("a group id has at most 32,767 bytes", group=group[:100])


def _check_asker(replica: Replica, name: str, asker: Asker) -> None:
    """Only consumer groups ask who it is (as Kafka); it is judged by what a sync has brought."""
    group = replica.machine.groups.consumer(name)
    code = GroupCode.ACCEPTED if group is None else group.may_fetch(asker.member, asker.epoch)
    if code is not GroupCode.ACCEPTED:
        raise GroupSaysNo(code, name)


def letters_of(metadata: str) -> int:
    """How long Kafka finds a text: it counts UTF-16 code units, of which a letter beyond the BMP has two.

    Never less than the machine counts, which counts letters.
    """
    return len(metadata) if metadata.isascii() else len(metadata.encode("utf-16-le")) // 2


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
