"""Commits to a table: each row once, whatever the catalog answers and whoever else is at work."""

import time
from types import SimpleNamespace

import pyiceberg.table.snapshots as snapshots_of_pyiceberg
import pytest
import requests
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ServiceUnavailableError,
    TooManyRequestsError,
)
from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual
from pyiceberg.table import Table
from pyiceberg.table.update.snapshot import ExpireSnapshots

from dray.sim.disk import FakeDisk
from dray.tables import fence
from dray.tables.catalog import open_catalog
from dray.tables.errors import (
    BadCatalog,
    CatalogUnavailable,
    TableBehind,
    TableChanged,
    TableCommitUnknown,
    TableDropped,
    TableLost,
    TableTaken,
)
from dray.tables.mending import load_for_mending, mend
from dray.tables.snapshots import COMMIT_ID, HOUR_MS, KEPT_MS, LAST_COMMIT, MOST, OFFSETS, UNTHINNED
from dray.tables.table import FileExchange, TableChange, TableOwner
from tests.tables.warehouse import LATE_MS, NOW_MS, ORDERS, Warehouse, appending, span, warehouse

ANSWERS = [
    CommitFailedException("409"),
    CommitStateUnknownException("504"),
    ServiceUnavailableError("503"),
    TooManyRequestsError("429"),
    requests.ConnectionError("cut"),
    requests.ReadTimeout("late"),
    OSError("the disk"),
]


@pytest.fixture
def house(tmp_path):
    with warehouse(tmp_path) as made:
        yield made


def orders(house: Warehouse) -> Table:
    found = house.tables.find(ORDERS)
    assert found is not None
    return found


def instead(house: Warehouse, *acts) -> list[int]:
    """Let the next commits go through these, each given the real commit; returns how many were sent."""
    real, sent, waiting = house.catalog.commit_table, [], list(acts)

    def commit(*arguments):
        sent.append(1)
        return waiting.pop(0)(lambda: real(*arguments)) if waiting else real(*arguments)

    house.catalog.commit_table = commit
    return sent


def landed(error: Exception):
    def act(real):
        real()
        raise error

    return act


def lost(error: Exception):
    def act(real):
        raise error

    return act


def test_a_table_is_made_when_it_is_first_needed_and_says_whose_it_is(house):
    """R-163, R-136"""
    assert house.tables.find(ORDERS) is None
    house.append(0, 0, 10)
    table = orders(house)
    assert [field.field_id for field in table.schema().fields] == list(range(1, 12))
    assert table.schema().find_field("headers.element.value").field_id == 14
    told = {name: table.properties[name] for name in ("dray.topic", "dray.topic-id", "dray.cluster-id", "gc.enabled")}
    assert told == {
        "dray.topic": "orders.eu", "dray.topic-id": bytes(range(16)).hex(), "dray.cluster-id": "c1",
        "gc.enabled": "false",
    }  # fmt: skip
    assert table.properties["dray.schema-version"] == "1"
    other = TableOwner(name="orders.eu", topic_id=bytes(16), cluster_id="c1")
    with pytest.raises(TableTaken):
        house.tables.find(other)


def test_files_are_pruned_by_partition_offset_and_time(house):
    """R-140"""
    files = [house.file(0, 0, 100), house.file(1, 0, 50)]
    house.tables.commit(ORDERS, appending(*files), NOW_MS)
    house.append(0, 100, 100)

    def planned(row_filter) -> int:
        return len(list(orders(house).scan(row_filter=row_filter).plan_files()))

    assert house.rows() == span(0, 0, 200) + span(1, 0, 50)
    assert planned(And(EqualTo("partition", 0), GreaterThanOrEqual("offset", 100))) == 1
    assert planned(EqualTo("partition", 1)) == 1
    assert planned("timestamp < '2020-01-01T00:00:00+00:00'") == 0
    assert planned("timestamp >= '2023-11-14T22:13:20.100+00:00'") == 1


@pytest.mark.slow
@pytest.mark.parametrize("error", ANSWERS, ids=lambda error: type(error).__name__)
def test_a_commit_whose_answer_is_lost_is_settled_by_looking(house, error):
    """R-156, TT1, TT2: landed and answered 409, landed and not answered, and not landed, in every way to say so."""
    house.append(0, 0, 10)
    sent = instead(house, landed(error))
    house.append(0, 10, 10)
    assert len(sent) == 1, "it was seen that it had landed"
    assert house.rows() == span(0, 0, 20)
    sent = instead(house, lost(error), lost(error))
    house.append(0, 20, 10)
    assert len(sent) == 3
    assert house.rows() == span(0, 0, 30)


