"""The lane of one domain: what waits while an entry is in flight shares the next one.

    settlements, enqueues, hungry consumers -> one entry -> verdicts -> answers, deliveries

A turn begins when the last one's verdicts are seen. It holds settlements
first, then messages, then leases: so a waiting consumer gets a message in the
very entry that enqueued it. Bodies that go to objects are written meanwhile
and join the turn in which they are ready: heaps promise no order between
enqueues.

Invariants
    HL2  An item is handed out once, and only from a verdict that was given
         here: a Lease is never proposed again after an unknown outcome.
    HL4  Every call that was taken is answered once.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from dray.clock import Clock
from dray.errors import DrayError, Unavailable, Unknown
from dray.heaps import telemetry
from dray.heaps.bodies import is_inline
from dray.heaps.errors import EnqueueUnknown, HeapFull, SettleUnknown, UnknownHeap
from dray.heaps.packing import NewMessage as NewMessage
from dray.heaps.packing import enqueue_of
from dray.heaps.placing import BodyPlacer, PlacedBodies
from dray.heaps.policy import HeapPolicy
from dray.heaps.present import due_in_ms, present
from dray.ids import Entropy
from dray.machine.command import Command
from dray.machine.heaps.answers import INLINE_FULL, TORN, Enqueued, Granted, MessageGiven, Settled
from dray.machine.heaps.packets import Enqueue, Lease, Settle, SettleRow, pack_settlements
from dray.machine.heaps.shard import Shard
from dray.machine.names import StreamId
from dray.machine.verdict import Refused, Verdict, Why
from dray.replica.replica import Replica
from dray.telemetry import logger

SpawnTask: TypeAlias = "Callable[[Coroutine[None, None, None]], asyncio.Task[None]]"
MAX_GRANT: Final = 256
PUTS: Final = 2
"""Objects of one shard that are written at once."""
OBJECT_MESSAGES: Final = 500
OBJECT_BYTES: Final = 4 << 20
RETRY_S: Final = 0.2
AGAIN_MS: Final = 500
"""Who was granted nothing is tried again after this long, although nothing is known to have changed."""
SOONEST_MS: Final = 2
_NONCE_BYTES: Final = 16


class Hungry(Protocol):
    """A consumer that waits for messages of one shard."""

    shard: StreamId
    holder: str
    worst: int

    @property
    def credits(self) -> int:
        """How many more it takes."""
        ...

    @property
    def visibility_ms(self) -> int: ...

    def reserve(self, count: int) -> None:
        """So many are asked for; they are not asked for again until `granted` or `unreserve`."""
        ...

    def granted(self, reserved: int, grant: Granted, nonce: bytes) -> None: ...


@dataclass(slots=True, eq=False)
class _Enqueuing:
    """Messages of one call, taken together or each for itself; or of several calls that share an object."""

    shard: StreamId
    messages: Sequence[NewMessage]
    atomic: bool
    answers: "list[tuple[asyncio.Future[list[MessageGiven]], int]]"
    """Who waits, and for how many of the messages, in their order."""
    placed: PlacedBodies | None = None
    to_object: bool = False
    replaced: bool = False
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = sum([len(message.body) for message in self.messages])


@dataclass(slots=True, eq=False)
class _Settling:
    shard: StreamId
    rows: Sequence[SettleRow]
    notes: dict[int, str]
    answer: "asyncio.Future[Settled]"


@dataclass(slots=True, eq=False)
class _Leasing:
    consumer: Hungry
    count: int
    nonce: bytes


@dataclass(slots=True)
class _Turn:
    """One entry: its commands, and whose each is."""

    commands: list[Command] = field(default_factory=list)
    owners: list[list[_Settling] | list[_Enqueuing] | _Leasing] = field(default_factory=list)
    rows: int = 0

    def add(self, command: Command, owner: "list[_Settling] | list[_Enqueuing] | _Leasing") -> None:
        self.commands.append(command)
        self.owners.append(owner)
        self.rows += command.needs()


class HeapLane:
    """Everything between a call about heaps of one domain and its answer."""

    def __init__(
        self,
        *,
        replica: Replica,
        placer: BodyPlacer,
        policy: HeapPolicy,
        clock: Clock,
        entropy: Entropy,
        spawn: SpawnTask,
    ) -> None:
        self._replica = replica
        self._placer = placer
        self._policy = policy
        self._clock = clock
        self._entropy = entropy
        self._spawn = spawn
        self._settling: deque[_Settling] = deque()
        self._enqueuing: deque[_Enqueuing] = deque()
        self._hungry: dict[StreamId, deque[Hungry]] = {}
        self._barren: dict[Hungry, tuple[int, int]] = {}
        """Who was granted nothing: what had happened to its shard until then, and when it is tried again anyway."""
        self._event = asyncio.Event()
        self._watching = False
        self._waiting_rows = 0
        self._bodies: dict[StreamId, deque[_Enqueuing]] = {}
        """Calls whose bodies go to objects; those that wait while others are written share one."""
        self._puts: dict[StreamId, int] = {}
        self._placing: set[_Enqueuing] = set()
        self._running = False
        self._stopped = False
        self.failing = False
        """The last entry was not taken."""
        self.turns = 0
        """How often it was looked who is hungry."""

    # -- taking ------------------------------------------------------------

    async def enqueue(
        self, shard: StreamId, messages: Sequence[NewMessage], *, atomic: bool = False
    ) -> list[MessageGiven]:
        """Durable when it returns: what the machine said of each message.

        Raises:
            HeapFull, Unavailable: nothing happened.
            EnqueueUnknown: it may have.
        """
        self._admit(len(messages))
        answer: asyncio.Future[list[MessageGiven]] = asyncio.get_running_loop().create_future()
        self._queue(_Enqueuing(shard, messages, atomic, [(answer, len(messages))]))
        return await answer

    async def settle(self, shard: StreamId, rows: Sequence[SettleRow], notes: dict[int, str] | None = None) -> Settled:
        """Durable when it returns.

        Raises:
            HeapFull, Unavailable: nothing happened.
            SettleUnknown: it may have; to repeat it is harmless (L4).
        """
        self._admit(len(rows))
        answer: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        self._settling.append(_Settling(shard, rows, notes or {}, answer))
        self.kick()
        return await answer

    def join(self, consumer: Hungry) -> None:
        """Lease for a consumer whenever it has credits and there may be something."""
        self._hungry.setdefault(consumer.shard, deque()).append(consumer)
        self._event.set()
        self.kick()
        if not self._watching:
            self._watching = True
            self._spawn(self._watch())

    @property
    def is_busy(self) -> bool:
        """Whether anybody waits here, or something is under way."""
        return bool(
            self._running or self._watching or self._hungry or self._settling or self._enqueuing or self._placing
            or any(self._bodies.values())
        )  # fmt: skip

    def leave(self, consumer: Hungry) -> None:
        self._barren.pop(consumer, None)
        waiting = self._hungry.get(consumer.shard)
        if waiting is not None and consumer in waiting:
            waiting.remove(consumer)
            if not waiting:
                del self._hungry[consumer.shard]

    async def _watch(self) -> None:
        """Look whenever a shard that somebody waits for was touched, or something of it is due."""
        try:
            while shards := list(self._hungry):
                with self._replica.waiter(shards, self._event) as waiter:
                    while list(self._hungry) == shards:
                        waiter.clear()
                        self.kick()
                        await waiter.wait(self._patience_s())
        finally:
            self._watching = False

    def _patience_s(self) -> float:
        at = present(self._replica, self._clock)
        found = [self._replica.machine.heaps.find(number) for number in self._hungry]
        due = [due_in_ms(shard, at) for shard in found if shard is not None]
        soonest = min((ms for ms in due if ms is not None), default=AGAIN_MS)
        return max(SOONEST_MS, min(soonest, AGAIN_MS)) / 1_000

    def stop(self) -> None:
        """Take and begin nothing more; whoever waits is told (HL4)."""
        self._stopped = True
        error = Unavailable("the broker is stopping")
        for settling in self._settling:
            _fail(settling.answer, error)
        waiting = [unit for units in self._bodies.values() for unit in units]
        for enqueuing in (*self._enqueuing, *self._placing, *waiting):
            _fail_all(enqueuing, error)
        self._settling.clear()
        self._enqueuing.clear()
        self._bodies.clear()

    def _admit(self, rows: int) -> None:
        if self._stopped:
            raise Unavailable("the broker is stopping")
        if rows > self._policy.turn_rows:
            raise HeapFull("too many at once", rows=rows, most=self._policy.turn_rows, which="turn_rows")
        if self._waiting_rows + rows > self._policy.waiting_rows:
            raise HeapFull("too much waits for the log", rows=self._waiting_rows, which="waiting_rows")
        self._waiting_rows += rows

    def _queue(self, unit: _Enqueuing) -> None:
        largest = max([len(message.body) for message in unit.messages])
        used = self._replica.machine.heaps.inline.used
        inline = not unit.to_object and is_inline(largest, 0, used, self._policy)
        if (inline and unit.size <= self._policy.inline_turn_bytes) or unit.placed is not None:
            self._enqueuing.append(unit)
            self.kick()
            return
        self._bodies.setdefault(unit.shard, deque()).append(unit)
        asyncio.get_running_loop().call_soon(self._put_next, unit.shard)

    def _put_next(self, shard: StreamId) -> None:
        """Begin to write bodies that wait, unless enough is being written."""
        waiting = self._bodies.get(shard)
        while waiting and self._puts.get(shard, 0) < PUTS:
            unit = _gather(waiting)
            self._puts[shard] = self._puts.get(shard, 0) + 1
            self._placing.add(unit)
            self._spawn(self._place(unit))
        if not waiting:
            self._bodies.pop(shard, None)

    async def _place(self, unit: _Enqueuing) -> None:
        """Write the bodies of some calls into an object; then they join the next turn."""
        try:
            unit.placed = await self._placer.place(unit.shard, [message.body for message in unit.messages])
        except DrayError as error:
            self._answer_error([unit], Unavailable("the bodies could not be written"), error)
        except BaseException:
            self._answer_error([unit], Unavailable("the broker is stopping"))
            raise
        else:
            if self._stopped:
                self._answer_error([unit], Unavailable("the broker is stopping"))
            else:
                self._enqueuing.append(unit)
                self.kick()
        finally:
            self._placing.discard(unit)
            self._puts[unit.shard] -= 1
            if not self._stopped:
                self._put_next(unit.shard)

    # -- turns -------------------------------------------------------------

    def kick(self) -> None:
        """Something waits: begin a turn unless one is under way."""
        if not self._running and not self._stopped:
            self._running = True
            self._spawn(self._run())

    async def _run(self) -> None:
        try:
            await asyncio.sleep(0)  # what comes in the same turn of the loop shares an entry
            while not self._stopped:
                turn = self._build()
                if not turn.commands:
                    return
                await self._take_turn(turn)
        finally:
            self._running = False

    def _build(self) -> _Turn:
        turn = _Turn()
        self.turns += 1
        self._add_settlements(turn)
        coming = self._add_messages(turn)
        self._add_leases(turn, coming)
        return turn

    def _add_settlements(self, turn: _Turn) -> None:
        by_shard: dict[StreamId, list[_Settling]] = {}
        rows = 0
        while self._settling and rows + len(self._settling[0].rows) <= self._policy.turn_rows:
            unit = self._settling.popleft()
            rows += len(unit.rows)
            by_shard.setdefault(unit.shard, []).append(unit)
        for shard, units in by_shard.items():
            notes, at = {}, 0
            for unit in units:
                notes.update({at + index: note for index, note in unit.notes.items()})
                at += len(unit.rows)
            packed = b"".join(pack_settlements(unit.rows) for unit in units)
            turn.add(Settle(shard=shard, packed=packed, notes=notes), units)

    def _add_messages(self, turn: _Turn) -> dict[StreamId, int]:
        """Small ones of one shard share a command; an object, and a batch, has its own. How many come, by shard."""
        shared: dict[StreamId, list[_Enqueuing]] = {}
        coming: dict[StreamId, int] = {}
        rows, size = turn.rows, 0
        while self._enqueuing and rows + len(self._enqueuing[0].messages) <= self._policy.turn_rows:
            unit = self._enqueuing[0]
            if unit.placed is None and size and size + unit.size > self._policy.inline_turn_bytes:
                break
            self._enqueuing.popleft()
            rows += len(unit.messages)
            coming[unit.shard] = coming.get(unit.shard, 0) + len(unit.messages)
            if unit.placed is not None or unit.atomic:
                turn.add(_enqueue_of([unit], self._placer.zone), [unit])
            else:
                shared.setdefault(unit.shard, []).append(unit)
            size += 0 if unit.placed is not None else unit.size
        for units in shared.values():
            turn.add(_enqueue_of(units, self._placer.zone), units)
        return coming

    def _add_leases(self, turn: _Turn, coming: dict[StreamId, int]) -> None:
        """Round robin: who has many credits does not starve who has one."""
        at = present(self._replica, self._clock)
        for number, waiting in self._hungry.items():
            shard = self._replica.machine.heaps.find(number)
            if shard is None or shard.closed or shard.messages.config.paused:
                continue
            due_ms = due_in_ms(shard, at)
            ready = len(shard.messages.ready) + coming.get(number, 0)
            ready += 1 if due_ms is not None and due_ms <= 0 else 0
            hungry = [one for one in waiting if one.credits > 0 and not self._is_barren(one, shard)]
            share = max(1, ready // max(1, len(hungry)))
            for consumer in hungry:
                count = min(consumer.credits, MAX_GRANT, share, self._policy.turn_rows - turn.rows)
                if ready <= 0 or count <= 0:
                    break
                ready -= count
                self._lease(turn, consumer, count)
            waiting.rotate(-1)

    def _is_barren(self, consumer: Hungry, shard: Shard) -> bool:
        known = self._barren.get(consumer)
        return known is not None and known[0] == _news(shard) and self._clock.boot_ns() < known[1]

    def _granted(self, leasing: _Leasing, grant: Granted) -> None:
        shard = self._replica.machine.heaps.find(leasing.consumer.shard)
        if grant.messages or shard is None:
            self._barren.pop(leasing.consumer, None)
        else:
            self._barren[leasing.consumer] = _news(shard), self._clock.boot_ns() + AGAIN_MS * 1_000_000
        leasing.consumer.granted(leasing.count, grant, leasing.nonce)

    def _lease(self, turn: _Turn, consumer: Hungry, count: int) -> None:
        nonce = self._entropy.random_bytes(_NONCE_BYTES)
        consumer.reserve(count)
        command = Lease(
            shard=consumer.shard, visibility_ms=consumer.visibility_ms, limit=count, nonce=nonce,
            holder=consumer.holder, worst=consumer.worst,
        )  # fmt: skip
        turn.add(command, _Leasing(consumer, count, nonce))

    # -- answers -----------------------------------------------------------

    async def _take_turn(self, turn: _Turn) -> None:
        telemetry.ENTRIES.inc()
        telemetry.ROWS.inc(turn.rows)
        telemetry.PER_ENTRY.observe(turn.rows)
        try:
            verdicts = await self._replica.propose(*turn.commands)
            self.failing = False
        except Unknown as error:
            self.failing = True
            logger().warning(telemetry.TURN_FAILED, error=str(error))
            self._fail_turn(turn, error, unknown=True)
        except DrayError as error:
            self.failing = True
            logger().warning(telemetry.TURN_FAILED, error=str(error))
            self._fail_turn(turn, error, unknown=False)
            await self._clock.sleep(RETRY_S)
        except BaseException as error:
            self._fail_turn(turn, DrayError("the broker is stopping"), unknown=True)
            raise error
        else:
            for owner, verdict in zip(turn.owners, verdicts, strict=True):
                self._answer(owner, verdict)

    def _fail_turn(self, turn: _Turn, cause: DrayError, *, unknown: bool) -> None:
        """Nobody is granted anything: what was leased unseen runs out (HL2)."""
        for owner in turn.owners:
            if isinstance(owner, _Leasing):
                self._granted(owner, Granted([]))
                continue
            for unit in owner:
                if isinstance(unit, _Settling):
                    told: DrayError = SettleUnknown("nobody knows whether it happened") if unknown else Unavailable(
                        "the log did not take it"
                    )  # fmt: skip
                    self._answer_settling_error(unit, told, cause)
                else:
                    told = EnqueueUnknown("nobody knows whether it was taken") if unknown else Unavailable(
                        "the log did not take it"
                    )  # fmt: skip
                    self._answer_error([unit], told, cause)
                    if not unknown and unit.placed is not None:
                        self._spawn(self._placer.discard(unit.placed))

    def _answer(self, owner: "list[_Settling] | list[_Enqueuing] | _Leasing", verdict: Verdict) -> None:
        if isinstance(owner, _Leasing):
            self._granted(owner, verdict if isinstance(verdict, Granted) else Granted([]))
            return
        at = 0
        for unit in owner:
            if isinstance(unit, _Settling):
                at = self._answer_settling(unit, verdict, at)
            else:
                at = self._answer_enqueuing(unit, verdict, at)

    def _answer_settling(self, unit: _Settling, verdict: Verdict, at: int) -> int:
        end = at + len(unit.rows)
        if isinstance(verdict, Settled):
            self._waiting_rows -= len(unit.rows)
            left = {index - at: left_ms for index, left_ms in verdict.left_ms.items() if at <= index < end}
            if not unit.answer.done():
                unit.answer.set_result(Settled(verdict.codes[at:end], left))
        else:
            self._answer_settling_error(unit, _refusal(verdict))
        return end

    def _answer_enqueuing(self, unit: _Enqueuing, verdict: Verdict, at: int) -> int:
        end = at + len(unit.messages)
        if isinstance(verdict, Enqueued):
            given = verdict.given[at:end]
            if unit.placed is None and all(map(_is_inline_full, given)):
                unit.to_object = True  # there is no room in memory: its bodies go to an object
                self._queue(unit)
                return end
            self._waiting_rows -= len(unit.messages)
            _resolve_all(unit, given)
        elif _ended(verdict) and unit.placed is not None and not unit.replaced:
            unit.placed, unit.replaced, unit.to_object = None, True, True  # its session ended: put again, once
            self._queue(unit)
        else:
            self._answer_error([unit], _refusal(verdict))
        return end

    def _answer_error(self, units: Sequence[_Enqueuing], error: DrayError, cause: DrayError | None = None) -> None:
        error.__cause__ = cause
        for unit in units:
            self._waiting_rows -= len(unit.messages)
            _fail_all(unit, error)

    def _answer_settling_error(self, unit: _Settling, error: DrayError, cause: DrayError | None = None) -> None:
        error.__cause__ = cause
        self._waiting_rows -= len(unit.rows)
        _fail(unit.answer, error)


def _enqueue_of(units: Sequence[_Enqueuing], zone: str) -> Enqueue:
    """One command for the messages of some calls about one shard."""
    first = units[0]
    messages = first.messages if len(units) == 1 else [message for unit in units for message in unit.messages]
    return enqueue_of(first.shard, messages, first.placed, zone, atomic=first.atomic)


def _is_inline_full(given: MessageGiven) -> bool:
    return given.slot == INLINE_FULL or (given.slot == TORN and given.seq == INLINE_FULL)


def _news(shard: Shard) -> int:
    """Another number whenever a lease may find what the last one did not."""
    totals = shard.messages.totals
    return sum((totals.enqueued, totals.acked, totals.failed, totals.replayed, shard.revision, -len(shard.leases)))


def _ended(verdict: Verdict) -> bool:
    return isinstance(verdict, Refused) and verdict.why in (Why.FOREIGN, Why.STATE)


def _refusal(verdict: Verdict) -> DrayError:
    if isinstance(verdict, Refused) and verdict.why is Why.NOT_FOUND:
        return UnknownHeap("the heap is gone")
    if isinstance(verdict, Refused) and verdict.why in (Why.EXISTS, Why.INTERNAL):
        return EnqueueUnknown("nobody knows whether it was taken", why=verdict.why.name, reason=verdict.reason)
    return Unavailable("the machine refused: try again", verdict=type(verdict).__name__)


def _gather(waiting: "deque[_Enqueuing]") -> _Enqueuing:
    """The calls that share the next object; a batch has its own."""
    first = waiting.popleft()
    if first.atomic:
        return first
    messages, answers, size = list(first.messages), list(first.answers), first.size
    while waiting and not waiting[0].atomic and len(messages) + len(waiting[0].messages) <= OBJECT_MESSAGES:
        size += waiting[0].size
        if size > OBJECT_BYTES:
            break
        unit = waiting.popleft()
        messages += unit.messages
        answers += unit.answers
    return _Enqueuing(first.shard, messages, False, answers, to_object=True, replaced=first.replaced)


def _resolve_all(unit: _Enqueuing, given: list[MessageGiven]) -> None:
    at = 0
    for answer, count in unit.answers:
        if not answer.done():
            answer.set_result(given[at : at + count])
        at += count


def _fail_all(unit: _Enqueuing, error: DrayError) -> None:
    for answer, _ in unit.answers:
        _fail(answer, error)


def _fail(answer: "asyncio.Future[list[MessageGiven]] | asyncio.Future[Settled]", error: DrayError) -> None:
    if not answer.done():
        answer.set_exception(error)
        answer.exception()
