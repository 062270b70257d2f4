"""Tables that others have changed: said once, left alone, and made right again from the index."""

import asyncio
import json
import shutil
from itertools import count
from urllib.request import urlopen

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyiceberg.catalog import load_catalog
from pyiceberg.types import LongType

from dray.pipeline.compactor import telemetry
from dray.pipeline.compactor.status import status_of, topic_of
from dray.tables.catalog import NAME, sqlite_file
from dray.tables.snapshots import COMMITTED_UNTIL
from tests.pipeline.compacting import compactor
from tests.pipeline.parts import broker_process, consumed, create, numbered, produce, wait_until

NAMES = count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with broker_process(tmp_path_factory.mktemp("foreign") / "data") as running:
        yield running


def run(directory, work, **options):
    async def do():
        async with compactor(directory, **options) as running:
            return await work(running)

    return asyncio.run(do())


def compacted(broker, files: int = 2) -> str:
    """A topic of two partitions, in so many files each."""
    name = f"orders.{next(NAMES)}"
    create(broker.bootstrap, name, partitions=2)
    for at in range(files):
        produce(broker.bootstrap, name, numbered(100 * at, 100, 2))
        run(broker.directory, lambda running: running.cycle(name))
    return name


def as_somebody_else(directory, name):
    catalog = load_catalog(NAME, type="sql", uri=f"sqlite:///{sqlite_file(directory)}")
    return catalog, catalog.load_table(("topics", name))


def insert(catalog, table):
    table.append(table.scan().to_arrow().slice(0, 1))


def roll_back(catalog, table):
    table.manage_snapshots().rollback_to_snapshot(table.metadata.snapshots[0].snapshot_id).commit()


def rewrite(catalog, table):
    table.overwrite(table.scan().to_arrow())


def delete_rows(catalog, table):
    table.delete("offset < 10")


def drop(catalog, table):
    catalog.drop_table(table.name())


def empty(catalog, table):
    insert(catalog, table)
    table = catalog.load_table(table.name())
    table.delete("offset >= 0")


def forge(catalog, table):
    with table.transaction() as changes:
        changes.set_properties({"dray.next-offsets": '{"0":9000,"1":9000}'})


def told(capfd, event) -> int:
    """How often a line was logged since the last look."""
    return sum(event in line for line in capfd.readouterr().err.splitlines())


async def rebuild(running, name) -> list[int]:
    done = await running.rebuilder.run(topic_of(running.replicas, name))
    await running.standing.clear(running.topic(name))
    return [done.added, done.removed, done.kept]