def test_what_nobody_can_settle_is_told_as_unknown_and_settled_later(house):
    """R-156, E1"""
    house.append(0, 0, 10)
    change = appending(house.file(0, 10, 10))
    real = house.catalog.load_table

    def down(*_arguments):
        raise requests.ConnectionError("no catalog")

    def landed_and_gone(commit):
        commit()
        house.catalog.load_table = down
        raise requests.ReadTimeout("late")

    instead(house, landed_and_gone)
    with pytest.raises(TableCommitUnknown):
        house.tables.commit(ORDERS, change, NOW_MS)
    with pytest.raises(CatalogUnavailable):
        house.tables.commit(ORDERS, change, NOW_MS)
    house.catalog.load_table = real
    house.tables.commit(ORDERS, change, NOW_MS)
    assert house.rows() == span(0, 0, 20)


def test_of_two_writers_of_one_range_the_paused_one_adds_nothing(house):
    """R-146, R-159, E-26, TF1: it slept between its look at the table and its commit."""
    house.append(0, 0, 10)

    def after_the_other(real):
        house.catalog.commit_table = stock
        house.append(0, 10, 10, mark="-other")
        return real()

    stock = house.catalog.commit_table
    instead(house, after_the_other)
    late = house.append(0, 10, 10)
    assert list(late.overtaken) == [0]
    assert house.rows() == span(0, 0, 20)


def test_one_range_that_was_overtaken_does_not_hold_up_the_others(house):
    """R-148"""
    house.append(0, 0, 10)
    change = appending(house.file(0, 5, 10), house.file(1, 0, 10), house.file(2, 0, 5))
    committed = house.tables.commit(ORDERS, change, NOW_MS)
    assert list(committed.overtaken) == [0]
    assert house.rows() == span(0, 0, 10) + span(1, 0, 10) + span(2, 0, 5)


def test_a_range_above_missing_rows_is_taken_only_where_the_log_dropped_them(house):
    """R-154, TF1"""
    house.append(0, 0, 10)
    house.append(0, 20, 10, floor=20)
    assert house.rows() == span(0, 0, 10) + span(0, 20, 30)
    with pytest.raises(TableBehind):
        house.append(0, 40, 10, floor=35)
    with pytest.raises(TableBehind):
        house.append(1, 40, 10)


def test_append_exchange_removal_and_expiry_are_one_commit(house):
    """R-158, R-202: REPLACE and DELETE snapshots, never OVERWRITE."""
    for start in range(0, 60, 10):
        house.append(0, start, 10)
    files = sorted(task.file.file_path for task in orders(house).scan().plan_files())
    first, old = files[0], tuple(files[1:4])
    change = TableChange(
        added=(new := appending(house.file(0, 60, 10))).added,
        ranges=new.ranges,
        exchanged=[FileExchange(old=old, new=(house.file(0, 10, 30, "-merged"),))],
        removed=[first],
    )
    before = len(orders(house).metadata.snapshots)
    sent = instead(house, landed(CommitStateUnknownException("504")))
    house.tables.commit(ORDERS, change, LATE_MS)
    house.tables.commit(ORDERS, change, LATE_MS)
    assert len(sent) == 1
    table = orders(house)
    assert house.rows() == span(0, 10, 70)
    newest = sorted(table.metadata.snapshots, key=lambda one: one.sequence_number or 0)
    assert [one.summary.operation.value for one in newest] == ["append", "replace", "delete"], f"of {before} the rest"
    assert {one.summary.additional_properties[COMMIT_ID] for one in newest} == {table.properties[LAST_COMMIT]}
    assert newest[0].summary.additional_properties[OFFSETS] == '{"0":[60,70]}'
    assert newest[-1].summary.additional_properties["total-records"] == "60"


def test_a_foreign_insert_is_named_and_our_rows_go_on(house):
    """R-159"""
    house.append(0, 0, 10)
    table = house.as_somebody_else()
    table.append(table.scan().to_arrow().slice(0, 1))
    foreign = orders(house).current_snapshot()
    committed = house.append(0, 10, 10)
    assert committed.foreign == (foreign.snapshot_id,)
    assert house.rows() == sorted([*span(0, 0, 20), (0, 0)])
    assert house.append(0, 20, 10).foreign == (), "told once: it is below ours now"


def test_a_table_that_was_set_back_is_not_written_to(house):
    """R-159: rows are missing although the table's property says that they are there."""
    house.append(0, 0, 10)
    house.append(0, 10, 10)
    snapshots = orders(house).metadata.snapshots
    house.as_somebody_else().manage_snapshots().rollback_to_snapshot(snapshots[0].snapshot_id).commit()
    assert fence.parse(orders(house).properties[fence.PROPERTY]) == {0: 20}
    with pytest.raises(TableChanged, match="set the table back"):
        house.append(0, 20, 10)
    assert house.rows() == span(0, 0, 10)


