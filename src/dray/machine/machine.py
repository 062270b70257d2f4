"""The machine of one domain: all its metadata, changed only by `apply`.

`apply` is a fold: the same entries at the same positions give the same state,
verdicts and digest in every replica, on every Python, for ever. So it reads
no clock, no dice and no environment, and depends on no hash or set order.

Each command is judged first and changes state only if it is accepted. The
rules live with their nouns (`sessions`, `topics`, `streams`, ...); this module
brings entries to them.

Invariants
    M3  `apply` raises for no bytes. What does not decode, or breaks a rule,
        is refused, the same everywhere; a refused command changes nothing.
    M4  `digest` chains the bytes of every entry, its position, and the
        offsets and ids that apply gave, from the log id on.
    M5  An entry above the active version does nothing and closes its session.
        With an active version above `SUPPORTED`, nothing is applied any more.
    M6  Genesis comes first and once; before it every entry is bad.
    M7  An entry touches at most `MAX_ROWS` rows: commands that need more than
        that are refused, and slices share what the others leave.
"""

import struct
from array import array
from hashlib import blake2b
from typing import Final, TypeAlias

from dray.errors import Invalid
from dray.log.envelope import HEAD, BadEntry, decode_commands
from dray.machine.brokers import Brokers
from dray.machine.commands import (
    MAX_ROWS,
    Activate,
    AllocateProducerId,
    Append,
    BadCommand,
    Checkpointed,
    Close,
    CloseStream,
    Command,
    CommitOffsets,
    Expire,
    ExpireOffsets,
    ExpireProducers,
    Genesis,
    Gone,
    KeepAlive,
    MarkDeleting,
    Open,
    OpenStream,
    Pin,
    RaiseFloor,
    RegisterBroker,
    SessionKind,
    Swept,
    TopicGone,
    TopicReady,
    Unpin,
    decode,
    weigh,
)
from dray.machine.confirmations import Confirmations
from dray.machine.garbage import Objects
from dray.machine.names import NOBODY, LogId, SessionId, domain_of
from dray.machine.offsets import Offsets
from dray.machine.producers import ProducerIds
from dray.machine.sessions import Sessions
from dray.machine.step import Applied, EndReason, Outcome, Step
from dray.machine.streams import Streams
from dray.machine.timeline import Timeline
from dray.machine.topics import TopicCommand, Topics, TopicState
from dray.machine.verdicts import DONE, Refused, Verdict, Why, refused

CatalogCommand: TypeAlias = TopicCommand | RegisterBroker | AllocateProducerId

SUPPORTED: Final = 1
"""The newest version of the rules that this software knows."""

# A rule that fails in one of these ways has a bug; it fails alike everywhere,
# so the command is refused and the log stays readable. Anything else (no
# memory, too deep) may differ between replicas and must end the process.
FAILURES: Final = (ArithmeticError, LookupError, ValueError, TypeError, AttributeError, struct.error)


