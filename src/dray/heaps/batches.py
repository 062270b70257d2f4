"""A batch over several heaps, wherever they live: all of it is taken, or nothing.

    bodies placed -> Prepare in every domain -> Decide(COMMIT) at home -> Finish everywhere -> Decide(SETTLED)

Home is the domain of the first message. The commit is written by whoever
prepared all parts, and by nobody else; so a broker that has not asked for it
knows that nothing will ever be taken, whatever its parts do. What it leaves
behind when it dies is decided and finished by any other (`batch_keeper`).

Invariants
    BA6  A commit is asked for only after every part is known to be prepared.
    BA7  Who asked for a batch is told that it is taken after the decision is
         durable; that nothing was taken, only if no commit was asked for, or
         the decision is known to be another.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dray.clock import Clock
from dray.errors import DrayError, Kind, Unavailable
from dray.heaps import telemetry
from dray.heaps.bodies import is_inline
from dray.heaps.errors import BadMessage, BatchAborted, EnqueueUnknown, HeapFull, UnknownHeap
from dray.heaps.lane import SpawnTask
from dray.heaps.packing import NewMessage, enqueue_of
from dray.heaps.placing import BodyPlacer, PlacedBodies
from dray.heaps.policy import HeapPolicy
from dray.heaps.producing import tear
from dray.ids import Entropy
from dray.machine.heaps.answers import CLOSED, INLINE_FULL, TORN, Enqueued, MessageGiven
from dray.machine.heaps.batches import BatchWord, Decide, Decided, Finish, Prepare
from dray.machine.heaps.catalog import Heap
from dray.machine.names import domain_of
from dray.machine.verdict import Done, Refused, Verdict, Why
from dray.replica.domains import Domains
from dray.telemetry import logger

MAX_UNDER_WAY: Final = 64
TRIES: Final = 4
"""Of a part: its bodies may find no room in memory, and the session of its object may end."""
DECIDE_S: Final = 8.0
"""How long a decision is asked for; others give a batch up a little later."""
RETRY_S: Final = 0.2
_ID_BYTES: Final = 16


@dataclass(slots=True, eq=False)
class BatchPart:
    """What one heap gets of a batch."""

    heap: Heap
    messages: list[NewMessage] = field(default_factory=list)
    indexes: list[int] = field(default_factory=list)
    """Of each message in the batch."""
    given: list[MessageGiven] = field(default_factory=list)
    placed: PlacedBodies | None = None
    to_object: bool = False
    replaced: bool = False
    touched: bool = False
    """It may be prepared: it has to be finished."""

    @property
    def domain(self) -> int:
        return domain_of(self.heap.shard)


@dataclass(slots=True, eq=False)
class _Batch:
    id: bytes
    begun_ms: int
    parts: Sequence[BatchPart]
    answer: "asyncio.Future[None]"
    asked: bool = False
    """A commit may have been written."""

    @property
    def home(self) -> int:
        return self.parts[0].domain

    def by_domain(self) -> dict[int, list[BatchPart]]:
        found: dict[int, list[BatchPart]] = {}
        for part in self.parts:
            found.setdefault(part.domain, []).append(part)
        return found


class BatchCoordinator:
    """Brings batches that begin here to their end."""

    def __init__(
        self, *, domains: Domains, placers: Mapping[int, BodyPlacer], policy: HeapPolicy, clock: Clock,
        entropy: Entropy, spawn: SpawnTask,
    ) -> None:  # fmt: skip
        self._domains = domains
        self._placers = placers
        self._policy = policy
        self._clock = clock
        self._entropy = entropy
        self._spawn = spawn
        self._under_way = 0

    async def take(self, parts: Sequence[BatchPart]) -> None:
        """Take all of it: then each part says what was given. It goes on if its caller does not wait.

        Raises:
            BadMessage, UnknownHeap: one message can never be taken; its index is named, and nothing was.
            HeapFull, Unavailable, BatchConflict: nothing was taken; try again.
            EnqueueUnknown: it may have been: repeat it with the same producers, epochs and sequences, or dedup keys.
        """
        if self._under_way >= MAX_UNDER_WAY:
            raise HeapFull("too many batches are under way", most=MAX_UNDER_WAY, which="batches")
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        begun_ms = self._domains[parts[0].domain].machine.timeline.running_ms
        batch = _Batch(self._entropy.random_bytes(_ID_BYTES), begun_ms, parts, answer)
        self._under_way += 1
        self._spawn(self._carry(batch))
        await answer

    async def _carry(self, batch: _Batch) -> None:
        try:
            await self._attempt(batch)
        except DrayError as error:
            telemetry.BATCHES.labels(outcome="unknown" if error.kind is Kind.UNKNOWN else "refused").inc()
            _fail(batch, error)
        except BaseException:
            _fail(batch, _stopping(batch))
            raise
        else:
            telemetry.BATCHES.labels(outcome="taken").inc()
            if not batch.answer.done():
                batch.answer.set_result(None)  # BA7
            await self._settle(batch)
        finally:
            self._under_way -= 1

    async def _attempt(self, batch: _Batch) -> None:
        groups = batch.by_domain()
        outcomes = await asyncio.gather(
            *(self._prepare(batch, domain, parts) for domain, parts in groups.items()), return_exceptions=True
        )
        problem = _worst([problem for outcome in outcomes for problem in _problems(outcome)])
        if problem is not None:
            await self._finish(batch, commit=False)
            raise problem
        if any(part.touched for part in batch.parts):
            await self._decide(batch)  # BA6
            await self._finish(batch, commit=True)

    # -- prepare -----------------------------------------------------------

    async def _prepare(self, batch: _Batch, domain: int, parts: list[BatchPart]) -> list[DrayError]:
        """What is wrong with the parts of one domain; none: they are prepared."""
        left, problems = parts, list[DrayError]()
        for _ in range(TRIES):
            await self._place(domain, left)
            verdicts = await self._propose(batch, domain, left)
            again = []
            for part, verdict in zip(left, verdicts, strict=True):
                problem = _judge(part, verdict)
                if isinstance(problem, DrayError):
                    problems.append(problem)
                elif problem:
                    again.append(part)
            left = again
            if problems or not left:
                return problems
        raise Unavailable("a part of the batch found no place")

    async def _place(self, domain: int, parts: Sequence[BatchPart]) -> None:
        """Bodies that do not travel in the log are durable in the store before anything names them."""
        used, inline = self._domains[domain].machine.heaps.inline.used, 0
        for part in parts:
            sizes = [len(message.body) for message in part.messages]
            small = is_inline(max(sizes), 0, used, self._policy)
            if not part.to_object and small and inline + sum(sizes) <= self._policy.inline_turn_bytes:
                inline += sum(sizes)
            elif part.placed is None:
                part.placed = await self._placers[domain].place(
                    part.heap.shard, [message.body for message in part.messages]
                )

    async def _propose(self, batch: _Batch, domain: int, parts: Sequence[BatchPart]) -> list[Verdict]:
        zone = self._placers[domain].zone
        commands = [
            Prepare(
                batch=batch.id, home=batch.home, begun_ms=batch.begun_ms,
                part=enqueue_of(part.heap.shard, part.messages, part.placed, zone, atomic=False),
            )
            for part in parts
        ]  # fmt: skip
        for part in parts:
            part.touched = True
        try:
            return await self._domains[domain].propose(*commands)
        except DrayError as error:
            if error.kind is Kind.UNKNOWN:  # nothing is taken without a commit, and none is asked for now (BA7)
                raise Unavailable("a part of the batch could not be prepared") from error
            for part in parts:
                part.touched = False
                if part.placed is not None:
                    await self._placers[domain].discard(part.placed)
            raise

    # -- decide ------------------------------------------------------------

    async def _decide(self, batch: _Batch) -> None:
        """Ask for the commit until it is known what was decided."""
        until_ns = self._clock.boot_ns() + int(DECIDE_S * 1e9)
        shards = tuple(part.heap.shard for part in batch.parts if part.touched)
        decide = Decide(batch=batch.id, begun_ms=batch.begun_ms, word=BatchWord.COMMIT, shards=shards)
        here = [part for part in batch.parts if part.touched and part.domain == batch.home]
        doubt = False
        batch.asked = True
        while True:
            try:
                verdicts = await self._domains[batch.home].propose(
                    decide, *(_finish_of(batch, part, commit=True) for part in here)
                )
            except DrayError as error:
                doubt = doubt or error.kind is Kind.UNKNOWN
                if self._clock.boot_ns() < until_ns:
                    await self._clock.sleep(RETRY_S)
                    continue
                if doubt:
                    raise EnqueueUnknown("nobody knows whether the batch was taken") from error
                await self._give_up(batch, Unavailable("the batch could not be decided"), error)
            break
        if verdicts[0] != Decided(commit=True):
            await self._give_up(batch, _undone(verdicts[0]))
        _mark(here, verdicts[1:])

    async def _give_up(self, batch: _Batch, error: DrayError, cause: DrayError | None = None) -> None:
        """It is known that nothing was taken, nor will be."""
        batch.asked = False
        await self._finish(batch, commit=False)
        raise error from cause

    # -- finish ------------------------------------------------------------

    async def _finish(self, batch: _Batch, *, commit: bool) -> None:
        """Tell every part; what is not reached now is finished by any broker later."""
        await asyncio.gather(
            *(self._finish_in(batch, domain, parts, commit=commit) for domain, parts in batch.by_domain().items())
        )

    async def _finish_in(self, batch: _Batch, domain: int, parts: Sequence[BatchPart], *, commit: bool) -> None:
        left = [part for part in parts if part.touched]
        if not left:
            return
        try:
            verdicts = await self._domains[domain].propose(
                *(_finish_of(batch, part, commit=commit) for part in left)
            )  # fmt: skip
        except DrayError as error:
            logger().warning(telemetry.BATCH_LEFT, batch=batch.id.hex(), domain=domain, error=str(error))
            return
        _mark(left, verdicts)

    async def _settle(self, batch: _Batch) -> None:
        """Every part has heard: the commit may be forgotten (BA5)."""
        if not batch.asked or any(part.touched for part in batch.parts):
            return
        settled = Decide(batch=batch.id, begun_ms=batch.begun_ms, word=BatchWord.SETTLED)
        try:
            await self._domains[batch.home].propose(settled)
        except DrayError as error:
            logger().warning(telemetry.BATCH_LEFT, batch=batch.id.hex(), domain=batch.home, error=str(error))


def _judge(part: BatchPart, verdict: Verdict) -> DrayError | bool:
    """What is wrong with a part, or whether it is to be tried again."""
    if isinstance(verdict, Enqueued):
        first = verdict.given[0]
        if first.slot in (TORN, CLOSED):
            part.touched = False
        if first.slot == CLOSED:
            return UnknownHeap("no such heap", heap=part.heap.name, index=part.indexes[0])
        if first.slot == TORN and first.seq == INLINE_FULL and part.placed is None:
            part.to_object = True
            return True
        if first.slot == TORN:
            return tear(part.heap.name, first.seq, part.indexes[first.number])
        part.given = verdict.given
        part.touched = any(one.slot >= 0 for one in verdict.given)
        return False
    part.touched = False
    if isinstance(verdict, Refused) and verdict.why in (Why.FOREIGN, Why.STATE) and part.placed and not part.replaced:
        part.placed, part.replaced, part.to_object = None, True, True  # its session ended: put again, once
        return True
    if isinstance(verdict, Refused) and verdict.why is Why.NOT_FOUND:
        return UnknownHeap("no such heap", heap=part.heap.name, index=part.indexes[0])
    return Unavailable("the machine refused: try again", verdict=verdict)


def _problems(outcome: list[DrayError] | BaseException) -> list[DrayError]:
    if isinstance(outcome, DrayError):
        return [outcome]
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def _worst(problems: Sequence[DrayError]) -> DrayError | None:
    """What the caller has to mend comes before what it may try again; then the first message."""

    def rank(problem: DrayError) -> tuple[bool, int]:
        index = problem.facts.get("index")
        return not isinstance(problem, BadMessage | UnknownHeap), index if isinstance(index, int) else 0

    return min(problems, key=rank, default=None)


def _finish_of(batch: _Batch, part: BatchPart, *, commit: bool) -> Finish:
    return Finish(shard=part.heap.shard, batch=batch.id, commit=commit, rows=len(part.messages))


def _mark(parts: Sequence[BatchPart], verdicts: Sequence[Verdict]) -> None:
    for part, verdict in zip(parts, verdicts, strict=True):
        gone = isinstance(verdict, Refused) and verdict.why is Why.NOT_FOUND
        if isinstance(verdict, Done) or gone:
            part.touched = False


def _undone(verdict: Verdict) -> DrayError:
    if isinstance(verdict, Decided):
        return BatchAborted("the batch took too long and was given up")
    return Unavailable("the batch could not be decided: try again", verdict=verdict)


def _stopping(batch: _Batch) -> DrayError:
    if batch.asked:
        return EnqueueUnknown("nobody knows whether the batch was taken")
    return Unavailable("the broker is stopping")


def _fail(batch: _Batch, error: DrayError) -> None:
    if not batch.answer.done():
        batch.answer.set_exception(error)
        batch.answer.exception()
