"""Tables follow what the log drops, and files are garbage only when no snapshot reaches them."""

import asyncio
from itertools import count

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from dray.machine.garbage import Objects
from tests.pipeline.compacting import compactor
from tests.pipeline.parts import broker_process, consumed, create, delete, numbered, produce

NAMES = count()
WEEKS_LATER_MS = 4_000_000_000_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with broker_process(tmp_path_factory.mktemp("upkeep") / "data") as running:
        yield running


def run(broker, work, **options):
    async def do():
        async with compactor(broker.directory, **options) as running:
            return await work(running)

    return asyncio.run(do())


def compacted(broker, files: int) -> str:
    """A topic of so many files, a hundred records each."""
    name = f"orders.{next(NAMES)}"
    create(broker.bootstrap, name)
    for at in range(files):
        produce(broker.bootstrap, name, numbered(100 * at, 100))
        run(broker, lambda running: running.cycle(name))
    return name


def held(objects: Objects, topic_id: bytes) -> list[int]:
    """Where the files begin that the table may still name."""
    return sorted(file.start for file in objects.files.values() if file.topic_id == topic_id and file.held)


@pytest.mark.slow
def test_files_below_the_log_start_leave_the_table_and_are_released_when_no_snapshot_has_them(broker):
    """R-202, R-113, R-114, CP6, X7: one that straddles the start stays."""
    name = compacted(broker, 3)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wanted = TopicPartition(name, 0, 150)
    admin.delete_records([wanted])[wanted].result(30)

    async def keep(running):
        machine, topic = running.replicas[0].machine, running.topic(name)
        await running.upkeep.run(0)
        assert [row.offset for row in running.rows(name)] == list(range(100, 300))
        assert held(machine.objects, topic.topic_id) == [0, 100, 200], "older snapshots show it"
        operations = [one.summary.operation.value for one in running.tables.find(topic).metadata.snapshots]
        assert operations == ["append", "append", "append", "delete"]
        await running.upkeep.run(WEEKS_LATER_MS)
        return held(machine.objects, topic.topic_id)

    assert run(broker, keep) == [100, 200]
    assert run(broker, _operations(name)) == ["replace"], "made empty, so that nobody brings the file back"
    assert [row.offset for row in run(broker, _rows(name))] == list(range(100, 300))
    assert [row.offset for row in consumed(broker.bootstrap, name, 1)] == list(range(150, 300))


@pytest.mark.parametrize("keep", [False, True])
def test_the_table_of_a_deleted_topic_goes_or_is_renamed(broker, keep):
    """E-20, R-193"""
    name = compacted(broker, 1)
    topic = run(broker, _topic(name))
    delete(broker.bootstrap, name)

    async def follow(running):
        await running.upkeep.run(0)
        await running.upkeep.run(0)
        tables = {table[1] for table in running.tables.catalog.list_tables("topics")}
        return tables, held(running.replicas[0].machine.objects, topic.topic_id)

    tables, files = run(broker, follow, keep=keep)
    assert name not in tables
    assert (f"{name}-{topic.topic_id.hex()}" in tables) is keep
    assert files == ([0] if keep else []), "a table that is kept keeps its files"
    create(broker.bootstrap, name)
    produce(broker.bootstrap, name, numbered(0, 10))
    run(broker, lambda running: running.cycle(name))
    assert run(broker, _rows(name)) == consumed(broker.bootstrap, name, 1)


def test_the_table_of_a_topic_that_was_made_again_is_a_new_one(broker):
    """R-193: although nobody looked between its end and its second beginning."""
    name = compacted(broker, 1)
    delete(broker.bootstrap, name)
    create(broker.bootstrap, name)
    produce(broker.bootstrap, name, numbered(0, 10))

    async def follow(running):
        await running.upkeep.run(0)
        await running.cycle(name)
        return running.rows(name)

    assert run(broker, follow) == consumed(broker.bootstrap, name, 1)


def _topic(name):
    async def look(running):
        return running.topic(name)

    return look


def _operations(name):
    async def look(running):
        table = running.tables.find(running.topic(name))
        return [one.summary.operation.value for one in table.metadata.snapshots]

    return look


def _rows(name):
    async def look(running):
        return running.rows(name)

    return look
