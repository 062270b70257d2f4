"""The catalog of heaps: their names, modes and configs, and where each lives.

    CreateHeap --> creating --HeapReady--> ready --DeleteHeap--> deleting --HeapGone--> (forgotten)

A heap lives in one domain, as one shard, so creating, altering and deleting
are sagas of two domains that begin and end here, as those of topics are.
Heaps and topics share one namespace and one counter of stream ids.

Invariants
    HP1  A name belongs to at most one topic or heap that is not deleting.
    HP2  A heap is shown when its shard is open; a config is in force when the
         shard has been told, and whoever finds that it was not tells it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, ClassVar, Final, Protocol, TypeAlias

import msgspec
from msgspec import Meta

from dray.machine.command import MAX_SIGNED, Command, Count, Key, Nonce, Packed, Text
from dray.machine.head import Head
from dray.machine.heaps.commands import Partitions
from dray.machine.heaps.config import MAX_PARTITIONS, HeapConfig, Mode, pack_config, unpack_config
from dray.machine.keys import Shape
from dray.machine.names import ZERO_TOPIC, SessionId, StreamId, TopicId, domain_for, domain_of
from dray.machine.noun import Fields, Listing, stray
from dray.machine.packing import Reader, Writer
from dray.machine.step import Step
from dray.machine.timeline import Timeline
from dray.machine.verdict import DONE, Refused, Verdict, Why, refused

HEAP_KEY: Final = Shape("heaps/$")
MAX_HEAPS: Final = 100_000
Replication: TypeAlias = Annotated[int, Meta(ge=1, le=3)]


class CreateHeap(Packed, frozen=True, kw_only=True):
    """Reserve a name and a shard; invisible until `HeapReady`."""

    number = 64
    since = 2

    heap_id: Nonce
    name: Key
    mode: Mode
    partitions: Partitions = 1
    replication_factor: Replication = 1
    config: HeapConfig = msgspec.field(default_factory=HeapConfig)
    actor: Text = ""
    request: Text = ""


class HeapReady(Packed, frozen=True, kw_only=True):
    """The shard is open and knows the config of this revision."""

    number = 65
    since = 2

    heap_id: Nonce
    revision: Count


class AlterHeap(Packed, frozen=True, kw_only=True):
    """Another config, or another number of partitions that take messages; the shard is told next."""

    number = 66
    since = 2

    heap_id: Nonce
    config: HeapConfig
    partitions: Annotated[int, Meta(ge=0, le=MAX_PARTITIONS)] = 0
    """0: as they are."""
    expected_revision: Annotated[int, Meta(ge=-1, le=MAX_SIGNED)] = -1
    """Refuse if the heap was altered since this revision; -1: do not ask."""
    actor: Text = ""
    request: Text = ""


class DeleteHeap(Packed, frozen=True, kw_only=True):
    """Free the name at once; the shard is closed next."""

    number = 67
    since = 2

    heap_id: Nonce
    actor: Text = ""
    request: Text = ""


class HeapGone(Packed, frozen=True, kw_only=True):
    """The shard of a deleted heap is closed: forget it."""

    number = 68
    since = 2

    heap_id: Nonce


@dataclass(frozen=True, slots=True, kw_only=True)
class HeapCreated(Verdict):
    """The shard to open."""

    heap_id: bytes
    shard: StreamId


@dataclass(frozen=True, slots=True, kw_only=True)
class HeapAltered(Verdict):
    """The revision that the shard is to be told."""

    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeapDeleted(Verdict):
    """The shard to close."""

    shard: StreamId


class HeapState(Enum):
    CREATING = 0
    READY = 1
    DELETING = 2


@dataclass(slots=True, kw_only=True)
class Heap:
    """One heap. Services read it and change nothing."""

    id: bytes
    name: str
    mode: Mode
    shard: StreamId
    partitions: int
    replication_factor: int
    state: HeapState
    created_ms: int
    changed_ms: int
    """Machine time of the last step of its saga."""
    revision: int
    """Counts alterations."""
    told: int
    """The revision that its shard knows; -1 before it is open."""
    config: HeapConfig

    def unfinished(self) -> bool:
        """Is a saga of it under way?"""
        return self.state is not HeapState.READY or self.told < self.revision


class StreamNames(Protocol):
    """What the catalog asks of topics: one namespace and one counter for both."""

    def holds_name(self, name: str) -> bool: ...

    def give_stream(self, step: Step, domain: int) -> StreamId | None:
        """The next id of the counter (T4); None: none is left."""
        ...


class OpenShards(Protocol):
    """What the catalog asks about the shards of its own domain."""

    def is_open(self, number: StreamId) -> bool: ...


class HeapCatalog:
    """The heaps of a cluster, kept in domain 0."""

    name: ClassVar[str] = "heaps"
    since: ClassVar[int] = 2
    commands: ClassVar[tuple[type[Command], ...]] = (CreateHeap, HeapReady, AlterHeap, DeleteHeap, HeapGone)

    def __init__(self, head: Head, timeline: Timeline, names: StreamNames, shards: OpenShards) -> None:
        self.all: dict[bytes, Heap] = {}
        self._by_name: dict[str, bytes] = {}
        self._head = head
        self._timeline = timeline
        self._names = names
        self._shards = shards

    def named(self, name: str) -> Heap | None:
        """The heap that holds a name, visible or still creating."""
        number = self._by_name.get(name)
        return None if number is None else self.all[number]

    def holds_name(self, name: str) -> bool:
        return name in self._by_name

    def has_shard(self, heap_id: bytes, shard: StreamId) -> bool:
        """May the shard be opened for this heap?"""
        heap = self.all.get(heap_id)
        return heap is not None and heap.state is not HeapState.DELETING and heap.shard == shard

    def visible(self) -> Iterator[Heap]:
        """The heaps that clients may see, by name."""
        for _, number in sorted(self._by_name.items()):
            if self.all[number].state is HeapState.READY:
                yield self.all[number]

    def unfinished(self) -> Iterator[Heap]:
        """Heaps whose saga somebody must go on with, once it has stood still for long."""
        for _, heap in sorted(self.all.items()):
            if heap.unfinished():
                yield heap

    def apply(self, step: Step, command: Command) -> Verdict:
        if not self._head.is_catalog:
            return refused(Why.FOREIGN, "the catalog is domain 0")
        match command:
            case CreateHeap():
                verdict = self._create(step, command)
            case AlterHeap():
                verdict = self._alter(command)
            case HeapReady():
                verdict = self._ready(command)
            case DeleteHeap():
                verdict = self._delete(command)
            case HeapGone():
                verdict = self._gone(command)
            case _:
                return stray(command)
        if not isinstance(verdict, Refused):
            step.catalog_changed = True
        return verdict

    def session_ended(self, step: Step, session: SessionId) -> None:
        """Heaps belong to no session."""

    def _create(self, step: Step, command: CreateHeap) -> Verdict:
        known = self.all.get(command.heap_id)
        if known is not None:
            if known.name != command.name or known.state is HeapState.DELETING:
                return refused(Why.EXISTS, "a heap has that id")
            return HeapCreated(heap_id=known.id, shard=known.shard)
        if command.heap_id == ZERO_TOPIC:
            return refused(Why.MALFORMED, "a heap id is not zero")
        if command.name in self._by_name or self._names.holds_name(command.name):
            return refused(Why.EXISTS, "a heap or topic has that name")  # HP1
        domain = domain_for(TopicId(command.heap_id), 0, self._head.domains)
        shard = self._names.give_stream(step, domain) if len(self.all) < MAX_HEAPS else None
        if shard is None:
            return refused(Why.LIMIT, "too many heaps, or no stream ids are left")
        now_ms = self._timeline.time_ms
        heap = Heap(
            id=command.heap_id, name=command.name, mode=command.mode, shard=shard, partitions=command.partitions,
            replication_factor=command.replication_factor, state=HeapState.CREATING, created_ms=now_ms,
            changed_ms=now_ms, revision=0, told=-1, config=command.config,
        )  # fmt: skip
        self.all[heap.id] = heap
        self._by_name[heap.name] = heap.id
        return HeapCreated(heap_id=heap.id, shard=shard)

    def _ready(self, command: HeapReady) -> Verdict:
        heap = self.all.get(command.heap_id)
        if heap is None:
            return refused(Why.NOT_FOUND, "no such heap")
        if heap.state is HeapState.DELETING:
            return refused(Why.STATE, "the heap is being deleted")
        if domain_of(heap.shard) == self._head.domain and not self._shards.is_open(heap.shard):
            return refused(Why.STATE, "the shard of the heap is not open")  # HP2
        heap.state = HeapState.READY
        heap.told = max(heap.told, min(command.revision, heap.revision))
        heap.changed_ms = self._timeline.time_ms
        return DONE

    def _alter(self, command: AlterHeap) -> Verdict:
        heap = self.all.get(command.heap_id)
        if heap is None or heap.state is HeapState.DELETING:
            return refused(Why.NOT_FOUND, "no such heap")
        if command.expected_revision not in (-1, heap.revision):
            return refused(Why.STALE, "the heap was altered meanwhile")
        heap.config = command.config
        heap.partitions = command.partitions or heap.partitions
        heap.revision += 1
        heap.changed_ms = self._timeline.time_ms
        return HeapAltered(revision=heap.revision)

    def _delete(self, command: DeleteHeap) -> Verdict:
        heap = self.all.get(command.heap_id)
        if heap is None:
            return refused(Why.NOT_FOUND, "no such heap")
        if heap.state is not HeapState.DELETING:
            heap.state = HeapState.DELETING
            heap.changed_ms = self._timeline.time_ms
            del self._by_name[heap.name]  # HP1
        return HeapDeleted(shard=heap.shard)

    def _gone(self, command: HeapGone) -> Verdict:
        heap = self.all.get(command.heap_id)
        if heap is None:
            return DONE
        if heap.state is not HeapState.DELETING:
            return refused(Why.STATE, "the heap was not deleted")
        if self._shards.is_open(heap.shard):
            return refused(Why.STATE, "the shard of the heap is open")
        del self.all[heap.id]
        return DONE

    def cap_times(self, latest_ms: int) -> None:
        """Let no heap be younger than a time: for a log that begins anew."""
        for heap in self.all.values():
            heap.created_ms, heap.changed_ms = min(heap.created_ms, latest_ms), min(heap.changed_ms, latest_ms)

    def dump(self, out: Writer, version: int) -> None:
        out.values([len(self.all)])
        for _, heap in sorted(self.all.items()):
            out.values([
                heap.id, heap.name, int(heap.mode), heap.shard, heap.partitions, heap.replication_factor,
                heap.state.value, heap.created_ms, heap.changed_ms, heap.revision, heap.told,
                pack_config(heap.config),
            ])  # fmt: skip

    def load(self, source: Reader, version: int) -> None:
        (heaps,) = source.ints(1)
        for _ in range(heaps):
            row = source.row()
            heap = Heap(
                id=row.raw(), name=row.text(), mode=Mode(row.number()), shard=StreamId(row.number()),
                partitions=row.number(), replication_factor=row.number(), state=HeapState(row.number()),
                created_ms=row.number(), changed_ms=row.number(), revision=row.number(), told=row.number(),
                config=unpack_config(row.raw()),
            )  # fmt: skip
            self.all[heap.id] = heap
            if heap.state is not HeapState.DELETING:
                self._by_name[heap.name] = heap.id

    def show(self, prefix: str) -> Listing:
        shown = [
            (HEAP_KEY.build(self.all[number].name), _fields(self.all[number])) for number in self._by_name.values()
        ]
        yield from sorted(shown, key=lambda item: item[0])


def _fields(heap: Heap) -> Fields:
    return {
        "heapId": heap.id.hex(), "mode": heap.mode.name, "shard": heap.shard, "partitions": heap.partitions,
        "replicationFactor": heap.replication_factor, "state": heap.state.name, "createdAt": heap.created_ms,
        "revision": heap.revision, "told": heap.told,
        "config": {name: getattr(heap.config, name) for name in heap.config.__struct_fields__},
    }  # fmt: skip
