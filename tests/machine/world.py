"""A small cluster that does anything it may do, and some things it may not, by a seed."""

import random

from dray.machine.append import Append, pack_rows
from dray.machine.brokers import Listener, RegisterBroker
from dray.machine.confirmations import Checkpointed
from dray.machine.garbage import Gone, MarkDeleting, Pin, Unpin
from dray.machine.holds import HOLDS_VERSION, Hold, LetGo
from dray.machine.names import TopicId, wal_id
from dray.machine.offsets import CommitOffsets, ExpireOffsets, OffsetReason, OffsetRow
from dray.machine.producer_ids import AllocateProducerId
from dray.machine.sessions import Expire, KeepAlive, Swept
from dray.machine.step import Outcome
from dray.machine.streams import CloseStream, ExpireProducers, FloorReason, OpenStream, RaiseFloor
from dray.machine.topics import AlterTopic, CreateTopic, DeleteTopic, TopicGone, TopicReady, TopicState

from .scribe import HOUR, LOG, NOW, Tape, Writer
from .shop import row


class World:
    """Three brokers, a handful of topics and groups; every step is one entry or two."""

    def __init__(self, seed: int, *, domains: int = 1, version: int = 1) -> None:
        self.dice = random.Random(seed)
        self.tape = Tape(min_grace_ms=1_000, domains=domains, version=version)
        self.machine = self.tape.machine
        self.writers: list[Writer] = []
        self.sequences: dict[tuple[int, int], int] = {}
        self.sent: list[bytes] = []
        self.topics = 0

    def run(self, steps: int) -> "World":
        actions = [
            (self.append, 12), (self.create, 2), (self.drive_sagas, 6), (self.delete, 1), (self.alter, 1),
            (self.raise_floor, 3), (self.commit, 3), (self.expire, 2), (self.collect, 3), (self.pin, 1),
            (self.reopen, 1), (self.late_copy, 2), (self.end_session, 1), (self.nonsense, 1), (self.allocate, 1),
            (self.checkpointed, 1), (self.register, 1),
        ]  # fmt: skip
        kinds = [action for action, weight in actions for _ in range(weight)]
        for _ in range(steps):
            self.dice.choice(kinds)()
        return self

    def writer(self) -> Writer:
        live = [w for w in self.writers if w.session in self.machine.sessions.live]
        if not live:
            live = [self.reopen()]
        writer = self.dice.choice(live)
        writer.pass_time(self.dice.choice([0, 1, 50, 5_000, 60_000, HOUR // 3]))
        return writer

    def send(self, *commands) -> None:
        writer = self.writer()
        raw = writer.entry(*commands)
        self.sent.append(raw)
        writer.n += 1
        assert self.tape.write(raw).outcome is Outcome.EXECUTED

    def reopen(self) -> Writer:
        name = f"b{self.dice.randrange(3)}"
        writer = self.tape.open(name, wall_ms=NOW + self.dice.randrange(-HOUR, 100 * HOUR), owner=True)
        self.writers = [w for w in self.writers if w.session in self.machine.sessions.live]
        self.writers.append(writer)
        return writer

    def stream(self) -> int:
        found = list(self.machine.streams.open)
        if not found or self.dice.random() < 0.05:
            return self.dice.randrange(1 << 20)
        return self.dice.choice(found)

    def append(self) -> None:
        writer = self.writer()
        rows, position = [], 53
        for _ in range(self.dice.choice([1, 1, 3, 10, 40])):
            stream, producer = self.stream(), self.dice.choice([-1, 0, 1, 2, 5])
            records, size = self.dice.choice([0, 1, 1, 2, 7]), self.dice.randrange(60, 300)
            sequence = self.sequences.get((stream, producer), 0)
            if self.dice.random() < 0.8:
                self.sequences[stream, producer] = sequence + records
            rows.append(row(stream, records, producer=producer, sequence=sequence, epoch=0, size=size,
                            position=position, stamp=self.machine.time_ms - self.dice.randrange(5 * HOUR)))  # fmt: skip
            position += size + 4
        if self.dice.random() < 0.95:
            writer.wal += self.dice.choice([1, 1, 1, 2])
        name = wal_id(LOG, writer.session, writer.wal)
        packed = pack_rows(rows)
        command = Append(wal_id=name, size=position, created_ms=NOW, zone=self.dice.choice("ab"), packed=packed)
        raw = writer.entry(command)
        self.sent.append(raw)
        writer.n += 1
        self.tape.write(raw)

    def topic(self) -> TopicId:
        known = sorted(self.machine.topics.all)
        return self.dice.choice(known) if known else TopicId(b"?" * 16)

    def create(self) -> None:
        self.topics += 1
        name = f"t{self.dice.randrange(6)}"
        partitions = self.dice.randrange(1, 5)
        self.send(CreateTopic(topic_id=TopicId(self.topics.to_bytes(16, "big")), name=name, partitions=partitions,
                                configs={"b": "2", "a": "1"}))  # fmt: skip

    def drive_sagas(self) -> None:
        for topic in list(self.machine.topics.unfinished()):
            if topic.state is TopicState.DELETING:
                self.send(*(CloseStream(stream=s, limit=self.dice.choice([5, 700])) for s in topic.streams))
                self.send(TopicGone(topic_id=topic.id))
            else:
                self.send(*(
                    OpenStream(stream=s, topic_id=topic.id, partition=p, producer_floor=topic.producer_floor,
                                 name_existed_before=topic.name_existed_before)
                    for p, s in enumerate(topic.streams)
                ))  # fmt: skip
                self.send(TopicReady(topic_id=topic.id))
        for stream in [s for s in self.machine.streams.all() if s.closed]:
            self.send(CloseStream(stream=stream.id, limit=self.dice.choice([5, 700])))

    def delete(self) -> None:
        self.send(DeleteTopic(topic_id=self.topic()))

    def alter(self) -> None:
        self.send(AlterTopic(topic_id=self.topic(), set={"c": str(self.dice.random())}, remove=("a",),
                               partitions=self.dice.choice([0, 3, 6])))  # fmt: skip

    def raise_floor(self) -> None:
        reason = self.dice.choice(list(FloorReason))
        bound = self.dice.choice([0, 3, 100, 5_000, HOUR])
        self.send(RaiseFloor(stream=self.stream(), reason=reason, bound=bound, limit=self.dice.choice([1, 10, 900])))

    def commit(self) -> None:
        rows = tuple(
            OffsetRow(topic_id=self.topic(), partition=self.dice.randrange(4), offset=self.dice.randrange(99))
            for _ in range(3)
        )
        self.send(CommitOffsets(group=f"g{self.dice.randrange(5)}", rows=rows,
                                  retention_ms=self.dice.choice([-1, 0, HOUR])))  # fmt: skip

    def expire(self) -> None:
        self.send(ExpireProducers(stream=self.stream(), idle_ms=self.dice.choice([HOUR, 24 * HOUR]), limit=3))
        group = f"g{self.dice.randrange(5)}"
        due = tuple(self.machine.offsets.due(group, HOUR))
        self.send(ExpireOffsets(group=group, reason=OffsetReason.EXPIRED, rows=due, retention_ms=HOUR))

    def collect(self) -> None:
        objects = self.machine.objects
        guesses = tuple(self.dice.randrange(objects.next + 1) for _ in range(2))
        self.send(MarkDeleting(objects=(*objects.due(1_000, 20), *guesses), grace_ms=1_000))
        self.send(Gone(objects=tuple(objects.deleting(20))), Gone(objects=guesses))

    def pin(self) -> None:
        self.send(self.dice.choice([Pin, Unpin])(pin=f"p{self.dice.randrange(3)}"))
        if self.machine.version >= HOLDS_VERSION:
            held = Hold(pin=f"h{self.dice.randrange(9)}", length_ms=self.dice.choice([1_000, HOUR]))
            self.send(self.dice.choice([held, LetGo(pin=held.pin)]))

    def late_copy(self) -> None:
        if self.sent:
            self.tape.write(self.dice.choice(self.sent[-30:]))

    def end_session(self) -> None:
        live = sorted(self.machine.sessions.live)
        if live:
            victim = self.machine.sessions.live[self.dice.choice(live)]
            self.send(Expire(session=victim.id, last_n=victim.last_n))
        ended = tuple(sorted(self.machine.sessions.ended)[:1])
        self.send(Swept(sessions=ended), KeepAlive())

    def nonsense(self) -> None:
        self.tape.write(self.dice.randbytes(self.dice.randrange(80)))

    def allocate(self) -> None:
        self.send(AllocateProducerId(), AllocateProducerId())

    def register(self) -> None:
        listener = Listener(name="PLAIN", host="h", port=9092)
        self.send(RegisterBroker(broker_id=self.dice.choice([-1, 3, 4]), zone="a", rack="r", listeners=(listener,),
                                   started_ms=NOW, capacity={"cpu": "2"}))  # fmt: skip

    def checkpointed(self) -> None:
        at = max(1, self.machine.position - self.dice.randrange(50))
        mark = bytes([self.dice.randrange(2)]) * 32
        self.send(Checkpointed(position=at, hash=mark, size=10, confirms=self.dice.random() < 0.5))
