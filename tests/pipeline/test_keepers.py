"""The process that holds pins: what is told where it does not start, whom it outlives not, and where it listens."""

import asyncio
import errno
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dray.pipeline import endings, pins
from dray.pipeline.endings import wait_for_end
from dray.pipeline.errors import NotPinned
from dray.pipeline.opening import read_directory
from dray.pipeline.pins import PATIENCE_S, hold, socket_of
from dray.pipeline.private import private_directory
from dray.testing import broker
from tests.pipeline.parts import driver_process


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    place = tmp_path_factory.mktemp("keepers") / "data"
    with broker(place):
        yield read_directory(str(place))[0]


def instead_of_python(place: Path, ends: str) -> Path:
    """A program that notes that it was started, says something and ends."""
    program = place / "python"
    program.write_text(
        f"#!/bin/sh\necho started >> {place}/starts\necho 'the disk of this machine is full' >&2\n{ends}\n"
    )
    program.chmod(0o700)
    return program


def test_a_keeper_that_cannot_start_is_started_three_times_and_its_last_words_are_told(
    directory, driver, tmp_path, monkeypatch
):
    monkeypatch.setattr(pins.sys, "executable", str(instead_of_python(tmp_path, "exit 3")))
    told = r"(?s)ended when it was started starts=3 exit_code=3 said=.*the disk of this machine is full"
    with pytest.raises(NotPinned, match=told):
        asyncio.run(hold(directory, seconds=10, driver=driver))
    assert (tmp_path / "starts").read_text().count("started") == len(PATIENCE_S) == 3


def test_a_keeper_that_never_answers_is_waited_for_and_told(directory, driver, tmp_path, monkeypatch):
    """It ends well, as one does that finds another at work: that other one is given some time, and not for ever."""
    monkeypatch.setattr(pins.sys, "executable", str(instead_of_python(tmp_path, "exit 0")))
    monkeypatch.setattr(pins, "PATIENCE_S", (0, 0.1, 0.2))
    monkeypatch.setattr(pins, "STARTING_LIMIT_S", 2)
    with pytest.raises(NotPinned, match=r"(?s)does not answer limit_s=2 starts=[123] said="):
        asyncio.run(hold(directory, seconds=10, driver=driver))
    if (tmp_path / "starts").exists():  # a loaded machine starts none in this time
        assert (tmp_path / "starts").read_text().count("started") <= 3


def test_no_process_at_all_is_told(directory, driver, tmp_path, monkeypatch):
    monkeypatch.setattr(pins.sys, "executable", str(tmp_path / "nothing"))
    with pytest.raises(NotPinned, match=r"no process can be started.*No such file"):
        asyncio.run(hold(directory, seconds=10, driver=driver))


def missing(monkeypatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")


def refused(monkeypatch) -> None:
    def open_none(pid: int) -> int:
        raise OSError(errno.ENOSYS, "not here")

    monkeypatch.setattr(os, "pidfd_open", open_none)


def untold(monkeypatch) -> None:
    """Neither a pidfd nor /proc, as on macOS."""
    missing(monkeypatch)
    monkeypatch.setattr(endings, "Path", lambda _: Path("/nowhere/stat"))


@pytest.mark.parametrize("system", [missing, refused, untold, lambda _: None], ids=["macOS", "old", "no proc", "here"])
def test_the_end_of_a_driver_is_seen_on_every_system(system, monkeypatch):
    """SP6: else pins would stay for a day."""
    system(monkeypatch)
    monkeypatch.setattr(endings, "POLL_S", 0.01)

    async def watch() -> None:
        waiting = asyncio.create_task(wait_for_end(process.pid))
        for _ in range(20):
            await asyncio.sleep(0.01)
            assert not waiting.done(), "it still lives"
        process.kill()
        if system is untold:
            process.communicate()  # without /proc a process counts until its parent has looked
        async with asyncio.timeout(60):
            await waiting
            await wait_for_end(process.pid)  # gone before it is watched
        process.communicate()

    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    asyncio.run(watch())


def test_another_process_with_the_same_number_is_not_the_driver(monkeypatch):
    missing(monkeypatch)
    monkeypatch.setattr(endings, "POLL_S", 0.01)
    seen = iter(["100", "100", "200"])
    monkeypatch.setattr(endings, "_who", lambda _: next(seen))
    asyncio.run(wait_for_end(1))
    assert next(seen, None) is None


def test_sockets_are_in_the_runtime_directory_of_the_user_where_there_is_one(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    fallback = tmp_path / f"dray-spark-{os.getuid()}"
    assert private_directory({"XDG_RUNTIME_DIR": str(runtime)}) == runtime / "dray-spark"
    for other in ({}, {"XDG_RUNTIME_DIR": "run"}, {"XDG_RUNTIME_DIR": str(tmp_path / "none")}):
        assert private_directory(other) == fallback
    assert stat.S_IMODE(fallback.stat().st_mode) == 0o700
    runtime.chmod(0o755)  # that is no private one
    assert private_directory({"XDG_RUNTIME_DIR": str(runtime)}) == fallback
    fallback.chmod(0o777)
    with pytest.raises(NotPinned, match=r"set XDG_RUNTIME_DIR or TMPDIR to one of your own"):
        private_directory({})
    fallback.rmdir()
    fallback.symlink_to(runtime)
    with pytest.raises(NotPinned, match="set XDG_RUNTIME_DIR"):
        private_directory({})


@pytest.mark.slow
def test_a_keeper_listens_in_the_runtime_directory(directory, tmp_path, monkeypatch):
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    with driver_process() as driver:
        asyncio.run(hold(directory, seconds=10, driver=driver))
        assert socket_of(directory, driver).parent == runtime / "dray-spark"
        assert socket_of(directory, driver).is_socket()
