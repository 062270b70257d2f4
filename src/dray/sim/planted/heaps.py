"""Mistakes about heaps: who holds a message, for how long, and what is remembered."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from dray.heaps.consumers import Consumer as Consumer
from dray.heaps.lane import HeapLane, NewMessage
from dray.heaps.spill import Spiller
from dray.machine.heaps.answers import DIED, MessageGiven
from dray.machine.heaps.dedup import Dedup, Known
from dray.machine.heaps.history import Cause
from dray.machine.heaps.leases import LeaseHeld, Leases
from dray.machine.heaps.messages import Messages
from dray.machine.heaps.rows import LEASED, SIZE
from dray.machine.heaps.shard import Shard
from dray.machine.names import StreamId

_ENQUEUE: Final = HeapLane.enqueue
_OVER: Final = Leases.over
_REMOVE_RUN: Final = Messages.remove_run
_WAKE: Final = Messages.wake
_CHOOSE: Final = Spiller._choose
_LATER: Final[set["asyncio.Task[object]"]] = set()


async def answered_before_durable(
    self: HeapLane, shard: StreamId, messages: Sequence[NewMessage], *, atomic: bool = False
) -> list[MessageGiven]:
    """A producer is answered after a moment, whether or not the log has its message by then."""
    task: asyncio.Task[object] = asyncio.ensure_future(_ENQUEUE(self, shard, messages, atomic=atomic))
    _LATER.add(task)
    task.add_done_callback(_LATER.discard)
    await asyncio.wait((task,), timeout=0.3)
    if task.done() and task.exception() is None:
        given = task.result()
        assert isinstance(given, list)
        return given
    stamp = int.from_bytes(messages[0].body[-4:], "big")
    return [MessageGiven(0, 0xFFFF, stamp + at, at) for at in range(len(messages))]


def any_token(self: Leases, slot: int, nonce: bytes) -> LeaseHeld | None:
    """Whoever held the message once may settle it."""
    return self.by_slot.get(slot)


def over_early(self: Leases, running_ms: int, limit: int, is_over: Callable[[LeaseHeld], bool]) -> list[int]:
    """A lease ends five seconds before its time."""
    return _OVER(self, running_ms + 5_000, limit, lambda held: True)


def never_known(self: Dedup, key: bytes, seq: int, running_ms: int, window_ms: int) -> Known | None:
    """A repeat is a new message."""
    return None


def comes_back(self: Messages, slots: list[int], places: list[int]) -> None:
    """What is acked now and then is ready again."""
    gone = [at for at, slot in enumerate(slots) if self.rows.arrival(slot) % 7]
    for slot in {*slots} - {slots[at] for at in gone}:
        self.rows.data[slot * SIZE] = LEASED
        self.make_ready(slot)
    _REMOVE_RUN(self, [slots[at] for at in gone], [places[at] for at in gone])


def awake_early(self: Messages, now_ms: int, limit: int) -> int:
    """What is delayed comes before its time."""
    return _WAKE(self, now_ms + 1_800, limit)


def the_dead_come_back(self: Messages, slot: int, now_ms: int, cause: Cause) -> int:
    """Who rejects a message is told that it is dead, and it is ready again."""
    self.make_ready(slot)
    return DIED


def bodies_mixed_up(self: Spiller, shard: Shard, *, crowded: bool) -> list[tuple[int, bytes]]:
    """Bodies of one length change places on their way to an object."""
    chosen = _CHOOSE(self, shard, crowded=crowded)
    by_size: dict[int, list[bytes]] = {}
    for _, body in chosen:
        by_size.setdefault(len(body), []).append(body)
    return [(slot, by_size[len(body)].pop()) for slot, body in chosen]


def reserves_nothing(self: Consumer, count: int) -> None:
    """What is asked for is asked for again; more credits come from nowhere."""
    self._credits += count
    self._reserved += count