def test_files_that_somebody_rewrote_are_told_and_nothing_is_doubled(house):
    """R-159"""
    house.append(0, 0, 10)
    table = house.as_somebody_else()
    table.overwrite(table.scan().to_arrow())
    gone = [house.store.location_of("compaction/v1/0-0-10.parquet")]
    exchange = FileExchange(old=tuple(gone), new=(house.file(0, 0, 10, "-b"),))
    for change in (TableChange(removed=gone), TableChange(exchanged=[exchange]), TableChange()):
        with pytest.raises(TableChanged, match="rewritten"):
            house.tables.commit(ORDERS, change, NOW_MS)
    with pytest.raises(TableChanged, match="rewritten"):
        house.append(0, 10, 10)
    assert house.rows() == span(0, 0, 10)


def test_a_table_that_is_gone_is_not_made_again_as_if_it_had_been_empty(house):
    """R-159: its older rows would be missing, and nobody would know."""
    house.append(0, 0, 10)
    house.catalog.drop_table(house.tables.identifier(ORDERS.name))
    with pytest.raises(TableDropped):
        house.append(0, 10, 10)
    with pytest.raises(TableDropped):
        house.tables.commit(ORDERS, TableChange(had_rows=True), NOW_MS)
    assert house.tables.find(ORDERS) is None


def test_metadata_that_is_not_there_is_told_apart_from_a_catalog_that_is_down(house):
    """R-159"""
    house.append(0, 0, 10)
    (house.root / "objects" / house.store.name_of(orders(house).metadata_location)).unlink()
    with pytest.raises(TableLost):
        house.append(0, 10, 10)


def test_a_table_is_mended_only_on_the_state_that_was_looked_at(house):
    """TR1, TT1"""
    first, second = house.file(0, 0, 10), house.file(0, 10, 10)
    house.tables.commit(ORDERS, appending(first), NOW_MS)
    seen = load_for_mending(house.tables, ORDERS)
    house.tables.commit(ORDERS, appending(second), NOW_MS)
    with pytest.raises(CommitFailedException):
        mend(house.tables, seen, [house.file(0, 0, 10, "-new")], {0: 10}, "c", 5)
    assert house.rows() == span(0, 0, 20)
    seen = load_for_mending(house.tables, ORDERS)
    mended = mend(house.tables, seen, [second, house.file(0, 0, 10, "-new")], {0: 20}, "c", 5)
    assert (mended.added, mended.removed, mended.kept) == (1, 1, 1)
    assert house.rows() == span(0, 0, 20)
    assert orders(house).properties[LAST_COMMIT] == "c"
    house.append(0, 20, 10)
    assert [one.summary.operation.value for one in orders(house).metadata.snapshots] == [
        "append", "append", "replace", "append",
    ]  # fmt: skip


def test_after_a_power_cut_the_catalog_names_only_what_is_there(tmp_path):
    """R-152, TI1: what was not synced is lost, of records, manifests and metadata alike."""
    disk = FakeDisk()
    with warehouse(tmp_path, disk) as house:
        house.append(0, 0, 10)
        house.append(0, 10, 10)
        disk.crash()
    disk.restart()
    with warehouse(tmp_path, disk) as house:
        assert house.rows() == span(0, 0, 20)
        house.append(0, 20, 10)
        assert house.rows() == span(0, 0, 30)


def test_metadata_that_nothing_reaches_is_deleted_and_nothing_else(house):
    """R-113, TX2"""
    for start in range(0, 50, 10):
        house.append(0, start, 10)
    table = orders(house)
    place = house.store.name_of(f"{table.location()}/metadata/")
    house.store.put(f"{place}a-stray.avro", b"x")
    before = {info.path for info in house.store.list(place)}
    assert house.tables.clean(table) == [], "all of it is young"
    staged = ExpireSnapshots(transaction=(tx := table.transaction()))
    staged.by_ids([one.snapshot_id for one in table.metadata.snapshots[:-1]]).commit()
    tx.commit_transaction()
    house.append(0, 50, 10)
    assert house.tables.clean(orders(house), grace_ms=-LATE_MS)
    needed = {house.store.name_of(location) for location in house.tables.reached(orders(house)).metadata}
    after = {info.path for info in house.store.list(place)}
    assert after == needed
    assert f"{place}a-stray.avro" in before - after
    assert house.rows() == span(0, 0, 60)
    assert len(house.tables.reached(orders(house)).data) == 6


