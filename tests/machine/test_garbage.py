"""Objects: alive, dead, deleting, gone."""

import random

import pytest

from dray.machine import checkpoint
from dray.machine.append import Accepted, Rejected
from dray.machine.garbage import Gone, MarkDeleting, Marked, Pin, Pinned, Unpin
from dray.machine.machine import Machine
from dray.machine.names import wal_id
from dray.machine.objects import BLOCK
from dray.machine.sessions import Close
from dray.machine.streams import CloseStream, FloorReason, RaiseFloor
from dray.machine.topics import DeleteTopic, TopicGone
from dray.machine.verdict import Done, Refused, Why

from .scribe import HOUR, LOG, NOW
from .shop import Shop, row

GRACE = 60_000


def cut(shop: Shop, stream: int, offset: int) -> None:
    shop.writer.do(RaiseFloor(stream=stream, reason=FloorReason.DELETE_RECORDS, bound=offset))


def mark(shop: Shop, *objects: int):
    return shop.writer.do(MarkDeleting(objects=objects, grace_ms=GRACE))


def test_an_object_dies_when_its_last_row_goes():
    """X1, R-109, R-110"""
    shop = Shop()
    one, two = shop.topic("t", 2)
    shop.append((one, 1), (two, 1), (one, 1))
    cut(shop, one, 2)
    assert shop.machine.objects.find(0).rows == 1
    assert not shop.machine.objects.dead
    shop.writer.pass_time(7)
    cut(shop, two, 1)
    death = shop.machine.objects.dead[0]
    assert (death.position, death.time_ms, death.deleting) == (shop.machine.position, NOW + 7, False)


def test_an_object_without_an_accepted_batch_is_dead_at_once():
    """X1, R-102"""
    shop = Shop()
    [one] = shop.topic("t", 1)
    assert shop.append((one, 0)) == [Rejected.MALFORMED]
    assert list(shop.machine.objects.dead) == [0]
    assert shop.append((one, 1)) == [Accepted(base=0)]
    assert list(shop.machine.objects.dead) == [0]


def test_deletion_waits_for_the_grace_and_goes_step_by_step():
    """X2, X4, R-111, R-112"""
    shop = Shop()
    [one] = shop.topic("t", 1)
    shop.append((one, 1))
    shop.append((one, 1))
    cut(shop, one, 1)
    assert mark(shop, 0, 1, 99) == Marked(objects=())
    assert isinstance(shop.writer.do(Gone(objects=(0,))), Refused)
    shop.writer.pass_time(GRACE)
    shop.writer.send()
    assert shop.machine.objects.due(GRACE, 10) == [0]
    assert mark(shop, 0, 1, 99) == Marked(objects=(0,))
    assert mark(shop, 0) == Marked(objects=())
    assert shop.machine.objects.deleting(10) == [0]
    assert isinstance(shop.writer.do(Gone(objects=(0, 1))), Refused)
    assert shop.writer.do(Gone(objects=(0,))) == Done()
    assert shop.writer.do(Gone(objects=(0,))) == Done()
    assert shop.machine.objects.find(0) is None
    assert shop.machine.objects.find(1).rows == 1
    assert isinstance(shop.writer.do(Gone(objects=(99,))), Refused)


def test_no_mark_is_hastier_than_the_domains_minimum():
    """X2"""
    shop = Shop(min_grace_ms=10_000)
    [one] = shop.topic("t", 1)
    shop.append((one, 1))
    cut(shop, one, 1)
    shop.writer.pass_time(9_999)
    assert shop.writer.do(MarkDeleting(objects=(0,), grace_ms=0)) == Marked(objects=())
    shop.writer.pass_time(1)
    assert shop.writer.do(MarkDeleting(objects=(0,), grace_ms=0)) == Marked(objects=(0,))


def test_a_pin_keeps_what_died_after_it_and_nothing_older():
    """X2, X3, R-111"""
    shop = Shop()
    [one] = shop.topic("t", 1)
    for _ in range(3):
        shop.append((one, 1))
    cut(shop, one, 1)
    pinned = shop.writer.do(Pin(pin="job"))
    assert pinned == Pinned(position=shop.machine.position)
    cut(shop, one, 2)
    assert shop.writer.do(Pin(pin="job")) == pinned
    shop.writer.live(HOUR)
    assert mark(shop, 0, 1) == Marked(objects=(0,))
    assert shop.writer.do(Unpin(pin="job")) == Done()
    assert mark(shop, 0, 1) == Marked(objects=(1,))


