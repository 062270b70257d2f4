"""Small files become fewer, beside a running broker: log and table hold the same records as before."""

import asyncio
from itertools import count

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from dray.tables.rewrites import RewriteRules
from tests.pipeline.compacting import Died, arm, compactor
from tests.pipeline.parts import broker_process, consumed, create, numbered, produce

NAMES = count()
WEEKS_LATER_MS = 4_000_000_000_000
FOUR = RewriteRules(files=4, file_size=128 << 20, settled_ms=1 << 50, tables=True)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with broker_process(tmp_path_factory.mktemp("rewriting") / "data") as running:
        yield running


def run(broker, work, **options):
    async def do():
        async with compactor(broker.directory, **options) as running:
            return await work(running)

    return asyncio.run(do())


def in_small_files(broker, files: int = 4) -> str:
    """A topic of two partitions; one of them in so many files."""
    name = f"small.{next(NAMES)}"
    create(broker.bootstrap, name, partitions=2)

    async def fill(running):
        for at in range(files):
            produce(broker.bootstrap, name, [(b"k", None if at % 2 else b"", [("h", b"%d" % at)], 0)] * 50)
            await running.cycle(name)

    run(broker, fill)
    return name


def operations(running, name: str) -> list[str]:
    table = running.tables.find(running.topic(name))
    return [one.summary.operation.value for one in table.metadata.snapshots]


def files(running, name: str) -> list[tuple[int, int]]:
    """The offsets of the files that rows of the index name, in the first partition."""
    machine = running.replicas[0].machine
    stream = machine.streams.find(machine.topics.named(name).streams[0])
    owners = [machine.objects.find(row.object) for row in stream.index.rows(0)]
    return [(owner.file.start, owner.file.end) for owner in owners if owner.file is not None]


@pytest.mark.slow
def test_small_files_become_one_in_the_commit_that_adds_other_rows(broker):
    """R-150, R-158, R-164, RW1, I5: who reads the whole log meanwhile sees each offset once."""
    name = in_small_files(broker)
    produce(broker.bootstrap, name, numbered(0, 30, 2)[1::2])
    before = consumed(broker.bootstrap, name, 2)

    async def rewrite(running):
        reading = asyncio.create_task(read_on(broker, name, before))
        metadata = len(running.tables.find(running.topic(name)).metadata.metadata_log)
        tally = (await running.cycle(name))[name]
        assert (tally.failures, tally.rewritten, tally.files) == ([], 4, 2)
        assert operations(running, name) == ["append"] * 5 + ["replace"]
        assert len(running.tables.find(running.topic(name)).metadata.metadata_log) == metadata + 1, "one commit"
        assert files(running, name) == [(0, 200)]
        assert running.rows(name) == before
        assert not reading.done() or reading.result()
        reading.cancel()
        return running.rows(name)

    assert run(broker, rewrite, rewriting=FOUR) == before
    assert consumed(broker.bootstrap, name, 2) == before


async def read_on(broker, name, before) -> None:
    while True:
        assert await asyncio.to_thread(consumed, broker.bootstrap, name, 2) == before


@pytest.mark.slow
@pytest.mark.parametrize("step", ["before:commit", "after:commit", "after:TableCommitted", "after:Swap"])
def test_whoever_comes_after_one_that_ended_in_a_rewrite_finishes_it(broker, step):
    """R-152, R-153, R-156: on both sides of each effect."""
    name = in_small_files(broker)
    before = consumed(broker.bootstrap, name, 2)

    def die():
        raise Died(step)

    async def come_to_the_step(running):
        arm(running, step, die)
        await running.cycle(name)

    with pytest.raises(Died):
        run(broker, come_to_the_step, rewriting=FOUR)

    async def finish(running):
        await running.cycle(name)
        assert not running.replicas[0].machine.tasks.by_stream
        assert operations(running, name).count("replace") == 1
        return files(running, name), running.rows(name)

    assert run(broker, finish) == ([(0, 200)], before)
    assert consumed(broker.bootstrap, name, 2) == before


