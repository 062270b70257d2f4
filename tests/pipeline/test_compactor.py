"""Compaction beside a running broker: each record in its table once, and consumers read on as before."""

import asyncio
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from dray.pipeline.compactor import worker
from dray.pipeline.compactor.job import pack, run_job
from dray.pipeline.compactor.worker import write_files
from dray.tables.due import DueRules
from tests.pipeline.compacting import ALL, STEPS, Died, arm, compactor
from tests.pipeline.parts import broker_process, consumed, create, numbered, produce

NAMES = count()
SETTINGS = ("session.ttl=6s", "session.keepalive=2s")


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with broker_process(tmp_path_factory.mktemp("tables") / "data", *SETTINGS) as running:
        yield running


@pytest.fixture
def topic(broker):
    """A topic of three partitions with something in each."""
    name = f"orders.{next(NAMES)}"
    create(broker.bootstrap, name, partitions=3)
    produce(broker.bootstrap, name, numbered(0, 300, 3))
    return name


def odd_records(partitions: int):
    """Null and empty keys and values, headers in order with doubles, in both partitions."""
    headers = [("a", b"1"), ("a", None), ("b", b""), ("a", b"2")]
    kinds = [(None, b"v", None), (b"", None, headers), (b"k", b"", headers[:1]), (b"k", b"x" * 5_000, None)]
    return [(*kinds[at % 4], at % partitions) for at in range(200)]


def compact(broker, run_jobs=None, topic=None, rules=ALL):
    async def once():
        async with compactor(broker.directory, run_jobs, rules) as running:
            return await running.cycle(topic)

    return asyncio.run(once())


def table_of(broker, topic):
    async def look():
        async with compactor(broker.directory) as running:
            return running.rows(topic)

    return asyncio.run(look())


def with_spark(spark, broker):
    address = f"file://{broker.directory.absolute()}/objects"
    return lambda jobs: run_job(spark, address, pack(jobs, 2))


@pytest.mark.slow
def test_table_and_log_hold_the_same_records_once(spark, broker):
    """R-143, R-150, R-164, R-137: by Spark, read by PyIceberg and by a consumer; every codec, both kinds of time."""
    name = f"mixed.{next(NAMES)}"
    create(broker.bootstrap, name, partitions=2)
    stamped = f"stamped.{next(NAMES)}"
    create(broker.bootstrap, stamped, message_timestamp_type="LogAppendTime")
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        produce(broker.bootstrap, name, odd_records(2), compression_type=codec)
    produce(broker.bootstrap, stamped, numbered(0, 100))
    before = {topic: consumed(broker.bootstrap, topic, parts) for topic, parts in ((name, 2), (stamped, 1))}
    done = compact(broker, with_spark(spark, broker))
    assert not [tally.failures for tally in done.values() if tally.failures]
    assert done[name].records == 1_000
    for topic, rows in before.items():
        assert table_of(broker, topic) == rows
        assert consumed(broker.bootstrap, topic, 2 if topic == name else 1) == rows, "from files now"
    produce(broker.bootstrap, name, numbered(0, 100, 2))
    assert compact(broker, with_spark(spark, broker))[name].records == 100
    assert table_of(broker, name) == consumed(broker.bootstrap, name, 2)


def ways(steps):
    return [f"{when}:{what}" for what in steps for when in ("before", "after")]


@pytest.mark.slow
@pytest.mark.parametrize("step", ways(STEPS))
def test_whoever_comes_after_a_compactor_that_ended_finishes_its_work(broker, topic, step):
    """R-152, R-153, R-154, CP3: on both sides of each effect; each row once, nothing lost."""
    rows = consumed(broker.bootstrap, topic, 3)

    def die():
        raise Died(step)

    async def come_to_the_step():
        async with compactor(broker.directory) as dying:
            arm(dying, step, die)
            await dying.cycle(topic)

    async def run():
        with pytest.raises(Died):
            await come_to_the_step()
        async with compactor(broker.directory) as running:
            await running.cycle(topic)
            assert not running.replicas[0].machine.tasks.by_stream
            return running.rows(topic)

    assert asyncio.run(run()) == rows
    assert consumed(broker.bootstrap, topic, 3) == rows


