"""Committed offsets: how far each group has come.

An offset is kept under its topic's id, not its name, so those of a deleted
topic mean nothing to its successor; a sweeper takes them away later. Whether
a member may commit is for its group to say (`Judge`).

Invariants
    C1  A committed offset changes only by a later commit of its group; it
        does not go back by itself.
    C2  Expiry drops an offset only if neither it nor its group has moved
        since they were looked at, by machine time, and never while time is
        paused.
    C3  A group without offsets is forgotten.
    C4  Since version 2 a commit takes the place of none that its writer had
        not seen. A writer has seen all that it wrote, so the other one came
        through another session, and its client may be the same: it waited
        for an answer in vain and has gone on. What the network held until
        then is stale, and changes nothing.
    C5  A commit says where a group is, whatever it had acknowledged: what
        lay above its old offset is forgotten (`dray.machine.acks`).
"""

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, ClassVar, Final, NamedTuple, Protocol

from msgspec import Meta

from dray.errors import Corrupt
from dray.machine.acks import MAX_RANGES, Acked, AckOffsets, Acks, count_failed, merge, without_settled
from dray.machine.command import (
    MAX_ROWS,
    MAX_SIGNED,
    Command,
    Count,
    Int32,
    MaybeMillis,
    Millis,
    Packed,
    Part,
    Partition,
    TopicField,
)
from dray.machine.groups.codes import Denied, GroupCode
from dray.machine.head import Head
from dray.machine.keys import Shape
from dray.machine.names import SessionId, TopicId
from dray.machine.noun import Fields, Listing, stray
from dray.machine.packing import Reader, Writer
from dray.machine.step import Step
from dray.machine.timeline import Timeline
from dray.machine.topics import Topics
from dray.machine.verdict import Verdict, Why, refused

MAX_METADATA: Final = 4_096
MEMBERS_SINCE: Final = 2
"""The first version of the rules that knows members."""
STALE_SINCE: Final = 2
"""The first version of the rules that has C4."""
ACKS_SINCE: Final = 2
"""The first version of the rules in whose checkpoints acknowledged offsets are."""
GRAVE_ROWS: Final = 1_000
"""Dropped offsets whose memory is given back with one command."""
GROUP_OFFSET_KEY: Final = Shape("groups/$/offsets/%/#")
ROW_BYTES: Final = 300
GROUP_BYTES: Final = 300
"""What a row and a group take in memory besides their texts, measured."""


class OffsetReason(IntEnum):
    """Why committed offsets go."""

    EXPIRED = 0
    DELETED = 1
    TOPIC_GONE = 2


class OffsetRow(Part, frozen=True, kw_only=True):
    """One committed offset."""

    topic_id: TopicField
    partition: Partition
    offset: Annotated[int, Meta(ge=-1, le=MAX_SIGNED)]
    leader_epoch: Int32 = -1
    metadata: Annotated[str, Meta(max_length=32_767)] = ""


class CommitOffsets(Packed, frozen=True, kw_only=True):
    """Remember how far a group has come."""

    number = 20
    fields_since: ClassVar[Mapping[str, int]] = {"instance": 2, "knows_epochs": 2}

    group: Annotated[str, Meta(max_length=32_767)]
    rows: Annotated[tuple[OffsetRow, ...], Meta(max_length=MAX_ROWS)]
    retention_ms: MaybeMillis = -1
    """From the request; -1: the server's default, known when offsets expire."""
    generation: Int32 = -1
    member: Annotated[str, Meta(max_length=32_767)] = ""
    instance: Annotated[str, Meta(max_length=32_767)] | None = None
    knows_epochs: bool = True
    """The request is of a version in which a generation may be a member's epoch."""

    def needs(self) -> int:
        return max(1, len(self.rows))


class OffsetKey(Part, frozen=True, kw_only=True):
    """A committed offset as it was when somebody decided that it should go."""

    topic_id: TopicField
    partition: Partition
    commit_position: Count


class ExpireOffsets(Packed, frozen=True, kw_only=True):
    """Drop committed offsets that have not moved since they were looked at."""

    number = 21
    fields_since: ClassVar[Mapping[str, int]] = {"revision": 2}

    group: Annotated[str, Meta(max_length=32_767)]
    reason: OffsetReason
    rows: Annotated[tuple[OffsetKey, ...], Meta(max_length=MAX_ROWS)]
    retention_ms: Millis = 604_800_000
    revision: Annotated[int, Meta(ge=-1, le=MAX_SIGNED)] = -1
    """Of the group that was looked at (0: none with members); -1: whatever became of it."""

    def needs(self) -> int:
        return max(1, len(self.rows))