@pytest.mark.slow
def test_what_retention_takes_meanwhile_stays_taken(broker):
    """R-154, R-202, SW4: a file that left the table while its rows were being written again is not looked for."""
    name = in_small_files(broker)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wanted = TopicPartition(name, 0, 60)

    async def cut(running):
        real = running.tables.commit

        def commit(topic, change, now_ms):
            if change.exchanged and not change.removed:
                admin.delete_records([wanted])[wanted].result(30)
                asyncio.run_coroutine_threadsafe(running.replicas[0].sync(), loop).result()
                asyncio.run_coroutine_threadsafe(running.upkeep.run(0), loop).result()
                running.tables.commit = real
            return real(topic, change, now_ms)

        loop = asyncio.get_running_loop()
        running.tables.commit = commit
        await running.cycle(name)
        left = running.replicas[0].machine.tasks.by_stream
        await running.cycle(name)
        return len(left), files(running, name), [row.offset for row in running.rows(name)]

    assert run(broker, cut, rewriting=FOUR) == (0, [(0, 200)], list(range(200)))
    assert [row.offset for row in consumed(broker.bootstrap, name, 2)] == list(range(60, 200))


@pytest.mark.slow
def test_the_old_files_are_released_when_no_snapshot_shows_them(broker):
    """R-114, X7, CP6"""
    name = in_small_files(broker)

    async def rewrite(running):
        machine, topic = running.replicas[0].machine, running.topic(name)

        def held():
            known = machine.objects.files.values()
            return sorted((file.start, file.end) for file in known if file.topic_id == topic.topic_id and file.held)

        await running.cycle(name)
        small = [(0, 50), (50, 100), (100, 150), (150, 200)]
        await running.upkeep.run(0)
        assert held() == sorted([*small, (0, 200)]), "older snapshots show them"
        await running.upkeep.run(WEEKS_LATER_MS)
        return held()

    assert run(broker, rewrite, rewriting=FOUR) == [(0, 200)]


@pytest.mark.slow
def test_a_damaged_file_is_not_copied(broker):
    """PQ4, R-148: the checksum that the machine keeps is looked at before Arrow sees the footer."""
    name = in_small_files(broker)

    async def damage(running):
        machine = running.replicas[0].machine
        stream = machine.streams.find(machine.topics.named(name).streams[0])
        path = broker.directory / "objects" / machine.objects.find(stream.index.row(1).object).path()
        whole = path.read_bytes()
        path.write_bytes(whole[:-30] + bytes([whole[-30] ^ 1]) + whole[-29:])
        tally = (await running.cycle(name))[name]
        path.write_bytes(whole)
        return tally, path.name, files(running, name)

    tally, wrong, left = run(broker, damage, rewriting=FOUR)
    (reason,) = tally.failures
    assert "checksum" in reason
    assert wrong in reason
    assert len(left) == 4
    assert run(broker, lambda running: running.cycle(name), rewriting=FOUR)[name].rewritten == 4


@pytest.mark.slow
def test_a_table_that_keeps_what_the_log_drops_keeps_it_through_a_rewrite(broker):
    """E-22, R-202: rows before the log start lie in files of the table alone, and in one that the log start cuts."""
    name = in_small_files(broker, files=6)
    rows = consumed(broker.bootstrap, name, 2)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for done in admin.delete_records([TopicPartition(name, 0, 60)]).values():
        done.result(30)

    async def rewrite(running):
        await running.upkeep.run(0)
        tally = (await running.cycle(name))[name]
        assert (tally.failures, tally.rewritten >= 4) == ([], True)
        assert "replace" in operations(running, name)
        assert running.rows(name) == rows, "what the log has dropped is still in the table, each row once"
        await running.upkeep.run(WEEKS_LATER_MS)
        return running.rows(name), files(running, name)

    assert run(broker, rewrite, rewriting=FOUR, keep_rows=True)[0] == rows
    assert consumed(broker.bootstrap, name, 2) == [row for row in rows if row.partition or row.offset >= 60]

    async def rebuild(running):
        await running.rebuilder.run(running.replicas[0].machine.topics.named(name))
        return running.rows(name)

    assert run(broker, rebuild, keep_rows=True) == rows
