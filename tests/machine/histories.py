"""Histories of appends by a seed, with every edge that a row can have."""

import random

from dray.machine import checkpoint, producers
from dray.machine.append import Appended
from dray.machine.command import MAX_SIGNED, MAX_TIME_MS
from dray.machine.names import stream_id
from dray.machine.producer_ids import AllocateProducerId
from dray.machine.streams import CloseStream, ExpireProducers, FloorReason, RaiseFloor

from .scribe import HOUR, NOW
from .shop import Shop, row

OBJECT = 100_000
LAST_SEQUENCE = (1 << 31) - 1


class Appends:
    """One broker that appends: to a busy stream, to others, one near its last offset, a closed and a forgotten one."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.shop = Shop(version=2)
        for _ in range(4):
            self.shop.writer.do(AllocateProducerId())
        self.streams = self.shop.topic("events", 4)
        self.busy, self.full = self.streams[0], self.streams[3]
        closing, forgotten = self.shop.topic("old", 2)
        self.shop.append((closing, 1), (closing, 1), (forgotten, 1))
        self.shop.writer.do(CloseStream(stream=closing, limit=1))
        self.shop.writer.do(CloseStream(stream=forgotten))
        self.others = [closing, forgotten, stream_id(999, 0)]
        # What no rule makes, and a rule has to refuse: a producer whose epoch is below 0.
        self.stream(self.streams[1]).producers += producers.STATE.pack(3, -1, 4, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0)
        last = self.stream(self.full).index
        last.end, last.size = MAX_SIGNED - 60, MAX_SIGNED - 20_000
        self.verdicts: list = []
        self.peaks: list[list[list[int]]] = []

    def stream(self, number):
        found = self.shop.machine.streams.find(number)
        assert found is not None
        return found

    def run(self, steps: int) -> None:
        acts = [self.append] * 12 + [self.cut, self.expire, self.reload]
        for _ in range(steps):
            self.shop.writer.pass_time(self.dice.choice((0, 1, 5_000, 70_000)))
            self.dice.choice(acts)()

    def append(self) -> None:
        rows = [self.draw() for _ in range(self.dice.choice((1, 3, 40, 40)))]
        verdict = self.shop.writer.do(self.shop.command(*rows, size=OBJECT))
        self.verdicts.append(list(verdict) if isinstance(verdict, Appended) else verdict)

    def draw(self):
        dice = self.dice
        number = dice.choice([self.busy] * 12 + self.streams * 3 + self.others)
        producer, epoch, sequence = self.draw_producer(number)
        fields = {"records": dice.choice((1, 1, 2, 7)), "size": 100, "position": 53, "stamp": NOW + dice.randrange(9)}
        if dice.random() < 0.15:
            name, edges = dice.choice([
                ("records", (0, 1, LAST_SEQUENCE, LAST_SEQUENCE + 1, (1 << 32) - 1)),
                ("size", (0, 61, 62, OBJECT - 53, OBJECT - 52, (1 << 32) - 1)),
                ("position", (0, 3, 4, OBJECT - 100, OBJECT - 99, (1 << 32) - 1)),
                ("stamp", (-(1 << 63), -2, -1, 0, MAX_TIME_MS, MAX_TIME_MS + 1, (1 << 63) - 1)),
            ])  # fmt: skip
            fields[name] = dice.choice(edges)
        return row(number, fields.pop("records"), producer=producer, epoch=epoch, sequence=sequence, **fields)

    def draw_producer(self, number) -> tuple[int, int, int]:
        """None, one that goes on, and one that does anything else."""
        dice = self.dice
        if number == self.full or dice.random() < 0.3:
            return dice.choice((-1, -1, -1, -1, -1, -2, -(1 << 63))), dice.choice((-1, 0, 5)), dice.choice((-1, 0, 9))
        producer = dice.choice((0, 1, 2, 3, 4, 5, 6, 1 << 40, (1 << 63) - 1))
        known = self.known(number, producer)
        if known is None and dice.random() < 0.3:
            return self.draw_neighbour(number, producer)
        if known is None:
            return producer, dice.choice((-1, 0, 0, 0, 3)), dice.choice((0, 0, 0, 0, -1, 5, LAST_SEQUENCE - 3))
        epoch, following = known.epoch, (known.last_sequence + 1) % (1 << 31)
        act = dice.random()
        if act < 0.8:
            return producer, epoch, following
        if act < 0.88:
            first, records, _ = dice.choice(known.batches)
            return producer, epoch, dice.choice((first, (first + records) % (1 << 31)))
        return producer, min(epoch + dice.choice((-1, 0, 1)), 32_767), dice.choice((0, 0, following, -1, LAST_SEQUENCE))

    def draw_neighbour(self, number, producer: int) -> tuple[int, int, int]:
        """A producer that a stream does not know, with what would be the next of the one behind it."""
        behind = [known for known in self.all_known(number) if known.producer_id > producer]
        if not behind:
            return producer, 0, 0
        return producer, behind[0].epoch, (behind[0].last_sequence + 1) % (1 << 31)

    def all_known(self, number):
        found = self.shop.machine.streams.find(number)
        return () if found is None else producers.all_states(found.producers)

    def known(self, number, producer: int):
        found = self.shop.machine.streams.find(number)
        return None if found is None else producers.find(found.producers, producer)

    def cut(self) -> None:
        """Rows leave from the front."""
        number = self.dice.choice(self.streams[:3])
        found = self.stream(number)
        bound = self.dice.randrange(found.start, found.end + 1)
        self.shop.writer.do(RaiseFloor(stream=number, reason=FloorReason.DELETE_RECORDS, bound=bound))

    def expire(self) -> None:
        if self.dice.random() < 0.3:
            number = self.dice.choice(self.streams)
            self.shop.writer.do(ExpireProducers(stream=number, idle_ms=self.dice.choice((1, 60_000, HOUR))))

    def reload(self) -> None:
        """K2: it goes on as if nothing had been."""
        self.peaks.append(self.raised())
        tape = self.shop.tape
        tape.machine = self.shop.machine = checkpoint.load(checkpoint.dump(tape.machine), type(tape.machine))

    def raised(self) -> list[list[int]]:
        """The greatest timestamps of full blocks, which no checkpoint has."""
        return [list(stream.index._peaks) for stream in self.shop.machine.streams.all()]

    def state(self) -> tuple[list, int, bytes, list[list[list[int]]]]:
        """What was answered, and all that there is."""
        machine = self.shop.machine
        return self.verdicts, machine.digest, checkpoint.dump(machine), [*self.peaks, self.raised()]
