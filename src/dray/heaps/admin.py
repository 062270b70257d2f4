"""Heaps made, altered and deleted, by sagas that any broker can finish; and what operators do to messages.

    make:    CreateHeap (catalog) -> OpenShard (its domain) -> HeapReady (catalog)
    alter:   AlterHeap (catalog) -> OpenShard with the new revision -> HeapReady (catalog)
    delete:  DeleteHeap (catalog) -> CloseShard in slices -> HeapGone (catalog)

Every step is idempotent and judged by the machine, so two drivers of one saga
do no harm.

Invariants
    HA1  A negative answer about a heap is given after a sync.
    HA2  A heap is made, altered or deleted for its caller when its shard knows.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Final

from dray.clock import Clock
from dray.errors import Corrupt, DrayError, Unavailable
from dray.heaps import telemetry
from dray.heaps.asking import NOBODY, AskedBy
from dray.heaps.errors import BadHeap, HeapAlteredMeanwhile, HeapExists, UnknownHeap
from dray.heaps.history import HistoryTopics
from dray.ids import Entropy, new_uuid
from dray.machine.command import Command
from dray.machine.heaps.catalog import (
    AlterHeap,
    CreateHeap,
    DeleteHeap,
    Heap,
    HeapAltered,
    HeapCreated,
    HeapDeleted,
    HeapGone,
    HeapReady,
    HeapState,
)
from dray.machine.heaps.commands import CloseShard, OpenShard, ShardClosed
from dray.machine.heaps.config import MAX_PARTITIONS, HeapConfig, Mode, pack_config, unpack_config
from dray.machine.names import TopicId, domain_for, domain_of
from dray.machine.verdict import Refused, Verdict, Why
from dray.replica.domains import Domains
from dray.telemetry import logger
from dray.topics.errors import BadTopicName
from dray.topics.service import STALE_MS, check_name

MAX_FACTOR: Final = 3
HISTORY_TRIES: Final = 3


class HeapAdmin:
    """What operators ask about heaps."""

    def __init__(self, *, domains: Domains, entropy: Entropy, clock: Clock, topics: HistoryTopics) -> None:
        self._domains = domains
        self._catalog = domains.catalog
        self._entropy = entropy
        self._clock = clock
        self._topics = topics

    async def find(self, name: str) -> Heap:
        """The heap of a name; `UnknownHeap` only after a sync (HA1)."""
        heap = self.peek(name)
        if heap is None:
            await self._catalog.sync()
            heap = self.peek(name)
        if heap is None:
            raise UnknownHeap("no such heap", heap=name[:300])
        await self._domains.ready(domain_of(heap.shard))
        return heap

    def peek(self, name: str) -> Heap | None:
        """A heap from memory: None means nothing (HA1)."""
        heap = self._catalog.machine.heap_catalog.named(name)
        return heap if heap is not None and heap.state is HeapState.READY else None

    async def make(
        self, name: str, *, mode: Mode, partitions: int = 1, replication_factor: int = 1,
        config: HeapConfig | None = None, by: AskedBy = NOBODY,
    ) -> Heap:  # fmt: skip
        """Make a heap; it can be used when this returns (HA2).

        Raises:
            HeapExists, BadHeap: nothing was made.
            Unavailable, Unknown: ask again; whoever finds the saga unfinished goes on with it.
        """
        try:
            check_name(name)
        except BadTopicName as bad:
            raise BadHeap("a heap is named as a topic is", name=name[:300]) from bad
        heap_id = new_uuid(self._entropy).bytes
        wanted = _checked(config or HeapConfig())
        if not 1 <= partitions <= MAX_PARTITIONS or not 1 <= replication_factor <= MAX_FACTOR:
            raise BadHeap("partitions or replication factor are out of range", partitions=partitions)
        await self._check_history(wanted.history, name, domain_for(TopicId(heap_id), 0, self._domains_count))
        command = CreateHeap(
            heap_id=heap_id, name=name, mode=mode, partitions=partitions, replication_factor=replication_factor,
            config=wanted, actor=by.actor, request=by.request,
        )  # fmt: skip
        match await self._ask(command):
            case HeapCreated():
                await self.finish(heap_id)
            case Refused(why=Why.EXISTS):
                raise HeapExists("a heap or topic of this name exists", heap=name)
            case verdict:
                raise _unexpected(verdict)
        return await self.find(name)

    async def alter(
        self, heap: Heap, config: HeapConfig, *, partitions: int = 0, expected: int = -1, by: AskedBy = NOBODY
    ) -> None:
        """Give a heap another config, and (unless 0) other partitions; in force when this returns (HA2)."""
        if not 0 <= partitions <= MAX_PARTITIONS:
            raise BadHeap("partitions are out of range", partitions=partitions, most=MAX_PARTITIONS)
        wanted = _checked(config)
        if wanted.history != heap.config.history:
            await self._check_history(wanted.history, heap.name, domain_of(heap.shard))
        command = AlterHeap(
            heap_id=heap.id, config=wanted, partitions=partitions, expected_revision=expected, actor=by.actor,
            request=by.request,
        )  # fmt: skip
        match await self._ask(command):
            case HeapAltered():
                await self.finish(heap.id)
            case Refused(why=Why.STALE):
                raise HeapAlteredMeanwhile("the heap was altered meanwhile", heap=heap.name)
            case Refused(why=Why.NOT_FOUND):
                raise UnknownHeap("no such heap", heap=heap.name)
            case verdict:
                raise _unexpected(verdict)

    @property
    def _domains_count(self) -> int:
        return self._catalog.machine.head.domains

    async def _check_history(self, topic: str, heap: str, domain: int) -> None:
        """The topic of a history is there before the heap that it tells of."""
        if not topic:
            return
        try:
            check_name(topic)
        except BadTopicName as bad:
            raise BadHeap("a history goes to a topic, and this is no name of one", history=topic[:300]) from bad
        await self._catalog.sync()
        if topic == heap or self._catalog.machine.heap_catalog.holds_name(topic):
            raise BadHeap("a history goes to a topic, and this is the name of a heap", history=topic)
        for _ in range(HISTORY_TRIES):
            try:
                await self._topics.stream_of(topic, domain)
            except Unavailable:
                continue  # it just got the partition that is wanted
            return
        raise Unavailable("the topic of the history could not be made: try again", history=topic)

    async def delete(self, heap: Heap, *, by: AskedBy = NOBODY) -> None:
        """Delete a heap with all its messages; it takes and grants nothing when this returns (HA2)."""
        match await self._ask(DeleteHeap(heap_id=heap.id, actor=by.actor, request=by.request)):
            case HeapDeleted():
                await self.finish(heap.id)
            case Refused(why=Why.NOT_FOUND):
                raise UnknownHeap("no such heap", heap=heap.name)
            case verdict:
                raise _unexpected(verdict)

    async def page(self, *, prefix: str = "", after: str = "", limit: int = 100) -> list[Heap]:
        """Heaps by name, those behind `after`; after a sync (HA1)."""
        await self._catalog.sync()
        names = (
            heap
            for heap in self._catalog.machine.heap_catalog.visible()
            if heap.name > after and heap.name.startswith(prefix)
        )
        return list(islice(names, limit))

    async def finish(self, heap_id: bytes) -> None:
        """Bring the saga of a heap to its end, wherever it stands."""
        heap = self._catalog.machine.heap_catalog.all.get(heap_id)
        if heap is None or not heap.unfinished():
            return
        if heap.state is HeapState.DELETING:
            await self._close(heap)
            await self._ask(HeapGone(heap_id=heap_id))
            return
        revision = heap.revision
        (verdict,) = await self._domains.of(heap.shard).propose(
            OpenShard(
                shard=heap.shard, heap_id=heap.id, mode=heap.mode, partitions=heap.partitions, revision=revision,
                config=heap.config, name=heap.name,
            )
        )  # fmt: skip
        if isinstance(verdict, Refused):
            raise _unexpected(verdict)
        await self._ask(HeapReady(heap_id=heap_id, revision=revision))

    async def _close(self, heap: Heap) -> None:
        left = 1
        while left:
            (verdict,) = await self._domains.of(heap.shard).propose(CloseShard(shard=heap.shard))
            if not isinstance(verdict, ShardClosed):
                raise _unexpected(verdict)
            left = verdict.left

    async def go_on(self) -> None:
        """Finish sagas that their drivers left behind."""
        now_ms = self._catalog.machine.time_ms
        for heap in list(self._catalog.machine.heap_catalog.unfinished()):
            if now_ms - heap.changed_ms >= STALE_MS:
                logger().info(telemetry.SAGA_RESUMED, heap=heap.name, state=heap.state.name)
                await self.finish(heap.id)

    async def _ask(self, command: Command) -> Verdict:
        verdicts: Sequence[Verdict] = await self._catalog.propose(command)
        return verdicts[0]


def _checked(config: HeapConfig) -> HeapConfig:
    """Every field is in its bounds."""
    try:
        return unpack_config(pack_config(config))
    except Corrupt as bad:
        raise BadHeap(f"the config is out of bounds: {bad.__cause__}") from bad


def _unexpected(verdict: Verdict) -> DrayError:
    return Unavailable("the machine refused: try again", verdict=verdict)
