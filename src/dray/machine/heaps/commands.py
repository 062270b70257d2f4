"""What else is said to a shard: by a heap's saga, by time, and by operators."""

from dataclasses import dataclass
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from dray.machine.command import MAX_ROWS, MAX_SIGNED, Count, Limit, Nonce, Packed, Part, StreamField, Text
from dray.machine.heaps.config import MAX_PARTITIONS, HeapConfig, Mode
from dray.machine.heaps.packets import MAX_NOTE_BYTES
from dray.machine.verdict import Verdict

Partitions: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_PARTITIONS)]
Slot: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
Note: TypeAlias = Annotated[str, Meta(max_length=MAX_NOTE_BYTES // 4)]


class MessageRef(Part, frozen=True, kw_only=True):
    """A message as it was found: its slot may be another's by now, its arrival never."""

    slot: Slot
    arrival: Count


Refs: TypeAlias = Annotated[tuple[MessageRef, ...], Meta(max_length=MAX_ROWS)]


class OpenShard(Packed, frozen=True, kw_only=True):
    """Make the shard of a heap in its own domain, or tell it what the heap's config is now; again is harmless."""

    number = 69
    since = 2

    shard: StreamField
    heap_id: Nonce
    mode: Mode
    partitions: Partitions
    revision: Count
    """Of the heap; an older one than the shard knows changes nothing."""
    config: HeapConfig = msgspec.field(default_factory=HeapConfig)
    name: Text = ""
    """Of the heap, for its history."""


class CloseShard(Packed, frozen=True, kw_only=True):
    """Take and grant no more, and drop at most `limit` messages. A slice: ask again while some are left."""

    number = 70
    since = 2

    shard: StreamField
    limit: Limit = MAX_ROWS


class Tick(Packed, frozen=True, kw_only=True):
    """Let what is due happen: delays, deadlines, forgetting. A slice."""

    number = 74
    since = 2

    shard: StreamField
    limit: Limit = MAX_ROWS


class Bury(Packed, frozen=True, kw_only=True):
    """Move messages to the dead."""

    number = 76
    since = 2

    shard: StreamField
    messages: Refs
    force: bool = False
    """Those that are leased, too: their tokens are worth nothing then."""
    note: Note = ""
    actor: Text = ""
    request: Text = ""

    def needs(self) -> int:
        return max(1, len(self.messages))


class Replay(Packed, frozen=True, kw_only=True):
    """Make dead messages ready again: the ones named, or, if none are, the oldest `limit` (a slice)."""

    number = 77
    since = 2

    shard: StreamField
    messages: Refs = ()
    limit: Limit = MAX_ROWS
    keep_time: bool = False
    """With their arrival and the time of their enqueue; else as if they came now."""
    priority: Annotated[int, Meta(ge=-MAX_SIGNED - 1, le=MAX_SIGNED)] | None = None
    """Another one than they had."""
    actor: Text = ""
    request: Text = ""

    def needs(self) -> int:
        return max(1, len(self.messages))


class Drop(Packed, frozen=True, kw_only=True):
    """Delete messages: dead ones that are named, those that are past their time, or the oldest dead (a slice)."""

    number = 78
    since = 2

    shard: StreamField
    messages: Refs = ()
    expired: bool = False
    """Of the ones named, those that wait and are older than `message_ttl_ms` (judged here), and no others."""
    limit: Limit = MAX_ROWS
    actor: Text = ""
    request: Text = ""

    def needs(self) -> int:
        return max(1, len(self.messages))


class Purge(Packed, frozen=True, kw_only=True):
    """Delete what arrived before `upto` and lies in `limit` slots from `start` on. A slice."""

    number = 79
    since = 2

    shard: StreamField
    upto: Count
    start: Slot = 0
    include_leased: bool = False
    include_dead: bool = False
    limit: Limit = MAX_ROWS
    actor: Text = ""
    request: Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardClosed(Verdict):
    """`left` rows remain to be dropped; at 0 the shard is forgotten."""

    left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked(Verdict):
    """What happened; `more` is due, perhaps: ask again."""

    done: int
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Spilled(Verdict):
    """How many messages lie in the object now; the others were gone."""

    named: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Buried(Verdict):
    """One code for each message, of `answers`."""

    codes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved(Verdict):
    """How many messages were replayed or deleted, and how many of those asked for are left."""

    count: int
    left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged(Verdict):
    """How many went, and the slot to go on from; -1: all were looked at."""

    count: int
    next_start: int
