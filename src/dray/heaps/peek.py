"""Looking at messages without taking them, page by page.

Ready ones come best first, delayed ones soonest first, leased ones by the end
of their lease, dead ones in the order of their death. A page begins behind
the last message of the one before, wherever that is by now: what has come or
gone meanwhile moves nothing else.

Invariants
    PK1  Two looks with no change between them are equal, and none changes anything.
    PK2  No page shows a token.
"""

import base64
import binascii
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from dray.clock import Clock
from dray.errors import DrayError
from dray.heaps.bodies import Body, unpack_body
from dray.heaps.errors import BadPage, MessageGone
from dray.heaps.ids import MessageId
from dray.heaps.present import DomainTime, present
from dray.heaps.reading import BodyReader
from dray.heaps.search import find_messages, shard_of
from dray.machine.heaps.answers import GrantedMessage
from dray.machine.heaps.catalog import Heap
from dray.machine.heaps.kernel import MessageOrder
from dray.machine.heaps.order import SLOT_MASK, best
from dray.machine.heaps.rows import DEAD, DELAYED, READY, MessageRow, State
from dray.machine.heaps.shard import Shard
from dray.machine.names import domain_of
from dray.replica.domains import Domains

MAX_PAGE: Final = 1_000
MAX_DEPTH: Final = 10_000
"""Ready and delayed messages are shown so far down, and no further."""


class _Place(msgspec.Struct, frozen=True, array_like=True):
    """Where a page ended: opaque to clients."""

    state: Annotated[int, Meta(ge=READY, le=DEAD)]
    key: bytes
    """Of the order that its state is shown in."""
    depth: Annotated[int, Meta(ge=0, le=MAX_DEPTH)]


_DECODER: Final = msgspec.msgpack.Decoder(_Place)
_KEY_BYTES: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekedMessage:
    """One message as it was when it was looked at."""

    id: MessageId
    row: MessageRow
    holder: str
    """Who has it leased."""
    lease_ms: int
    """What is left of that lease."""
    not_before_ms: int
    """When a delayed message becomes ready; else 0."""
    dead_ms: int
    """When a dead one died; else 0."""
    last_error: str
    body: Body | None
    """None: it was not asked for, or cannot be read now."""

    @property
    def state(self) -> State:
        return State(self.row.state)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekPage:
    messages: list[PeekedMessage]
    next_token: str
    """Empty: there are no more."""


class Peeking:
    """Looks at the messages of heaps."""

    def __init__(self, *, domains: Domains, readers: dict[int, BodyReader], clock: Clock) -> None:
        self._domains = domains
        self._readers = readers
        self._clock = clock

    async def page(
        self, heap: Heap, state: State = State.READY, *, limit: int = 100, token: str = "", payload: bool = True
    ) -> PeekPage:
        """Messages in one state, after a sync.

        Raises:
            BadPage: the token or the limit makes no sense.
            UnknownHeap, Unavailable: nothing was looked at.
        """
        if state in (State.FREE, State.PREPARED) or not 0 < limit <= MAX_PAGE:
            raise BadPage("a page has a state, and from 1 messages on", most=MAX_PAGE)
        place = _parse(token, state) if token else None
        replica = self._domains.of(heap.shard)
        await replica.sync()
        shard = shard_of(replica, heap)
        keyed, depth = _slots(shard, state, place, limit)
        messages = await self._show(heap, shard, [slot for _, slot in keyed], payload=payload)
        more = len(keyed) == limit and depth < MAX_DEPTH
        return PeekPage(messages=messages, next_token=_format(state, keyed[-1][0], depth) if more else "")

    async def one(self, heap: Heap, identity: MessageId, *, payload: bool = True) -> PeekedMessage:
        """The message with an id, whatever its state; `MessageGone` if there is none."""
        found = await find_messages(self._domains, heap, [identity])
        shard = shard_of(self._domains.of(heap.shard), heap)
        ref = found.get(identity)
        if ref is None or not shard.messages.rows.holds(ref.slot, ref.arrival):
            raise MessageGone("there is no such message", heap=heap.name)
        (message,) = await self._show(heap, shard, [ref.slot], payload=payload)
        return message

    async def _show(self, heap: Heap, shard: Shard, slots: Sequence[int], *, payload: bool) -> list[PeekedMessage]:
        """Everything of the state is copied first: a row may be another message's after a wait."""
        at = present(self._domains.of(heap.shard), self._clock)
        shown = [_look(shard, slot, at, domain_of(heap.shard)) for slot in slots]
        if not payload:
            return shown
        inline = shard.messages.bodies
        wanted = [as_granted(slot, one.row, inline.get(slot)) for slot, one in zip(slots, shown, strict=True)]
        bodies = await self._readers[domain_of(heap.shard)].read(wanted)
        whole = []
        for slot, one in zip(slots, shown, strict=True):
            packed = bodies[slot]
            try:
                body = None if isinstance(packed, DrayError) else unpack_body(packed)
            except DrayError:
                body = None
            whole.append(replace(one, body=body))
        return whole


