"""Clean concurrent histories from a tiny reference log.

Every operation has three moments: invoke, effect, completion. A seeded
scheduler interleaves the moments of all processes; effects happen atomically
on plain Python lists, so whatever clients see is right by construction. Lost
answers, retries, late effects, prefetched records, retention, deletion and
rebalances are in.
"""

import random
from collections import defaultdict
from dataclasses import dataclass, field

from dray.testing.history.events import (
    Assign,
    At,
    Commit,
    Committed,
    Crashed,
    Created,
    CreateTopic,
    DeleteTopic,
    Done,
    Earliest,
    Fail,
    Info,
    Invoke,
    Latest,
    Nemesis,
    Noted,
    Ok,
    Poll,
    Polled,
    ProducerOpened,
    Rebalanced,
    Run,
    Seek,
    Send,
    Sent,
    partition,
)
from tests.history.stories import crc_of


@dataclass
class Log:
    """One partition of one life of a topic."""

    records: list = field(default_factory=list)
    start: int = 0

    def append(self, value):
        self.records.append(value)
        return len(self.records) - 1

    def read(self, position, limit):
        first = max(position, self.start)  # below the start, a client is reset to it
        return [(at, self.records[at]) for at in range(first, min(len(self.records), first + limit))]


@dataclass
class Consumer:
    name: str
    positions: dict = field(default_factory=dict)
    buffers: dict = field(default_factory=dict)
    generation: int = -1
    busy: bool = False


