"""The machine of one domain: all its metadata, changed only by `apply`.

`apply` is a fold: the same entries at the same positions give the same state,
verdicts and digest in every replica, on every Python, for ever. So it reads
no clock, no dice and no environment, and depends on no hash or set order.

Each command is judged first and changes state only if it is accepted. The
rules live with their nouns (`sessions`, `topics`, `streams`, ...); this module
brings entries to them, and knows nothing of a noun but `dray.machine.noun`.

Invariants
    M3  `apply` raises for no bytes. What does not decode, or breaks a rule,
        is refused, the same everywhere; a refused command changes nothing.
    M4  `digest` chains the bytes of every entry, its position, and the
        offsets and ids that apply gave, from the log id on.
    M5  An entry above the active version does nothing and closes its session.
        With an active version above what the build supports, nothing is
        applied any more.
    M7  An entry touches at most `MAX_ROWS` rows: commands that need more than
        that are refused, and slices share what the others leave.
"""

import struct
from array import array
from hashlib import blake2b
from typing import ClassVar, Final

from dray.errors import Invalid
from dray.log.envelope import HEAD, BadEntry, decode_commands
from dray.machine.access import AccessKeys
from dray.machine.brokers import Brokers
from dray.machine.command import MAX_ROWS, BadCommand, Command, Decoders
from dray.machine.confirmations import Confirmations
from dray.machine.domains import DataDomains
from dray.machine.garbage import Objects
from dray.machine.generations import Generations
from dray.machine.group_configs import GroupConfigs
from dray.machine.groups.groups import Groups
from dray.machine.head import SUPPORTED, Activate, Genesis, Head
from dray.machine.heaps.batches import BatchDecisions
from dray.machine.heaps.catalog import HeapCatalog
from dray.machine.heaps.history import HeapHistories
from dray.machine.heaps.shards import Heaps
from dray.machine.holds import Holds
from dray.machine.names import NOBODY, LogId, SessionId
from dray.machine.noun import Noun
from dray.machine.offsets import Offsets
from dray.machine.producer_ids import ProducerIds
from dray.machine.sessions import Open, SessionKind, Sessions
from dray.machine.step import Applied, EndReason, Outcome, Step
from dray.machine.streams import Streams
from dray.machine.table_marks import TableMarks
from dray.machine.tasks import Tasks
from dray.machine.timeline import FIRST_WITH_RUNNING_TIME, Timeline
from dray.machine.topics import Topics
from dray.machine.verdict import DONE, Refused, Verdict, Why, refused

# A rule that fails in one of these ways has a bug; it fails alike everywhere,
# so the command is refused and the log stays readable. Anything else (no
# memory, too deep) may differ between replicas and must end the process.
FAILURES: Final = (ArithmeticError, LookupError, ValueError, TypeError, AttributeError, struct.error)


