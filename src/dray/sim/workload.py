"""Clients of a simulated cluster, what they saw, and whether that can be true.

Each batch has bytes that no other batch has, so the final log tells for each
whether it is there, where, and how often. An answer is one of three: acked at
an offset, surely not taken, or unknown.

Checked: offsets are dense in commit order (R-011); what was acked is there
once, at its offset, for every later reader through any broker (R-012); what
was refused is nowhere, what is unknown is there once at most (R-014, R-044);
an ack before a send is an offset below it (R-018); with a producer id nothing
is there twice, whoever took it (R-100, R-101); LATEST, the log end and
committed offsets never go back (R-020).
"""

import asyncio
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Final

from dray.errors import DrayError, NotFound
from dray.fetch.errors import DamagedObject
from dray.log import envelope
from dray.machine.index import IndexRow
from dray.machine.machine import Machine
from dray.machine.names import StreamId
from dray.machine.offsets import CommitOffsets, OffsetCode, OffsetsCommitted
from dray.machine.step import Applied
from dray.objects.paths import WalName
from dray.produce.batches import Stored
from dray.produce.errors import BadBatch, OutOfOrder, ProducerFenced, StreamMissing
from dray.records import one_batch, records_of
from dray.records.layout import PREFIX
from dray.sim.brokers import TOPIC, Broker, Cluster, surely_not
from dray.sim.log import LogEntry
from dray.sim.process import EPOCH_MS
from dray.sim.requests import Answer, Batch, make_batch

PATCHED: Final = PREFIX.size
"""What a fetch writes anew at the front of a batch."""
_NOWHERE: Final = 1 << 62


class Fate(Enum):
    """What a client knows of its batch."""

    UNKNOWN = "unknown"
    ACKED = "acked"
    REFUSED = "refused"
    GONE = "its stream is gone; it may have been there"


@dataclass(slots=True, eq=False)
class Sent:
    """One batch as its client saw it."""

    batch: Batch
    sent_at: float
    fate: Fate = Fate.UNKNOWN
    acked_at: float = 0.0
    base: int = -1


@dataclass(slots=True)
class History:
    """Everything that clients saw."""

    sent: list[Sent] = field(default_factory=list)
    acked: list[Sent] = field(default_factory=list)
    """In order of their acks."""
    ends: dict[StreamId, int] = field(default_factory=dict)
    """The highest end of a stream that anybody was told of."""
    committed: dict[str, int] = field(default_factory=dict)
    sent_commits: dict[str, int] = field(default_factory=dict)
    working: bool = True
    reads: int = 0


