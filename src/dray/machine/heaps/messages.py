"""The life of the messages of one shard.

    prepare --> PREPARED --commit--> READY or DELAYED, --abort--> gone

    enqueue --> READY <--wake-- DELAYED <--+-- nack, or the deadline passes
       |          |                ^       |
       |        lease            delay   LEASED --ack--> gone
       +--delay---|----------------+       |
                  +------------------------+--out of retries, or reject--> DEAD --replay--> READY

Each edge is one method here; who may take it is judged in `shard` and
`operators`. Whoever takes a message out of LEASED ends its lease first.

Invariants
    L3  `attempts` counts failed deliveries, falls only by replay, and is at
        most `max_retries` + 1.
    L7  Nothing is ready before its time; what is due is ready after the next
        tick or lease that has room for it.
    L9  An acked message is never granted again.
    L12  A body can be read as long as its row lives: in memory, or in an
         object that is counted.
"""

from array import array
from dataclasses import dataclass
from itertools import islice
from typing import Final

from dray.errors import Corrupt
from dray.machine.heaps.answers import DIED, DONE
from dray.machine.heaps.config import HeapConfig, Mode
from dray.machine.heaps.history import Cause, EventKind, ShardHistory
from dray.machine.heaps.kernel import BY_DUE, BY_LEAST, BY_MOST, MessageOrder, write_run
from dray.machine.heaps.order import BIAS, load_order
from dray.machine.heaps.rows import DEAD, DELAYED, READY, MessageRows
from dray.machine.heaps.timers import backoff_ms
from dray.machine.packing import Reader, Writer

BODY_COST: Final = 64
"""What a body in memory costs besides its bytes."""


@dataclass(slots=True)
class Inline:
    """Bodies in the memory of a domain (HB1)."""

    used: int = 0


@dataclass(slots=True)
class Totals:
    """What happened since the shard was opened."""

    enqueued: int = 0
    duplicates: int = 0
    granted: int = 0
    acked: int = 0
    failed: int = 0
    expired: int = 0
    died: int = 0
    dropped: int = 0
    replayed: int = 0

    def values(self) -> list[int]:
        return [getattr(self, name) for name in self.__slots__]


