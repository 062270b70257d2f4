"""Compaction while processes sleep, catalogs lie and workers are killed: each record once, in log and table.

What is compared are whole rows, partition by partition (T13): every byte of a record, and that there are no others.
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import count

import psutil
import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from requests import ConnectionError as CutOff
from requests import ReadTimeout

from dray.pipeline.compactor.job import run_job
from tests.pipeline.compacting import STEPS, Running, compactor
from tests.pipeline.parts import broker_process, consumed, create, numbered, produce, wait_until, workers_of

NAMES = count()
SETTINGS = ("session.ttl=6s", "session.keepalive=2s")


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with broker_process(tmp_path_factory.mktemp("saga") / "data", *SETTINGS) as running:
        yield running


@pytest.fixture
def topic(broker):
    """A topic of two partitions with something in each."""
    name = f"orders.{next(NAMES)}"
    create(broker.bootstrap, name, partitions=2)
    produce(broker.bootstrap, name, numbered(0, 200, 2))
    return name


def run(broker, work, **options):
    async def do():
        async with compactor(broker.directory, **options) as running:
            return await work(running)

    return asyncio.run(do())


async def settle(running: Running) -> None:
    """What ended sessions have left is finished, and everything is in tables."""
    machine = running.replicas[0].machine
    while any(task.session in machine.sessions.live for task in machine.tasks.by_stream.values()):
        await asyncio.sleep(0.05)  # until the session of whoever sleeps, or was killed, has expired
    await running.cycle()
    assert not machine.tasks.by_stream


def assert_same(broker, *topics: str, partitions: int = 2) -> None:
    """Table and log have the same rows, each once (T13)."""

    async def look(running: Running):
        return {topic: running.rows(topic) for topic in topics}

    found = run(broker, look)
    for topic in topics:
        rows = consumed(broker.bootstrap, topic, partitions)
        assert found[topic] == rows
        for partition in range(partitions):
            offsets = [row.offset for row in rows if row.partition == partition]
            assert offsets == list(range(len(offsets)))


# -- one that sleeps ---------------------------------------------------------


def overtake(broker, steps: list[str]) -> None:
    """Compactors fall asleep, each at its step with its topic; others do their work and go on; then they wake up."""
    asleep: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for step in steps:
            name = f"{step.replace(':', '.')}.{next(NAMES)}"
            create(broker.bootstrap, name, partitions=2)
            produce(broker.bootstrap, name, numbered(0, 60, 2))
            command = [sys.executable, "-m", "tests.pipeline.compacting", broker.directory, step, name, "stop"]
            asleep[name] = subprocess.Popen(command)
        wait_until(lambda: all(_is_stopped(process) for process in asleep.values()), 300)
        run(broker, settle)
        for name in asleep:
            produce(broker.bootstrap, name, numbered(60, 40, 2))
        run(broker, settle)
        assert_same(broker, *asleep)
        for process in asleep.values():
            process.send_signal(signal.SIGCONT)
        assert {name: process.wait(120) for name, process in asleep.items()} == dict.fromkeys(asleep, 0)
    finally:
        for process in asleep.values():
            process.kill()
            process.wait()
    assert_same(broker, *asleep)
    for name in asleep:
        produce(broker.bootstrap, name, numbered(100, 20, 2))
    run(broker, settle)
    assert_same(broker, *asleep)


def _is_stopped(process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "it has ended before it came to its step"
    return psutil.Process(process.pid).status() == psutil.STATUS_STOPPED


@pytest.mark.slow
def test_of_two_compactors_one_that_sleeps_at_the_worst_moment_doubles_nothing(broker):
    """R-146, R-159, E-26, T13: SIGSTOP between the look at the fence and the commit, and between commit and Swap."""
    overtake(broker, ["before:send", "before:Swap"])


@pytest.mark.long
def test_of_two_compactors_one_may_sleep_on_either_side_of_every_step(broker):
    """R-146, R-159, E-26, T13: the long form."""
    overtake(broker, [f"{when}:{what}" for what in STEPS for when in ("before", "after")])


# -- a catalog that lies, or says nothing -------------------------------------

ANSWERS: dict[str, Callable[[], Exception]] = {
    "cut off": lambda: CutOff("the connection was cut"),
    "timed out": lambda: ReadTimeout("no answer in time"),
    "409": lambda: CommitFailedException("somebody was faster"),
    "5xx": lambda: CommitStateUnknownException("bad gateway"),
}


@pytest.mark.slow
@pytest.mark.parametrize("stays_down", [False, True], ids=["back at once", "down for the cycle"])
@pytest.mark.parametrize("lands", [False, True], ids=["not landed", "landed"])
@pytest.mark.parametrize("answer", ANSWERS)
def test_whatever_the_catalog_answers_each_row_is_in_the_table_once(broker, topic, answer, lands, stays_down):
    """R-156, R-160, CP4, TT1, T13: what this compactor cannot settle, another does, with files that nobody lost."""

    async def fail(running: Running) -> None:
        catalog = running.tables.catalog
        real, load = catalog.commit_table, catalog.load_table
        sent = []

        def lie(*arguments):
            sent.append(arguments)
            if len(sent) > 1:
                return real(*arguments)
            if lands:
                real(*arguments)
            if stays_down:
                catalog.load_table = down
            raise ANSWERS[answer]()

        def down(*_arguments):
            raise CutOff("no route to the catalog")

        catalog.commit_table = lie
        failures = (await running.cycle(topic))[topic].failures
        catalog.load_table = load
        tasks = running.replicas[0].machine.tasks.by_stream.values()
        assert [bool(failures), len(tasks)] == ([True, 2] if stays_down else [False, 0])
        assert len(sent) == (1 if lands or stays_down else 2), "what has landed is not sent again"

    run(broker, fail)
    run(broker, settle)
    assert_same(broker, topic)
    produce(broker.bootstrap, topic, numbered(0, 20, 2))
    run(broker, settle)
    assert_same(broker, topic)


# -- Spark that loses workers -------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["reading", "written"])
def test_a_lost_worker_is_replaced_and_each_record_is_in_the_table_once(spark, broker, store, topic, moment):
    """R-153, CP1, T13: killed with -9 in the middle of a range, and when its file has landed but nobody was told."""
    for at in range(3):
        produce(broker.bootstrap, topic, numbered(200 + 100 * at, 100, 2))
    address = store.serve(broker.directory / "objects")
    there, killed = threading.Event(), threading.Event()

    def hang(_name: str) -> None:
        if not there.is_set():
            there.set()
            killed.wait(120)

    if moment == "reading":
        store.before = hang
    else:
        store.after_put = hang

    def kill() -> None:
        assert there.wait(120)
        for pid in workers_of(spark):
            os.kill(pid, signal.SIGKILL)
        killed.set()

    attempts = []

    def jobs(given):
        outcomes = run_job(spark, address, [[job] for job in given])
        attempts.extend(one.attempt for one in outcomes)
        return outcomes

    async def cycle(running: Running):
        return (await running.cycle(topic))[topic]

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        tally = run(broker, cycle, run_jobs=jobs)
    finally:
        there.set()
        killer.join()
    assert not tally.failures
    assert max(attempts) >= 1, "nobody was killed"
    assert tally.records == 500
    assert_same(broker, topic)


# -- readers while rows become files ------------------------------------------


class Looper:
    """A client of nobody's here that reads a topic from its start to its end, again and again."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.passes: list[list[tuple[int, bytes]]] = []
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._loop, args=(bootstrap, topic))

    def __enter__(self) -> "Looper":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def wait_for(self, passes: int) -> None:
        """Until so many more have been made, whole."""
        wanted = len(self.passes) + passes
        wait_until(lambda: len(self.passes) >= wanted or self._failure is not None)
        assert self._failure is None, self._failure

    def _loop(self, bootstrap: str, topic: str) -> None:
        try:
            while not self._ended.is_set():
                self.passes.append([(row.offset, row.value) for row in consumed(bootstrap, topic, 1)])
        except BaseException as error:  # told in the thread of the test
            self._failure = error