def test_pins_end_with_their_session():
    """X3"""
    shop = Shop()
    [one] = shop.topic("t", 1)
    shop.append((one, 1))
    reader = shop.tape.open("spark")
    reader.send(Pin(pin="a"), Pin(pin="b"))
    shop.writer.send(Pin(pin="a"))
    cut(shop, one, 1)
    shop.writer.live(HOUR)
    reader.send(Close())
    assert [pin for _, pin in shop.machine.objects.pins] == ["a"]
    assert mark(shop, 0) == Marked(objects=())
    shop.reopen()
    assert not shop.machine.objects.pins
    assert mark(shop, 0) == Marked(objects=(0,))


def test_a_session_holds_a_bounded_number_of_pins():
    shop = Shop()
    verdicts = shop.writer.send(*(Pin(pin=str(number)) for number in range(1_001))).verdicts
    assert isinstance(verdicts[999], Pinned)
    assert verdicts[1_000].why is Why.LIMIT


def test_what_a_sweep_must_leave_alone_is_known_by_session():
    """R-106, R-113"""
    shop = Shop()
    [one] = shop.topic("t", 1)
    shop.writer.wal = 4
    shop.append((one, 1))
    shop.append((one, 0))
    first = shop.writer.session
    shop.reopen()
    shop.append((one, 1))
    objects = shop.machine.objects
    assert objects.counters_of(LOG, first) == {5, 6}
    assert objects.counters_of(LOG, shop.writer.session) == {1}
    assert objects.counters_of(b"otherlog", first) == set()
    assert objects.find(0).wal_id == wal_id(LOG, first, 5)


class Twin:
    """Every row and every object, by name."""

    def __init__(self) -> None:
        self.rows: dict[int, list[tuple[int, int]]] = {}
        self.ends: dict[int, int] = {}
        self.objects: set[int] = set()
        self.dead: dict[int, tuple[int, int]] = {}
        self.deleting: set[int] = set()

    def bury(self, position: int, time_ms: int) -> None:
        named = {owner for rows in self.rows.values() for owner, _ in rows}
        for owner in self.objects - named - set(self.dead):
            self.dead[owner] = (position, time_ms)