class Messages:
    """MessageRows, and the lists that order them."""

    def __init__(self, mode: Mode, config: HeapConfig, inline: Inline) -> None:
        self.mode = mode
        self.config = config
        self.rows = MessageRows()
        self.ready = MessageOrder()
        self.delays = MessageOrder()
        self.dead: dict[int, None] = {}
        """In order of death."""
        self.bodies: dict[int, bytes] = {}
        self.notes: dict[int, str] = {}
        """Why a message failed last."""
        self.settled: dict[int, tuple[bytes, int]] = {}
        """The token and kind that ended the last delivery, until the next (L4)."""
        self.totals = Totals()
        self.inline_bytes = 0
        self.let_go: list[int] = []
        """Objects of rows that went, one for each row: the machine releases them after each command."""
        self.history: ShardHistory | None = None
        """Where what happens is written down; None: nowhere (HI3)."""
        self._inline = inline

    def note_down(
        self, slot: int, kind: int, *, attempts: int | None = None, span_ms: int = 0, who: str = "", note: str = ""
    ) -> None:
        """Something happens to a message, for its heap's history."""
        if self.history is not None:
            row = self.rows.read(slot)
            self.history.add(kind, row, attempts=attempts, span_ms=span_ms, who=who, note=note)

    @property
    def by(self) -> int:
        """What the rank of a message is made of."""
        return BY_MOST if self.mode is Mode.MAX else BY_LEAST

    def rank(self, priority: int) -> int:
        """Least is best."""
        return BIAS - 1 - priority if self.mode is Mode.MAX else priority + BIAS

    # -- edges -------------------------------------------------------------

    def add_run(
        self, packed: bytes, at: int, count: int, *, arrival: int, seq: int, number: int, begun_ms: int, now_ms: int,
        place: int,
    ) -> "array[int]":  # fmt: skip
        """New messages that are ready, of a run that `plain_run` found; their slots."""
        slots = self.rows.reserve(count)
        write_run(
            self.rows.data, self.ready, self.by, slots, packed, at, arrival, seq, number, begun_ms, now_ms, place,
            self.config.max_retries,
        )  # fmt: skip
        self.totals.enqueued += count
        return slots

    def remove_run(self, slots: list[int], places: list[int]) -> None:
        """Messages that were leased are gone (L9, L12); their rows say so already."""
        for slot, place in zip(slots, places, strict=True):
            if place:
                self.let_go.append(place - 1)
            else:
                self._drop_body(slot)
        for table in (self.notes, self.settled):
            for slot in slots if table else ():
                table.pop(slot, None)
        self.rows.freed(slots)
        if not self.rows.data:
            self.ready.clear()
            self.delays.clear()

    def add(self, row: tuple[int, ...], body: bytes | None, due_ms: int, rank: int, arrival: int) -> int:
        """A new message: its row says whether it is ready, delayed or prepared."""
        slot = self.rows.add(row)
        if row[0] == READY:
            self.ready.push(rank, arrival, slot)
        elif row[0] == DELAYED:
            self.delays.push(due_ms, arrival, slot)
        if body is not None:
            self.keep_body(slot, body)
        return slot

    def come_back(self, slot: int, due_ms: int, now_ms: int) -> None:
        """Ready now, or at a time."""
        if due_ms > now_ms:
            self.rows.move(slot, DELAYED)
            self.rows.set_due(slot, due_ms)
            self.delays.push(due_ms, self.rows.arrival(slot), slot)
        else:
            self.make_ready(slot)

    def make_ready(self, slot: int) -> None:
        self.rows.move(slot, READY)
        self.rows.set_due(slot, 0)
        self.ready.push(self.rank(self.rows.priority(slot)), self.rows.arrival(slot), slot)

    def fail(self, slot: int, now_ms: int, delay_ms: int, cause: Cause) -> int:
        """A delivery failed: back after a while (-1: the heap's backoff), or to the dead (L3)."""
        failed, most = self.rows.attempts(slot)
        if delay_ms < 0:
            delay_ms = backoff_ms(self.config, self.rows.arrival(slot), failed)
        self.totals.failed += 1
        self.rows.set_attempts(slot, failed + 1, most)
        if self.history is not None:
            span_ms = 0 if failed >= most else delay_ms
            self.note_down(slot, cause.kind, span_ms=span_ms, who=cause.who, note=cause.note)
        if failed >= most:
            return self.die(slot, now_ms)
        self.come_back(slot, now_ms + delay_ms, now_ms)
        return DONE

    def reject(self, slot: int, now_ms: int, cause: Cause) -> int:
        """A delivery failed, and no other is to be tried."""
        failed, most = self.rows.attempts(slot)
        self.totals.failed += 1
        self.rows.set_attempts(slot, failed + 1, most)
        if self.history is not None:
            self.note_down(slot, cause.kind, who=cause.who, note=cause.note)
        return self.die(slot, now_ms)

    def die(self, slot: int, now_ms: int) -> int:
        self.totals.died += 1
        if self.history is not None:
            self.note_down(slot, EventKind.DEAD if self.config.dead_letters else EventKind.DROPPED)
        if not self.config.dead_letters:
            self.totals.dropped += 1
            self.remove(slot)
            return DIED
        self.rows.move(slot, DEAD)
        self.rows.set_due(slot, now_ms)
        self.dead[slot] = None
        return DIED

    def remove(self, slot: int, place: int | None = None) -> None:
        """The message is gone (L9, L12); `place` is that of its row, where it is at hand."""
        if place is None:
            place = self.rows.place(slot)
        if place:
            self.let_go.append(place - 1)
        else:
            self._drop_body(slot)
        if self.notes:
            self.notes.pop(slot, None)
        if self.settled:
            self.settled.pop(slot, None)
        self.rows.remove(slot)
        if not self.rows.data:
            self.ready.clear()
            self.delays.clear()

    def leave_lists(self, slot: int) -> None:
        """A message that is ready, delayed or dead is taken by its name; what becomes of it follows at once."""
        state, priority, arrival, due_ms = self.rows.order_of(slot)
        if state == DEAD:
            del self.dead[slot]
            return
        if state == READY:
            self.ready.remove(self.rank(priority), arrival, slot)
        else:
            self.delays.remove(due_ms, arrival, slot)
        self.rows.move(slot, DEAD)

    def wake(self, now_ms: int, limit: int) -> int:
        """What is due becomes ready (L7)."""
        done, delays = 0, self.delays
        while done < limit and len(delays) and (slot := delays.take(now_ms)) >= 0:
            done += 1
            self.make_ready(slot)
        return done

    def next_due_ms(self) -> int | None:
        """When the next delay ends."""
        return self.delays.first_key()

    def forget_dead(self, now_ms: int, limit: int) -> int:
        """Dead messages past their retention go, the oldest first."""
        gone = 0
        if self.history is not None:
            limit = min(limit, max(0, self.history.room))  # HI2
        cutoff_ms = now_ms - self.config.retention_ms
        for slot in list(islice(self.dead, limit)):
            if self.rows.due_ms(slot) > cutoff_ms:
                break
            del self.dead[slot]
            self.totals.dropped += 1
            self.note_down(slot, EventKind.FORGOTTEN)
            self.remove(slot)
            gone += 1
        return gone

    # -- bodies ------------------------------------------------------------

    def keep_body(self, slot: int, body: bytes) -> None:
        self.bodies[slot] = body
        self._count_inline(len(body) + BODY_COST)

    def _drop_body(self, slot: int) -> None:
        self._count_inline(-len(self.bodies.pop(slot)) - BODY_COST)

    def _count_inline(self, size: int) -> None:
        self.inline_bytes += size
        self._inline.used += size

    def move_body(self, slot: int, place: int, position: int) -> None:
        """The body lies in another object from now on (L12)."""
        old = self.rows.place(slot)
        if old:
            self.let_go.append(old - 1)
        else:
            self._drop_body(slot)
        self.rows.set_place(slot, place, position)

    # -- the end of the shard ----------------------------------------------

    def cut(self, limit: int) -> int:
        """Take the last `limit` rows of a closed shard, whatever they are, and as much of the lists."""
        count = min(limit, self.rows.slots)
        first = self.rows.slots - count
        for slot, row in list(self.rows.all(first)):
            if row.place:
                self.let_go.append(row.place - 1)
            else:
                self._drop_body(slot)
        self.rows.cut(first)
        for order in (self.ready, self.delays):
            order.cut(2 * limit)
        for table in (self.dead, self.notes, self.settled):
            for _ in range(min(limit, len(table))):
                table.popitem()
        return count

    # -- checkpoint --------------------------------------------------------

    def dump(self, out: Writer, *, closed: bool) -> None:
        """Of a closed shard only what is left to let go of."""
        out.values(self.totals.values())
        self.rows.dump(out)
        out.column(array("I", () if closed else self.dead))
        slots = array("I", sorted(self.bodies))
        out.column(slots)
        out.blob(b"".join(self.bodies[slot] for slot in slots))
        notes = [] if closed else sorted(self.notes.items())
        settled = [] if closed else sorted(self.settled.items())
        out.values([len(notes), len(settled)])
        for slot, note in notes:
            out.values([slot, note])
        for slot, (nonce, kind) in settled:
            out.values([slot, nonce, kind])

    def load(self, source: Reader, *, closed: bool) -> None:
        """The lists are built anew from the rows; a closed shard needs none."""
        self.totals = Totals(*source.ints(len(Totals.__slots__)))
        self.rows.load(source, closed=closed)
        self.dead = dict.fromkeys(source.column("I"))
        slots, bodies, at = source.column("I"), bytes(source.blob()), 0
        if slots and max(slots) >= self.rows.slots:
            raise Corrupt("a body belongs to no row")
        for slot in slots:
            end = at + self.rows.length(slot)
            self.keep_body(slot, bodies[at:end])
            at = end
        notes, settled = source.ints(2)
        for _ in range(notes):
            row = source.row()
            slot = row.number()
            self.notes[slot] = row.text()
        for _ in range(settled):
            row = source.row()
            slot = row.number()
            self.settled[slot] = (row.raw(), row.number())
        if not closed:
            self._rebuild()

    def _rebuild(self) -> None:
        load_order(self.ready, self.rows, READY, self.by)
        load_order(self.delays, self.rows, DELAYED, BY_DUE)
