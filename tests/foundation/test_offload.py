"""Threads for what blocks: bounded, apart, and never a reason to stay."""

import asyncio
import gc
import subprocess
import sys
import threading
import weakref

import pytest

from dray.errors import Unavailable
from dray.offload import OffloadClosed, ThreadOffload

HUNG = """
import asyncio, threading
from dray.offload import ThreadOffload

async def main():
    offload = ThreadOffload(1)
    begun = threading.Event()
    hung = asyncio.create_task(offload.run(lambda: (begun.set(), threading.Event().wait())))
    while not begun.is_set():
        await asyncio.sleep(0.001)
    print("all ended" if offload.close(0.2) else "something hangs", flush=True)
    hung.cancel()

asyncio.run(main())
"""


@pytest.fixture
def offload():
    made = ThreadOffload(3)
    yield made
    assert made.close(30)


async def test_results_and_errors_come_back(offload):
    assert await offload.run(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await offload.run(divmod, 7, 0)
    assert await offload.run(int, "f", base=16) == 15


async def test_no_more_run_at_a_time_than_there_are_threads(offload):
    entered, go = threading.Semaphore(0), threading.Event()
    together = threading.Barrier(3)
    most = []

    def work():
        entered.release()
        together.wait(30)  # three at a time, neither fewer nor more
        most.append(threading.active_count())
        go.wait(30)

    calls = [asyncio.create_task(offload.run(work)) for _ in range(6)]
    for _ in range(3):
        await asyncio.to_thread(entered.acquire)
    assert not entered.acquire(timeout=0.1)
    go.set()
    await asyncio.gather(*calls)
    assert len(most) == 6


async def test_a_call_whose_caller_is_gone_before_it_began_is_not_made(offload):
    go, made = threading.Event(), []
    busy = [asyncio.create_task(offload.run(go.wait, 30)) for _ in range(3)]
    late = asyncio.create_task(offload.run(made.append, 1))
    await asyncio.sleep(0)
    late.cancel()
    await asyncio.gather(late, return_exceptions=True)
    go.set()
    await asyncio.gather(*busy)
    await asyncio.gather(*(offload.run(int) for _ in range(9)))
    assert made == []


async def test_a_closed_offload_finishes_what_it_has_and_takes_nothing_new():
    offload = ThreadOffload(1)
    done = []
    running = [asyncio.create_task(offload.run(done.append, n)) for n in range(20)]
    await asyncio.sleep(0)
    assert await asyncio.to_thread(offload.close, 30)
    await asyncio.gather(*running)
    assert done == list(range(20))
    with pytest.raises(OffloadClosed):
        await offload.run(int)


def test_a_call_that_hangs_keeps_neither_close_nor_the_process():
    """OF1"""
    ended = subprocess.run([sys.executable, "-c", HUNG], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "something hangs\n", "")


@pytest.mark.slow
async def test_calls_that_come_together_run_together():
    """As long as there are threads to make, nobody waits for another's call."""
    for _ in range(200):
        offload = ThreadOffload(4)
        together = threading.Barrier(4)
        await asyncio.gather(*(offload.run(together.wait, 30) for _ in range(4)))
        assert offload.close(30)


async def test_without_any_thread_the_caller_is_told(monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    offload = ThreadOffload(1)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(Unavailable, match="no thread can be started"):
        await offload.run(int)
    monkeypatch.undo()
    assert await offload.run(int) == 0
    assert offload.close(30)


async def test_what_a_failed_call_was_about_is_let_go_at_once():
    """An error, its traceback and the call must make no cycle: a scratch buffer would wait for the collector."""
    offload = ThreadOffload(1)
    large = Large()
    gone = weakref.ref(large)
    gc.disable()
    try:
        with pytest.raises(ValueError, match="no"):
            await offload.run(refuse, large)
        await offload.run(int)  # the thread has let go of the call before this one
        del large
        assert gone() is None
    finally:
        gc.enable()
        offload.close()


class Large:
    """Something that can be watched going."""


def refuse(what: Large) -> None:
    raise ValueError("no")
