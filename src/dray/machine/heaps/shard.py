"""One heap in one domain: what its hot commands do.

The machine chooses what a lease takes when it is applied, so every grant is
the best ready message of the heap at that place in the log, through any
number of brokers.

Invariants
    L10  A batch is taken whole or not at all.
    L11  Limits are judged when a command is applied.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from dray.machine.heaps.answers import (
    ALREADY,
    CLOSED,
    DEDUP_FULL,
    DONE,
    DUPLICATE,
    FULL,
    GONE,
    HISTORY_FULL,
    INLINE_FULL,
    LOST,
    MALFORMED,
    TORN,
    UNDECIDED,
    Enqueued,
    Granted,
    GrantedMessage,
    MessageGiven,
    Settled,
)
from dray.machine.heaps.batches import Finish, Prepare, PreparedBatch, PreparedBatches
from dray.machine.heaps.commands import OpenShard
from dray.machine.heaps.config import MAX_RETRIES
from dray.machine.heaps.dedup import Dedup
from dray.machine.heaps.heirs import LeaseHeirs
from dray.machine.heaps.history import Cause, EventKind
from dray.machine.heaps.kernel import ack_run, lease_run, plain_run
from dray.machine.heaps.leases import LeaseHeld, Leases
from dray.machine.heaps.messages import BODY_COST, Inline, Messages
from dray.machine.heaps.order import MAX_ARRIVAL
from dray.machine.heaps.packets import (
    ATOMIC,
    ENQUEUE_ROW,
    IN_OBJECT,
    MAX_SEQ,
    RELATIVE,
    SETTLE_ROW,
    STAYS,
    Enqueue,
    EnqueueRow,
    Lease,
    Settle,
    Settlement,
)
from dray.machine.heaps.rows import DELAYED, LEASED, PREPARED, READY, ROW, SIZE
from dray.machine.heaps.timers import WAKE_LIMIT
from dray.machine.heaps.tombs import Tombs
from dray.machine.names import SessionId, StreamId
from dray.machine.sessions import Session

INLINE_BYTES: Final = 16 << 20
"""Of bodies in the state of a domain (HB1)."""
BODY_OVERHEAD: Final = 64 << 10
"""What a body may hold besides its payload."""
MIN_LEASE_MS: Final = 1_000
MAX_DUE_MS: Final = (1 << 62) - 1
_MAX_WAIT_MS: Final = MAX_DUE_MS >> 1
_ACK: Final = int(Settlement.ACK)
_NACK: Final = int(Settlement.NACK)
_RELEASE: Final = int(Settlement.RELEASE)
_REJECT: Final = int(Settlement.REJECT)
_EXTEND: Final = int(Settlement.EXTEND)
_RENEW: Final = int(Settlement.RENEW)
_LEASED: Final = int(EventKind.LEASED)
_ENDED: Final = {
    _NACK: int(EventKind.NACKED), _RELEASE: int(EventKind.RELEASED), _REJECT: int(EventKind.REJECTED),
}  # fmt: skip


class HeapMoment(NamedTuple):
    """When a command is applied, and what it may touch."""

    now_ms: int
    """Machine time: for what names a moment."""
    running_ms: int
    """Running time: for what lasts."""
    paused: bool
    session: SessionId
    """Whose entry it is."""
    live: Mapping[SessionId, Session]
    heirs: LeaseHeirs
    spare: int
    """Rows that it may touch besides those that it names (M7)."""


def is_over(held: LeaseHeld, moment: HeapMoment) -> bool:
    """Has running time reached the deadline, and the clock that counts (L8)?"""
    if moment.running_ms < held.deadline_ms:
        return False
    giver = moment.live.get(held.session)
    if giver is not None:
        return giver.clock_ms >= held.clock_end_ms
    end = moment.heirs.end_of(held.session, held.clock_end_ms, moment.live)
    return not moment.heirs.is_waiting(held.session) if end is None else end.clock_ms >= end.end_ms


class Numbers:
    """The counter of a domain that dedup entries and anonymous messages are numbered from (DD2)."""

    __slots__ = ("next",)

    def __init__(self) -> None:
        self.next = 1

    def take(self) -> int:
        number = self.next
        self.next += 1
        return number


def in_id(number: int) -> int:
    """What of a number goes into an id: the times of their generations tell equal ones apart (DD2)."""
    return number & 0xFFFF_FFFF


def _rows(command: Enqueue) -> list[EnqueueRow]:
    return [EnqueueRow._make(row) for row in ENQUEUE_ROW.iter_unpack(command.packed)]


class Shard:
    """The messages of a heap, who holds them, and what is remembered of those that are gone."""

    def __init__(self, opening: OpenShard, inline: Inline, numbers: Numbers) -> None:
        self.id: StreamId = opening.shard
        self.heap_id = opening.heap_id
        self.partitions = opening.partitions
        self.revision = opening.revision
        self.closed = False
        self.messages = Messages(opening.mode, opening.config, inline)
        self.leases = Leases()
        self.dedup = Dedup()
        self.tombs = Tombs()
        self.batches = PreparedBatches()
        self.next_arrival = 1
        self.anonymous = 0
        """The number of messages without a key, and below it the sequence of the next one."""
        self.anonymous_seq = 0
        self._inline = inline
        self._numbers = numbers

    def configure(self, opening: OpenShard) -> None:
        self.messages.config = opening.config
        self.partitions = opening.partitions
        self.revision = opening.revision

    # -- enqueue -----------------------------------------------------------

    def enqueue(self, command: Enqueue, moment: HeapMoment, place: int) -> Enqueued:
        """Judge each message; `place` is that of their object, 0: their bodies are here."""
        count = len(command.packed) // ENQUEUE_ROW.size
        if self.closed:
            return Enqueued([MessageGiven(CLOSED)] * count)
        if command.flags & ATOMIC:
            torn = self._torn(command, _rows(command), moment)
            if torn is not None:
                return Enqueued([torn] * count)  # L10
        return Enqueued(self._take_all(command, moment, place))

    def prepare(self, command: Prepare, moment: HeapMoment, place: int) -> Enqueued:
        """As a batch is taken, but nobody sees it until it is finished (BA2)."""
        rows = _rows(command.part)
        if self.closed:
            return Enqueued([MessageGiven(CLOSED)] * len(rows))
        torn = self._torn(command.part, rows, moment)
        if torn is not None:
            return Enqueued([torn] * len(rows))  # L10
        given = self._take_all(command.part, moment, place, prepared=True)
        both = [(row, one.slot) for row, one in zip(rows, given, strict=True) if one.slot >= 0]
        if both:
            names = tuple((command.part.keys[row.key - 1], row.seq) for row, _ in both if row.key)
            slots = tuple(slot for _, slot in both)
            prepared = PreparedBatch(command.home, command.begun_ms, moment.running_ms, slots, names)
            self.batches.add(command.batch, prepared)  # BA3
            if self.messages.history is not None:
                by = command.part.by
                told = (by[at] if by else "" for at, one in enumerate(given) if one.slot >= 0)
                self.messages.history.prepared[command.batch] = tuple(told)
        return Enqueued(given)

    def finish(self, command: Finish, moment: HeapMoment) -> int:
        """What was prepared is there from now on, or is gone (BA4); how many rows it was."""
        prepared = self.batches.take(command.batch)
        history = self.messages.history
        by = () if history is None else history.prepared.pop(command.batch, ())
        for at, slot in enumerate(prepared.slots):
            if command.commit:
                self.messages.totals.enqueued += 1
                if history is not None:
                    span_ms = max(0, self.messages.rows.due_ms(slot) - moment.now_ms)
                    self.messages.note_down(slot, EventKind.ENQUEUED, span_ms=span_ms, who=by[at] if by else "")
                self.messages.come_back(slot, self.messages.rows.due_ms(slot), moment.now_ms)
            else:
                self.messages.remove(slot)
        for key, seq in () if command.commit else prepared.names:
            self.dedup.give_back(key, seq)
        return len(prepared.slots)

    def _take_all(
        self, command: Enqueue, moment: HeapMoment, place: int, *, prepared: bool = False
    ) -> list[MessageGiven]:
        given: list[MessageGiven] = []
        judge, take, at, bodies = self._judge, self._take, 0, command.bodies
        plain = self.messages.history is None and not prepared and not self.batches.named
        while (index := len(given)) < len(command.packed) // ENQUEUE_ROW.size:
            if plain:
                at = self._take_run(command, at, moment, place, given)
                if len(given) > index:
                    continue
            row = EnqueueRow._make(ENQUEUE_ROW.unpack_from(command.packed, index * ENQUEUE_ROW.size))
            code = judge(command, row, moment)
            if place:
                body = None
            else:
                body = bytes(bodies[at : at + row.length])
                at += row.length
            given.append(take(command, row, body, moment, place, prepared) if code is None else code)
            if self.messages.history is not None and given[-1].slot >= 0 and not prepared:
                self._note_enqueued(given[-1].slot, command.by[len(given) - 1] if command.by else "", moment)
        return given

    def _take_run(self, command: Enqueue, at: int, moment: HeapMoment, place: int, given: list[MessageGiven]) -> int:
        """What `_judge` and `_take` do, to as many rows at once as are plain and go on from what is known.

        `at` is where the body of the next one begins; where that of the one behind them does is told.
        """
        index = len(given)
        messages, config = self.messages, self.messages.config
        _, _, _, _, _, key_at, seq, _, _ = ENQUEUE_ROW.unpack_from(command.packed, index * ENQUEUE_ROW.size)
        if key_at:
            key = command.keys[key_at - 1] if key_at <= len(command.keys) else b""
            known = self.dedup.follows(key, seq, moment.running_ms, config.dedup_window_ms)
            if known is None or known.number == in_id(self._numbers.next):
                return at
            (number, begun_ms), most = known, MAX_SEQ + 1 - seq
        else:
            number, begun_ms, seq = self.anonymous, moment.now_ms, self.anonymous_seq
            most = MAX_SEQ + 1 - seq if number else 0
        most = min(most, config.max_messages - messages.rows.live, MAX_ARRIVAL - self.next_arrival)
        if most <= 0:
            return at
        size = command.size if place else -1
        room = INLINE_BYTES - self._inline.used
        longest = config.max_payload_bytes + BODY_OVERHEAD
        count = plain_run(command.packed, index, most, self.partitions, longest, MAX_RETRIES, size, room, BODY_COST)
        if not count:
            return at
        slots = messages.add_run(
            command.packed, index, count, arrival=self.next_arrival, seq=seq, number=number, begun_ms=begun_ms,
            now_ms=moment.now_ms, place=place,
        )  # fmt: skip
        self.next_arrival += count
        if key_at:
            self.dedup.go_on(key, count)
        else:
            self.anonymous_seq = seq + count
        if not place:
            length = messages.rows.length
            for slot in slots:
                end = at + length(slot)
                messages.keep_body(slot, bytes(command.bodies[at:end]))
                at = end
        given += [MessageGiven._make((slot, number, begun_ms, seq + turn)) for turn, slot in enumerate(slots)]
        return at

    def _note_enqueued(self, slot: int, who: str, moment: HeapMoment) -> None:
        span_ms = max(0, self.messages.rows.due_ms(slot) - moment.now_ms)
        self.messages.note_down(slot, EventKind.ENQUEUED, span_ms=span_ms, who=who)

    def _judge(self, command: Enqueue, row: EnqueueRow, moment: HeapMoment) -> MessageGiven | None:
        """Why a message is not taken (L11). Dedup goes first: a repeat is told so whatever is full by now."""
        if self._is_malformed(command, row):
            return MessageGiven(MALFORMED)
        if row.key:
            window_ms = self.messages.config.dedup_window_ms
            key = command.keys[row.key - 1]
            if self.batches.named and (key, row.seq) in self.batches.named:
                return MessageGiven(UNDECIDED)  # BA3
            known = self.dedup.find(key, row.seq, moment.running_ms, window_ms)
            if known is not None:
                self.messages.totals.duplicates += 1
                return MessageGiven(DUPLICATE, known.number, known.begun_ms, row.seq)
        if self.messages.rows.live >= self.messages.config.max_messages or self.next_arrival >= MAX_ARRIVAL:
            return MessageGiven(FULL)
        if self.messages.history is not None and self.messages.history.room <= 0:
            return MessageGiven(HISTORY_FULL)  # HI2
        if not command.flags & IN_OBJECT and self._inline.used + row.length + BODY_COST > INLINE_BYTES:
            return MessageGiven(INLINE_FULL)  # HB1
        return None

    def _is_malformed(self, command: Enqueue, row: EnqueueRow) -> bool:
        _, wait, partition, retries, _, key, seq, position, length = row
        return (
            partition >= self.partitions
            or length > self.messages.config.max_payload_bytes + BODY_OVERHEAD
            or key > len(command.keys)
            or not 0 <= wait <= _MAX_WAIT_MS
            or not -1 <= retries <= MAX_RETRIES
            or seq > MAX_SEQ
            or (bool(command.flags & IN_OBJECT) and position + length > command.size)
        )

    def _take(
        self, command: Enqueue, row: EnqueueRow, body: bytes | None, moment: HeapMoment, place: int, prepared: bool
    ) -> MessageGiven:
        now_ms, messages = moment.now_ms, self.messages
        priority, wait, partition, retries, flags, key_at, seq, position, length = row
        if key_at:
            following = in_id(self._numbers.next)
            key = command.keys[key_at - 1]
            known = self.dedup.take(key, seq, now_ms, moment.running_ms, messages.config, following)
            if known is None:
                return MessageGiven(DEDUP_FULL)
            number, begun_ms = known
            if number == following:
                self._numbers.take()  # DD2
        else:
            number, begun_ms, seq = self.anonymous, now_ms, self.anonymous_seq
            if not number or seq > MAX_SEQ:
                number, seq = in_id(self._numbers.take()), 0
                self.anonymous = number
            self.anonymous_seq = seq + 1
        arrival = self.next_arrival
        self.next_arrival = arrival + 1
        due_ms = wait and (now_ms + wait if flags & RELATIVE else wait)
        delayed = due_ms > now_ms
        packed = (
            PREPARED if prepared else DELAYED if delayed else READY, flags & STAYS, partition, 0,
            messages.config.max_retries if retries < 0 else retries, length, position, number,
            priority, arrival, place, now_ms, due_ms if delayed else 0, seq, begun_ms,
        )  # fmt: skip
        slot = messages.add(packed, body, due_ms, messages.rank(priority), arrival)
        messages.totals.enqueued += not prepared
        return MessageGiven._make((slot, number, begun_ms, seq))

    def _torn(self, command: Enqueue, rows: list[EnqueueRow], moment: HeapMoment) -> MessageGiven | None:
        """The first message that would be refused, of a batch that is taken whole or not at all, and why."""
        config, fresh, keyed, size = self.messages.config, 0, 0, 0
        seen: set[tuple[int, int]] = set()

        def torn(index: int, code: int) -> MessageGiven:
            return MessageGiven(TORN, index, 0, code)

        for index, row in enumerate(rows):
            if self._is_malformed(command, row):
                return torn(index, MALFORMED)
            if row.key:
                key = command.keys[row.key - 1]
                if (key, row.seq) in self.batches.named:
                    return torn(index, UNDECIDED)  # BA3
                known = self.dedup.find(key, row.seq, moment.running_ms, config.dedup_window_ms)
                if known is not None or (row.key, row.seq) in seen:
                    continue
                seen.add((row.key, row.seq))
                keyed += 1
                if not self.dedup.has_room(key, keyed, moment.running_ms, config):
                    return torn(index, DEDUP_FULL)
            fresh += 1
            size += row.length + BODY_COST
            code = self._lacks_room(command, fresh, size)
            if code:
                return torn(index, code)
        return None

    def _lacks_room(self, command: Enqueue, fresh: int, size: int) -> int:
        """What there is no room for, if so many messages come with bodies of that size; 0: there is."""
        config, history = self.messages.config, self.messages.history
        if len(self.messages.rows) + fresh > config.max_messages or self.next_arrival + fresh > MAX_ARRIVAL:
            return FULL
        if history is not None and history.room < fresh:
            return HISTORY_FULL  # HI2
        if not command.flags & IN_OBJECT and self._inline.used + size > INLINE_BYTES:
            return INLINE_FULL
        return 0

    # -- lease -------------------------------------------------------------

    def lease(self, command: Lease, moment: HeapMoment, *, want: bool) -> tuple[Granted, int]:
        """The best messages there are, for one consumer (L5), and what is left of the spare rows.

        Of a follower nobody wants to know which messages they are.
        """
        config, totals = self.messages.config, self.messages.totals
        if self.closed:
            return Granted([]), moment.spare
        spare = moment.spare - self.wake(moment, min(WAKE_LIMIT, moment.spare))
        room = min(
            0 if config.paused else command.limit,
            config.max_inflight - len(self.leases),
            config.max_leases_per_consumer - self.leases.held_by(command.holder),
        )
        if self.messages.history is not None:
            room = min(room, self.messages.history.room)  # HI2
        if room <= 0:
            return Granted([]), spare
        granted: list[GrantedMessage] | None = [] if want else None
        slots, spare = self._best(command, moment, room, spare, granted)
        if not slots:
            return Granted([]), spare
        lease_ms = min(max(command.visibility_ms, MIN_LEASE_MS), config.max_lease_ms)
        deadline_ms = moment.running_ms + lease_ms
        clock_end_ms = moment.live[moment.session].clock_ms + lease_ms
        held = LeaseHeld(
            command.nonce, deadline_ms, moment.running_ms, command.holder, moment.session, clock_end_ms
        )  # fmt: skip
        self.leases.grant(slots, held)  # L1
        moment.heirs.gave(moment.session)
        totals.granted += len(slots)
        if self.messages.history is not None:
            for slot in slots:
                self.messages.note_down(slot, _LEASED, span_ms=lease_ms, who=command.holder)
        for slot in slots if self.messages.settled else ():
            self.messages.settled.pop(slot, None)
        return Granted(granted or [], lease_ms), spare

    def _best(
        self, command: Lease, moment: HeapMoment, room: int, spare: int, granted: list[GrantedMessage] | None
    ) -> tuple[list[int], int]:
        """Take messages off `ready`: they are leased next. Those past their time are not granted, but dropped."""
        messages, rows = self.messages, self.messages.rows
        worst = messages.rank(command.worst)
        if messages.config.message_ttl_ms and not moment.paused:
            slots, spare = self._best_young(worst, moment.now_ms - messages.config.message_ttl_ms, room, spare)
        else:
            slots = lease_run(rows.data, messages.ready, worst, room)
        rows.counts[READY] -= len(slots)
        rows.counts[LEASED] += len(slots)
        if granted is not None:
            data, unpack, bodies = rows.data, ROW.unpack_from, messages.bodies
            for slot in slots:
                (_, flags, partition, attempts, retries, length, position, number, priority, arrival, place,
                 enqueued_ms, _, seq, begun_ms) = unpack(data, slot * SIZE)  # fmt: skip
                granted.append(GrantedMessage._make((
                    slot, arrival, priority, attempts, partition, flags, number, begun_ms, seq, enqueued_ms,
                    retries, place, position, length, bodies.get(slot),
                )))  # fmt: skip
        return slots, spare

    def _best_young(self, worst: int, cutoff_ms: int, room: int, spare: int) -> tuple[list[int], int]:
        messages, rows = self.messages, self.messages.rows
        slots: list[int] = []
        while len(slots) < room and (slot := messages.ready.first(worst)) >= 0:
            if rows.enqueued_ms(slot) > cutoff_ms:
                messages.ready.take(worst)
                rows.data[slot * SIZE] = LEASED
                slots.append(slot)
                continue
            if not spare:
                break
            spare -= 1  # M7
            messages.ready.take(worst)
            messages.note_down(slot, EventKind.OUTDATED)
            messages.totals.dropped += 1
            messages.remove(slot)
        return slots, spare

    # -- settle ------------------------------------------------------------

    def settle(self, command: Settle, moment: HeapMoment) -> Settled:
        if self.closed:
            return Settled([GONE] * (len(command.packed) // SETTLE_ROW.size), {})
        codes: list[int] = []
        left_ms: dict[int, int] = {}
        find, names = self.leases.find, self.messages.rows.names
        at, rows = 0, len(command.packed) // SETTLE_ROW.size
        while at < rows:
            kind, slot, arrival, nonce, _ = SETTLE_ROW.unpack_from(command.packed, at * SETTLE_ROW.size)
            held = find(slot, nonce)
            if held is None or names(slot)[0] != arrival or is_over(held, moment):  # L2
                codes.append(self._settled_before(kind, slot, arrival, nonce))
            elif kind == _ACK:
                codes += self._ack(command.packed, at, held, moment)
            else:
                codes.append(self._settle_other(command, at, moment, left_ms))
            at = len(codes)
        return Settled(codes, left_ms)

    def _ack(self, packed: bytes, at: int, held: LeaseHeld, moment: HeapMoment) -> list[int]:
        """As many acks of one grant as follow each other, the first in any case: its messages share their lease."""
        messages = self.messages
        _, slot, _, nonce, _ = SETTLE_ROW.unpack_from(packed, at * SETTLE_ROW.size)
        if messages.history is not None:
            messages.note_down(slot, EventKind.ACKED, who=held.holder)
            packed, at = packed[at * SETTLE_ROW.size : (at + 1) * SETTLE_ROW.size], 0
        bucket = self.leases.bucket_of(held)
        slots, arrivals, places = ack_run(messages.rows.data, self.leases.by_slot, bucket, held, nonce, packed, at)
        self.leases.ended(held, bucket, len(slots))
        self.tombs.add_all(arrivals, nonce, moment.running_ms)
        messages.totals.acked += len(slots)
        messages.remove_run(slots, places)
        return [DONE] * len(slots)

    def _settle_other(self, command: Settle, index: int, moment: HeapMoment, left_ms: dict[int, int]) -> int:
        """The live token says something else than that the work is done."""
        kind, slot, _, nonce, argument = SETTLE_ROW.unpack_from(command.packed, index * SETTLE_ROW.size)
        if kind in (_EXTEND, _RENEW):
            left_ms[index] = self._prolong(slot, kind, argument, moment)
            return DONE
        if kind not in (_NACK, _RELEASE, _REJECT):
            return GONE
        code = self._end(slot, kind, argument, nonce, command.notes.get(index), moment)
        if code == DONE:
            left_ms[index] = max(0, self.messages.rows.due_ms(slot) - moment.now_ms)
        return code

    def _end(self, slot: int, kind: int, argument: int, nonce: bytes, note: str | None, moment: HeapMoment) -> int:
        """A delivery ended without an ack."""
        messages, now_ms = self.messages, moment.now_ms
        cause = Cause(_ENDED[kind], self.leases.by_slot[slot].holder, note or "")
        self.leases.end(slot)
        messages.settled[slot] = (nonce, kind)
        if note:
            messages.notes[slot] = note
        argument = min(argument, MAX_DUE_MS >> 1)
        if kind == _NACK:
            return messages.fail(slot, now_ms, argument, cause)
        if kind == _REJECT:
            return messages.reject(slot, now_ms, cause)
        messages.note_down(slot, cause.kind, span_ms=max(0, argument), who=cause.who, note=cause.note)
        messages.come_back(slot, now_ms + max(0, argument), now_ms)
        return DONE

    def _settled_before(self, kind: int, slot: int, arrival: int, nonce: bytes) -> int:
        """The token is not the live one: was it, and did it say the same (L4)?"""
        if kind == _ACK:
            knows = self.tombs.knows(arrival, nonce)
            if knows is not None:
                return ALREADY if knows else LOST
        elif self.messages.settled.get(slot) == (nonce, kind):
            return ALREADY
        return LOST if 0 < arrival < self.next_arrival else GONE

    def _prolong(self, slot: int, kind: int, argument: int, moment: HeapMoment) -> int:
        """Later, at most by what a lease may last, and never earlier; what is left of it.

        From now on the clock of whoever wrote this counts, and nothing that
        was sure before is lost by that (L8).
        """
        held, running_ms = self.leases.by_slot[slot], moment.running_ms
        wanted_ms = (held.deadline_ms if kind == _EXTEND else running_ms) + argument
        latest_ms = held.granted_ms + self.messages.config.max_lease_ms
        deadline_ms = max(held.deadline_ms, min(wanted_ms, latest_ms))
        if deadline_ms != held.deadline_ms:
            left_ms = deadline_ms - running_ms
            end = moment.heirs.end_of(held.session, held.clock_end_ms, moment.live)
            if end is not None:
                left_ms = max(left_ms, end.end_ms - end.clock_ms + deadline_ms - held.deadline_ms)
            clock_end_ms = moment.live[moment.session].clock_ms + left_ms
            self.leases.prolong(
                slot, held._replace(deadline_ms=deadline_ms, session=moment.session, clock_end_ms=clock_end_ms)
            )
            moment.heirs.gave(moment.session)
        return max(0, deadline_ms - running_ms)

    # -- time --------------------------------------------------------------

    def wake(self, moment: HeapMoment, limit: int) -> int:
        """Make ready what is due, then end the leases that are over."""
        done = self.messages.wake(moment.now_ms, limit)
        for slot in self.leases.over(moment.running_ms, limit - done, lambda held: is_over(held, moment)):
            cause = Cause(EventKind.EXPIRED, self.leases.by_slot[slot].holder)
            self.leases.end(slot)
            self.messages.totals.expired += 1
            self.messages.fail(slot, moment.now_ms, -1, cause)
            done += 1
        return done

    def tick(self, moment: HeapMoment, limit: int) -> int:
        """Also forget what was kept for long enough; by machine time only while it is sure (Q7)."""
        done = self.wake(moment, limit)
        self.tombs.expire(moment.running_ms)
        done += self.dedup.expire(moment.running_ms, self.messages.config.dedup_window_ms, limit - done)
        if not moment.paused:
            done += self.messages.forget_dead(moment.now_ms, limit - done)
        return done