def test_metadata_is_left_alone_when_somebody_else_has_committed_last(house):
    """TX2: what a foreign writer stages and what it reaches is not ours to judge."""
    house.append(0, 0, 10)
    house.append(0, 10, 10)
    seen = orders(house)
    house.append(0, 20, 10)
    assert house.tables.clean(seen, grace_ms=-LATE_MS) == []
    table = house.as_somebody_else()
    table.append(table.scan().to_arrow().slice(0, 1))
    assert house.tables.clean(orders(house), grace_ms=-LATE_MS) == []


def test_a_sealed_table_takes_nothing_that_was_staged_before(house):
    """CP6: a writer that slept with a file which is garbage by now can not bring it back."""
    house.append(0, 0, 10)
    before = house.rows()

    def after_the_seal(real):
        house.catalog.commit_table = stock
        house.tables.commit(ORDERS, TableChange(seal=True), NOW_MS)
        with pytest.raises(CommitFailedException):
            real()
        raise CommitFailedException("409")

    stock = house.catalog.commit_table
    instead(house, after_the_seal)
    late = house.file(0, 10, 10)
    house.tables.commit(ORDERS, appending(late), NOW_MS)
    assert house.rows() == before + span(0, 10, 20), "its own second look is another thing"
    assert len(orders(house).metadata.snapshots) == 3


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_a_table_of_many_commits_is_thinned_and_has_no_metadata_besides(house, monkeypatch):
    """TX1, TX2: for real, not by arithmetic: a commit every ten minutes, 520 of them, and the clean-up of upkeep."""
    now_ms = 1000 * int(time.time())  # the table itself is made by the clock of the machine
    monkeypatch.setattr(snapshots_of_pyiceberg, "time", SimpleNamespace(time=lambda: now_ms / 1000))
    made, counted = [], {}
    for at in range(520):
        now_ms += 600_000
        house.tables.commit(ORDERS, appending(house.file(0, 10 * at, 10)), now_ms)
        made.append(now_ms)
        if at + 1 in (MOST, MOST + 1):
            counted[at + 1] = len(orders(house).metadata.snapshots)
    assert counted[MOST] == MOST
    assert counted[MOST + 1] <= UNTHINNED + (MOST + 1 - UNTHINNED) // 6 + 2, "six of an hour become one"
    table = orders(house)
    kept = [one.timestamp_ms for one in table.metadata.snapshots]
    assert kept == sorted(set(made) & set(kept))
    assert kept[-UNTHINNED:] == made[-UNTHINNED:], "the newest are all there"
    older = [time_ms // HOUR_MS for time_ms in kept if time_ms <= made[MOST - UNTHINNED]]
    assert older == list(range(made[0] // HOUR_MS, older[-1] + 1)), "of older ones one an hour, and no hour has none"
    oldest = min(table.metadata.snapshots, key=lambda one: one.timestamp_ms)
    shown = table.scan(snapshot_id=oldest.snapshot_id).to_arrow().num_rows
    assert shown == 10 * (made.index(oldest.timestamp_ms) + 1)
    place = house.store.name_of(f"{table.location()}/metadata/")
    assert len(house.store.list(place)) > 1_000
    house.tables.clean(table, grace_ms=-LATE_MS)
    needed = {house.store.name_of(location) for location in house.tables.reached(table).metadata}
    assert {info.path for info in house.store.list(place)} == needed
    assert house.rows() == span(0, 0, 5_200)
    assert len(house.tables.reached(table).data) == 520
    now_ms += KEPT_MS
    house.tables.commit(ORDERS, appending(house.file(0, 5_200, 10)), now_ms)
    assert len(orders(house).metadata.snapshots) <= 2, "a week later the others are gone"
    assert house.rows() == span(0, 0, 5_210)


def test_two_tables_of_one_topic_name_lie_apart(house):
    """R-193: a topic that was deleted and made again."""
    house.append(0, 0, 10)
    house.catalog.drop_table(house.tables.identifier(ORDERS.name))
    again = TableOwner(name=ORDERS.name, topic_id=bytes(16), cluster_id="c1")
    house.tables.commit(again, appending(house.file(0, 0, 5)), NOW_MS)
    assert house.rows(again) == span(0, 0, 5)


def test_a_topic_of_249_signs_has_a_table(house):
    """R-163"""
    topic = TableOwner(name="x.Y_-" * 49 + "last", topic_id=bytes(16), cluster_id="c1")
    house.tables.commit(topic, appending(house.file(0, 0, 5)), NOW_MS)
    assert house.rows(topic) == span(0, 0, 5)


def test_a_catalog_that_is_none_is_refused(house, tmp_path):
    for kind in ("", "mysql"):
        with pytest.raises(BadCatalog):
            open_catalog(kind, tmp_path, house.store)
    with pytest.raises(CatalogUnavailable):
        open_catalog("http://127.0.0.1:1", tmp_path, house.store)