class Machine:
    """The state of one domain."""

    supported: ClassVar[int] = SUPPORTED
    """The newest version of the rules that this build knows."""

    def __init__(self) -> None:
        self.position = 0
        self.digest = 0
        self.head = Head()
        self.timeline = Timeline()
        self.sessions = Sessions(self.timeline)
        self.holds = Holds(self.timeline)
        self.objects = Objects(self.head, self.timeline, self.holds)
        self.streams = Streams(self.head, self.timeline, self.sessions, self.objects)
        self.producer_ids = ProducerIds(self.head)
        self.topics = Topics(self.head, self.timeline, self.streams, self.producer_ids)
        self.streams.catalog = self.topics
        self.offsets = Offsets(self.head, self.timeline, self.topics)
        self.groups = Groups(self.timeline, self.sessions, self.offsets)
        self.offsets.members = self.groups
        self.group_configs = GroupConfigs(self.head)
        self.brokers = Brokers(self.head, self.sessions, self.timeline)
        self.generations = Generations(self.head, self.streams)
        self.confirmations = Confirmations(self.sessions)
        self.data_domains = DataDomains(self.head, self.sessions)
        self.tasks = Tasks(self.head, self.timeline, self.sessions, self.streams, self.objects)
        self.table_marks = TableMarks(self.head, self.timeline, self.topics)
        self.batches = BatchDecisions(self.timeline)
        self.histories = HeapHistories(self.streams)
        self.heaps = Heaps(self.head, self.timeline, self.sessions, self.objects, self.batches, self.histories)
        self.heap_catalog = HeapCatalog(self.head, self.timeline, self.topics, self.heaps)
        self.heaps.catalog = self.heap_catalog
        self.topics.others = self.heap_catalog
        self.access = AccessKeys(self.head, self.timeline)
        self.nouns = self.all_nouns()
        kinds = [kind for noun in self.nouns for kind in noun.commands]
        self.decoders = Decoders([Genesis, Activate, *kinds])
        self.homes: dict[type[Command], Noun] = {kind: noun for noun in self.nouns for kind in noun.commands}

    def all_nouns(self) -> tuple[Noun, ...]:
        """What there is, in the order in which the end of a session reaches it."""
        return (
            self.sessions, self.objects, self.streams, self.topics, self.offsets, self.brokers, self.confirmations,
            self.producer_ids, self.groups, self.group_configs, self.generations, self.data_domains,
            self.tasks, self.table_marks, self.heap_catalog, self.heaps, self.batches, self.access, self.holds,
            self.histories,
        )  # fmt: skip

    @property
    def version(self) -> int:
        """The active version of the rules."""
        return self.head.version

    @property
    def log_id(self) -> LogId:
        return self.head.log_id

    @property
    def domain(self) -> int:
        return self.head.domain

    @property
    def time_ms(self) -> int:
        """Machine time (Q7)."""
        return self.timeline.time_ms

    def apply(self, position: int, entry: bytes, want_verdicts: bool = False) -> Applied:
        """Fold one entry. Positions must increase; the bytes may be anything (M3)."""
        if position <= self.position:
            raise Invalid("entry is not behind the ones applied", position=position, applied=self.position)
        if self.head.version > self.supported:
            return Applied(Outcome.HALTED, NOBODY, 0)  # M5
        entry_hash = blake2b(entry, digest_size=16).digest()
        step = Step(position, NOBODY, want=want_verdicts)
        applied = self._judge(step, entry, entry_hash, want_verdicts)
        self.position = position
        self._chain(step, entry_hash)
        if step.streams:
            applied.streams = tuple(dict.fromkeys(step.streams))
        if step.groups:
            applied.groups = tuple(dict.fromkeys(step.groups))
        if step.moved:
            applied.moved = tuple(dict.fromkeys(step.moved))
        if step.named:
            applied.named = tuple(step.named)
        if step.ended:
            applied.ended = tuple(step.ended)
        applied.catalog_changed = step.catalog_changed
        applied.body_bytes = step.body_bytes
        applied.rows = step.rows
        return applied

    def _judge(self, step: Step, entry: bytes, entry_hash: bytes, want_verdicts: bool) -> Applied:
        if len(entry) < HEAD.size:
            return Applied(Outcome.BAD, NOBODY, 0)
        version, flags, count, session, n, time_ms, seen, _ = HEAD.unpack_from(entry)
        if session == NOBODY:
            return self._found_or_open(step, entry, time_ms)
        active = self.head.version
        outcome = self.sessions.judge(session, n, entry_hash)
        if version > active and outcome in (Outcome.EXECUTED, Outcome.HOLE):
            outcome = Outcome.TOO_NEW  # M5
        if outcome is Outcome.EXECUTED:
            writer = self.sessions.use_up(session, n, entry_hash, step.position)
            step.session, step.seen = session, seen
            commands = self._decode(entry, count, active) if flags == 0 and version > 0 else None
            if commands is None:
                return Applied(Outcome.BAD, session, n)
            self.sessions.tick(writer, time_ms)
            return Applied(outcome, session, n, self._execute(step, commands, want_verdicts))
        if outcome is Outcome.CLONED:
            self.end(step, session, EndReason.CLONED)
        elif outcome is Outcome.TOO_NEW:
            self.end(step, session, EndReason.TOO_NEW)
        return Applied(outcome, session, n)

    def _found_or_open(self, step: Step, entry: bytes, time_ms: int) -> Applied:
        """Genesis or Open: alone, by nobody, with n 0."""
        version, flags, count, _, n, _, _, _ = HEAD.unpack_from(entry)
        alone = n == 0 and count == 1 and flags == 0 and version > 0
        commands = self._decode(entry, count, self.version or version) if alone else None
        if commands is None:
            return Applied(Outcome.BAD, NOBODY, 0)
        match commands[0]:
            case Genesis() as genesis:
                verdict = self._found(genesis, time_ms)
            case Open() as opening if self.version > 0:
                verdict = self._open(step, opening, version)
            case Refused() as refusal:
                verdict = refusal
            case _:
                verdict = refused(Why.STATE, "nobody may send this")  # M6
        return Applied(Outcome.EXECUTED, NOBODY, 0, [verdict])

    def _found(self, genesis: Genesis, time_ms: int) -> Verdict:
        if self.version > 0:
            return refused(Why.EXISTS, "the log has its genesis")  # M6
        if genesis.domain > (0 if genesis.domains == 1 else genesis.domains):
            return refused(Why.MALFORMED, "the domain is not one of the cluster's")
        self.head.begin(genesis)
        self.objects.min_grace_ms = genesis.min_grace_ms
        self.producer_ids.begin()
        self.timeline.begin(time_ms)
        self.timeline.runs = self.version >= FIRST_WITH_RUNNING_TIME
        self.digest = int.from_bytes(genesis.log_id, "little")  # M4
        return DONE

    def _open(self, step: Step, command: Open, version: int) -> Verdict:
        if version > self.version:
            return refused(Why.VERSION, "the entry is above the active version")  # M5
        verdict = self.sessions.open(step, command, self.version)
        for ended in step.ended:
            self._release(step, ended.session)
        return verdict

    def decode(self, entry: bytes, count: int) -> list[Command | Refused] | None:
        """The commands of an entry, as the active version reads them; None: it has none."""
        return self._decode(entry, count, self.version)

    def _decode(self, entry: bytes, count: int, version: int) -> list[Command | Refused] | None:
        """Everything is decoded before anything is applied (M3)."""
        try:
            packed = decode_commands(entry, count)
        except BadEntry:
            return None
        commands: list[Command | Refused] = []
        decode = self.decoders.decode
        for number, payload in packed:
            try:
                commands.append(decode(number, payload, version))
            except BadCommand as bad:
                commands.append(refused(Why.MALFORMED, bad.message))
        return commands

    def _execute(self, step: Step, commands: list[Command | Refused], want_verdicts: bool) -> list[Verdict] | None:
        if len(commands) == 1 and not isinstance(commands[0], Refused):
            return self._execute_alone(step, commands[0], want_verdicts)
        verdicts: list[Verdict] = []
        needed = [0 if isinstance(command, Refused) else command.needs() for command in commands]
        step.rows = sum(needed)
        step.spare = max(0, MAX_ROWS - step.rows)  # M7
        budget = MAX_ROWS
        for command, need in zip(commands, needed, strict=True):
            budget -= need
            verdict: Verdict
            if isinstance(command, Refused):
                verdict = command
            elif step.session not in self.sessions.live:
                verdict = refused(Why.STATE, "the session ended earlier in this entry")
            elif budget < 0:
                verdict = refused(Why.LIMIT, "the entry is full")  # M7
            else:
                verdict = self._guarded(step, command)
            if want_verdicts:
                verdicts.append(verdict)
        return verdicts if want_verdicts else None

    def _execute_alone(self, step: Step, command: Command, want_verdicts: bool) -> list[Verdict] | None:
        """Most entries have one command, and their session is live: what `_execute` does, without a loop."""
        step.rows = command.needs()
        spare = MAX_ROWS - step.rows
        step.spare = max(0, spare)  # M7
        verdict = self._guarded(step, command) if spare >= 0 else refused(Why.LIMIT, "the entry is full")
        return [verdict] if want_verdicts else None

    def _guarded(self, step: Step, command: Command) -> Verdict:
        known = len(step.ended)
        try:
            return self._execute_one(step, command)
        except FAILURES as failure:
            return refused(Why.INTERNAL, f"{type(command).__name__} failed: {type(failure).__name__}")  # M3
        finally:
            if len(step.ended) > known:
                for ended in step.ended[known:]:
                    self._release(step, ended.session)

    def _execute_one(self, step: Step, command: Command) -> Verdict:
        """Bring a command to its noun."""
        home = self.homes.get(type(command))
        if home is not None:
            return home.apply(step, command)
        if isinstance(command, Activate):
            return self._activate(step, command)
        return refused(Why.STATE, "only nobody may send this")

    def _activate(self, step: Step, command: Activate) -> Verdict:
        if command.version <= self.version:
            return DONE if command.version == self.version else refused(Why.VERSION, "a newer version is active")
        for session in self.sessions.live.values():
            if session.kind is not SessionKind.TOOL and session.highest_version < command.version:
                return refused(Why.VERSION, "a live broker or compactor does not support it")  # M12
        self.head.version = command.version
        step.catalog_changed = True
        if not self.timeline.runs and self.version >= FIRST_WITH_RUNNING_TIME:
            self.timeline.runs = True
            self.sessions.begin_running()
        return DONE

    def end(self, step: Step, session: SessionId, reason: EndReason) -> None:
        self.sessions.end(step, session, reason)
        self._release(step, session)

    def _release(self, step: Step, session: SessionId) -> None:
        """What is bound to a session ends with it."""
        for noun in self.nouns:
            noun.session_ended(step, session)

    def _chain(self, step: Step, entry_hash: bytes) -> None:
        linked = _LINK.pack(self.digest, step.position) + entry_hash
        if step.given:
            linked += array("q", step.given).tobytes()
        self.digest = int.from_bytes(blake2b(linked, digest_size=8).digest(), "little")  # M4


_LINK: Final = struct.Struct("<QQ")