class Machine:
    """The state of one domain."""

    def __init__(self) -> None:
        self.position = 0
        self.digest = 0
        self.version = 0
        self.cluster_id = b""
        self.log_id = LogId(b"")
        self.domain = 0
        self.domains = 0
        self.generation = 0
        self.timeline = Timeline()
        self.sessions = Sessions(self.timeline)
        self.objects = Objects(self.timeline)
        self.streams = Streams(self.timeline, self.objects)
        self.topics = Topics(self.timeline)
        self.offsets = Offsets(self.timeline)
        self.brokers = Brokers()
        self.producer_ids = ProducerIds()
        self.confirmations = Confirmations(self.sessions)

    @property
    def time_ms(self) -> int:
        """Machine time (Q7)."""
        return self.timeline.time_ms

    def apply(self, position: int, entry: bytes, want_verdicts: bool = False) -> Applied:
        """Fold one entry. Positions must increase; the bytes may be anything (M3)."""
        if position <= self.position:
            raise Invalid("entry is not behind the ones applied", position=position, applied=self.position)
        if self.version > SUPPORTED:
            return Applied(Outcome.HALTED, NOBODY, 0)  # M5
        entry_hash = blake2b(entry, digest_size=16).digest()
        step = Step(position, NOBODY)
        applied = self._judge(step, entry, entry_hash, want_verdicts)
        self.position = position
        self._chain(step, entry_hash)
        if step.streams:
            applied.streams = tuple(dict.fromkeys(step.streams))
        if step.groups:
            applied.groups = tuple(dict.fromkeys(step.groups))
        applied.ended = tuple(step.ended)
        applied.catalog_changed = step.catalog_changed
        return applied

    def _judge(self, step: Step, entry: bytes, entry_hash: bytes, want_verdicts: bool) -> Applied:
        if len(entry) < HEAD.size:
            return Applied(Outcome.BAD, NOBODY, 0)
        version, flags, count, session, n, time_ms, _, _ = HEAD.unpack_from(entry)
        if session == NOBODY:
            return self._found_or_open(step, entry, time_ms)
        outcome = self.sessions.judge(session, n, entry_hash)
        if version > self.version and outcome in (Outcome.EXECUTED, Outcome.HOLE):
            outcome = Outcome.TOO_NEW  # M5
        if outcome is Outcome.EXECUTED:
            writer = self.sessions.use_up(session, n, entry_hash, step.position)
            step.session = session
            commands = self._decode(entry, count) if flags == 0 and version > 0 else None
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
        commands = self._decode(entry, count) if n == 0 and count == 1 and flags == 0 and version > 0 else None
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
        self.version = genesis.version
        self.cluster_id = genesis.cluster_id
        self.log_id = self.streams.log_id = LogId(genesis.log_id)
        self.domain = self.streams.domain = genesis.domain
        self.domains = self.topics.domains = genesis.domains
        self.generation = genesis.generation
        self.objects.min_grace_ms = genesis.min_grace_ms
        self.producer_ids.begin(genesis.generation)
        self.timeline.begin(time_ms)
        self.digest = int.from_bytes(genesis.log_id, "little")  # M4
        return DONE

    def _open(self, step: Step, command: Open, version: int) -> Verdict:
        if version > self.version:
            return refused(Why.VERSION, "the entry is above the active version")  # M5
        verdict = self.sessions.open(step, command, self.version)
        for ended in step.ended:
            self._release(step, ended.session)
        return verdict

    def _decode(self, entry: bytes, count: int) -> list[Command | Refused] | None:
        """Everything is decoded before anything is applied (M3)."""
        try:
            packed = decode_commands(entry, count)
        except BadEntry:
            return None
        commands: list[Command | Refused] = []
        for number, payload in packed:
            try:
                commands.append(decode(number, payload))
            except BadCommand as bad:
                commands.append(refused(Why.MALFORMED, bad.message))
        return commands

    def _execute(self, step: Step, commands: list[Command | Refused], want_verdicts: bool) -> list[Verdict] | None:
        verdicts: list[Verdict] = []
        needed = [0 if isinstance(command, Refused) else weigh(command) for command in commands]
        step.spare = max(0, MAX_ROWS - sum(needed))  # M7
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

    def _guarded(self, step: Step, command: Command) -> Verdict:
        known = len(step.ended)
        try:
            return self.execute(step, command)
        except FAILURES as failure:
            return refused(Why.INTERNAL, f"{type(command).__name__} failed: {type(failure).__name__}")  # M3
        finally:
            for ended in step.ended[known:]:
                self._release(step, ended.session)

    def execute(self, step: Step, command: Command) -> Verdict:
        """Bring a command to its noun."""
        match command:
            case Append():
                return self.streams.append(step, command, self.sessions.live[step.session])
            case OpenStream():
                return self._open_stream(step, command)
            case CloseStream() | RaiseFloor() | ExpireProducers():
                return self.streams.apply(step, command)
            case CommitOffsets() | ExpireOffsets():
                return self.offsets.apply(step, command)
            case Pin() | Unpin() | MarkDeleting() | Gone():
                return self.objects.apply(step, command)
            case Close() | KeepAlive() | Expire() | Swept():
                return self.sessions.apply(step, command)
            case Checkpointed():
                return self.confirmations.apply(step, command)
            case Activate():
                return self._activate(step, command)
            case Genesis() | Open():
                return refused(Why.STATE, "only nobody may send this")
            case _:
                return self._execute_in_catalog(step, command)

    def _execute_in_catalog(self, step: Step, command: CatalogCommand) -> Verdict:
        if self.domain != 0:
            return refused(Why.FOREIGN, "the catalog is domain 0")
        match command:
            case RegisterBroker():
                return self.brokers.register(step, command, self.sessions.live[step.session])
            case AllocateProducerId():
                verdict = self.producer_ids.allocate()
                step.given.append(self.producer_ids.next)
                return verdict
            case TopicReady() if not self._all_open(command):
                return refused(Why.STATE, "a stream of the topic is not open")  # T5
            case TopicGone() if not self._all_closed(command):
                return refused(Why.STATE, "a stream of the topic is open")
            case _:
                return self.topics.apply(step, command, self.producer_ids.next)

    def _open_stream(self, step: Step, command: OpenStream) -> Verdict:
        """Where the catalog is at hand, it says which streams there are."""
        if self.domains == 1:
            topic = self.topics.find(command.topic_id)
            if topic is None or topic.state is TopicState.DELETING:
                return refused(Why.NOT_FOUND, "no such topic")
            if topic.streams[command.partition : command.partition + 1] != [command.stream]:
                return refused(Why.NOT_FOUND, "the topic has no such stream")
        return self.streams.apply(step, command)

    def _all_open(self, command: TopicReady) -> bool:
        """Of the streams that lie in this domain."""
        topic = self.topics.find(command.topic_id)
        own = [number for number in topic.streams if domain_of(number) == self.domain] if topic else []
        return all(self.streams.find(number) is not None for number in own)

    def _all_closed(self, command: TopicGone) -> bool:
        topic = self.topics.find(command.topic_id)
        found = [self.streams.find(number) for number in topic.streams] if topic else []
        return all(stream is None or stream.closed for stream in found)

    def _activate(self, step: Step, command: Activate) -> Verdict:
        if command.version <= self.version:
            return DONE if command.version == self.version else refused(Why.VERSION, "a newer version is active")
        for session in self.sessions.live.values():
            if session.kind is not SessionKind.TOOL and session.highest_version < command.version:
                return refused(Why.VERSION, "a live broker or compactor does not support it")
        self.version = command.version
        step.catalog_changed = True
        return DONE

    def end(self, step: Step, session: SessionId, reason: EndReason) -> None:
        self.sessions.end(step, session, reason)
        self._release(step, session)

    def _release(self, step: Step, session: SessionId) -> None:
        """What is bound to a session ends with it."""
        self.objects.drop_pins(session)  # X3
        if self.brokers.drop(session):  # M8
            step.catalog_changed = True

    def _chain(self, step: Step, entry_hash: bytes) -> None:
        head = _LINK.pack(self.digest, step.position) + entry_hash
        given = array("q", step.given).tobytes() if step.given else b""
        self.digest = int.from_bytes(blake2b(head + given, digest_size=8).digest(), "little")  # M4


_LINK: Final = struct.Struct("<QQ")