def status(running, name):
    return status_of(running.replicas, running.tables, topic_of(running.replicas, name), running.cluster_id)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (roll_back, "set the table back"),
        (rewrite, "rewritten or deleted files"),
        (delete_rows, "rewritten or deleted files"),
        (drop, "not in the catalog any more"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_table_that_lost_rows_stands_still_alone_is_named_once_and_rebuilt(broker, capfd, change, says):
    """R-159, CP7, TM1, TR1: others go on, consumers notice nothing, and afterwards table and log are equal."""
    name, other = compacted(broker), compacted(broker, 1)
    change(*as_somebody_else(broker.directory, name))
    for topic in (name, other):
        produce(broker.bootstrap, topic, numbered(500, 40, 2))
    rows = consumed(broker.bootstrap, name, 2)
    told(capfd, "")

    async def notice(running):
        first = await running.cycle()
        again = await running.cycle()
        await running.upkeep.run(0)
        assert says in first[name].failures[0]
        assert not again.get(name) or not again[name].failures, "nothing is tried while it stands"
        assert not first[other].failures
        assert running.rows(other) == consumed(broker.bootstrap, other, 2)
        seen = status(running, name)
        assert (seen.state, says in seen.problem, seen.problem_since_ms > 0) == ("foreign", True, True)

    run(broker.directory, notice)
    assert told(capfd, telemetry.STANDS) == 1
    assert consumed(broker.bootstrap, name, 2) == rows

    async def mend(running):
        await running.cycle(name)
        await rebuild(running, name)
        await running.cycle(name)
        seen = status(running, name)
        assert (seen.state, seen.problem, seen.foreign) == ("ok", "", [])
        assert not running.replicas[0].machine.tasks.by_stream
        assert await rebuild(running, name) == [0, 0, seen.files], "there is nothing left to mend"
        return running.rows(name)

    assert run(broker.directory, mend) == rows
    assert told(capfd, telemetry.STANDS) == 0, "a second compactor does not say it again"


@pytest.mark.slow
def test_a_foreign_insert_is_named_our_rows_go_on_and_a_rebuild_takes_it_out(broker, capfd):
    """R-159"""
    name = compacted(broker)
    insert(*as_somebody_else(broker.directory, name))
    produce(broker.bootstrap, name, numbered(500, 40, 2))

    async def go_on(running):
        assert not (await running.cycle(name))[name].failures
        seen = status(running, name)
        assert (seen.state, seen.problem, len(seen.foreign)) == ("foreign", "", 1)
        assert len(running.rows(name)) == 241
        assert (await rebuild(running, name))[1:] == [1, 6]
        assert status(running, name).state == "ok"
        return running.rows(name)

    assert run(broker.directory, go_on) == consumed(broker.bootstrap, name, 2)


@pytest.mark.slow
def test_a_column_that_somebody_adds_leaves_ours_as_they_are_and_the_table_goes_on(broker):
    """R-142: field ids, old files and old snapshots stay readable; what we write has nothing in it."""
    name = compacted(broker)
    _, table = as_somebody_else(broker.directory, name)
    before, ids = table.scan().to_arrow(), {field.name: field.field_id for field in table.schema().fields}
    old = table.current_snapshot().snapshot_id
    with table.update_schema() as schema:
        schema.add_column("amount", LongType(), doc="typed, by somebody else")
    produce(broker.bootstrap, name, numbered(500, 40, 2))

    async def go_on(running):
        assert not (await running.cycle(name))[name].failures
        assert status(running, name).state == "ok"
        return running.rows(name)

    assert run(broker.directory, go_on) == consumed(broker.bootstrap, name, 2)
    _, table = as_somebody_else(broker.directory, name)
    assert {field.name: field.field_id for field in table.schema().fields}.items() > ids.items()
    after = table.scan().to_arrow()
    assert after["amount"].null_count == len(after) == len(before) + 40
    order = [("partition", "ascending"), ("offset", "ascending")]
    assert table.scan(snapshot_id=old).to_arrow().sort_by(order) == before.sort_by(order)


@pytest.mark.slow
def test_a_change_that_was_undone_is_seen_and_the_table_goes_on(broker):
    """TM1: without a rebuild."""
    name = compacted(broker)
    _, table = as_somebody_else(broker.directory, name)
    head = table.current_snapshot().snapshot_id
    roll_back(None, table)
    produce(broker.bootstrap, name, numbered(500, 40, 2))

    async def notice(running):
        await running.cycle(name)
        return running.standing.stands(running.topic(name).topic_id)

    assert run(broker.directory, notice)
    _, table = as_somebody_else(broker.directory, name)
    with table.manage_snapshots() as changes:
        changes.set_current_snapshot(head)

    async def go_on(running):
        await running.cycle(name)
        return running.standing.stands(running.topic(name).topic_id), running.rows(name)

    assert run(broker.directory, go_on) == (False, consumed(broker.bootstrap, name, 2))


@pytest.mark.slow
def test_drayd_dev_sees_that_a_change_was_undone_though_nothing_is_due(tmp_path):
    """TM1: its compactor has left, and comes to look."""
    quick = ("compaction.enabled=true", "compaction.look=1s", "compaction.idle=1s", "compaction.max_age=1h")
    with broker_process(tmp_path / "data", *quick) as broker:
        name = compacted(broker)
        _, table = as_somebody_else(broker.directory, name)
        head = table.current_snapshot().snapshot_id
        roll_back(None, table)
        produce(broker.bootstrap, name, numbered(500, 40, 2))

        async def notice(running):
            await running.cycle(name)
            return running.standing.stands(running.topic(name).topic_id)

        async def stands(running):
            for replica in running.replicas.values():
                await replica.sync()
            return running.standing.stands(running.topic(name).topic_id)

        assert run(broker.directory, notice)
        _, table = as_somebody_else(broker.directory, name)
        with table.manage_snapshots() as changes:
            changes.set_current_snapshot(head)
        wait_until(lambda: not run(broker.directory, stands), limit_s=120)


@pytest.mark.slow
def test_a_table_that_says_it_is_ahead_of_the_log_is_healed_without_being_asked(broker, capfd):
    """R-154: an "overtaken" range; a log that was restored from a backup looks like this."""
    name = compacted(broker)
    forge(*as_somebody_else(broker.directory, name))
    produce(broker.bootstrap, name, numbered(500, 40, 2))

    async def heal(running):
        tally = (await running.cycle(name))[name]
        assert not tally.failures
        return running.rows(name)

    assert run(broker.directory, heal) == consumed(broker.bootstrap, name, 2)
    assert told(capfd, telemetry.REBUILT) == 1


def test_a_rebuild_while_a_task_is_on_its_way_neither_loses_nor_doubles_its_rows(broker):
    """CP7, TR1: the commit of the task lands between the look at the table and the mending."""
    name = compacted(broker)
    produce(broker.bootstrap, name, numbered(500, 40, 2))

    async def race(running):
        real, topic = running.rebuilder._mend, topic_of(running.replicas, name)
        loop, met = asyncio.get_running_loop(), []

        def late(found, wanted):
            if not met:
                met.append(asyncio.run_coroutine_threadsafe(running.cycle(name), loop).result())
            return real(found, wanted)

        running.rebuilder._mend = late
        await running.rebuilder.run(topic)
        assert not met[0][name].failures
        return running.rows(name)

    assert run(broker.directory, race) == consumed(broker.bootstrap, name, 2)


@pytest.mark.slow
def test_a_moved_data_directory_takes_its_tables_along_when_they_are_rebuilt(tmp_path):
    """R-164: paths in a table are absolute. Nothing but metadata is written."""
    old, new = tmp_path / "old", tmp_path / "new"
    with broker_process(old) as broker:
        name = compacted(broker)
        rows = consumed(broker.bootstrap, name, 2)
    shutil.move(old, new)
    with broker_process(new) as broker:
        produce(broker.bootstrap, name, numbered(500, 20, 2))

        async def mend(running):
            tally = (await running.cycle(name))[name]
            assert "was the data directory moved" in tally.failures[0]
            assert status(running, name).state == "foreign"
            files = set((new / "objects" / "compaction").rglob("*.parquet"))
            assert await rebuild(running, name) == [4, 0, 0]
            assert set((new / "objects" / "compaction").rglob("*.parquet")) == files
            assert running.rows(name) == rows
            await running.cycle(name)
            return running.rows(name)

        assert run(new, mend) == consumed(broker.bootstrap, name, 2)


def test_files_that_were_in_no_table_get_into_one_by_a_rebuild(broker):
    """X7, CP7: a cluster that had tables off, and a change of the catalog."""
    name = f"late.{next(NAMES)}"
    create(broker.bootstrap, name)
    produce(broker.bootstrap, name, numbered(0, 50))

    async def without(running):
        running.compactor._saga._tables = False
        await running.cycle(name)

    run(broker.directory, without)
    produce(broker.bootstrap, name, numbered(50, 50))

    async def mend(running):
        assert "not in the catalog" in (await running.cycle(name))[name].failures[0]
        assert await rebuild(running, name) == [1, 0, 0]
        await running.cycle(name)
        known = running.replicas[0].machine.objects.files.values()
        assert all(file.held for file in known if file.topic_id == running.topic(name).topic_id)
        return running.rows(name)

    assert run(broker.directory, mend) == consumed(broker.bootstrap, name, 1)


@pytest.mark.slow
def test_what_the_log_drops_stays_in_a_table_that_keeps_it(broker):
    """E-22: files belong to the table alone then, and a rebuild knows them."""
    name = compacted(broker, 3)
    rows = consumed(broker.bootstrap, name, 2)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wanted = [TopicPartition(name, partition, 110) for partition in range(2)]
    for done in admin.delete_records(wanted).values():
        done.result(30)
    weeks_later_ms = 4_000_000_000_000

    async def keep(running):
        await running.upkeep.run(0)
        await running.upkeep.run(weeks_later_ms)
        assert running.rows(name) == rows
        drop(running.tables.catalog, running.tables.find(running.topic(name)))
        await running.upkeep.run(weeks_later_ms)
        assert running.standing.stands(running.topic(name).topic_id)
        assert (await rebuild(running, name))[0] == 6
        assert running.rows(name) == rows

    run(broker.directory, keep, keep_rows=True)
    assert [row.offset for row in consumed(broker.bootstrap, name, 2)] == 2 * list(range(110, 150))

    async def follow(running):
        await running.upkeep.run(weeks_later_ms)
        await running.upkeep.run(weeks_later_ms)
        held = [file.start for file in running.replicas[0].machine.objects.files.values()
                if file.topic_id == running.topic(name).topic_id and file.held]  # fmt: skip
        return sorted({row.offset for row in running.rows(name)}), sorted(held)

    assert run(broker.directory, follow) == (list(range(100, 150)), [100, 100])


def test_a_table_tells_up_to_when_it_has_everything(broker):
    """R-164: by the log's time; it never goes back."""
    name = compacted(broker, 1)

    async def look(running):
        machine = running.replicas[0].machine
        first = int(running.tables.find(running.topic(name)).properties[COMMITTED_UNTIL])
        produce(broker.bootstrap, name, numbered(0, 10, 1))
        await running.replicas[0].sync()
        stream = machine.streams.find(machine.topics.named(name).streams[0])
        waiting = stream.index.row(machine.streams.first_hot(stream)).object
        assert first <= machine.objects.arrived_ms(waiting)
        await running.cycle(name)
        return first, int(running.tables.find(running.topic(name)).properties[COMMITTED_UNTIL])

    first, second = run(broker.directory, look)
    assert 0 < first < second


@pytest.mark.slow
def test_brokers_show_how_far_tables_are_behind_and_which_stand_still(broker):
    """R-160: freshness and backlog are metrics of every broker, whoever compacts."""
    name = compacted(broker, 1)

    def gauges() -> dict[str, float]:
        with urlopen(f"{broker.http}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        mark = f'{{topic="{name}"}}'
        found = (line.rpartition(" ") for line in lines if line.startswith("dray_table_") and mark in line)
        return {key.removesuffix(mark): float(value) for key, _, value in found}

    fresh = gauges()
    assert (fresh["dray_table_lag_records"], fresh["dray_table_lag_seconds"], fresh["dray_table_files"]) == (0, 0, 2)
    assert fresh["dray_table_bytes"] > 1_000
    assert "dray_table_problem" not in fresh
    produce(broker.bootstrap, name, numbered(0, 30, 2))
    behind = gauges()
    assert behind["dray_table_lag_records"] == 30
    assert behind["dray_table_lag_bytes"] > 100
    empty(*as_somebody_else(broker.directory, name))
    run(broker.directory, lambda running: running.cycle(name))
    assert gauges()["dray_table_problem"] == 1
    run(broker.directory, lambda running: rebuild(running, name))
    assert "dray_table_problem" not in gauges()


@pytest.mark.slow
def test_the_commands_tell_wait_and_rebuild(broker, capfd):
    """R-164: as an operator has them, beside the running broker; no Spark is started."""
    from dray.cli.main import run as drayd

    name = compacted(broker, 1)
    drop(*as_somebody_else(broker.directory, name))
    place = ["--data", str(broker.directory), "--format", "json"]
    capfd.readouterr()

    def said() -> dict:
        return json.loads(capfd.readouterr().out)

    assert drayd(["admin", "table", "rebuild", name, *place]) == 0
    assert said()["added"] == 2
    assert drayd(["admin", "table", "wait", name, "--now", *place]) == 0
    assert said()["reached"] is True
    assert drayd(["admin", "table", "wait", name, "--offset", "50", "-p", "1", "--timeout", "0.1", *place]) == 1
    assert [one["table_end"] for one in said()["behind"]] == [50]
    assert drayd(["admin", "table", "wait", name, *place]) == 2