class Reference:
    """One run. `lives[topic]` is the list of its incarnations; the last one exists if `alive[topic]`."""

    def __init__(self, seed, *, steps=600, topics=2, partitions=2, churn=True):
        self.dice = random.Random(seed)
        self.events = [Run(seed=seed)]
        self.now = 0
        self.ops = 0
        self.topics = [f"t{n}" for n in range(topics)]
        self.partitions = partitions
        self.churn = churn
        self.lives = {topic: [] for topic in self.topics}
        self.alive = {}
        self.pending = []
        self.queues = defaultdict(list)
        self.seqs = defaultdict(int)
        self.offsets = {}
        self.generation = 0
        self.faults = set()
        self.consumers = [Consumer(f"c{n}") for n in range(3)]
        self.members = [Consumer(f"m{n}") for n in range(2)]
        self.producers = [
            ProducerOpened(producer="idem", idempotent=True, ordered=True),
            ProducerOpened(producer="order", ordered=True),
            ProducerOpened(producer="loose"),
            ProducerOpened(producer="once", retries=False),
        ]
        for topic in self.topics:
            self._run(self._create(topic))
        for producer in self.producers:
            self._note(producer.producer, producer)
        for consumer in self.consumers:
            self._run(self._assign(consumer))
        for _ in range(steps):
            self._step()
        while self.pending:
            self._advance()
        self._heal()
        self._drain()

    # The scheduler.

    def _tick(self):
        self.now += self.dice.choice((0, 1, 1, 5, 1000))
        return self.now

    def _step(self):
        if len(self.pending) > 12 or (self.pending and self.dice.random() < 0.6):
            self._advance()
        else:
            self._start()

    def _advance(self):
        operation = self.dice.choice(self.pending)
        if next(operation, "over") == "over":
            self.pending.remove(operation)

    def _start(self):
        kinds = [self._send] * 12 + [self._poll] * 8 + [self._ask] * 4 + [self._move] * 2 + [self._group] * 3
        if self.churn:
            kinds += [self._retain, self._churn, self._nemesis, self._crash]
        operation = self.dice.choice(kinds)()
        if operation is not None:
            self.pending.append(operation)
            next(operation, None)

    def _run(self, operation):
        for _ in operation:
            pass

    # Writing it down.

    def _invoke(self, process, call):
        op, self.ops = self.ops, self.ops + 1
        self.events.append(Invoke(op=op, t_ns=self._tick(), process=process, call=call))
        return op

    def _ok(self, op, result=None):
        self.events.append(Ok(op=op, t_ns=self._tick(), result=result if result is not None else Done()))

    def _info(self, op):
        if self.dice.random() < 0.8:
            self.events.append(Info(op=op, t_ns=self._tick(), error="timed out"))

    def _fail(self, op):
        self.events.append(Fail(op=op, t_ns=self._tick(), error="refused"))

    def _note(self, process, note):
        self.events.append(Noted(t_ns=self._tick(), process=process, note=note))

    # The log.

    def _some_tp(self):
        return self.dice.choice(self.topics), self.dice.randrange(self.partitions)

    def _log(self, topic, number):
        return self.lives[topic][-1][number] if self.alive.get(topic) else None

    def _send(self):
        producer = self.dice.choice(self.producers)
        topic, number = self._some_tp()
        return self._sending(producer, topic, number)

    def _sending(self, producer, topic, number):
        name = producer.producer
        value = f"{name}:{self.seqs[name]}"
        self.seqs[name] += 1
        op = self._invoke(name, Send(tp=partition(topic, number), value=value, crc=crc_of(value), producer=name))
        queue = self.queues[name, topic, number]
        queue.append(op)
        while producer.ordered and queue[0] != op:
            yield
        yield
        fate = self.dice.random()
        if self._log(topic, number) is None or fate < 0.06:
            queue.remove(op)
            (self._info if fate < 0.03 else self._fail)(op)
        elif fate < 0.12:
            yield from self._unknown(producer, topic, number, op, value)
        else:
            yield from self._taken(producer, topic, number, op, value)

    def _unknown(self, producer, topic, number, op, value):
        """The client gives up; the effect comes before that, after it, or never. Order binds it all the same."""
        queue = self.queues[producer.producer, topic, number]
        if self.dice.random() < 0.5 and not producer.idempotent:
            queue.remove(op)  # a request that is still on its way when the next one is sent
        self._info(op)
        for _ in range(self.dice.randrange(4)):
            yield
        if self.dice.random() < 0.7 and (log := self._log(topic, number)) is not None:
            log.append(value)
        if op in queue:
            queue.remove(op)

    def _taken(self, producer, topic, number, op, value):
        """The value is appended; a retry after a lost answer appends it again, unless sequence numbers tell."""
        queue = self.queues[producer.producer, topic, number]
        offset = self._log(topic, number).append(value)
        if self.dice.random() < 0.1 and producer.retries and not producer.idempotent:
            yield
            log = self._log(topic, number)
            if log is None:
                queue.remove(op)
                self._info(op)
                return
            offset = log.append(value)
        queue.remove(op)
        yield
        if self.dice.random() < 0.04:
            self._info(op)
        else:
            self._ok(op, Sent(offset=offset))

    def _ask(self):
        topic, number = self._some_tp()
        return self._asking(topic, number, self.dice.choice((Latest, Earliest)))

    def _asking(self, topic, number, call):
        op = self._invoke(f"q{self.dice.randrange(3)}", call(tp=partition(topic, number)))
        yield
        log = self._log(topic, number)
        if log is None:
            self._fail(op)
            return
        answer = len(log.records) if call is Latest else log.start
        yield
        self._ok(op, At(offset=answer))

    def _retain(self):
        log = self._log(*self._some_tp())
        if log is not None and self.dice.random() < 0.5:
            log.start = self.dice.randint(log.start, len(log.records))

    # Consumers.

    def _move(self):
        consumer = self.dice.choice(self.consumers)
        if not consumer.busy:
            return self._assign(consumer) if self.dice.random() < 0.5 else self._seek(consumer)
        return None

    def _assign(self, consumer, *, drain=False):
        consumer.busy = True
        where = {}
        for topic in self.topics:
            for number in range(self.partitions):
                log = self._log(topic, number)
                if log is not None and (drain or self.dice.random() < 0.8):
                    where[topic, number] = log.start if drain else self.dice.randint(log.start, len(log.records))
        told = {partition(*tp): at for tp, at in where.items()}
        op = self._invoke(consumer.name, Assign(positions=told, drain=drain))
        yield
        consumer.positions = where
        consumer.buffers = {}
        self._ok(op)
        consumer.busy = False

    def _seek(self, consumer):
        if not consumer.positions:
            return
        consumer.busy = True
        tp = self.dice.choice(sorted(consumer.positions))
        at = self.dice.randint(0, consumer.positions[tp])
        op = self._invoke(consumer.name, Seek(tp=partition(*tp), offset=at))
        yield
        consumer.positions[tp] = at
        consumer.buffers.pop(tp, None)
        self._ok(op)
        consumer.busy = False

    def _poll(self):
        consumer = self.dice.choice(self.consumers + self.members)
        if consumer.busy or not consumer.positions:
            return None
        consumer.busy = True
        return self._polling(consumer)

    def _polling(self, consumer):
        told = {partition(*tp): at for tp, at in consumer.positions.items()}
        op = self._invoke(consumer.name, Poll(positions=told if self.dice.random() < 0.7 else {}))
        yield
        got, ends = {}, {}
        for tp in sorted(consumer.positions):
            log = self._log(*tp)
            if not consumer.buffers.get(tp) and log is not None:
                consumer.buffers[tp] = log.read(consumer.positions[tp], self.dice.randint(1, 8))
                ends[partition(*tp)] = len(log.records)
        yield
        for tp, buffered in consumer.buffers.items():
            take, consumer.buffers[tp] = buffered[:4], buffered[4:]
            if take:
                got[partition(*tp)] = [(at, value, crc_of(value)) for at, value in take]
                consumer.positions[tp] = take[-1][0] + 1
        self._ok(op, Polled(records=got, ends=ends))
        consumer.busy = False

    def _crash(self):
        consumer = self.dice.choice(self.consumers)
        if not consumer.busy:
            self._note(consumer.name, Crashed())
            consumer.positions = {}
            consumer.buffers = {}

    # Groups.

    def _group(self):
        kind = self.dice.random()
        if kind < 0.3:
            return self._rebalance() if not any(member.busy for member in self.members) else None
        topic, number = self._some_tp()
        return self._commit(topic, number) if kind < 0.7 else self._committed(topic, number)

    def _rebalance(self):
        """All members stop, then each learns the new generation in its own time."""
        self.generation += 1
        tps = [(topic, number) for topic in self.topics for number in range(self.partitions)]
        owner = {tp: self.dice.choice(self.members) for tp in tps}
        for member in self.members:
            member.busy = True
        for member in self.members:
            yield
            member.generation = self.generation
            member.positions = {tp: 0 for tp in tps if owner[tp] is member}
            member.buffers = {}
            owned = [partition(*tp) for tp in member.positions]
            self._note(member.name, Rebalanced(group="g", generation=self.generation, member=member.name, owned=owned))
            member.busy = False

    def _commit(self, topic, number):
        member = self.dice.choice(self.members)
        generation = member.generation
        at = self.dice.randrange(20)
        call = Commit(group="g", tp=partition(topic, number), offset=at, generation=generation, member=member.name)
        op = self._invoke(member.name, call)
        yield
        if generation != self.generation or not self.alive.get(topic):
            self._fail(op)
            return
        fate = self.dice.random()
        if fate < 0.9:
            self.offsets[topic, number] = at
        yield
        if fate < 0.8:
            self._ok(op)
        else:
            self._info(op)

    def _committed(self, topic, number):
        op = self._invoke("q", Committed(group="g", tp=partition(topic, number)))
        yield
        answer = self.offsets.get((topic, number), -1)
        yield
        self._ok(op, At(offset=answer))

    # Topics and faults.

    def _churn(self):
        if self.dice.random() < 0.5:
            return None
        topic = self.dice.choice(self.topics)
        if any(name == topic for name in self.faults):
            return None
        self.faults.add(topic)  # one change of a topic at a time
        return self._delete(topic) if self.alive.get(topic) else self._create(topic)

    def _create(self, topic):
        op = self._invoke("admin", CreateTopic(topic=topic))
        yield
        self.lives[topic].append([Log() for _ in range(self.partitions)])
        self.alive[topic] = True
        yield
        self._ok(op, Created(topic_id=f"{topic}#{len(self.lives[topic])}"))
        self.faults.discard(topic)

    def _delete(self, topic):
        op = self._invoke("admin", DeleteTopic(topic=topic))
        yield
        self.alive[topic] = False
        for number in range(self.partitions):
            self.offsets.pop((topic, number), None)
        yield
        if self.dice.random() < 0.9:
            self._ok(op)
        else:
            self._info(op)
        self.faults.discard(topic)

    def _nemesis(self):
        name = f"b{self.dice.randrange(2)}"
        start = name not in self.faults
        (self.faults.add if start else self.faults.discard)(name)
        self._note("nemesis", Nemesis(fault="kill", target=name, start=start))

    def _heal(self):
        for name in sorted(self.faults):
            self._note("nemesis", Nemesis(fault="kill", target=name, start=False))
        for topic in self.topics:
            if not self.alive.get(topic):
                self._run(self._create(topic))

    def _drain(self):
        for topic in self.topics:
            for number in range(self.partitions):
                self._run(self._asking(topic, number, Earliest))
                self._run(self._asking(topic, number, Latest))
        drain = Consumer("drain")
        self._run(self._assign(drain, drain=True))
        while any(at < len(self._log(*tp).records) for tp, at in drain.positions.items()):
            self._run(self._polling(drain))