def kill_all(broker, steps):
    """A compactor is killed at each step, with a topic of its own; then another one finishes what they left."""
    rows = {}
    for step in steps:
        name = f"{step.replace(':', '.')}.{next(NAMES)}"
        create(broker.bootstrap, name)
        produce(broker.bootstrap, name, numbered(0, 50))
        rows[name] = consumed(broker.bootstrap, name, 1)
        command = [sys.executable, "-m", "tests.pipeline.compacting", broker.directory, step, name]
        assert subprocess.run(command, check=False).returncode == -9, step

    async def finish():
        async with compactor(broker.directory) as running:
            machine = running.replicas[0].machine
            while any(task.session in machine.sessions.live for task in machine.tasks.by_stream.values()):
                await asyncio.sleep(0.05)  # until the sessions of the dead have expired
            await running.cycle()
            assert not machine.tasks.by_stream
            return {name: running.rows(name) for name in rows}

    assert asyncio.run(finish()) == rows
    assert {name: consumed(broker.bootstrap, name, 1) for name in rows} == rows


@pytest.mark.slow
def test_whoever_comes_after_compactors_that_were_killed_finishes_their_work(broker):
    """R-152, T13: kill -9 of processes."""
    kill_all(broker, ["after:files", "after:commit"])


@pytest.mark.long
def test_a_compactor_may_be_killed_on_both_sides_of_every_step(broker):
    """R-152, T13: the long form."""
    kill_all(broker, ways(STEPS))


@pytest.mark.slow
def test_of_two_compactors_one_that_slept_before_its_commit_doubles_nothing(broker, topic):
    """R-146, E-26: its session had ended when it woke up."""
    rows = consumed(broker.bootstrap, topic, 3)

    async def race():
        async with compactor(broker.directory) as late, compactor(broker.directory) as other:
            real = late.tables.commit

            async def overtake():
                await late.replicas[0].close_session()
                await other.cycle(topic)

            loop = asyncio.get_running_loop()

            def asleep(*arguments):
                asyncio.run_coroutine_threadsafe(overtake(), loop).result()
                return real(*arguments)

            late.tables.commit = asleep
            tally = (await late.cycle(topic))[topic]
            assert tally.failures, "the task was not its own any more"
            assert other.rows(topic) == rows
            assert not other.replicas[0].machine.tasks.by_stream

    asyncio.run(race())
    assert consumed(broker.bootstrap, topic, 3) == rows


def first_object(broker, topic) -> Path:
    """The file that the first batch of a topic lies in; a slow put may have left others."""

    async def look():
        async with compactor(broker.directory) as running:
            machine = running.replicas[0].machine
            stream = machine.streams.find(machine.topics.named(topic).streams[0])
            return machine.objects.find(stream.index.row(0).object).path()

    return broker.directory / "objects" / asyncio.run(look())


