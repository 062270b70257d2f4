"""The lane of one domain: batches wait, flushes are written in parallel, Appends go into the log in order.

    queue -> flushes (put in parallel, up to a limit) -> one proposal at a time -> answers

A proposal carries the Appends of all flushes that are written, from the
oldest on; the next one is made when its verdicts are seen. That costs no
throughput, for the replica has one entry in flight at a time anyway, and it
is what makes order provable: whatever fails, nothing behind it is under way.

Invariants
    PR1  A batch is answered with success only from the verdict of an applied
         Append of an object whose put returned (R-093).
    PR2  Appends enter the log in flush order. If a flush is not stored, or
         nobody knows, no batch behind it of the same stream and producer
         that waited then is stored either: it fails retriably (R-092).
    PR3  The Appends of one proposal name one session, live when it was made;
         if it ends they are refused together, so none overtakes another.
    PR8  Every batch that was taken is answered exactly once.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from dray.clock import Clock
from dray.errors import DrayError, Unavailable, Unknown
from dray.machine.append import FIRST_DUPLICATE, Appended
from dray.machine.command import MAX_ROWS
from dray.machine.stream import Stream
from dray.machine.verdict import Refused, Verdict, Why
from dray.produce import telemetry
from dray.produce.batches import NewBatch, Stored
from dray.produce.errors import NotStored, Overtaken, Stopping, StoredUnknown
from dray.produce.flush import Flush, Waiting, append_of, because, fail, key_of, placed_of, refusal, report
from dray.produce.pacing import Crowd, Tokens
from dray.produce.placing import Placer, Spawn
from dray.produce.pressure import BATCH_OVERHEAD, IndexBudget, Pressure
from dray.produce.receiver import Receiver
from dray.produce.settings import FlushPolicy
from dray.replica.replica import Replica
from dray.telemetry import logger

_SESSION_ENDED: Final = (Why.FOREIGN, Why.STATE)
_NOBODY_KNOWS: Final = (Why.EXISTS, Why.INTERNAL)
"""Refusals after which the object may be in use all the same: never delete it, never say that nothing happened."""


class Lane:
    """Everything between a batch of one domain and its answer."""

    def __init__(
        self,
        *,
        replica: Replica,
        placer: Placer,
        policy: FlushPolicy,
        pressure: Pressure,
        index: IndexBudget,
        clock: Clock,
        zone: str,
        spawn: Spawn,
    ) -> None:
        self._replica = replica
        self._placer = placer
        self._policy = policy
        self._pressure = pressure
        self._index = index
        self._clock = clock
        self._zone = zone
        self._spawn = spawn
        self._loop = asyncio.get_running_loop()
        self._crowd = Crowd(policy.crowd_linger_ms * 1_000_000)
        self._pace = Tokens(policy.appends_per_second, clock.boot_ns())
        self._queue: deque[Waiting] = deque()
        self._queued = 0
        self._since_ns = 0
        """When the oldest batch of the queue came, or earlier."""
        self._flights: deque[Flush] = deque()
        self._puts = 0
        self._asked = False
        self._timing = False
        self._committing = False
        self._draining = False
        self._halted = False

    # -- taking ------------------------------------------------------------

    def add(self, batch: NewBatch, answer: Receiver, size: int) -> None:
        """Let a batch wait for its flush. What comes in the same turn of the loop shares one."""
        if not self._queue:
            self._since_ns = self._clock.boot_ns()
        self._queue.append((batch, answer))
        self._queued += size
        if not self._asked:
            self._asked = True
            self._loop.call_soon(self._consider)

    @property
    def is_busy(self) -> bool:
        """Whether a batch waits or is under way."""
        return bool(self._queue or self._flights or self._committing or self._timing or self._asked)

    def drain(self) -> None:
        """From now on wait neither for company nor for the pace."""
        self._draining = True
        self._consider()

    def halt(self) -> None:
        """Begin no flush any more."""
        self._halted = True

    def abandon(self) -> None:
        """The tasks of this lane are gone: answer whoever still waits (PR8)."""
        for flush in self._flights:
            if not flush.over:
                error = StoredUnknown("stopped during the commit") if flush.proposed else Stopping("stopped before it")
                self._end(flush, error)
        while self._queue:
            self._drop(self._queue.popleft(), Stopping("stopped before it was stored"))
        self._flights.clear()
        self._queued = 0

    # -- flushing ----------------------------------------------------------

    def _consider(self) -> None:
        """Begin the flushes that are due; whatever may change the answer asks again."""
        self._asked = False
        while not self._halted and self._queue and len(self._flights) < self._policy.flushes:
            now_ns = self._clock.boot_ns()
            wait_ns = self._wait_ns(now_ns)
            if wait_ns is None:
                return
            if wait_ns > 0:
                if not self._timing:
                    self._timing = True
                    self._spawn(self._wake_in(wait_ns))
                return
            self._begin(now_ns)

    def _wait_ns(self, now_ns: int) -> int | None:
        """How long the queue should wait; None: until a flush gets on."""
        if self._draining:
            return 0
        policy = self._policy
        company_ns = 0
        if self._queued < policy.flush_bytes and len(self._queue) < policy.flush_batches:
            if policy.linger_ms:
                company_ns = self._since_ns + policy.linger_ms * 1_000_000 - now_ns
            elif self._puts:
                return None  # batch while busy
            else:
                company_ns = self._crowd.wait_ns(len(self._queue), self._queued, self._since_ns, now_ns)
                if company_ns > 0 and not all(flush.over for flush in self._flights):
                    return None  # most of the crowd waits for these
        return max(company_ns, self._pace.wait_ns(now_ns, braked=self._index.throttled))

    async def _wake_in(self, wait_ns: int) -> None:
        try:
            await self._clock.sleep(wait_ns / 1e9)
        finally:
            self._timing = False
        self._consider()

    def _begin(self, now_ns: int) -> None:
        flush = self._cut(now_ns)
        self._flights.append(flush)
        self._pace.begin(now_ns)
        self._crowd.begin(len(self._queue) + sum(len(flush.waiting) for flush in self._flights))
        self._puts += 1
        self._spawn(self._fly(flush))

    def _cut(self, now_ns: int) -> Flush:
        """The oldest batches that fit into one object."""
        queue, policy = self._queue, self._policy
        taken: list[Waiting] = []
        size = 0
        while queue and len(taken) < policy.flush_batches:
            length = len(queue[0][0].data)
            if taken and size + length > policy.flush_bytes:
                break
            taken.append(queue.popleft())
            size += length
        self._queued -= size
        return Flush(taken, size + BATCH_OVERHEAD * len(taken), now_ns)

    async def _fly(self, flush: Flush) -> None:
        await self._place(flush)
        self._consider()
        await self._commit_ready()

    async def _place(self, flush: Flush) -> None:
        """Write the object of a flush, or fail the flush. The caller has counted the put."""
        try:
            chunks = flush.lay_out()
            if chunks:
                flush.placed = await self._placer.place(chunks)
            else:
                flush.over = True  # all of it was overtaken before its turn came
        except Exception as error:
            report(error)
            self._fail(flush, because(NotStored("the object could not be written"), error))
        finally:
            self._puts -= 1

    # -- committing --------------------------------------------------------

    async def _commit_ready(self) -> None:
        """Bring everything that is written into the log, in order. One task does so at a time (PR2)."""
        if self._committing:
            return
        self._committing = True
        try:
            while self._flights and self._flights[0].settled:
                group = self._next_group()
                if group:
                    await self._commit(group)
                while self._flights and self._flights[0].over:
                    self._flights.popleft()
                self._consider()
        finally:
            self._committing = False

    def _next_group(self) -> list[Flush]:
        """The oldest written flushes of one session that fit into one entry (PR3)."""
        group: list[Flush] = []
        rows = 0
        for flush in self._flights:
            if flush.over:
                continue
            if flush.placed is None:
                break
            count = len(flush.left())
            if not count:
                self._placer.discard(flush.placed)
                flush.over = True
                continue
            if group and (rows + count > MAX_ROWS or flush.placed.session != placed_of(group[0]).session):
                break
            group.append(flush)
            rows += count
        return group

    async def _commit(self, group: list[Flush]) -> None:
        session = self._replica.session
        if session is None or session.id != placed_of(group[0]).session:
            await self._place_again(group)
            return
        for flush in group:
            flush.proposed = True
        try:
            verdicts = await self._replica.propose(*(append_of(flush, self._zone) for flush in group))
        except Unavailable as error:
            self._refuse(group, error)
        except Unknown as error:
            self._lose(group, error)
        except DrayError as error:
            # The replica has failed for good, before it sent these: what waited was never in the log.
            for flush in group:
                self._fail(flush, because(NotStored("this broker stopped"), error))
        except Exception as error:
            report(error)
            self._lose(group, error)
        else:
            await self._judge(group, verdicts)

    async def _judge(self, group: list[Flush], verdicts: Sequence[Verdict]) -> None:
        if len(verdicts) != len(group):
            self._lose(group, DrayError("the entry was not judged command by command"))
            return
        again = []
        for flush, verdict in zip(group, verdicts, strict=True):
            match verdict:
                case Appended(given=given):
                    self._answer(flush, given)
                case Refused(why=why) if why in _SESSION_ENDED:
                    again.append(flush)
                case Refused(why=why, reason=reason) if why in _NOBODY_KNOWS:
                    self._lose([flush], DrayError("the machine refused the object", why=why.name, reason=reason))
                case Refused(why=why, reason=reason):
                    self._refuse([flush], DrayError("the machine refused the object", why=why.name, reason=reason))
                case _:
                    self._lose([flush], DrayError("an append got the verdict of another command"))
        if again:
            await self._place_again(again)

    async def _place_again(self, group: list[Flush]) -> None:
        """Their session ended before the commit: an object of the new one is needed, once."""
        again = []
        for flush in group:
            flush.proposed = False  # none of them is under way: who is given up takes along those behind it (PR2)
        for flush in group:
            if flush.replaced:
                self._refuse([flush], DrayError("the session ended twice before the commit"))
                continue
            old, flush.placed = placed_of(flush), None
            flush.replaced = True
            telemetry.REPUTS.inc()
            logger().info(telemetry.SESSION_ENDED, session=old.session, path=old.path)
            self._placer.discard(old)  # PR4: of an ended session, it is dead for ever (Q3)
            again.append(flush)
        self._puts += len(again)
        await asyncio.gather(*map(self._place, again))

    # -- answering ---------------------------------------------------------

    def _answer(self, flush: Flush, given: Sequence[int]) -> None:
        """Tell each caller what the machine said of its batch (PR1)."""
        streams = self._replica.machine.streams
        stored = duplicates = size = 0
        for (batch, answer), code in zip(flush.left(), given, strict=True):
            if code >= 0:
                stored += 1
                size += len(batch[1])
                if not answer.done():
                    stream = streams.find(batch[0])
                    answer.set_result(Stored(code, 0 if stream is None else stream.start))
            elif code <= FIRST_DUPLICATE:
                duplicates += 1
                if not answer.done():
                    answer.set_result(_stored_before(streams.find(batch.stream), FIRST_DUPLICATE - code))
            else:
                fail(answer, refusal(code, batch))
        self._close(flush, "stored")
        telemetry.PRODUCED_BYTES.inc(size)
        telemetry.BATCHES.labels("stored").inc(stored)
        telemetry.BATCHES.labels("duplicate").inc(duplicates)
        telemetry.BATCHES.labels("refused").inc(len(given) - stored - duplicates)

    def _refuse(self, group: Iterable[Flush], cause: DrayError) -> None:
        """Surely not in the log, now or later: the objects go (PR4), the batches fail."""
        for flush in group:
            self._placer.discard(placed_of(flush))
            self._fail(flush, because(NotStored("the object could not be committed"), cause))

    def _lose(self, group: Iterable[Flush], cause: Exception) -> None:
        """Nobody knows; the objects stay (PR4)."""
        for flush in group:
            logger().warning(telemetry.FLUSH_UNKNOWN, path=placed_of(flush).path, error=str(cause))
            self._overtake(flush)
            self._end(flush, because(StoredUnknown("nobody knows whether it was stored"), cause), "unknown")

    def _fail(self, flush: Flush, error: NotStored) -> None:
        logger().warning(telemetry.FLUSH_FAILED, error=str(error), cause=str(error.__cause__))
        self._overtake(flush)
        self._end(flush, error)

    def _overtake(self, failed: Flush) -> None:
        """Fail what waits behind a flush and would overtake a batch of it (PR2)."""
        keys = {key_of(entry) for entry in failed.waiting if entry is not None}
        error = Overtaken("a batch before it was not stored")
        behind = False
        for flush in self._flights:
            if behind and not flush.proposed and not flush.over:
                for at, entry in enumerate(flush.waiting):
                    if entry is not None and key_of(entry) in keys:
                        flush.waiting[at] = None
                        flush.size -= self._drop(entry, error)
            behind = behind or flush is failed
        if any(key_of(entry) in keys for entry in self._queue):
            kept: deque[Waiting] = deque()
            for entry in self._queue:
                if key_of(entry) in keys:
                    self._queued -= self._drop(entry, error) - BATCH_OVERHEAD
                else:
                    kept.append(entry)
            self._queue = kept

    def _drop(self, entry: Waiting, error: DrayError) -> int:
        batch, answer = entry
        held = len(batch.data) + BATCH_OVERHEAD
        fail(answer, error)
        self._pressure.give_back(held)
        return held

    def _end(self, flush: Flush, error: DrayError, outcome: str = "failed") -> None:
        """Answer everyone in a flush with the same error."""
        for entry in flush.waiting:
            if entry is not None:
                fail(entry[1], error)
        self._close(flush, outcome)

    def _close(self, flush: Flush, outcome: str) -> None:
        flush.over = True
        flush.waiting = []  # the received buffers go
        self._pressure.give_back(flush.size)
        telemetry.BUFFER_BYTES.set(self._pressure.unacked)
        telemetry.FLUSHES.labels(outcome).inc()
        now_ns = self._clock.boot_ns()
        self._crowd.answer(now_ns)
        telemetry.FLUSH_SECONDS.observe((now_ns - flush.begun_ns) / 1e9)


def _stored_before(stream: Stream | None, base: int) -> Stored:
    """Where a duplicate has been lying, and since when."""
    if stream is None:
        return Stored(base, 0)
    number = stream.index.find(base)
    row = None if number is None else stream.index.row(number)
    # Once its row is gone the next one is found instead: that is another batch.
    return Stored(base, stream.start, row.max_timestamp_ms if row is not None and row.start == base else -1)