class Yard:
    """Random appends, retention, deletion, pins, garbage and crashes, against the twin."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.shop = Shop(min_grace_ms=0)
        self.twin = Twin()
        self.pins: dict[str, int] = {}
        self.deleted: set[int] = set()
        self.names = 0

    @property
    def machine(self) -> Machine:
        return self.shop.tape.machine

    def step(self) -> None:
        actions = [self.append] * 6 + [self.cut] * 3 + [self.collect] * 3
        actions += [self.delete, self.pin, self.crash, self.create]
        self.dice.choice(actions)()

    def note(self) -> None:
        self.twin.bury(self.machine.position, self.machine.time_ms)
        # A crash needs no replay here: keep the tape short.
        self.shop.tape.entries[:-1] = [(0, b"")] * (len(self.shop.tape.entries) - 1)

    def create(self) -> None:
        if len(self.twin.rows) < 12:
            self.names += 1
            for stream in self.shop.topic(f"t{self.names}", self.dice.randrange(1, 4)):
                self.twin.rows[stream] = []
                self.twin.ends[stream] = 0

    def append(self) -> None:
        streams = list(self.twin.rows) or [1]
        rows = [(self.dice.choice(streams), self.dice.choice([0, 1, 2])) for _ in range(self.dice.randrange(1, 6))]
        owner = self.machine.objects.next
        self.shop.writer.pass_time(self.dice.randrange(2_000))
        verdicts = self.shop.append_rows(*(row(stream, records) for stream, records in rows))
        self.twin.objects.add(owner)
        for (stream, records), verdict in zip(rows, verdicts, strict=True):
            assert isinstance(verdict, Accepted) == (records > 0 and stream in self.twin.rows)
            if isinstance(verdict, Accepted):
                assert verdict.base == self.twin.ends[stream]
                self.twin.ends[stream] += records
                self.twin.rows[stream].append((owner, self.twin.ends[stream]))
        self.note()

    def cut(self) -> None:
        if not self.twin.rows:
            return
        stream = self.dice.choice(list(self.twin.rows))
        floor, limit = self.dice.randrange(self.twin.ends[stream] + 1), self.dice.choice([1, 2, 100])
        found = self.machine.streams.find(stream)
        start = max(floor, found.start)
        self.shop.writer.do(RaiseFloor(stream=stream, reason=FloorReason.DELETE_RECORDS, bound=floor, limit=limit))
        assert found.start == start
        below = [entry for entry in self.twin.rows[stream] if entry[1] <= start][:limit]
        self.twin.rows[stream] = self.twin.rows[stream][len(below) :]
        self.note()

    def delete(self) -> None:
        ready = list(self.machine.topics.visible())
        if len(ready) > 2:
            topic = self.dice.choice(ready)
            self.shop.writer.do(DeleteTopic(topic_id=topic.id))
            for stream in topic.streams:
                while self.shop.writer.do(CloseStream(stream=stream, limit=3)).left:
                    self.twin.rows[stream] = self.twin.rows[stream][3:]
                    self.note()
                del self.twin.rows[stream]
                self.note()
            assert self.shop.writer.do(TopicGone(topic_id=topic.id)) == Done()

    def pin(self) -> None:
        name = self.dice.choice("xyz")
        if self.dice.random() < 0.3:
            self.pins.setdefault(name, self.shop.writer.do(Pin(pin=name)).position)
        else:
            self.shop.writer.do(Unpin(pin=name))
            self.pins.pop(name, None)

    def collect(self) -> None:
        self.shop.writer.pass_time(self.dice.randrange(3_000))
        grace = self.dice.choice([0, 1_000, 5_000])
        candidates = self.dice.sample(range(self.machine.objects.next), min(8, self.machine.objects.next))
        candidates += self.machine.objects.due(grace, 8)
        verdict = self.shop.writer.do(MarkDeleting(objects=tuple(candidates), grace_ms=grace))
        oldest = min(self.pins.values(), default=None)
        for number in dict.fromkeys(candidates):
            position, time_ms = self.twin.dead.get(number, (0, 1 << 62))
            due = time_ms + grace <= self.machine.time_ms and number not in self.twin.deleting | self.deleted
            assert (number in verdict.objects) == (due and (oldest is None or position < oldest)), number
        self.twin.deleting |= set(verdict.objects)
        for number in sorted(self.twin.deleting):
            # The object store's side: what is deleted is named by no row.
            assert all(owner != number for rows in self.twin.rows.values() for owner, _ in rows)
            if self.dice.random() < 0.5:
                assert self.shop.writer.do(Gone(objects=(number,))) == Done()
                self.twin.deleting.remove(number)
                del self.twin.dead[number]
                self.twin.objects.remove(number)
                self.deleted.add(number)

    def crash(self) -> None:
        tape = self.shop.tape
        tape.machine = checkpoint.load(checkpoint.dump(tape.machine))
        self.shop.machine = tape.machine
        if self.dice.random() < 0.3:
            self.shop.reopen()
            self.pins.clear()

    def compare(self) -> None:
        objects = self.machine.objects
        assert {number: (d.position, d.time_ms) for number, d in objects.dead.items()} == self.twin.dead
        assert {number for number, d in objects.dead.items() if d.deleting} == self.twin.deleting
        counts: dict[int, int] = {}
        for rows in self.twin.rows.values():
            for owner, _ in rows:
                counts[owner] = counts.get(owner, 0) + 1
        assert {o.id: o.rows for o in objects.all()} == {n: counts.get(n, 0) for n in self.twin.objects}
        assert objects.count == len(self.twin.objects)
        assert len(objects._blocks) <= len(self.twin.objects) + 1
        assert objects.next <= BLOCK or min(objects._blocks, default=0) >= 0


def drive(seed: int, steps: int, every: int) -> None:
    print(f"seed={seed}")
    yard = Yard(seed)
    for number in range(steps):
        yard.step()
        if number % every == 0:
            yard.compare()
    yard.compare()
    assert yard.deleted


@pytest.mark.parametrize("seed", range(3))
def test_an_object_is_dead_exactly_when_no_row_names_it(seed):
    """X1, X2, X3, X4, R-109, R-112, R-113"""
    drive(seed, 700, 5)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(100, 101), pytest.param(range(101, 110), marks=pytest.mark.long)])
def test_an_object_is_dead_exactly_when_no_row_names_it_for_ten_thousand_steps(seeds):
    """X1, X2, R-109, T14"""
    for seed in seeds:
        drive(seed, 10_000, 50)