@pytest.mark.slow
def test_a_damaged_object_fails_its_own_stream_alone_and_says_why(broker, topic):
    """R-148, CP2"""
    damaged = f"damaged.{next(NAMES)}"
    create(broker.bootstrap, damaged)
    compact(broker)
    produce(broker.bootstrap, damaged, numbered(0, 100))
    produce(broker.bootstrap, topic, numbered(0, 30, 3))
    wrong = first_object(broker, damaged)
    whole = wrong.read_bytes()
    wrong.write_bytes(whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
    done = compact(broker)
    assert done[topic].records == 30
    assert not done[topic].failures
    (reason,) = done[damaged].failures
    assert wrong.name in reason
    assert "CRC" in reason
    wrong.write_bytes(whole)
    assert compact(broker)[damaged].records == 100


@pytest.mark.parametrize("step", ["after:FilesWritten", "after:commit"])
def test_a_file_that_is_lost_before_it_stands_for_rows_is_written_again(broker, topic, step):
    """R-153: under another name; the table may have it already, and then lets go of it."""
    rows = consumed(broker.bootstrap, topic, 3)

    def die():
        raise Died(step)

    async def come_to_the_step():
        async with compactor(broker.directory) as dying:
            arm(dying, step, die)
            await dying.cycle(topic)

    async def lose_one():
        async with compactor(broker.directory) as running:
            await running.replicas[0].sync()
            machine = running.replicas[0].machine
            streams = machine.topics.named(topic).streams
            task = next(one for one in machine.tasks.by_stream.values() if one.stream in streams and one.files)
            (broker.directory / "objects" / machine.objects.find(task.files[0]).path()).unlink()
            failures = (await running.cycle(topic))[topic].failures
            assert ["compacted anew" in reason for reason in failures] == [True]
            assert topic not in await running.cycle(topic), "nothing is left"
            assert not machine.tasks.by_stream
            return running.rows(topic)

    with pytest.raises(Died):
        asyncio.run(come_to_the_step())
    assert asyncio.run(lose_one()) == rows
    assert consumed(broker.bootstrap, topic, 3) == rows


def test_a_disk_that_is_full_in_the_middle_of_a_job_loses_nothing(broker, topic, monkeypatch):
    """R-160, CP2: said with the reason; when there is room again everything is compacted."""
    rows = consumed(broker.bootstrap, topic, 3)
    with monkeypatch.context() as patched:
        patched.setattr(worker.tempfile, "TemporaryFile", lambda: open("/dev/full", "w+b"))  # noqa: SIM115
        tally = compact(broker, topic=topic)[topic]
    assert len(tally.failures) == 3
    assert all("No space left" in reason for reason in tally.failures)
    assert consumed(broker.bootstrap, topic, 3) == rows
    assert not compact(broker, topic=topic)[topic].failures
    assert table_of(broker, topic) == rows == consumed(broker.bootstrap, topic, 3)


def test_while_the_catalog_is_down_nothing_is_lost_and_afterwards_nothing_is_doubled(broker, topic):
    """R-160, R-156, CP4"""
    rows = consumed(broker.bootstrap, topic, 3)

    async def outage():
        async with compactor(broker.directory) as running:
            real = running.tables.catalog.load_table

            def down(*_arguments):
                raise OSError("no route to the catalog")

            running.tables.catalog.load_table = down
            tally = (await running.cycle(topic))[topic]
            assert "the catalog does not answer" in tally.failures[0]
            running.tables.catalog.load_table = real
            await running.cycle(topic)
            assert running.rows(topic) == rows

    asyncio.run(outage())
    assert consumed(broker.bootstrap, topic, 3) == rows


def test_a_job_that_spark_repeats_writes_under_another_name(broker, topic):
    """R-153, CP1, CP5: what an earlier attempt wrote is no row; what is read is pinned meanwhile."""
    address = f"file://{broker.directory.absolute()}/objects"
    returned = {}

    def twice(jobs):
        list(write_files(address, jobs, 0))
        outcomes = list(write_files(address, jobs, 1))
        returned.update({job.paths[1]: one.facts.size for job, one in zip(jobs, outcomes, strict=True)})
        return outcomes

    async def once():
        async with compactor(broker.directory, twice) as running:
            machine = running.replicas[0].machine
            real, pins = running.compactor._run_jobs, []
            running.compactor._run_jobs = lambda jobs: pins.append(len(machine.objects.pins)) or real(jobs)
            await running.cycle(topic)
            named = {owner.path(): owner.size for owner in machine.objects.all() if owner.path() in returned}
            assert (pins, len(machine.objects.pins)) == ([1], 0)
            assert named == returned
            assert all((broker.directory / "objects" / path).stat().st_size == named[path] for path in named)

    asyncio.run(once())
    assert table_of(broker, topic) == consumed(broker.bootstrap, topic, 3)


@pytest.mark.slow
def test_a_large_stream_becomes_several_files_cut_where_batches_end(broker):
    """R-145"""
    name = f"large.{next(NAMES)}"
    create(broker.bootstrap, name)
    for at in range(20):
        produce(broker.bootstrap, name, numbered(100 * at, 100))
    tally = compact(broker, rules=DueRules(age_ms=0, size=0, file_size=10_000), topic=name)[name]
    assert tally.files > 5
    assert table_of(broker, name) == consumed(broker.bootstrap, name, 1)


def test_a_stream_is_due_by_age_or_by_size(broker, topic):
    """R-144"""
    hour = 3_600_000
    assert topic not in compact(broker, rules=DueRules(age_ms=hour, size=1 << 30, file_size=1 << 30))
    assert topic in compact(broker, rules=DueRules(age_ms=hour, size=1_000, file_size=1 << 30))
    assert topic not in compact(broker), "all of it is in files"


def test_tasks_are_packed_by_bytes():
    """R-143"""

    class Job:
        def __init__(self, number, size):
            self.number, self.bytes = number, size

    jobs = [Job(number, size << 20) for number, size in enumerate((1, 1, 1, 1, 1, 100, 1, 1, 1, 1, 50, 50))]
    tasks = pack(jobs, cores=1)
    assert sorted(job.number for task in tasks for job in task) == list(range(12))
    assert len(tasks) == 3
    assert max(sum(job.bytes for job in task) for task in tasks) <= 100 << 20
    assert len(pack(jobs[:5], cores=8)) == 2, "a task of a megabyte is not worth its start"