class Workload:
    """Producers, readers and committers; all of them outside the processes."""

    def __init__(self, cluster: Cluster, *, pause: float = 2.0) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.history = History()
        self.may_vanish = False
        """Retention and admins are at work: records may go from the front, and streams for good."""
        self.places: dict[StreamId, dict[bytes, int]] = {}
        """After `check`: where each batch of a stream begins."""
        self._silent: list[tuple[int, int, dict[StreamId, int]]] = []
        """Producers that have ended: id, epoch, and the sequence that is next in each stream."""
        self._truth_is_known = True
        self._pause = pause
        self._counter = 0
        for truth in cluster.truths.values():
            truth.watchers.append(self._watch_commits)

    def start(self, *, plain: int = 2, idempotent: int = 2, readers: int = 2, committers: int = 1) -> None:
        work = [
            *((self._plain, f"plain-{n}") for n in range(plain)),
            *((self._idempotent, f"producer-{n}") for n in range(idempotent)),
            *((self._read, f"reader-{n}") for n in range(readers)),
            *((self._commit, f"group-{n}") for n in range(committers)),
        ]
        for client, name in work:
            self.world.network.start(client(name, self.world.dice(f"client/{name}")))

    async def _think(self, dice: Random) -> None:
        await asyncio.sleep(dice.random() ** 2 * self._pause)

    # Producers.

    def batch(self, dice: Random, name: str, stream: StreamId, **place: int) -> Batch:
        """A new batch, stamped by a clock that is right."""
        self._counter += 1
        value = f"{name}/{self._counter}/{stream}".encode()
        now_ms = EPOCH_MS + int(self.world.loop.time() * 1000)
        return make_batch(stream, value, dice.randint(1, 4), now_ms, **place)

    def note(self, batch: Batch) -> Sent:
        sent = Sent(batch=batch, sent_at=self.world.loop.time())
        self.history.sent.append(sent)
        return sent

    async def _plain(self, name: str, dice: Random) -> None:
        """Without producer ids: one try for each batch, several streams in one object."""
        while self.history.working:
            await self._think(dice)
            streams = dice.sample(self.cluster.streams, dice.randint(1, len(self.cluster.streams)))
            sent = [self.note(self.batch(dice, name, stream)) for stream in streams]
            await self.try_once(sent)

    async def try_once(self, sent: list[Sent], *, broker: Broker | None = None) -> bool:
        """Send batches together, once; whether they were acked."""
        batches = [one.batch for one in sent]
        try:
            answers = await self.cluster.ask(lambda broker: broker.produce(batches), broker=broker)
        except DrayError as error:
            answers = [error for _ in sent]
        for one, answer in zip(sent, answers, strict=True):
            self.settle(one, answer, only_try=True)
        return all(one.fate is Fate.ACKED for one in sent)

    def settle(self, sent: Sent, answer: Answer, *, only_try: bool = False) -> None:
        """A broker has answered; of another try an error says nothing."""
        match answer:
            case Stored(base_offset=base):
                again = sent.fate is Fate.ACKED
                self.world.check(
                    not again or sent.base == base, "one batch has two offsets", first=sent.base, then=base
                )
                if not again:
                    sent.fate, sent.base, sent.acked_at = Fate.ACKED, base, self.world.loop.time()
                    self.history.acked.append(sent)
                self._told_end(sent.batch.stream, base + sent.batch.records)
            case StreamMissing():
                self.world.check(self._is_closed(sent.batch.stream), "a stream is gone", stream=sent.batch.stream)
                sent.fate = Fate.REFUSED if only_try else Fate.GONE
            case BadBatch() | OutOfOrder() | ProducerFenced():
                raise self.world.violate("a good batch was rejected", error=repr(answer), value=value_of(sent.batch))
            case _ if only_try and surely_not(answer):
                sent.fate = Fate.REFUSED

    def _told_end(self, stream: StreamId, end: int) -> None:
        self.history.ends[stream] = max(end, self.history.ends.get(stream, 0))
        found = self.cluster.truth_of(stream).streams.find(stream) if self._truth_is_known else None
        self.world.check(
            found is None or end <= found.end, "somebody was told of more than the log holds", stream=stream, end=end
        )

    async def _idempotent(self, name: str, dice: Random) -> None:
        """With a producer id: the same batch again, anywhere, until its offset is known."""

        producer = await self.cluster.insist(lambda broker: broker.new_producer())
        sequences = dict.fromkeys(self.cluster.streams, 0)
        while self.history.working:
            await self._think(dice)
            stream = dice.choice(self.cluster.streams)
            batch = self.batch(dice, name, stream, producer=producer, sequence=sequences[stream])
            sent = self.note(batch)
            while self.history.working and not await self._try_idempotent(sent, dice):
                pass
            sequences[stream] += batch.records

    async def _try_idempotent(self, sent: Sent, dice: Random) -> bool:
        """One try, or two at once through two brokers (R-101); whether its fate is known."""
        tries = 2 if dice.random() < 0.3 else 1
        await asyncio.gather(*(self._ask_again(sent, dice) for _ in range(tries)))
        return sent.fate is not Fate.UNKNOWN

    async def _ask_again(self, sent: Sent, dice: Random) -> None:
        try:
            (answer,) = await self.cluster.ask(lambda broker: broker.produce([sent.batch]))
        except DrayError as error:
            answer = error
        self.settle(sent, answer)
        if sent.fate is Fate.UNKNOWN:
            await asyncio.sleep(dice.random())

    async def epochs(self, name: str, dice: Random) -> None:
        """With a producer id: a new epoch now and then; and at the end silence, until `come_back`."""
        producer = await self.cluster.insist(lambda broker: broker.new_producer())
        epoch, sequences = 0, dict[StreamId, int]()
        while self.history.working:
            await asyncio.sleep(dice.random() * 3)
            stream = dice.choice(self.cluster.streams)
            place = {"producer": producer, "epoch": epoch, "sequence": sequences.get(stream, 0)}
            sent = self.note(self.batch(dice, name, stream, **place))
            tries = 0
            while self.history.working and sent.fate is Fate.UNKNOWN and tries < 3:
                await self._ask_again(sent, dice)
                tries += 1
            if sent.fate is Fate.ACKED and dice.random() < 0.9:
                sequences[stream] = place["sequence"] + sent.batch.records
            else:
                epoch, sequences = epoch + 1, {}  # as a client does that has lost its place
        self._silent.append((producer, epoch, sequences))

    async def come_back(self) -> None:
        """P5: producers that fell silent go on where they were, though nobody remembers them."""
        dice = self.world.dice("come back")
        for producer, epoch, sequences in self._silent:
            for stream, sequence in sequences.items():
                if stream not in self.cluster.streams:
                    continue
                batch = self.batch(dice, f"back-{producer}", stream, producer=producer, epoch=epoch, sequence=sequence)
                sent = self.note(batch)
                while sent.fate is Fate.UNKNOWN:
                    await self._ask_again(sent, dice)

    def check_epochs(self) -> None:
        """P3: behind a record of a newer epoch there is none of an older one. After `check`."""
        for stream, places in self.places.items():
            sent = [one.batch for one in self.history.sent if one.batch.stream == stream and one.batch.producer >= 0]
            newest: dict[int, int] = {}
            for batch in sorted((b for b in sent if b.data in places), key=lambda b: places[b.data]):
                known = newest.get(batch.producer, -1)
                self.world.check(batch.epoch >= known, "a fenced producer wrote", value=value_of(batch))
                newest[batch.producer] = batch.epoch

    # Readers.

    async def _read(self, name: str, dice: Random) -> None:
        while self.history.working:
            await self._think(dice)
            try:
                if dice.random() < 0.5 or not self.history.acked:
                    await self.read_latest(dice.choice(self.cluster.streams))
                else:
                    await self.read_acked(dice.choice(self.history.acked[-20:]))
            except DrayError:
                continue

    async def read_latest(self, stream: StreamId, *, broker: Broker | None = None) -> None:
        """LATEST, through any broker, knows whatever anybody was told before (R-012)."""
        known = self.history.ends.get(stream, 0)
        end = await self.cluster.ask(lambda broker: broker.latest(stream), broker=broker)
        gone = end < 0 and self._is_closed(stream)
        self.world.check(end >= known or gone, "LATEST is stale", stream=stream, answered=end, known=known)
        if end >= 0:
            self._told_end(stream, end)
        self.history.reads += 1

    async def read_acked(self, sent: Sent, *, broker: Broker | None = None) -> None:
        """What was acked is at its offset, through any broker (R-012)."""
        batch = sent.batch
        try:
            found = await self.cluster.ask(lambda broker: broker.read(batch.stream, sent.base), broker=broker)
        except DamagedObject as error:
            if self.is_gone(sent):
                return
            raise self.world.violate("an acked record cannot be read", value=value_of(batch), why=error) from None
        if found is None and self.is_gone(sent):
            return
        self.world.check(
            found == (sent.base, batch.data[PATCHED:]),
            "an acked record is not at its offset",
            value=value_of(batch),
            base=sent.base,
            got=found and found[0],
        )
        self.history.reads += 1

    def is_gone(self, sent: Sent) -> bool:
        """Whether what was acked may be missing by now."""
        return self.log_start(sent.batch.stream) > sent.base if self._truth_is_known else self.may_vanish

    def log_start(self, stream: StreamId) -> int:
        """Below it acked records may be missing; of a stream that is gone, all."""
        found = self.cluster.truth_of(stream).streams.find(stream)
        start = _NOWHERE if found is None or found.closed else found.start
        return start if self.may_vanish else 0

    def _is_closed(self, stream: StreamId) -> bool:
        """Whether anybody may say by now that there is no such stream."""
        return self.log_start(stream) == _NOWHERE if self._truth_is_known else self.may_vanish

    # Committers.

    async def _commit(self, name: str, dice: Random) -> None:
        """Commit rising offsets one by one; a repeated old commit would go back (C1, R-043)."""
        offset = 0
        while self.history.working:
            await self._think(dice)
            offset += 1
            try:
                self.history.sent_commits[name] = offset
                await self.cluster.ask(lambda broker: broker.commit(TOPIC, name, offset), hangs_up=True)  # noqa: B023
                self.history.committed[name] = offset
                found = await self.cluster.ask(lambda broker: broker.committed(TOPIC, name))
            except DrayError:
                continue
            self.world.check(found == offset, "a committed offset went back", group=name, found=found, acked=offset)

    def _watch_commits(self, entry: LogEntry, applied: Applied) -> None:
        """A group commits rising offsets one by one, so none below an acknowledged one may still be executed (C1)."""
        if applied.verdicts is None or not self._truth_is_known:
            return
        head, decoders = envelope.decode_head(entry.entry), self.cluster.truth.machine.decoders
        commands = envelope.decode_commands(entry.entry, head.count)
        for (kind, payload), verdict in zip(commands, applied.verdicts, strict=True):
            if kind != CommitOffsets.number or not isinstance(verdict, OffsetsCommitted):
                continue
            command = decoders.decode(kind, payload, head.version)
            if isinstance(command, CommitOffsets):
                acked = self.history.committed.get(command.group, -1)
                for row, code in zip(command.rows, verdict.codes, strict=True):
                    self.world.check(
                        row.offset >= acked or code is not OffsetCode.COMMITTED,
                        "a committed offset went back",
                        group=command.group,
                        found=row.offset,
                        acked=acked,
                    )

    # The end.

    def rolled_back(self) -> None:
        """From here on the truth is gone; what clients were told is all that can be held against an answer."""
        self._truth_is_known = False

    async def prove_progress(self) -> None:
        """After heal everyone takes and answers requests again."""
        for broker in self.cluster.live():
            name = broker.process.name
            for stream in self.cluster.streams:
                while True:
                    sent = self.note(self.batch(Random(0), f"probe-{name}", stream))
                    if await self.try_once([sent], broker=broker):
                        break
                    await asyncio.sleep(1)
                await self.read_latest(stream, broker=broker)

    async def check(self) -> None:
        """Compare what clients saw with the log as it is."""
        for stream in self.cluster.streams:
            machine = self.cluster.truth_of(stream)
            rows = _rows(machine, stream)
            self._check_dense(machine, stream, rows)
            contents = [await self._content(machine, row) for row in rows]
            starts: dict[bytes, list[int]] = {}
            for row, content in zip(rows, contents, strict=True):
                starts.setdefault(content, []).append(row.start)
            self._check_fates(stream, starts)
            self.places[stream] = {content: found[0] for content, found in starts.items()}
            self._check_order(stream)

    def _check_dense(self, machine: Machine, stream: StreamId, rows: list[IndexRow]) -> None:
        """R-011, R-019, R-020"""
        found = machine.streams.find(stream)
        if found is None:
            self.world.check(self.may_vanish, "a stream is gone", stream=stream)
            return
        at = rows[0].start if rows else found.end
        self.world.check(
            self.may_vanish or at == 0 or not rows, "a stream does not begin at 0", stream=stream, start=at
        )
        for row in rows:
            self.world.check(row.start == at and row.end > row.start, "offsets have a hole", stream=stream, at=at)
            at = row.end
        self.world.check(at == found.end, "the log end is not the end of the last row", stream=stream)

    async def _content(self, machine: Machine, row: IndexRow) -> bytes:
        owner = machine.objects.find(row.object)
        assert owner is not None
        path = WalName.of(
            zone=owner.zone, domain=machine.domain, created_ms=owner.created_ms, wal_id=owner.wal_id
        ).path()
        try:
            content = await self.cluster.bucket.read(path)
        except NotFound:
            raise self.world.violate("a row names an object that is gone", object=path) from None
        return content[row.position : row.position + row.size]

    def _check_fates(self, stream: StreamId, starts: dict[bytes, list[int]]) -> None:
        sent = {one.batch.data: one for one in self.history.sent if one.batch.stream == stream}
        strangers = [content for content in starts if content not in sent]
        self.world.check(not strangers, "the log holds what nobody sent", content=strangers[:1])
        for data, one in sent.items():
            places, value = starts.get(data, []), value_of(one.batch)
            self.world.check(len(places) <= 1, "a batch is there twice", value=value, at=places)
            if one.fate is Fate.REFUSED:
                self.world.check(not places, "a batch that was surely not taken is there", value=value, at=places)
            elif one.fate is Fate.ACKED and not self.is_gone(one):
                self.world.check(places == [one.base], "an acked batch is lost", value=value, at=places, base=one.base)

    def _check_order(self, stream: StreamId) -> None:
        """R-018: whoever was sent after an ack is behind it."""
        acked = [one for one in self.history.acked if one.batch.stream == stream]
        by_send = sorted(acked, key=lambda one: one.sent_at)
        reach, at = -1, 0
        for one in by_send:
            while at < len(acked) and acked[at].acked_at < one.sent_at:
                reach = max(reach, acked[at].base)
                at += 1
            self.world.check(one.base > reach, "order in the log is not order in time", value=value_of(one.batch))


def value_of(batch: Batch) -> bytes:
    """What tells a batch from all others, for people."""
    return next(iter(records_of(one_batch(batch.data)))).value or b""


def _rows(machine: Machine, stream: StreamId) -> list[IndexRow]:
    found = machine.streams.find(stream)
    return [] if found is None else [found.index.row(number) for number in range(len(found.index))]
