"""The object table: kinds, sizes and names, against a list."""

import random

import pytest

from dray.errors import Corrupt
from dray.machine.garbage import Objects
from dray.machine.head import Head
from dray.machine.holds import Holds
from dray.machine.names import LogId, ObjectId, SessionId, wal_id
from dray.machine.objects import BLOCK, ObjectTable, Origin, StoredObject
from dray.machine.packing import Reader, Writer
from dray.machine.streams import CloseStream, FloorReason, RaiseFloor
from dray.machine.timeline import Timeline
from dray.objects.paths import BadName, ObjectKind, WalName

from .scribe import LOG, NOW
from .shop import Shop

OTHER = LogId(b"log-id-9")


def filled(count: int, *, kinds: list[ObjectKind], largest: int, seed: int) -> tuple[Objects, list[StoredObject]]:
    """A table, and what went into it."""
    dice, head = random.Random(seed), Head()
    head.domain = 3
    objects, twin = Objects(head, Timeline(), Holds(Timeline())), []
    for number in range(count):
        kind, log_id, zone = dice.choice(kinds), dice.choice([LOG, OTHER]), dice.choice(["", "a", "ä"])
        session, size, rows = SessionId(dice.randint(1, 9)), dice.randint(0, largest), dice.randint(1, 9)
        objects.record(
            kind,
            log_id=log_id,
            session=session,
            counter=number,
            size=size,
            created_ms=NOW + number,
            zone=zone,
            rows=rows,
        )
        twin.append(
            StoredObject(
                id=ObjectId(number),
                kind=kind,
                domain=3,
                wal_id=wal_id(log_id, session, number),
                size=size,
                created_ms=NOW + number,
                zone=zone,
                rows=rows,
            )
        )
    return objects, twin


def loaded(objects: Objects, version: int) -> Objects:
    out = Writer()
    objects.dump(out, version)
    source = Reader(memoryview(out.body()))
    again = Objects(objects._head, Timeline(), Holds(Timeline()))
    again.load(source, version)
    source.finish()
    return again


def test_records_of_every_kind_and_size_are_kept_and_survive_a_checkpoint():
    """X6, K2"""
    objects, twin = filled(5 * BLOCK + 7, kinds=list(ObjectKind), largest=2**64 - 1, seed=1)
    for table in (objects, loaded(objects, 2)):
        assert list(table.all()) == twin
        columns = table.columns(range(len(twin)))
        for number, expected in enumerate(twin):
            kind, log_id, zone = table.origin(columns.origins[number])
            assert (kind, zone) == (expected.kind, expected.zone)
            assert wal_id(log_id, SessionId(columns.sessions[number]), columns.counters[number]) == expected.wal_id
    assert {origin.kind for origin in objects._origins} == set(ObjectKind)


def test_version_1_writes_wal_objects_as_it_always_did():
    """K2: short sizes, no kinds; tests/upgrade has its bytes."""
    objects, twin = filled(2 * BLOCK, kinds=[ObjectKind.WAL], largest=2**32 - 1, seed=2)
    assert list(loaded(objects, 1).all()) == twin
    short, long = Writer(), Writer()
    objects.dump(short, 1)
    objects.dump(long, 2)
    no_files = 6
    assert len(long.body()) == len(short.body()) + 4 * len(twin) + len(objects._origins) + no_files


def test_what_is_gone_says_nothing_and_its_number_is_not_given_again():
    """X6"""
    table = ObjectTable(Head())
    for counter in (1, 2):
        table.record(
            ObjectKind.WAL, log_id=LOG, session=SessionId(1), counter=counter, size=5, created_ms=NOW, zone="", rows=1
        )
    table._clear(ObjectId(0))
    assert table.find(ObjectId(0)) is None
    assert table.find(ObjectId(2)) is None
    assert table.counters_of(LOG, SessionId(1)) == {2}
    assert (table.next, table.count) == (2, 1)
    with pytest.raises(Corrupt, match="object=0"):
        table.columns([1, 0])


def test_an_object_has_one_path_wherever_it_is_asked_for():
    """O4: of a kind without names there is none, rather than a wrong one."""
    objects, twin = filled(20, kinds=[ObjectKind.WAL], largest=9, seed=3)
    for expected in twin:
        found = objects.find(expected.id)
        assert found is not None
        assert WalName.parse(found.path()).wal_id == expected.wal_id
    others, _ = filled(1, kinds=[ObjectKind.KFS], largest=9, seed=3)
    stranger = others.find(ObjectId(0))
    assert stranger is not None
    with pytest.raises(BadName, match="KFS"):
        stranger.path()


@pytest.mark.parametrize("closing", [True, False])
def test_what_replaced_rows_named_is_let_go_in_slices(closing):
    """H7, X1, M7: by the commands that take rows away, before any row."""
    shop = Shop(version=2)
    (stream,) = shop.topic("t", 1)
    for _ in range(10):
        shop.append((stream, 1))
    objects, index = shop.machine.objects, shop.machine.streams.find(stream).index
    file = objects.record(
        ObjectKind.PARQUET, log_id=LOG, session=SessionId(1), counter=99, size=1, created_ms=NOW, zone="", rows=1
    )
    index.replace(0, 8, file)
    shop.machine.streams.rows -= 7
    left, dead = [], []
    while not left or left[-1]:
        floor = RaiseFloor(stream=stream, reason=FloorReason.DELETE_RECORDS, bound=9, limit=3)
        verdict = shop.writer.do(CloseStream(stream=stream, limit=3) if closing else floor)
        left.append(verdict.left)
        dead.append(len(objects.dead))
    assert left == ([8, 5, 2, 0] if closing else [7, 4, 1, 0])
    assert dead == ([3, 6, 9, 11] if closing else [3, 6, 9, 10])
    assert list(objects.dead)[:9] == [0, 1, 2, 3, 4, 5, 6, 7, file]
    assert shop.machine.streams.rows == (0 if closing else 1)


def test_kinds_of_one_log_and_zone_are_told_apart():
    table = ObjectTable(Head())
    for kind in ObjectKind:
        table.record(kind, log_id=LOG, session=SessionId(1), counter=kind, size=1, created_ms=1, zone="a", rows=1)
    assert table._origins == [Origin(kind, LOG, "a") for kind in ObjectKind]
