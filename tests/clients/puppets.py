"""Members that stop where a test wants them: each talks to a broker of its own, and to another one when that is gone.

They do what a good client does, and no more: a call that is not answered is repeated elsewhere with the same id.
"""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AsyncExitStack
from time import monotonic

from dray.servers.kafka.error_codes import ErrorCode
from dray.servers.kafka.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from dray.servers.kafka.messages.heartbeat import HeartbeatRequest
from dray.servers.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from dray.servers.kafka.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.golden.asking import Asker

HEARTBEAT, JOIN_GROUP, SYNC_GROUP, CONSUMER_HEARTBEAT = 12, 11, 14, 68
SESSION_MS, REBALANCE_MS = 10_000, 20_000
BEAT_S = 0.3
ANSWER_S, PARKED_S = 2.0, 5.0
"""After this a call is repeated elsewhere: a broker that is paused never says that it is gone."""
ELSEWHERE = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


class Puppet(ABC):
    """One member. Used as a block; at its end it is gone without a word."""

    def __init__(self, group: str, brokers: Sequence[str]) -> None:
        self.group = group
        self.owned: tuple[int, frozenset[int]] = (-1, frozenset())
        """The generation or epoch, and the partitions that it has there."""
        self.history: set[tuple[int, int]] = set()
        """All that it ever had: generation and partition."""
        self.held_at = ""
        self.confirmed_s = 0.0
        """When it last asked a broker that then said that what it has is right."""
        self._brokers = list(brokers)
        self._hold = ""
        self._free = asyncio.Event()
        self._asker: Asker | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "Puppet":
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._stack.aclose()

    def hold(self, where: str) -> None:
        """It will go no further than there."""
        self._hold = where
        self._free.clear()

    def release(self) -> None:
        self._hold = self.held_at = ""
        self._free.set()

    @property
    def failure(self) -> BaseException | None:
        return self._task.exception() if self._task.done() and not self._task.cancelled() else None

    @abstractmethod
    async def _run(self) -> None: ...

    async def _pass(self, where: str) -> None:
        if self._hold == where:
            self.held_at = where
            await self._free.wait()

    def _own(self, generation: int, partitions: frozenset[int], asked_s: float) -> None:
        self.owned = generation, partitions
        self.confirmed_s = asked_s
        self.history.update((generation, partition) for partition in partitions)

    async def _ask(self, key: int, version: int, message, seconds: float = ANSWER_S):
        """Asks until somebody answers who can."""
        while True:
            try:
                async with asyncio.timeout(seconds):
                    if self._asker is None:
                        self._asker = await self._stack.enter_async_context(Asker(self._brokers[0]))
                    told = await self._asker.call(key, version, message)
                if told.error_code not in ELSEWHERE:
                    return told
            except (OSError, EOFError, TimeoutError, asyncio.IncompleteReadError):
                pass
            await self._stack.aclose()
            self._asker = None
            self._brokers.append(self._brokers.pop(0))
            await asyncio.sleep(0.05)  # as clients back off


class ClassicPuppet(Puppet):
    """Stops before it joins again ("rejoin"), and as a leader before it hands out the work ("assign")."""

    def __init__(self, group: str, brokers: Sequence[str], partitions: int) -> None:
        super().__init__(group, brokers)
        self._partitions = partitions
        self._id = ""

    async def _run(self) -> None:
        while True:
            generation = await self._join()
            if generation is not None:
                await self._beat(generation)
                self.owned = -1, frozenset()
                await self._pass("rejoin")

    async def _join(self) -> int | None:
        """The generation, when its work in it is known."""
        told = await self._ask(JOIN_GROUP, 9, JoinGroupRequest(
            group_id=self.group, session_timeout_ms=SESSION_MS, rebalance_timeout_ms=REBALANCE_MS, member_id=self._id,
            protocol_type="puppets", protocols=[JoinGroupRequestProtocol(name="even")],
        ), PARKED_S)  # fmt: skip
        if told.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._id = told.member_id
            return None
        if told.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._id = ""
            return None
        assert told.error_code == 0, told
        self._id = told.member_id
        rows: list[SyncGroupRequestAssignment] = []
        if told.leader == self._id:
            await self._pass("assign")
            rows = self._assigned([one.member_id for one in told.members])
        asked_s = monotonic()
        synced = await self._ask(SYNC_GROUP, 5, SyncGroupRequest(
            group_id=self.group, generation_id=told.generation_id, member_id=self._id, protocol_type="puppets",
            protocol_name="even", assignments=rows,
        ), PARKED_S)  # fmt: skip
        if synced.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._id = ""
        if synced.error_code:
            assert synced.error_code in REJOIN, synced
            return None
        self._own(told.generation_id, frozenset(json.loads(synced.assignment or b"[]")), asked_s)
        return int(told.generation_id)

    def _assigned(self, members: Sequence[str]) -> list[SyncGroupRequestAssignment]:
        return [
            SyncGroupRequestAssignment(
                member_id=name, assignment=json.dumps(list(range(number, self._partitions, len(members)))).encode()
            )
            for number, name in enumerate(members)
        ]

    async def _beat(self, generation: int) -> None:
        """Until something else is to be done."""
        while True:
            await asyncio.sleep(BEAT_S)
            request = HeartbeatRequest(group_id=self.group, generation_id=generation, member_id=self._id)
            asked_s = monotonic()
            told = await self._ask(HEARTBEAT, 4, request)
            if told.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self._id = ""
            if told.error_code:
                assert told.error_code in REJOIN, told
                return
            self.confirmed_s = asked_s


REJOIN = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}


class ConsumerPuppet(Puppet):
    """Of the new protocol; stops before it lets go of partitions ("revoke")."""

    def __init__(self, group: str, brokers: Sequence[str], topic: str, name: str) -> None:
        super().__init__(group, brokers)
        self._topic = topic
        self._id = name
        self._topic_id = bytes(16)

    async def _run(self) -> None:
        epoch, mine = 0, frozenset[int]()
        while True:
            asked_s, before = monotonic(), list(self._brokers)
            told = await self._ask(CONSUMER_HEARTBEAT, 1, self._heartbeat(epoch, mine))
            if told.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
                epoch, mine = 0, frozenset()
                self.owned = 0, mine
                continue
            assert told.error_code == 0, told
            epoch = told.member_epoch
            if told.assignment is not None:
                given = self._given(told.assignment)
                if mine - given:
                    await self._pass("revoke")
                changed, mine = mine != given, given
                self._own(epoch, mine, asked_s)
                if changed:
                    continue  # it says at once that it has done so
            self._own(epoch, mine, asked_s)
            if before == self._brokers:
                await asyncio.sleep(min(BEAT_S, told.heartbeat_interval_ms / 1_000))

    def _heartbeat(self, epoch: int, mine: frozenset[int]) -> ConsumerGroupHeartbeatRequest:
        """Always all that it has to say: then it need not know what was heard."""
        owned = [TopicPartitions(topic_id=self._topic_id, partitions=sorted(mine))] if mine else []
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self._id, member_epoch=epoch, rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=[self._topic], topic_partitions=owned,
        )  # fmt: skip

    def _given(self, assignment) -> frozenset[int]:
        for row in assignment.topic_partitions:
            self._topic_id = row.topic_id
            return frozenset(row.partitions)
        return frozenset()