class OffsetCode(IntEnum):
    """What became of one row of `CommitOffsets`."""

    COMMITTED = 0
    METADATA_TOO_LARGE = 1
    STALE = 2
    """Another commit came before it that its writer had not seen: propose it again if it is still wanted (C4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsCommitted(Verdict):
    codes: tuple[OffsetCode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsExpired(Verdict):
    expired: int


class Committed(NamedTuple):
    """One committed offset."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    commit_position: int
    expire_ms: int
    """-1: by the server's default, counted from the commit."""


class Judge(Protocol):
    """Who knows the members of groups."""

    def judge_commit(self, step: Step, command: CommitOffsets) -> GroupCode: ...

    def revision(self, group: str) -> int: ...


class Offsets:
    """The committed offsets of the groups of a domain."""

    name: ClassVar[str] = "offsets"
    since: ClassVar[int] = 1
    commands: ClassVar[tuple[type[Command], ...]] = (CommitOffsets, ExpireOffsets, AckOffsets)

    members: Judge

    def __init__(self, head: Head, timeline: Timeline, topics: Topics) -> None:
        self._head = head
        self._topics = topics
        self._graves: list[dict[tuple[TopicId, int], Committed]] = []
        """Rows of groups that were dropped. They are no state any more; only their memory is given back in slices."""
        self._groups: dict[str, dict[tuple[TopicId, int], Committed]] = {}
        self._acks: dict[str, dict[tuple[TopicId, int], Acks]] = {}
        """Of rows that have something above their offset; each has its row."""
        self._timeline = timeline
        self.bytes = 0
        """About what all of them take in memory, for budgets; no rule depends on it."""

    def find(self, group: str, topic_id: TopicId, partition: int) -> Committed | None:
        return self._groups.get(group, {}).get((topic_id, partition))

    def acks(self, group: str, topic_id: TopicId, partition: int) -> Acks:
        """What is settled and failed above the committed offset; not to be changed."""
        return self._acks.get(group, {}).get((topic_id, partition)) or Acks()

    def of_group(self, group: str) -> Iterator[tuple[TopicId, int, Committed]]:
        """All offsets of a group, by topic id and partition; of topics since deleted too."""
        for (topic_id, partition), committed in sorted(self._groups.get(group, {}).items()):
            yield topic_id, partition, committed

    def groups(self) -> list[str]:
        return sorted(self._groups)

    def has(self, group: str) -> bool:
        return group in self._groups

    def drop(self, group: str) -> None:
        """Forget all offsets of a group at once, however many there are (Q8)."""
        rows = self._groups.pop(group, None)
        self.bytes -= sum(acks.bytes for acks in self._acks.pop(group, {}).values())
        if rows is not None:
            self._graves.append(rows)
            self.bytes -= GROUP_BYTES + _text_bytes(group)
        self._empty_graves()

    def _empty_graves(self) -> None:
        """Give back some memory of dropped groups.

        No rule may ask for what lies there, and it takes no rows of its entry:
        a replica that was loaded from a checkpoint has no graves.
        """
        left = GRAVE_ROWS
        while self._graves and left:
            rows = self._graves[-1]
            for _ in range(min(len(rows), left)):
                _, committed = rows.popitem()
                self.bytes -= ROW_BYTES + _text_bytes(committed.metadata)
                left -= 1
            if not rows:
                self._graves.pop()

    def growth(self, group: str, topic_id: TopicId, partition: int, metadata: str) -> int:
        """By how much `bytes` would grow with this commit; 0 and less for one that takes another's place."""
        found = self.find(group, topic_id, partition)
        if found is not None:
            return _text_bytes(metadata) - _text_bytes(found.metadata)
        new_group = 0 if group in self._groups else GROUP_BYTES + _text_bytes(group)
        return new_group + ROW_BYTES + _text_bytes(metadata)

    def due(self, group: str, retention_ms: int) -> list[OffsetKey]:
        """What `ExpireOffsets` would drop now."""
        return [
            OffsetKey(topic_id=topic_id, partition=partition, commit_position=committed.commit_position)
            for topic_id, partition, committed in self.of_group(group)
            if self._is_expired(committed, retention_ms)
        ]

    def is_dated(self, group: str, key: OffsetKey) -> bool:
        """Whether the commit itself said how long it is kept."""
        found = self.find(group, key.topic_id, key.partition)
        return found is not None and found.expire_ms >= 0

    def apply(self, step: Step, command: Command) -> Verdict:
        self._empty_graves()
        match command:
            case CommitOffsets():
                return self._commit(step, command)
            case ExpireOffsets():
                return self._expire(step, command)
            case AckOffsets():
                return self._ack(step, command)
            case _:
                return stray(command)

    def session_ended(self, step: Step, session: SessionId) -> None:
        """Offsets belong to no session."""

    def _commit(self, step: Step, command: CommitOffsets) -> Verdict:
        if self._head.version < MEMBERS_SINCE:
            if command.generation != -1 or command.member:
                return refused(Why.NOT_FOUND, "no such member")
        else:
            code = self.members.judge_commit(step, command)
            if code is not GroupCode.ACCEPTED:
                return Denied(code=code)  # G9
        now = self._timeline.time_ms
        expire_ms = -1 if command.retention_ms < 0 else now + command.retention_ms
        group = self._groups.get(command.group, {})
        codes = []
        for row in command.rows:
            if len(row.metadata) > MAX_METADATA:
                codes.append(OffsetCode.METADATA_TOO_LARGE)
                continue
            if self._is_stale(step, group.get((row.topic_id, row.partition))):
                codes.append(OffsetCode.STALE)
                continue
            self.bytes += self.growth(command.group, row.topic_id, row.partition, row.metadata)
            self._groups[command.group] = group
            if command.group in self._acks:
                self._keep_acks(command.group, (row.topic_id, row.partition), Acks())  # C5
            group[row.topic_id, row.partition] = Committed(
                row.offset, row.leader_epoch, row.metadata, now, step.position, expire_ms
            )  # C1
            codes.append(OffsetCode.COMMITTED)
        return OffsetsCommitted(codes=tuple(codes))

    def _ack(self, step: Step, command: AckOffsets) -> Verdict:
        """Settle offsets, and count those that failed; nothing changes unless something grows (AO1)."""
        if any(start >= end for start, end in command.ranges):
            return refused(Why.MALFORMED, "a range ends behind its start")
        code = self.members.judge_commit(step, CommitOffsets(group=command.group, rows=()))
        if code is not GroupCode.ACCEPTED:
            return Denied(code=code)  # G9
        key = command.topic_id, command.partition
        found, known = self.find(command.group, *key), self.acks(command.group, *key)
        before = command.start if found is None else found.offset
        floor, ranges = merge(max(before, command.start), known.ranges, command.ranges)  # AO2
        after = Acks(ranges=ranges)
        counts, attempts = count_failed(Acks(ranges=ranges, failed=known.failed), floor, command.failed)
        after.failed = without_settled(after, floor, counts)
        if max(len(after.ranges), len(after.failed)) > MAX_RANGES:
            return refused(Why.LIMIT, "too much is settled or failed above an offset that is neither")  # AO3
        if (floor, after) == (before, known) and found is not None:
            return Acked(next=floor, grew=False, attempts=attempts)
        self.bytes += self.growth(command.group, *key, "" if found is None else found.metadata)
        expire_ms = -1 if found is None else found.expire_ms
        self._groups.setdefault(command.group, {})[key] = Committed(
            floor, -1, "" if found is None else found.metadata, self._timeline.time_ms, step.position, expire_ms
        )
        self._keep_acks(command.group, key, after)
        return Acked(next=floor, grew=(floor, ranges) != (before, known.ranges), attempts=attempts)

    def _keep_acks(self, group: str, key: tuple[TopicId, int], acks: Acks) -> None:
        kept = self._acks.get(group, {})
        before = kept.pop(key, None)
        self.bytes += acks.bytes - (0 if before is None else before.bytes)
        if acks.ranges or acks.failed:
            self._acks[group] = kept
            kept[key] = acks
        elif not kept:
            self._acks.pop(group, None)

    def _is_stale(self, step: Step, replaced: Committed | None) -> bool:
        """Whether a commit would take the place of one that its writer had not seen (C4); its own entry's it knows."""
        if replaced is None or self._head.version < STALE_SINCE:
            return False
        return step.seen < replaced.commit_position < step.position

    def _expire(self, step: Step, command: ExpireOffsets) -> Verdict:
        if command.reason is OffsetReason.EXPIRED and self._timeline.paused:
            return refused(Why.PAUSED, "expiry waits after a jump of time")  # C2
        if command.revision >= 0 and command.revision != self.members.revision(command.group):
            return refused(Why.STALE, "the group has moved on")  # C2
        group = self._groups.get(command.group)
        if group is None:
            return OffsetsExpired(expired=0)
        expired = 0
        for row in command.rows:
            committed = group.get((row.topic_id, row.partition))
            if committed is None or committed.commit_position != row.commit_position:  # C2
                continue
            if command.reason is OffsetReason.EXPIRED and not self._is_expired(committed, command.retention_ms):
                continue
            del group[row.topic_id, row.partition]
            self._keep_acks(command.group, (row.topic_id, row.partition), Acks())
            self.bytes -= ROW_BYTES + _text_bytes(committed.metadata)
            expired += 1
        if not group:
            del self._groups[command.group]  # C3
            self.bytes -= GROUP_BYTES + _text_bytes(command.group)
        return OffsetsExpired(expired=expired)

    def _is_expired(self, committed: Committed, retention_ms: int) -> bool:
        expire_ms = committed.expire_ms if committed.expire_ms >= 0 else committed.commit_ms + retention_ms
        return expire_ms <= self._timeline.time_ms

    def cap_times(self, latest_ms: int) -> None:
        """Let no commit be later than a time, and keep it as long as was promised: for a log that begins anew."""
        for group in self._groups.values():
            for key, committed in group.items():
                late_ms = max(0, committed.commit_ms - latest_ms)
                expire_ms = committed.expire_ms - late_ms if committed.expire_ms >= 0 else -1
                group[key] = committed._replace(commit_ms=committed.commit_ms - late_ms, expire_ms=expire_ms)

    def dump(self, out: Writer, version: int) -> None:
        out.values([len(self._groups)])
        for name in self.groups():
            out.values([name, len(self._groups[name])])
            for topic_id, partition, committed in self.of_group(name):
                out.values([topic_id, partition, *committed])
        if version >= ACKS_SINCE:
            self._dump_acks(out)

    def _dump_acks(self, out: Writer) -> None:
        kept = [(group, key, acks) for group, rows in self._acks.items() for key, acks in rows.items()]
        out.values([len(kept)])
        for group, (topic_id, partition), acks in sorted(kept, key=lambda item: item[:2]):
            out.values([group, topic_id, partition, len(acks.ranges), len(acks.failed)])
            out.column(array("Q", [bound for span in acks.ranges for bound in span]))
            out.column(array("Q", [number for pair in sorted(acks.failed.items()) for number in pair]))

    def _load_acks(self, source: Reader) -> None:
        (count,) = source.ints(1)
        for _ in range(count):
            row = source.row()
            group, key = row.text(), (TopicId(row.raw()), row.number())
            ranges, failed = row.number(), row.number()
            bounds, counts = source.column("Q"), source.column("Q")
            if (len(bounds), len(counts)) != (2 * ranges, 2 * failed) or self.find(group, *key) is None:
                raise Corrupt("acknowledged offsets do not fit", group=group)
            spans = list(zip(bounds[::2], bounds[1::2], strict=True))
            failures = dict(zip(counts[::2], counts[1::2], strict=True))
            self._keep_acks(group, key, Acks(ranges=spans, failed=failures))

    def load(self, source: Reader, version: int) -> None:
        (groups,) = source.ints(1)
        for _ in range(groups):
            head = source.row()
            name = head.text()
            group = self._groups[name] = {}
            self.bytes += GROUP_BYTES + _text_bytes(name)
            for _ in range(head.number()):
                row = source.row()
                key = TopicId(row.raw()), row.number()
                group[key] = Committed(row.number(), row.number(), row.text(), row.number(), row.number(), row.number())
                self.bytes += ROW_BYTES + _text_bytes(group[key].metadata)
        if version >= ACKS_SINCE:
            self._load_acks(source)

    def show(self, prefix: str) -> Listing:
        found = [
            (GROUP_OFFSET_KEY.build(group, topic_id, partition), group, topic_id, partition, committed)
            for group in self.groups()
            for topic_id, partition, committed in self.of_group(group)
        ]
        for key, group, topic_id, partition, committed in sorted(found, key=lambda item: item[0]):
            topic = self._topics.find(topic_id)
            yield key, {
                "offset": committed.offset, "leaderEpoch": committed.leader_epoch, "metadata": committed.metadata,
                "commitTimestampMs": committed.commit_ms, "expireTimestampMs": committed.expire_ms,
                "topic": topic.name if topic else None, **self._shown_acks(group, topic_id, partition),
            }  # fmt: skip

    def _shown_acks(self, group: str, topic_id: TopicId, partition: int) -> Fields:
        acks = self.acks(group, topic_id, partition)
        if not (acks.ranges or acks.failed):
            return {}
        return {"acked": [list(span) for span in acks.ranges], "failed": [list(pair) for pair in acks.failed.items()]}


def _text_bytes(text: str) -> int:
    """At most what the characters take in memory."""
    return len(text) if text.isascii() else 4 * len(text)
