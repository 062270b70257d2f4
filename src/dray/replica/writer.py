"""The one writer of a domain's log in this process: sessions, entries, lost replies.

One append is in flight at a time; whatever arrives meanwhile goes into the
next entry. A lost reply is settled by appending the same bytes again until the
fold shows the verdict: the machine knows a repeat (Q2, Q3). A fold that shows
nothing is not waited for without end: then the outcome stays unknown.

Invariants
    RP7  A process that was away for so long that it may not serve learns
         whether its session lives before it sends anybody's commands.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from dray.clock import Clock
from dray.errors import Conflict, DrayError, Unavailable, Unknown
from dray.ids import Entropy
from dray.log import envelope
from dray.log.port import Log, LostReply, NotAppended
from dray.machine.command import encode
from dray.machine.machine import Machine
from dray.machine.names import SessionId
from dray.machine.sessions import Close, Expire, KeepAlive, Open, Opened, SessionKind
from dray.machine.step import Applied, EndReason, Outcome
from dray.machine.verdict import Refused, Verdict, Why
from dray.replica import telemetry
from dray.replica.errors import Busy, CommitUnknown, Diverged, NotServing, Superseded, TooNew
from dray.replica.proposals import Proposal, Proposals
from dray.replica.session import COUNTERS, Identity, OwnSession
from dray.telemetry import logger

RETRY_S: Final = (0.01, 0.05, 0.2, 0.5, 1.0)
"""Pauses between repeats of an append; the last one is repeated."""


_NO_ANSWER: Final = (Outcome.REPEAT, Outcome.HOLE)
"""The first EXECUTED or DEAD decides; a repeat or a hole says nothing."""


class Host(Protocol):
    """What the writer needs of its replica."""

    machine: Machine

    def fail(self, error: DrayError) -> DrayError: ...

    def own_entry_applied(self, boot_ns: int) -> None: ...

    def expect(self, position: int) -> None: ...

    def due_for_expiry(self) -> Sequence[tuple[SessionId, int]]: ...


SHORTEST_TTL_MS: Final = 3_000
"""Tools do not know the ttl of the brokers beside them, so they beat thrice in the shortest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long a session lives without a sign, and how long an outcome is pursued."""

    ttl_ms: int = 15_000
    keepalive_ms: int = 5_000
    settle_ms: int = 10_000
    """Repeat an append whose reply was lost, and wait for its verdict, for this long; then it stays unknown."""
    wait_ms: int = 5_000
    """How long a proposal may wait for its entry (RP8). With `settle_ms` it is less than clients wait for an answer."""


@dataclass(slots=True, eq=False)
class _Flight:
    """The entry that is in flight. `landed` resolves when the fold has judged these very bytes."""

    entry: bytes
    landed: "asyncio.Future[Applied]"
    sent_ns: int
    """When it was sent first: nobody can have heard it earlier (RP5)."""
    opens: bool = False
    position: int | None = None
    """Where the log says that it is."""
    uncertain: bool = False
    """An attempt was lost, so it may be in the log whatever later attempts say."""


class Writer:
    """Writes entries for one replica."""

    def __init__(
        self,
        *,
        host: Host,
        log: Log,
        identity: Identity,
        clock: Clock,
        entropy: Entropy,
        proposals: Proposals,
        timing: Timing,
        counters: int = COUNTERS,
    ) -> None:
        self._host = host
        self._log = log
        self._identity = identity
        self._clock = clock
        self._entropy = entropy
        self._proposals = proposals
        self._timing = timing
        self._counters = counters
        self._session: OwnSession | None = None
        self._kept = False
        """A session was opened and not given back: it is opened again when it is lost."""
        self._flight: _Flight | None = None
        self._confirmed_ns = clock.boot_ns()
        """When the newest own entry that was seen applied had been sent."""

    # -- what the replica asks ---------------------------------------------

    @property
    def session(self) -> OwnSession | None:
        return self._session

    def fresh(self) -> bool:
        """Whether an own entry that was applied was sent within two thirds of a ttl (RP5)."""
        if self._session is None:
            return False
        return self._clock.boot_ns() - self._confirmed_ns < self._timing.ttl_ms * 1_000_000 * 2 // 3

    def is_mine(self, entry: bytes) -> bool:
        """A verdict counts only for the writer's own bytes (Q3)."""
        return self._flight is not None and self._flight.entry == entry

    def applied(self, applied: Applied, *, mine: bool) -> None:
        """The fold has judged an entry."""
        flight = self._flight
        if mine and flight is not None and not flight.landed.done() and applied.outcome not in _NO_ANSWER:
            flight.landed.set_result(applied)
            if flight.opens:
                self._adopt(flight, applied)
        elif flight is not None:
            self._check_shown(flight)
        if self._session is None:
            return
        if applied.outcome is Outcome.EXECUTED and applied.session == self._session.id and not mine:
            self._ended(EndReason.CLONED)  # nobody but a copy of this process could have sent it
            return
        for end in applied.ended:
            if end.session == self._session.id:
                self._ended(end.reason)
                return

    def jumped(self) -> None:
        """A checkpoint was loaded over a gap: what was in flight stays unknown (RP3)."""
        self._session = None
        self.give_up(CommitUnknown("the replica jumped over the entry's place in the log"))

    @property
    def is_idle(self) -> bool:
        """Whether no entry is in flight."""
        return self._flight is None

    def forget(self) -> None:
        """The domain is not followed any more: whatever session is left is somebody else's to expire."""
        self._session, self._kept = None, False

    def give_up(self, error: DrayError) -> None:
        """Nobody will learn the verdict of what is in flight."""
        if self._flight is not None and not self._flight.landed.done():
            unknown = CommitUnknown("the replica stopped while the entry was in flight")
            unknown.__cause__ = error
            self._flight.landed.set_exception(unknown)
            self._flight.landed.exception()  # whoever waits gets it; nobody has to

    # -- tasks -------------------------------------------------------------

    async def run(self) -> None:
        """Write entry after entry, for ever."""
        while True:
            await self._proposals.wait()
            if (self._session is None or self._session.spent) and not await self._try_open():
                continue
            if not self.fresh() and not await self._try_refresh():
                continue
            taken = self._proposals.take()
            if taken:
                await self._commit(taken)

    async def keep_alive(self) -> None:
        """Say that the session lives when nothing else was written, and expire those that are silent."""
        while True:
            await self._clock.sleep(self._timing.keepalive_ms / 4_000)
            if not self._kept:
                continue  # a beat behind its Close would open it again
            if self._session is None or self._session.spent:
                await self._quietly(KeepAlive())  # opened again, or others would expire what it was
                continue
            idle_ns = self._clock.boot_ns() - self._confirmed_ns
            if idle_ns >= self._timing.keepalive_ms * 1_000_000:
                await self._quietly(KeepAlive())
            for session, last_n in self._host.due_for_expiry():
                if session != self.own_id:
                    logger().warning(telemetry.EXPIRED_OTHER, session=session, by=self.own_id)
                    await self._quietly(Expire(session=session, last_n=last_n))

    @property
    def own_id(self) -> int:
        return 0 if self._session is None else self._session.id

    async def close_session(self) -> None:
        """Give the session back; an unknown outcome is left to expiry."""
        self._kept = False
        if self._session is not None:
            await self._quietly(Close())

    async def _quietly(self, command: KeepAlive | Expire | Close) -> None:
        # The next beat tries again; RP5 watches over how long that may go on.
        with suppress(DrayError):
            await self._proposals.add((command,), self._host.machine.version)

    # -- sessions ----------------------------------------------------------

    async def _try_open(self) -> bool:
        """Whether there is a session to write in; an old one that is spent but could not be followed yet is one."""
        try:
            await self._open()
        except (Unavailable, Unknown, Conflict) as error:
            if self._session is not None:
                return True
            refusal = NotServing("no session could be opened in the log")
            refusal.__cause__ = error
            self._proposals.fail(refusal)  # nothing of theirs was ever sent
            return False
        return self._session is not None

    async def _try_refresh(self) -> bool:
        """Ask whether the session lives, with an entry that says nothing else (RP7)."""
        with suppress(Busy):  # then there is enough of its kind to send
            self._proposals.add((KeepAlive(),), self._host.machine.version).add_done_callback(_heed_not)
        await self._commit(self._proposals.take(upkeep_only=True))
        if self.fresh():
            return True
        if self._session is not None:  # else it is opened anew first
            self._proposals.fail(NotServing("the log does not take the entries of this process"))
        return False

    async def _open(self) -> None:
        machine = self._host.machine
        identity, boot_ns = self._identity, self._clock.boot_ns()
        command = Open(
            name=identity.name,
            nonce=self._entropy.random_bytes(16),
            seen=machine.sessions.newest,
            instance=identity.instance,
            kind=SessionKind(identity.kind),
            lowest_version=1,
            highest_version=machine.supported,
            wall_ms=identity.wall_ms(self._clock.wall_ms(), boot_ns, machine.time_ms),
            store_date_ms=identity.date_ms(boot_ns),
            accept_clock=identity.accept_clock,
            owner=identity.owner,
        )
        applied = await self._send([encode(command, machine.version)], session=0, n=0, time_ms=0)
        match applied.verdicts:
            case [Opened(session=session)] if self._session is None or self._session.id != session:
                # It ended before this task had its turn; whoever took the name over goes on, this process does not.
                raise NotServing("the session ended as soon as it was opened", session=session)
            case [Opened(session=session)]:
                logger().info(telemetry.OPENED, session=session, name=identity.name)
            case [Refused(why=Why.VERSION, reason=reason)]:
                raise self._host.fail(TooNew("the cluster runs a version this build does not know", reason=reason))
            case [Refused(why=why, reason=reason)]:
                await self._clock.sleep(self._timing.keepalive_ms / 4_000)
                raise NotServing("the session was refused for now", why=why.name, reason=reason)
            case _:
                raise NotServing("the session was not opened", outcome=applied.outcome.name)

    def _adopt(self, flight: _Flight, applied: Applied) -> None:
        """The fold has opened a session for this process: from this very entry on it writes in no other.

        If it had one, that ends in the same entry, so there is no moment without a session (RP10).
        """
        match applied.verdicts:
            case [Opened(session=session, time_ms=time_ms)] if session in self._host.machine.sessions.live:
                self._kept = True
                self._session = OwnSession(
                    id=session, opened_ms=time_ms, opened_boot_ns=self._clock.boot_ns(), counters=self._counters
                )
                self._confirmed_ns = flight.sent_ns

    def _ended(self, reason: EndReason) -> None:
        session, self._session = self._session, None
        match reason:
            case EndReason.EXPIRED | EndReason.CLOSED:
                return  # opened again at the next write
            case EndReason.TOO_NEW:
                self._host.fail(TooNew("this build wrote above the active version", session=session))
            case EndReason.TAKEN_OVER | EndReason.CLONED:
                self._host.fail(
                    Superseded("another process has taken this one's place: stop one of them", reason=reason.name)
                )

    # -- entries -----------------------------------------------------------

    async def _commit(self, taken: list[Proposal]) -> None:
        session = self._session
        assert session is not None, "an entry needs a session"
        encoded = [command for proposal in taken for command in proposal.encoded]
        started_ns = self._clock.boot_ns()
        try:
            applied = await self._send(
                encoded, session=session.id, n=session.next_n, time_ms=session.time_ms(started_ns)
            )
        except NotAppended as error:
            telemetry.COMMITS.labels("refused").inc()
            _answer_all(taken, error)  # surely not in the log: n is still free (LG4)
            return
        except Unknown as error:
            telemetry.COMMITS.labels("unknown").inc()
            _answer_all(taken, error)
            return
        except BaseException:  # whatever ends this task, nobody waits for ever and nobody is told a guess (E1)
            _answer_all(taken, CommitUnknown("the replica stopped while the entry was in flight"))
            raise
        telemetry.COMMITS.labels(applied.outcome.name.lower()).inc()
        if applied.outcome is Outcome.DEAD:
            self._retry_once(taken)
            return
        if applied.outcome in (Outcome.EXECUTED, Outcome.BAD):
            session.next_n += 1  # RP2
        if applied.verdicts is None:
            _answer_all(taken, NotServing("the entry was not executed", outcome=applied.outcome.name))
            return
        self._confirmed_ns = started_ns  # RP5
        now_ns = self._clock.boot_ns()
        telemetry.COMMIT_SECONDS.labels("commit").observe((now_ns - started_ns) / 1e9)
        self._host.own_entry_applied(now_ns)
        _distribute(taken, applied.verdicts)

    def _retry_once(self, taken: list[Proposal]) -> None:
        """Dead is surely not applied: the same commands may go again under a new session, once; a commit not (RP8)."""
        self._session = None
        again = [proposal for proposal in taken if proposal.tries == 0 and not proposal.once]
        for proposal in taken:
            proposal.tries += 1
        _answer_all([proposal for proposal in taken if proposal not in again], NotServing("the session ended"))
        self._proposals.put_back(again)

    async def _send(self, encoded: list[tuple[int, bytes]], *, session: int, n: int, time_ms: int) -> Applied:
        """Append one entry until the fold shows its verdict."""
        machine = self._host.machine
        entry = envelope.encode(
            encoded,
            session=session,
            n=n,
            time_ms=time_ms,
            seen_position=machine.position,
            seen_digest=machine.digest,
            version=machine.version,  # M10
        )
        flight = _Flight(
            entry=entry,
            landed=asyncio.get_running_loop().create_future(),
            sent_ns=self._clock.boot_ns(),
            opens=session == 0,
        )
        self._flight = flight
        try:
            return await self._settle(flight)
        finally:
            self._flight = None

    async def _settle(self, flight: _Flight) -> Applied:
        deadline_ns = flight.sent_ns + self._timing.settle_ms * 1_000_000
        attempt = 0
        while not flight.landed.done():
            left_s = (deadline_ns - self._clock.boot_ns()) / 1e9
            if left_s <= 0:
                return await self._abandon(flight)
            try:
                async with asyncio.timeout(left_s):
                    flight.position = await self._log.append(flight.entry)
                    self._check_shown(flight)
                    self._host.expect(flight.position)
                    return await flight.landed  # it is in the log: the fold will show it, unless it is cut off (RP1)
            except NotAppended:
                if not flight.uncertain:
                    raise
            except LostReply:
                flight.uncertain = True
            except TimeoutError:
                flight.uncertain = True
                if flight.position is not None and flight.landed.cancelled():
                    return await self._abandon(flight)
            telemetry.RETRIES.labels("lost_reply").inc()
            await self._clock.sleep(RETRY_S[min(attempt, len(RETRY_S) - 1)])
            attempt += 1
        return await flight.landed

    def _check_shown(self, flight: _Flight) -> None:
        """Q6: the fold cannot pass the place of an entry without having shown it."""
        read = self._host.machine.position
        if flight.position is not None and flight.position <= read and not flight.landed.done():
            self._host.fail(
                Diverged("the log did not show an entry at the place it was given", position=flight.position, read=read)
            )

    async def _abandon(self, flight: _Flight) -> Applied:
        """Give up the session, never n (RP2): a later copy meets a closed session or is applied whole."""
        session, self._session = self._session, None
        logger().warning(telemetry.ABANDONED, session=None if session is None else session.id)
        if flight.uncertain:
            raise CommitUnknown("the log did not tell what became of the entry", waited_ms=self._timing.settle_ms)
        raise NotAppended("the log did not take the entry in time")


def _heed_not(answer: "asyncio.Future[list[Verdict]]") -> None:
    """Whatever became of it shows in the session."""
    if not answer.cancelled():
        answer.exception()


def _answer_all(proposals: Sequence[Proposal], error: Exception) -> None:
    for proposal in proposals:
        if not proposal.answer.done():
            proposal.answer.set_exception(error)


def _distribute(proposals: Sequence[Proposal], verdicts: Sequence[Verdict]) -> None:
    at = 0
    for proposal in proposals:
        end = at + len(proposal.encoded)
        if not proposal.answer.done():
            proposal.answer.set_result(list(verdicts[at:end]))
        at = end
