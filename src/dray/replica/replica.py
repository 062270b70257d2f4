"""One replica of one domain's machine: follow, propose, sync.

The replica is the only writer of its domain's log. It folds every entry that
`follow` shows, keeps at most one append in flight, and answers a caller when
the caller's entry has been applied *here*: the verdict is what `apply`
returned, and it counts only for the very bytes that were sent.

Invariants
    RP1  A caller is answered from the fold, never from an append's return.
    RP2  n+1 is not sent before n's verdict was seen; n is never given up,
         only its session is (Q3).
    RP3  After a jump over a gap, what was in flight stays unknown (Q3).
    RP4  A replica that contradicts the log stops for good (Q6). Whatever has
         failed writes nothing any more, not even that it ends: others would
         read of its state in it, or lose the session that they took over.
    RP5  Whoever could not append for two thirds of a ttl, counted from when
         the newest entry that it saw applied was sent, stops serving (Q5).
    RP6  A tool expires nobody: it does not know the ttl that the brokers were
         configured with.
    DL3  Nothing is told from a domain that is not loaded: whoever looks at its
         state is told so, and whoever waits for it waits until it is loaded.
    RP11  Nobody waits for ever for a fold that stands still or lags: what was
          sent stays unknown in time, a sync fails, and the follower is
          connected anew.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, NoReturn, cast

from dray.clock import Clock
from dray.errors import DrayError, Unavailable
from dray.ids import Entropy
from dray.log import envelope
from dray.log.delta.commits import TellsAhead
from dray.log.port import Log, Polls, Position, Trimmed
from dray.machine.command import Command, NotActive
from dray.machine.machine import Machine
from dray.machine.names import SessionId
from dray.machine.sessions import KeepAlive, SessionKind
from dray.machine.step import Applied, Named, Outcome
from dray.machine.verdict import Verdict
from dray.replica import telemetry
from dray.replica.barrier import Barrier as AppliedBarrier
from dray.replica.barrier import SharedTail
from dray.replica.checkpoints import CheckpointStore, newest_machine
from dray.replica.digests import Digests
from dray.replica.errors import Behind, Diverged, NotLoaded, NotServing, Stopped, TooNew
from dray.replica.expiry import Observer
from dray.replica.foretelling import Foretelling
from dray.replica.leaving import leave
from dray.replica.proposals import Proposals
from dray.replica.session import COUNTERS, Identity, OwnSession
from dray.replica.stall import StallWatch
from dray.replica.wakeups import CATALOG, GROUPS, GroupKey, Key, Waiter, Wakeups
from dray.replica.writer import RETRY_S, Timing, Writer
from dray.telemetry import logger

STALLS_IN_A_TTL: Final = 6
"""A follower is connected anew after such a part of a ttl, so that it is tried more than once before RP5 strikes."""

ENTRY_COST_BYTES: Final = 400
"""What folding an entry costs besides its bytes, in bytes of a long one: many small ones make a slow start too."""


class _Absent:
    """Stands where the state of a domain was: there is nothing to look at (DL3)."""

    def __getattr__(self, name: str) -> NoReturn:
        raise NotLoaded("the domain is not loaded here at the moment")


ABSENT: Final = cast(Machine, _Absent())


class Replica:
    """Everything a service needs of a domain: its state, a way to change it, a way to be sure."""

    def __init__(
        self,
        *,
        log: Log,
        machine: Machine,
        identity: Identity,
        clock: Clock,
        entropy: Entropy,
        timing: Timing | None = None,
        checkpoints: CheckpointStore | None = None,
        counters: int = COUNTERS,
    ) -> None:
        """`counters`: how many objects a session may name before another one is opened (RP10)."""
        self._state = machine
        self.machine = machine
        """What services look at: the state that is followed, or `ABSENT` (DL3)."""
        self.timing = timing or Timing()
        self._identity = identity
        self._is_tool = identity.kind is SessionKind.TOOL
        self._log = log
        self._polled = log if isinstance(log, Polls) else None
        if isinstance(log, TellsAhead):
            log.foretells(Foretelling(lambda: self._state))
        self._clock = clock
        self._checkpoints = checkpoints
        self._wakeups = Wakeups()
        self._digests = Digests()
        self._tails = SharedTail(log.tail)
        self._barrier = AppliedBarrier()
        self._moved: dict[str, None] = {}
        self.on_named: Callable[[SessionId, Sequence[Named]], None] | None = None
        """Told at once of the members of groups that an entry named, and of its session: for the one who times them."""
        self._proposals = Proposals(clock, wait_ms=self.timing.wait_ms)
        self._stall = StallWatch(limit_ns=self.timing.ttl_ms * 1_000_000 // STALLS_IN_A_TTL)
        self._reading: asyncio.Task[None] | None = None
        self._observer = Observer(ttl_ns=self.timing.ttl_ms * 1_000_000, beat_ns=self.timing.keepalive_ms * 1_000_000)
        self._writer = Writer(
            host=self,
            log=log,
            identity=identity,
            clock=clock,
            entropy=entropy,
            proposals=self._proposals,
            timing=self.timing,
            counters=counters,
        )
        self.bytes_since_checkpoint = 0
        """What a start would have to fold now, entries counted too (`ENTRY_COST_BYTES`)."""
        self.bodies_since_checkpoint = 0
        """Bodies of messages besides: a checkpoint holds few of them, so it is seldom due for them."""
        self.rows_since_checkpoint = 0
        """What its entries name: an entry of many costs more to fold than its bytes tell."""
        self._failure: DrayError | None = None
        self._stopping = False
        self.load: Callable[[], Awaitable[None]] | None = None
        """Set while the domain is not loaded, or about to go: returns when it is (DL3)."""
        self.failed: asyncio.Future[DrayError] = asyncio.get_running_loop().create_future()
        """Resolves when the replica has stopped for good: the process must end."""
        self._digests.remember(machine.position, machine.digest)
        self._observe_all()

    # -- what services use -------------------------------------------------

    async def propose(self, *commands: Command, send_by_ns: int | None = None) -> list[Verdict]:
        """Apply commands together, durably; returns their verdicts in order (RP1).

        `send_by_ns` is for what is proposed again: it gets no younger by that (RP8).

        Raises:
            Unavailable (Busy, Stopped, NotServing ...): nothing happened.
            NotActive: nothing happened, and the newest truth has no such command.
            CommitUnknown: it may have happened; repeat with the same identity.
        """
        if self.load is not None:
            send_by_ns = self.send_by_ns() if send_by_ns is None else send_by_ns  # RP8: it gets no younger by waiting
            await self.load()
        self._check_running()
        try:
            answer = self._proposals.add(commands, self._state.version, send_by_ns=send_by_ns)
        except NotActive:
            await self.sync()  # it may have been activated since: that is not said from memory
            answer = self._proposals.add(commands, self._state.version, send_by_ns=send_by_ns)
        return await answer

    def send_by_ns(self) -> int:
        """When what is proposed now is too old to be sent, on the boot clock (RP8)."""
        return self._proposals.send_by_ns()

    async def sync(self) -> None:
        """Return once everything acknowledged before this call, by anyone, is applied here.

        Raises:
            Unavailable (Behind, Stopped ...): the newest truth is not known here in time.
        """
        if self.load is not None:
            await self.load()
        tail = await self._newest()
        if tail > self._state.position:
            await self._until_applied(tail)

    async def _newest(self) -> int:
        self._check_running()
        before = self._state.position
        tail = await self._tails.get()
        self._check_running()  # nobody would wake a waiter that comes after the failure
        if tail < before:
            raise self.fail(Diverged("the log ends before what was already read from it", tail=tail, read=before))
        return tail

    def _until_applied(self, position: int) -> "asyncio.Future[None]":
        self.expect(position)
        return self._barrier.wait(position, self._clock.boot_ns())

    async def _catch_up(self) -> None:
        """A long history may take its time, as long as it goes on."""
        tail = await self._newest()
        while self._state.position < tail:
            before = self._state.position
            try:
                await self._until_applied(tail)
            except Behind:
                if self._state.position == before:
                    raise

    @property
    def is_fresh(self) -> bool:
        """Whether the log was written lately enough for memory to be believed (RP5)."""
        return self._writer.fresh()

    def check_serving(self) -> None:
        """Raise unless this process may answer from its memory (RP5)."""
        self._check_running()
        if not self.is_fresh:
            raise NotServing("the log could not be written for too long", limit_ms=self.timing.ttl_ms * 2 // 3)

    def waiter(self, keys: Iterable[Key], event: asyncio.Event | None = None) -> Waiter:
        """Be woken when `apply` touches any of these; several waiters may share an event."""
        if self._polled is not None:
            self._polled.hurry()
        return self._wakeups.waiter(keys, event)

    def take_moved(self) -> list[str]:
        """The groups that have changed since this was last asked: for the one who keeps them."""
        moved, self._moved = self._moved, {}
        return list(moved)

    @property
    def name(self) -> str:
        """Of this process's sessions."""
        return self._identity.name

    @property
    def session(self) -> OwnSession | None:
        """This process's session here, if one is open."""
        return self._writer.session

    async def open_session(self) -> OwnSession:
        """The session, opened now if there is none that can name an object."""
        for _ in range(2):  # it may end between two lines; then it is opened once more
            session = self._writer.session
            if session is not None and not session.exhausted:
                return session
            await self.propose(KeepAlive())
        raise NotServing("the session ended as soon as it was opened")

    @property
    def clock_is_vouched(self) -> bool:
        """Does anybody but this machine say that its clock is right (Q7)?"""
        return self._identity.is_vouched(self._clock.wall_ms(), self._clock.boot_ns())

    @property
    def log(self) -> Log:
        return self._log

    # -- life --------------------------------------------------------------

    def begin(self, machine: Machine) -> None:
        """Stand on this state, in place of none; it is shown when it is as new as the log (`running`)."""
        self._state = machine
        self._start_from(machine)
        self._moved.clear()
        self._stopping = False

    def end(self) -> Machine:
        """Nothing runs any more, and there is no state to look at from now on (DL3); the one that there was."""
        left, self._state, self.machine = self._state, ABSENT, ABSENT
        self._writer.forget()
        self._digests.clear()
        self._observer.clear()
        return left

    @property
    def position(self) -> int:
        """How far the log is folded, shown already or not."""
        return self._state.position

    @property
    def is_loaded(self) -> bool:
        """Whether there is a state to look at, and it stays for now."""
        return self.load is None

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits for the log, or for what it will show, but the keepers of this process."""
        return self._proposals.is_empty and self._writer.is_idle and self._barrier.is_empty

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Replica"]:
        """Follow and write for as long as the block runs; caught up with the tail at its start."""
        work = (self._follow(), self._writer.run(), self._writer.keep_alive(), self._watch())
        tasks = [asyncio.create_task(self._guard(coroutine)) for coroutine in work]
        try:
            await asyncio.sleep(0)  # each task has begun: one that never began could not be ended cleanly
            await self._catch_up()
            self.machine = self._state  # not earlier: who synced before it went must not see less now (DL3)
            yield self
        finally:
            self._stopping = True
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._answer_everyone(Stopped("the replica is stopping"))

    async def _guard(self, work: Coroutine[None, None, None]) -> None:
        """A task that dies takes the replica with it: a follower that nobody misses would answer old truths."""
        try:
            await work
        except DrayError as error:
            self.fail(error)
        except Exception as error:
            broken = DrayError("a task of the replica died: report a bug", error=repr(error))
            broken.__cause__ = error
            self.fail(broken)

    async def close_session(self) -> None:
        """Give the session back, as the last thing a clean stop writes."""
        await self._writer.close_session()

    def fail(self, error: DrayError) -> DrayError:
        """Stop for good (RP4); returns the error, so that callers can raise it."""
        if self._failure is None:
            self._failure = error
            logger().error(telemetry.FAILED, error=str(error))
            self._proposals.close(error)
            self._answer_everyone(error)
            if not self.failed.done():
                self.failed.set_result(error)
        return self._failure

    def _answer_everyone(self, error: DrayError) -> None:
        self._proposals.fail(error)
        self._writer.give_up(error)
        self._barrier.fail(error)
        self._wakeups.wake_all()

    def _check_running(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._stopping:
            raise Stopped("the replica is stopping")

    # -- the fold ----------------------------------------------------------

    async def _follow(self) -> None:
        """Read on, from wherever the machine is, whatever ends a reading (RP11)."""
        idle = 0
        while self._failure is None:
            before = self._state.position
            self._reading = asyncio.create_task(self._fold())
            try:
                await asyncio.wait((self._reading,))
            finally:
                self._reading.cancel()
                await asyncio.gather(self._reading, return_exceptions=True)
            if not self._reading.cancelled():
                error = self._reading.exception()
                if isinstance(error, Trimmed):
                    with suppress(Unavailable):  # the store of checkpoints does not answer: tried again below
                        await self._jump()
                elif error is not None:
                    raise error
            idle = 0 if self._state.position > before else idle + 1
            if idle:  # it ended, or was ended, without having read anything
                await self._clock.sleep(RETRY_S[min(idle, len(RETRY_S)) - 1])

    async def _fold(self) -> None:
        async for position, entry in self._log.follow(Position(self._state.position)):
            self.apply(position, entry)
            if self._failure is not None:
                return
            await asyncio.sleep(0)  # Q8: nobody waits longer than one entry takes

    async def _watch(self) -> None:
        """Look every so often whether somebody waits for too long, and for what (RP8, RP11)."""
        while True:
            await self._clock.sleep(self.timing.keepalive_ms / 4_000)
            now_ns = self._clock.boot_ns()
            self._proposals.drop_late()
            self._barrier.give_up(
                now_ns - self.timing.settle_ms * 1_000_000,
                Behind("the newest entries of the log are not seen here", read=self._state.position),
            )
            if self._stall.stalled(self._state.position, now_ns) and self._reading is not None:
                logger().warning(telemetry.STALLED, read=self._state.position, expected=self._stall.expected)
                telemetry.FOLLOWS_CUT.inc()
                self._reading.cancel()

    def expect(self, position: int) -> None:
        """The log has told of an entry that the follower has not shown yet."""
        self._stall.expect(position)

    def apply(self, position: Position, entry: bytes) -> None:
        """Fold one entry and answer whoever waited for it."""
        self._check_seen(position, entry)
        if self._failure is not None:
            return  # RP4
        mine = self._writer.is_mine(entry)
        applied = self._state.apply(position, entry, want_verdicts=mine)
        if applied.outcome is Outcome.HALTED:
            self.fail(TooNew("the active version is above this build: run a newer Dray", version=self._state.version))
            return
        telemetry.APPLIED.inc()
        self.bytes_since_checkpoint += len(entry) + ENTRY_COST_BYTES - applied.body_bytes
        self.bodies_since_checkpoint += applied.body_bytes
        self.rows_since_checkpoint += applied.rows
        self._digests.remember(position, self._state.digest)
        self._observe(applied)
        self._writer.applied(applied, mine=mine)
        self._wakeups.wake(applied.streams)
        if applied.groups:
            self._wakeups.wake(GroupKey(group) for group in applied.groups)
        if applied.named and self.on_named is not None:
            self.on_named(applied.session, applied.named)
        if applied.groups or applied.moved or applied.ended:
            self._moved.update(dict.fromkeys((*applied.groups, *applied.moved)))
            self._wakeups.wake((GROUPS,))
        if applied.catalog_changed:
            self._wakeups.wake((CATALOG,))
        self._barrier.reached(position)

    def _check_seen(self, position: Position, entry: bytes) -> None:
        """Q6: the writer of this entry folded the same log as we did, up to what it had seen."""
        try:
            head = envelope.decode_head(entry)
        except envelope.BadEntry:
            return  # the machine refuses it, the same way everywhere
        known = head.session == 0 or head.session in self._state.sessions.live
        if not known:
            return  # a late copy of a session that ended: it does nothing
        if head.seen_position >= position or self._digests.contradict(head.seen_position, head.seen_digest):
            self.fail(
                Diverged(
                    "this replica and a writer of the log disagree: compare with `drayd admin meta verify`",
                    position=position,
                    seen=head.seen_position,
                    writer=head.session,
                )
            )

    def _observe(self, applied: Applied) -> None:
        if applied.outcome is Outcome.EXECUTED and applied.session:
            self._observer.heard(applied.session, applied.n, self._clock.boot_ns())
        elif applied.outcome is Outcome.EXECUTED:
            self._observe_all()
        for end in applied.ended:
            self._observer.gone(end.session)

    def _observe_all(self) -> None:
        """After an Open, or a fresh start: watch over every live session that is not watched yet."""
        now_ns = self._clock.boot_ns()
        for session in self._state.sessions.live.values():
            self._observer.watch(session.id, session.last_n, now_ns)

    async def _jump(self) -> None:
        """History is trimmed: load a newer checkpoint and go on from there (RP3)."""
        if self._checkpoints is None:
            raise Diverged("the log is trimmed and there is no checkpoint to load", read=self._state.position)
        machine = await newest_machine(self._checkpoints)
        if machine.position <= self._state.position:
            raise Diverged(
                "the log is trimmed above the newest checkpoint that can be read here: copy a newer .checkpoint of"
                " another broker of this cluster into the directory of checkpoints, or restore a backup",
                read=self._state.position,
            )
        left, self._state = self._state, machine
        self.machine = machine if self.machine is left else self.machine
        self._start_from(machine)
        self._writer.jumped()
        self._wakeups.wake_all()
        self._barrier.reached(machine.position)
        logger().warning(telemetry.JUMPED, position=machine.position)
        await leave(left)

    def _start_from(self, machine: Machine) -> None:
        self.bytes_since_checkpoint = self.bodies_since_checkpoint = self.rows_since_checkpoint = 0
        self._digests.clear()
        self._digests.remember(machine.position, machine.digest)
        self._observer.clear()
        self._observe_all()

    def due_for_expiry(self) -> Sequence[tuple[SessionId, int]]:
        """Sessions that this replica may propose to expire (Q5); an older broker that is heard goes first."""
        if self._is_tool:
            return ()  # RP6
        own = self._writer.own_id
        elders = sum(
            1
            for session in self._state.sessions.live.values()
            if session.kind is SessionKind.BROKER and session.id < own and not self.is_silent(session.id)
        )
        return self._observer.due(patience=1 + 0.5 * elders)

    def is_silent(self, session: SessionId) -> bool:
        """Whether that session was not heard for two keep-alives as seen here. Only advice."""
        return self._observer.is_silent(session, self._clock.boot_ns())

    def own_entry_applied(self, boot_ns: int) -> None:
        self._observer.own_entry_applied(boot_ns)