def _look(shard: Shard, slot: int, at: DomainTime, domain: int) -> PeekedMessage:
    row = shard.messages.rows.read(slot)
    held = shard.leases.by_slot.get(slot)
    return PeekedMessage(
        id=MessageId(row.begun_ms, domain, row.number, row.seq), row=row,
        holder="" if held is None else held.holder,
        lease_ms=0 if held is None else max(0, held.deadline_ms - at.running_ms),
        not_before_ms=row.due_ms if row.state == DELAYED else 0, dead_ms=row.due_ms if row.state == DEAD else 0,
        last_error=shard.messages.notes.get(slot, ""), body=None,
    )  # fmt: skip


def as_granted(slot: int, row: MessageRow, body: bytes | None) -> GrantedMessage:
    """As bodies are read for."""
    return GrantedMessage(
        slot, row.arrival, row.priority, row.attempts, row.partition, row.flags, row.number, row.begun_ms, row.seq,
        row.enqueued_ms, row.max_retries, row.place, row.position, row.length, body,
    )  # fmt: skip


def _slots(shard: Shard, state: State, place: _Place | None, limit: int) -> tuple[list[tuple[int, int]], int]:
    """Keys and slots of the next page, and how deep it reaches."""
    after = -1 if place is None else int.from_bytes(place.key, "big")
    if state is State.READY or state is State.DELAYED:
        order = shard.messages.ready if state is State.READY else shard.messages.delays
        return _ordered(order, after, limit, 0 if place is None else place.depth)
    if state is State.LEASED:
        return _leased(shard, after, limit), 0
    return _dead(shard, after, limit), 0


def _ordered(order: MessageOrder, after: int, limit: int, depth: int) -> tuple[list[tuple[int, int]], int]:
    found = best(order, min(depth + limit, MAX_DEPTH))
    at = bisect_left(found, after + 1)
    if at > depth:  # better ones have come: the page begins further down than it did
        found = best(order, MAX_DEPTH)
        at = bisect_left(found, after + 1)
    page = found[at : at + limit]
    return [(entry, entry & SLOT_MASK) for entry in page], at + len(page)


def _leased(shard: Shard, after: int, limit: int) -> list[tuple[int, int]]:
    """By their deadline, bucket by bucket."""
    by_slot, found = shard.leases.by_slot, list[tuple[int, int]]()
    for bucket in shard.leases.buckets_from(max(0, after >> 32)):
        keys = (by_slot[slot].deadline_ms << 32 | slot for slot in bucket)
        found += nsmallest(limit - len(found), ((key, key & SLOT_MASK) for key in keys if key > after))
        if len(found) >= limit:
            break
    return found


def _dead(shard: Shard, after: int, limit: int) -> list[tuple[int, int]]:
    """By the time of their death, then by arrival; `dead` is in the order of their death."""
    rows, slots = shard.messages.rows, list(shard.messages.dead)
    at = bisect_left(slots, after >> 80, key=rows.due_ms) if after >= 0 else 0
    found: list[tuple[int, int]] = []
    last_ms = -1
    for slot in slots[at:] if at else slots:
        died_ms = rows.due_ms(slot)
        if len(found) >= limit and died_ms > last_ms:
            break
        last_ms = died_ms
        key = died_ms << 80 | rows.arrival(slot) << 32 | slot
        if key > after:
            found.append((key, slot))
    return nsmallest(limit, found)


def _format(state: State, key: int, depth: int) -> str:
    place = _Place(int(state), key.to_bytes(_KEY_BYTES, "big"), min(depth, MAX_DEPTH))
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(place)).decode()


def _parse(token: str, state: State) -> _Place:
    try:
        place = _DECODER.decode(base64.b64decode(token.encode("ascii"), altchars=b"-_", validate=True))
    except (binascii.Error, UnicodeError, ValueError, msgspec.MsgspecError) as broken:
        raise BadPage("the page token is none of ours") from broken
    if place.state != state or len(place.key) != _KEY_BYTES:
        raise BadPage("the page token belongs to another state", state=state.name)
    return place