@pytest.mark.slow
def test_readers_of_the_whole_log_see_each_offset_once_while_rows_become_files(tmp_path):
    """I5, R-115, R-123: nothing is kept in memory, so every pass reads objects and files as they are just then."""
    uncached = ("fetch.cache_bytes=0", "fetch.readahead_bytes=0", *SETTINGS)
    with broker_process(tmp_path / "data", *uncached) as own:
        create(own.bootstrap, "looped")
        sent: list[bytes] = []

        async def grow(running: Running) -> None:
            """Ten rows at a time, most of which become files while the rest is still objects."""
            for _ in range(8):
                for _ in range(5):
                    more = numbered(len(sent), 20)
                    await asyncio.to_thread(produce, own.bootstrap, "looped", more)
                    sent.extend(value for _, value, _, _ in more)
                before = len(looper.passes)
                await running.cycle("looped")
                await asyncio.to_thread(looper.wait_for, 1)
                assert len(looper.passes) > before

        with Looper(own.bootstrap, "looped") as looper:
            run(own, grow)
            looper.wait_for(2)
        ends = []
        for found in looper.passes:
            assert [offset for offset, _ in found] == list(range(len(found)))
            assert [value for _, value in found] == sent[: len(found)]
            ends.append(len(found))
        assert ends == sorted(ends), "what was read once was not there later"
        assert ends[-1] == len(sent) == 800
