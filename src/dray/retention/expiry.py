"""Producers that fell silent and committed offsets that are old: forgotten, in slices, at a slow pace.

Invariants
    RT22  Members keep the offsets of what they read, whatever their age: only
          a group that has been empty for as long as offsets are kept loses
          all, and one with readable subscriptions those of other topics.
    RT4  An offset goes for its topic's sake only if the catalog, asked after
         the offset was seen, has no such topic: a replica that has not heard
         of a new topic yet takes nothing away.
"""

import asyncio
from typing import Final

from dray.machine import producers
from dray.machine.groups.commands import DropGroup
from dray.machine.groups.group import Group
from dray.machine.machine import Machine
from dray.machine.names import StreamId, TopicId
from dray.machine.offsets import MEMBERS_SINCE, ExpireOffsets, OffsetKey, OffsetReason, OffsetsExpired
from dray.machine.streams import MINUTE_MS, ExpireProducers, ProducersExpired
from dray.machine.topics import TopicState
from dray.replica.replica import Replica
from dray.retention import telemetry
from dray.retention.settings import RetentionSettings, millis

SLICE: Final = 1_000
BREATH: Final = 256
"""Streams or groups that are looked at before others get a turn on the loop."""


class Expiry:
    """Forgets what nobody uses, one domain after another."""

    def __init__(self, catalog: Replica, settings: RetentionSettings) -> None:
        self._catalog = catalog
        self._idle_ms = millis(settings.producers_expiry)
        self._retention_ms = millis(settings.offsets_retention)

    async def run(self, replica: Replica) -> None:
        """Forget what is due in a domain."""
        await self._expire_producers(replica)
        await self._expire_offsets(replica)

    # -- producers ---------------------------------------------------------

    async def _expire_producers(self, replica: Replica) -> None:
        for count, number in enumerate(list(replica.machine.streams.open), 1):
            start: int | None = 0
            while start is not None:
                start = await self._expire_slice(replica, number, start)
            if count % BREATH == 0:
                await asyncio.sleep(0)

    async def _expire_slice(self, replica: Replica, number: StreamId, start: int) -> int | None:
        """Expire the next idle producers of a stream from an id on; the id to go on from, if there is more."""
        first = first_idle(replica.machine, number, start, self._idle_ms)
        if first is None:
            return None  # RT2: nothing would go
        command = ExpireProducers(stream=number, idle_ms=self._idle_ms, start=first, limit=SLICE)
        match await replica.propose(command):
            case [ProducersExpired(expired=expired, next_start=following)]:
                telemetry.EXPIRED_PRODUCERS.inc(expired)
                # -1: all were looked at. The same id: others filled the entry, and the next pass goes on.
                return following if following > first else None
            case _:
                return None

    # -- offsets -----------------------------------------------------------

    async def _expire_offsets(self, replica: Replica) -> None:
        for count, group in enumerate(replica.machine.offsets.groups(), 1):
            if not replica.machine.timeline.paused:
                revision = replica.machine.groups.revision(group) if replica.machine.version >= MEMBERS_SINCE else -1
                await self._drop(replica, group, OffsetReason.EXPIRED, self._old(replica.machine, group), revision)
            await self._drop(replica, group, OffsetReason.TOPIC_GONE, await self._homeless(replica.machine, group))
            if count % BREATH == 0:
                await asyncio.sleep(0)
        await self._drop_groups(replica)

    def _old(self, machine: Machine, group: str) -> list[OffsetKey]:
        """Offsets that are old, and that no member needs (RT22)."""
        due = machine.offsets.due(group, self._retention_ms)
        found = machine.groups.find(group)
        if found is None or not due:
            return due
        if found.is_empty:
            long_empty = machine.time_ms - found.since_ms >= self._retention_ms
            return [key for key in due if long_empty or machine.offsets.is_dated(group, key)]
        return [key for key in due if found.tells_topics and not self._is_read(found, key.topic_id)]

    def _is_read(self, group: Group, topic_id: TopicId) -> bool:
        topic = self._catalog.machine.topics.find(topic_id)
        return topic is None or group.subscribes(topic.name)  # one that is gone goes by another rule (RT4)

    async def _drop_groups(self, replica: Replica) -> None:
        """Groups without members and offsets are nobody's."""
        machine = replica.machine
        idle = [group for group in machine.groups if group.is_idle and not machine.offsets.has(group.id)]
        for group in idle:
            await replica.propose(DropGroup(group=group.id, revision=group.revision))

    async def _homeless(self, machine: Machine, group: str) -> list[OffsetKey]:
        """Offsets whose topic was deleted."""
        suspects = [
            OffsetKey(topic_id=topic_id, partition=partition, commit_position=committed.commit_position)
            for topic_id, partition, committed in machine.offsets.of_group(group)
            if not self._is_topic(topic_id)
        ]
        if suspects:
            await self._catalog.sync()  # RT4: the offsets were seen before
        return [suspect for suspect in suspects if not self._is_topic(suspect.topic_id)]

    def _is_topic(self, topic_id: TopicId) -> bool:
        topic = self._catalog.machine.topics.find(topic_id)
        return topic is not None and topic.state is not TopicState.DELETING

    async def _drop(
        self, replica: Replica, group: str, reason: OffsetReason, keys: list[OffsetKey], revision: int = -1
    ) -> None:
        for at in range(0, len(keys), SLICE):
            rows = tuple(keys[at : at + SLICE])
            command = ExpireOffsets(
                group=group, reason=reason, rows=rows, retention_ms=self._retention_ms, revision=revision
            )
            match await replica.propose(command):
                case [OffsetsExpired(expired=expired)]:
                    telemetry.EXPIRED_OFFSETS.labels(reason.name.lower()).inc(expired)
                case _:
                    return


def first_idle(machine: Machine, number: StreamId, start: int, idle_ms: int) -> int | None:
    """The first producer of a stream, from an id on, that `ExpireProducers` would drop now."""
    stream = machine.streams.find(number)
    if stream is None or not stream.producers or machine.timeline.paused:
        return None
    cutoff_min = max(0, machine.time_ms - idle_ms) // MINUTE_MS
    for state in producers.STATE.iter_unpack(bytes(stream.producers)):
        if state[0] >= start and state[3] < cutoff_min:
            return int(state[0])
    return None
