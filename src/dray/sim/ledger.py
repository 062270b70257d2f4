"""What the members of one group were told, held against each other and against the log.

Checked as it happens: in one generation no partition has two owners, whoever
tells (G2, K-074); generation, round, tick and epochs never fall (G1); once
anybody was told of a generation, nothing of an older one is committed (G9),
and no commit goes behind an offset that somebody was told; a phase ends by
time only when its time is over; whoever was answered is not removed for
silence before its session timeout less two beats (G4, GS1), and sleep of its
broker is no silence (GS3).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from dray.groups.placement import domain_of_group
from dray.log import envelope
from dray.machine.command import Command
from dray.machine.confirmations import Checkpointed
from dray.machine.groups.beats import SetTarget
from dray.machine.groups.classic import ClassicGroup
from dray.machine.groups.codes import GroupCode, Joined, Removed, Waiting
from dray.machine.groups.commands import EndPhase, JoinClassic, Removal, RemovalRow, RemoveMembers
from dray.machine.groups.consumer import ConsumerGroup
from dray.machine.groups.names import InstanceId, MemberId
from dray.machine.groups.roster import Preparing
from dray.machine.machine import Machine
from dray.machine.names import SessionId
from dray.machine.offsets import CommitOffsets, OffsetCode, OffsetsCommitted
from dray.machine.sessions import Close, Expire, KeepAlive, Open, Opened
from dray.machine.step import Applied
from dray.machine.verdict import Done, Refused, Verdict
from dray.sim.beliefs import Beliefs
from dray.sim.brokers import Cluster
from dray.sim.log import LogEntry
from dray.sim.process import EPOCH_MS, Process
from dray.sim.standings import Standings

_UPKEEP: Final = (Checkpointed, KeepAlive)
"""What brokers write of themselves, whatever happens."""
_LIVES: Final = (*_UPKEEP, Close, Expire, Open)
"""And in a domain without members and brokers: retention stands in there for one that died, a minute later."""
_OPENING_S: Final = 10.0
"""Nobody waits so long for its session."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """The last answer that a member was given."""

    at: float
    session_s: float
    process: Process
    slept: float


@dataclass(frozen=True, slots=True)
class _Phase:
    """A timer of a classic group: since when it runs, and how long it must."""

    tick: int
    since: float
    length_s: float


class Ledger:
    """Everything that is known of a group from outside."""

    def __init__(self, cluster: Cluster, group: str, *, partitions: int, beat_s: float) -> None:
        self.group = group
        self.partitions = partitions
        self.world = cluster.world
        self._beat_s = beat_s
        self._truth = cluster.truths[domain_of_group(group, cluster.truth.machine.head.group_domains)]
        self._answers: dict[MemberId, _Answer] = {}
        self._owners: dict[tuple[int, int], str] = {}
        self._wishes: dict[tuple[int, MemberId], bytes] = {}
        self._newest = -1
        """The newest generation that anybody was told."""
        self._acked: dict[int, int] = {}
        self._numbers: tuple[int, ...] = ()
        self._phase: _Phase | None = None
        self.left: set[MemberId] = set()
        """Ids that nobody uses any more."""
        self.beliefs = Beliefs(self.world, self.has)
        self._standings = Standings(self.world)
        self._waiting: dict[MemberId, InstanceId | None] = {}
        """Who waits in a JoinGroup for the next generation."""
        self._waited_since = -1
        self.written: list[str] = []
        """What was written about groups, and everything else but signs of life."""
        self.generations = 0
        self.removed = 0
        self._decoders = Machine().decoders
        self._opens: set[bytes] = set()
        self._nobodys: set[tuple[int, SessionId]] = set()
        """Sessions that a copy of an Open has opened, by their domain, when it was waited for no more."""
        for domain, truth in cluster.truths.items():
            lives_here = domain == 0 or truth is self._truth
            watch = partial(self._watch, domain, _UPKEEP if lives_here else _LIVES, about_group=truth is self._truth)
            truth.watchers.append(watch)

    # -- the state as it is ------------------------------------------------

    @property
    def classic(self) -> ClassicGroup | None:
        return self._truth.machine.groups.classic(self.group)

    @property
    def consumer(self) -> ConsumerGroup | None:
        return self._truth.machine.groups.consumer(self.group)

    @property
    def exists(self) -> bool:
        return self._truth.machine.groups.find(self.group) is not None

    def has(self, member: MemberId) -> bool:
        """Whether the group knows a member now."""
        return member in self.members()

    def members(self) -> set[MemberId]:
        """Who is a member now."""
        found = self.classic or self.consumer
        return set() if found is None else set(found.members)

    # -- what members are told ---------------------------------------------

    def answered(self, member: MemberId, session_ms: int, process: Process) -> None:
        """A broker answered a member: it is not silent."""
        self._answers[member] = _Answer(self.world.loop.time(), session_ms / 1_000, process, process.slept)

    def answered_in(self, generation: int) -> None:
        """Somebody was told of a generation."""
        self._newest = max(self._newest, generation)
        self.generations = max(self.generations, generation)

    def joined(self, joined: Joined, wish: bytes) -> None:
        """A member is in a generation with what it said; its leader hears just that of it (G2)."""
        said = [(joined.member, wish), *((one.member, one.metadata) for one in joined.members)]
        for member, metadata in said:
            known = self._wishes.setdefault((joined.generation, member), metadata)
            self.world.check(
                known == metadata, "a leader heard something else than its member said", member=member,
                generation=joined.generation,
            )  # fmt: skip

    def assigned(self, generation: int, client: str, partitions: list[int]) -> None:
        """A client was told what it reads in a generation; an instance that starts again is the same client."""
        self.answered_in(generation)
        for number in partitions:
            owner = self._owners.setdefault((generation, number), client)
            self.world.check(
                owner == client, "two members read one partition", generation=generation, partition=number,
                first=owner, then=client,
            )  # fmt: skip

    def acked(self, offsets: dict[int, int]) -> None:
        """Somebody was told how far the group has come."""
        for number, offset in offsets.items():
            self._acked[number] = max(offset, self._acked.get(number, 0))

    def died(self, client: str, member: MemberId) -> None:
        """A client is gone without a word."""
        if member:
            self.left.add(member)

    def gave_up(self, member: MemberId) -> None:
        """A client has left, or was told that it is no member."""
        self._answers.pop(member, None)

    # -- what the log says -------------------------------------------------

    def _watch(
        self, domain: int, expected: tuple[type[Command], ...], entry: LogEntry, applied: Applied, *, about_group: bool
    ) -> None:  # fmt: skip
        if applied.verdicts is None:
            return
        commands = self._commands(entry)
        if not self._is_late_copy(domain, commands[0], applied.verdicts[0]):
            self.written += [type(one).__name__ for one in commands if not isinstance(one, expected)]
        if about_group and not all(isinstance(one, _UPKEEP) for one in commands):
            self._look(commands, applied.verdicts, applied.session)

    def _is_late_copy(self, domain: int, command: Command, verdict: Verdict) -> bool:
        """Whether the network brings an Open once more, or so late that its session is nobody's, and must end again."""
        if isinstance(command, Expire):
            return (domain, command.session) in self._nobodys
        if not isinstance(command, Open):
            return False
        known = command.nonce in self._opens
        self._opens.add(command.nonce)
        late = EPOCH_MS + (self.world.loop.time() - _OPENING_S) * 1_000 > command.wall_ms
        if late and isinstance(verdict, Opened):
            self._nobodys.add((domain, verdict.session))
        return known or late or isinstance(verdict, Refused)

    def _look(self, commands: list[Command], verdicts: Sequence[Verdict], session: SessionId) -> None:
        alone = len(commands) == 1
        for command, verdict in zip(commands, verdicts, strict=True):
            if getattr(command, "group", None) != self.group:
                continue
            home = self._truth.machine.sessions.live.get(session)
            self.world.trace.add("group", str(command)[:150], by=home and home.name, verdict=str(verdict)[:120])
            match command, verdict:
                case CommitOffsets(), OffsetsCommitted():
                    self._check_commit(command, verdict)
                case RemoveMembers(), Removed(codes=codes):
                    gone = [row for row, code in zip(command.rows, codes, strict=True) if code is GroupCode.ACCEPTED]
                    self._look_at_removal(command.reason, gone)
                case JoinClassic(), Waiting():
                    self._look_at_join(command)
                case EndPhase(), Done() if alone:
                    self._check_phase()
                case SetTarget(last=True), Done() if alone and self.consumer is not None:
                    self._standings.check_target(self.consumer)
        self._check_monotone()
        self._check_waiting()
        self._look_at_phase()
        if self.consumer is not None:
            self._standings.look(self.consumer, alone=alone)

    def _look_at_removal(self, reason: Removal, gone: list[RemovalRow]) -> None:
        self.removed += len(gone)
        match reason:
            case Removal.EXPIRED | Removal.UNSYNCED:
                self._check_removed(gone)
            case Removal.UNREVOKED:
                self._standings.check_unrevoked(gone)
            case Removal.LEFT:
                for row in gone:
                    self._waiting.pop(row.member, None)

    def _look_at_join(self, command: JoinClassic) -> None:
        """It waits; an older one of the same instance does not any more."""
        if command.instance is not None:
            self._waiting = {one: held for one, held in self._waiting.items() if held != command.instance}
        self._waiting[command.member] = command.instance

    def _check_commit(self, command: CommitOffsets, verdict: OffsetsCommitted) -> None:
        taken = [row for row, code in zip(command.rows, verdict.codes, strict=True) if code is OffsetCode.COMMITTED]
        if taken and self.classic is not None:
            self.world.check(
                command.generation >= self._newest, "a commit of a past generation was taken",
                generation=command.generation, newest=self._newest, member=command.member,
            )  # fmt: skip
        self.beliefs.committed(MemberId(command.member), [row.partition for row in taken])
        for row in taken:
            known = self._acked.get(row.partition, 0)
            self.world.check(
                row.offset >= known, "a committed offset went back", partition=row.partition, found=row.offset,
                known=known, member=command.member,
            )  # fmt: skip

    def _check_removed(self, rows: list[RemovalRow]) -> None:
        now = self.world.loop.time()
        for row in rows:
            last = self._answers.get(row.member)
            if last is None:
                continue
            least = last.session_s - 2 * self._beat_s
            self.world.check(
                now - last.at >= least, "a member was removed that was answered", member=row.member,
                ago=round(now - last.at, 3), session=last.session_s,
            )  # fmt: skip
            home = self._truth.machine.sessions.live.get(row.home)
            if home is not None and home.name == last.process.name and last.process.alive:
                lived = now - last.at - (last.process.slept - last.slept)
                self.world.check(
                    lived >= least, "a member was removed for the sleep of its broker", member=row.member,
                    lived=round(lived, 3), session=last.session_s,
                )  # fmt: skip

    def _check_monotone(self) -> None:
        found = self.classic or self.consumer
        numbers: tuple[int, ...]
        match found:
            case ClassicGroup():
                numbers = (found.generation, found.round, found.tick)
            case ConsumerGroup():
                numbers = (found.epoch, found.assignment_epoch)
            case _:
                return
        if len(numbers) == len(self._numbers):
            fell = any(now < before for now, before in zip(numbers, self._numbers, strict=True))
            self.world.check(not fell, "a number of a group fell", before=self._numbers, now=numbers)
        self._numbers = numbers

    def _check_waiting(self) -> None:
        """Who waits in a round is in the generation that it makes (G3)."""
        group = self.classic
        if group is None:
            return
        gone = self._waiting.keys() - group.members.keys()
        self.world.check(not gone, "members were dropped that waited", members=sorted(gone))
        if group.generation != self._waited_since:  # one entry may end a round and begin the next
            self._waiting.clear()
            self._waited_since = group.generation

    def _look_at_phase(self) -> None:
        group = self.classic
        if group is None or (self._phase is not None and self._phase.tick == group.tick):
            return
        initial = isinstance(group.state, Preparing) and group.state.initial
        delay_ms = group.state.delay_ms if isinstance(group.state, Preparing) else 0
        length_ms = delay_ms if initial else min((one.rebalance_ms for one in group.members.values()), default=0)
        self._phase = _Phase(group.tick, self.world.loop.time(), length_ms / 1_000)

    def _check_phase(self) -> None:
        """Called before the phase that has now begun is looked at."""
        phase = self._phase
        if phase is not None:
            lasted = self.world.loop.time() - phase.since
            self.world.check(
                lasted >= phase.length_s - 0.1, "a phase was ended before its time", tick=phase.tick,
                lasted=round(lasted, 3), length=phase.length_s,
            )  # fmt: skip

    def _commands(self, entry: LogEntry) -> list[Command]:
        head = envelope.decode_head(entry.entry)
        rows = envelope.decode_commands(entry.entry, head.count)
        return [self._decoders.decode(kind, payload, head.version) for kind, payload in rows]
