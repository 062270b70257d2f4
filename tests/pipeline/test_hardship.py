"""A Spark job while things go wrong: lost workers, damaged objects, a failing store, a deleted topic."""

import os
import signal
import threading

import pytest

from tests.pipeline.parts import (
    HASTY,
    broker_process,
    collect,
    consumed,
    create,
    delete,
    found_hasty,
    let_garbage_pass,
    names_of,
    numbered,
    objects_of,
    plan_only,
    produce,
    source,
    wait_until,
    workers_of,
)

pytestmark = pytest.mark.slow  # a session alone takes ten seconds


@pytest.fixture(scope="module")
def hasty(tmp_path_factory):
    with broker_process(found_hasty(tmp_path_factory.mktemp("hard") / "data"), *HASTY) as started:
        create(started.bootstrap, "kept", 1, retention_bytes=2_000)
        yield started


def test_a_job_reads_on_while_retention_runs_and_its_topic_is_deleted(spark, hasty):
    """R-111, SP5: a deleted topic under a running job gives the job all its rows, and the next one is told."""
    produce(hasty.bootstrap, "kept", numbered(0, 200), batch_size=1_000)
    produce(hasty.bootstrap, "doomed", numbered(0, 500), batch_size=1_000)
    frame = source(spark, hasty, subscribe="doomed", includeHeaders="true", minPartitions="4")
    plan_only(frame)
    held = source(spark, hasty, subscribe="kept")
    plan_only(held)
    expected, planned = consumed(hasty.bootstrap, "doomed", 1), names_of(hasty.directory)
    delete(hasty.bootstrap, "doomed")
    let_garbage_pass(hasty, "kept")
    assert planned <= names_of(hasty.directory)
    assert collect(frame) == expected
    offsets = [row.offset for row in collect(held)]
    assert offsets == list(range(offsets[0], 200))
    with pytest.raises(Exception, match="no such topic topic=doomed"):
        source(spark, hasty, subscribe="doomed").count()


def test_a_damaged_object_fails_the_job_with_object_stream_and_offset(spark, hasty):
    """SP3."""
    produce(hasty.bootstrap, "hurt", numbered(0, 10))
    before = objects_of(hasty.directory)
    produce(hasty.bootstrap, "hurt", numbered(10, 10))
    (second,) = objects_of(hasty.directory) - before
    whole = second.read_bytes()
    at = whole.rindex(b"value 19")
    second.chmod(0o600)
    second.write_bytes(whole[:at] + b"VALUE" + whole[at + 5 :])
    told = rf"{second.name} topic=hurt partition=0 stream=\d+ offset=10 .*CRC32C"
    with pytest.raises(Exception, match=told):
        source(spark, hasty, subscribe="hurt").collect()
    assert source(spark, hasty, subscribe="hurt", endingOffsets='{"hurt":{"0":10}}').count() == 10
    second.write_bytes(whole)
    assert source(spark, hasty, subscribe="hurt").count() == 20


def test_a_lost_task_is_run_again_and_each_record_is_there_once(spark, hasty, store):
    """R-165, SP1: a worker is killed with -9 when it has half of what it reads."""
    for n in range(6):  # objects of their own
        produce(hasty.bootstrap, "lost", numbered(n * 100, 100))
    address = store.serve(hasty.directory / "objects")
    asked, killed = [], threading.Event()

    def hang_in_the_middle(name: str) -> None:
        asked.append(name)
        if len(asked) == 4:
            killed.wait(120)

    store.before = hang_in_the_middle
    frame = source(spark, hasty, subscribe="lost", objects=address, includeHeaders="true", minPartitions="2")
    plan_only(frame)
    found = []
    job = threading.Thread(target=lambda: found.extend(collect(frame)))
    job.start()
    try:
        wait_until(lambda: len(asked) >= 4, 120)
        lost = workers_of(spark)
        for pid in lost:
            os.kill(pid, signal.SIGKILL)
    finally:
        killed.set()
        job.join()
    assert lost
    assert len(asked) > 6
    assert found == consumed(hasty.bootstrap, "lost", 1)


def test_a_store_that_fails_for_a_while_is_asked_again_and_one_that_fails_for_good_is_named(spark, hasty, store):
    """SP3."""
    for n in range(4):
        produce(hasty.bootstrap, "shaky", numbered(n * 100, 100))
    address = store.serve(hasty.directory / "objects")
    frame = source(spark, hasty, subscribe="shaky", objects=address, includeHeaders="true")
    asked = []

    def fail_twice(name: str) -> int | None:
        asked.append(name)
        return 503 if len(asked) in (2, 3) else None

    store.before = fail_twice
    assert collect(frame) == consumed(hasty.bootstrap, "shaky", 1)
    assert len(asked) > 4
    first = min(asked)  # they are asked for at once, in any order
    store.before = lambda name: None if name == first else 403
    told = r"the store does not give an object.*object=wal/.*topic=shaky partition=0 stream=\d+ offset=100"
    with pytest.raises(Exception, match=told):
        source(spark, hasty, subscribe="shaky", objects=address).collect()
