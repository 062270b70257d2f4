"""The audit file: what was done is on disk before it is told, chained, and nobody changes it unseen."""

import asyncio
import json
import random
from pathlib import Path

import pytest

from dray.access import audit
from dray.access.audit import FIRST, Audit, AuditFile, Deed, audit_files, check_chain, deeds
from dray.access.authorizer import Action
from dray.access.errors import AuditUnwritten
from dray.access.principals import Entrance, nobody
from dray.disk import LocalDisk
from dray.errors import Corrupt, NotFound, Unknown
from dray.offload import InlineOffload
from dray.sim.disk import FakeDisk

from .stand import AUDIT, stand

CALLER = nobody(Entrance.HTTP, "127.0.0.1", "request-1")


def deed(number: int = 0, **fields) -> Deed:
    given = {
        "time_ms": 1_700_000_000_000 + number, "principal": "User:a", "credential": "k", "address": "127.0.0.1",
        "door": "http", "action": "heap.delete", "resource": f"heap-{number}", "result": "done", "request": "r",
        "position": number,
    } | fields  # fmt: skip
    return Deed(**given)


async def written(disk, count: int, first: int = 0) -> None:
    writing = Audit(AuditFile(AUDIT, disk), InlineOffload())
    await writing.open()
    for number in range(first, first + count):
        await writing.write(deed(number))
    await writing.close()


async def test_lines_are_chained_and_go_on_after_a_restart():
    """AU1, D-256"""
    disk = FakeDisk()
    await written(disk, 3)
    await written(disk, 2, first=3)
    end = check_chain(AUDIT, disk)
    assert (end.lines, end.files, end.torn_bytes) == (5, 1, 0)
    lines = list(deeds(AUDIT, disk))
    assert [line["resource"] for line in lines] == [f"heap-{number}" for number in range(5)]
    assert lines[0]["before"] == FIRST
    assert [line["before"] for line in lines[1:]] == [line["hash"] for line in lines[:-1]]
    assert set(lines[0]) == {
        "n", "time", "principal", "credential", "address", "door", "action", "resource", "result", "request",
        "position", "before", "hash",
    }  # fmt: skip


async def test_whatever_is_changed_dropped_or_inserted_is_found(tmp_path):
    """AU1"""
    disk = LocalDisk()
    writing = Audit(AuditFile(tmp_path, disk), InlineOffload())
    await writing.open()
    for number in range(6):
        await writing.write(deed(number))
    await writing.close()
    (name,) = audit_files(tmp_path, disk)
    whole = (tmp_path / name).read_bytes().splitlines(keepends=True)
    other = json.loads(whole[2]) | {"resource": "another"}
    spoilt = {
        "changed": [*whole[:2], json.dumps(other).encode() + b"\n", *whole[3:]],
        "dropped": [*whole[:2], *whole[3:]],
        "the first dropped": whole[1:],
        "swapped": [*whole[:2], whole[3], whole[2], *whole[4:]],
        "no JSON": [*whole[:2], b"{\n", *whole[3:]],
        "another JSON": [*whole[:2], b"[1]\n", *whole[3:]],
        "an empty line": [*whole[:2], b"\n", *whole[2:]],
    }
    for how, lines in spoilt.items():
        (tmp_path / name).write_bytes(b"".join(lines))
        with pytest.raises(Corrupt) as found:
            check_chain(tmp_path, disk)
        assert found.value.facts["file"] == name, how
    (tmp_path / name).write_bytes(b"".join(whole))
    assert check_chain(tmp_path, disk).lines == 6


async def test_a_long_chain_lies_in_several_files_and_a_start_reads_the_last(monkeypatch):
    monkeypatch.setattr(audit, "FILE_BYTES", 1_000)
    disk = FakeDisk()
    await written(disk, 8)
    files = audit_files(AUDIT, disk)
    assert len(files) > 2
    read: list[Path] = []
    disk.on_call = lambda call, path: read.append(path) if call == "read" else None
    await written(disk, 1, first=8)
    assert AUDIT / files[0] not in read
    disk.on_call = None
    assert check_chain(AUDIT, disk).lines == 9
    disk.remove(AUDIT / files[1])
    with pytest.raises(Corrupt, match="missing"):
        check_chain(AUDIT, disk)


@pytest.mark.parametrize("at", range(0, 24))
async def test_power_may_go_at_any_call_and_what_was_told_is_there(at):
    """AU2, D1"""
    disk = FakeDisk(seed=at)
    told: list[int] = []
    with disk.until_crash():
        disk.crash_at = at
        writing = Audit(AuditFile(AUDIT, disk), InlineOffload())
        await writing.open()
        for number in range(4):
            await writing.write(deed(number))
            told.append(number)
    await written(disk, 1, first=9)
    found = [line["resource"] for line in deeds(AUDIT, disk)]
    assert found[: len(told)] == [f"heap-{number}" for number in told]
    assert found[-1] == "heap-9"
    assert check_chain(AUDIT, disk).lines == len(found)


@pytest.mark.parametrize("seed", range(12))
async def test_a_disk_that_fails_again_and_again_costs_no_line_that_was_told(seed):
    """AU1, AU2: crashes, failed syncs and a full disk in any order"""
    dice, disk, told = random.Random(seed), FakeDisk(seed=seed), []
    for life in range(8):
        with disk.until_crash(keep_cache=dice.random() < 0.3):
            writing = Audit(AuditFile(AUDIT, disk), InlineOffload())
            await writing.open()
            disk.crash_at = disk.calls + dice.randrange(30)
            for number in range(6):
                if dice.random() < 0.2:
                    disk.fail_sync()
                if dice.random() < 0.2:
                    disk.capacity_bytes = disk.used_bytes() + dice.randrange(500)
                await writing.write(deed(100 * life + number))
                try:
                    writing.check()
                except AuditUnwritten:
                    disk.mend()
                else:
                    told += [f"heap-{100 * life + number}"]
            await writing.close()
        disk.mend()
        check_chain(AUDIT, disk)
    found = [line["resource"] for line in deeds(AUDIT, disk)]
    assert set(told) <= set(found), (seed, sorted(set(told) - set(found)))


async def test_what_was_done_is_told_also_if_it_cannot_be_written_and_then_nothing_more_is_done():
    """AU2, AC12: a full disk"""
    disk, done = FakeDisk(), []

    async def work() -> int:
        done.append("request-1")
        return len(done)

    async with stand(disk=disk) as broker:
        assert await broker.access.audited(CALLER, Action.MAKE_HEAP, "jobs", work) == 1
        disk.capacity_bytes = disk.used_bytes()
        assert await broker.access.audited(CALLER, Action.DELETE_HEAP, "jobs", work) == 2, "it was done: it is told"
        with pytest.raises(AuditUnwritten):
            broker.access.audit.check()
        for _ in range(3):
            with pytest.raises(AuditUnwritten):
                await broker.access.audited(CALLER, Action.MAKE_HEAP, "more", work)
        assert len(done) == 2, "what cannot be written down is not done"
        disk.mend()
        assert await broker.access.audited(CALLER, Action.MAKE_HEAP, "more", work) == 3
        broker.access.audit.check()
        assert check_chain(AUDIT, disk).lines == 3
    assert [line["action"] for line in deeds(AUDIT, disk) if line["n"]] == ["heap.make", "heap.delete", "heap.make"]
    assert [line["request"] for line in deeds(AUDIT, disk)] == done


async def test_a_failed_sync_is_final_for_its_file_and_no_line_is_lost():
    """AU2, D2"""
    disk = FakeDisk(seed=3)
    async with stand(disk=disk) as broker:
        await broker.access.audited(CALLER, Action.MAKE_HEAP, "a", _nothing)
        disk.fail_sync("jsonl")
        await broker.access.audited(CALLER, Action.MAKE_HEAP, "b", _nothing)
        with pytest.raises(AuditUnwritten):
            broker.access.audit.check()
        await broker.access.audit.mend()
        broker.access.audit.check()
    assert len(audit_files(AUDIT, disk)) == 2
    assert check_chain(AUDIT, disk).lines == 2
    assert check_chain(AUDIT, disk.durable()).lines == 2


async def _nothing() -> None:
    """What is done here does not matter."""


async def test_what_was_refused_or_is_unknown_is_written_down_as_such():
    """D-256: who, what, when, result; E1"""
    disk = FakeDisk()

    async def raises(error):
        raise error

    async with stand(disk=disk) as broker:
        with pytest.raises(NotFound):
            await broker.access.audited(CALLER, Action.DELETE_HEAP, "x" * 999, lambda: raises(NotFound("no")))
        with pytest.raises(Unknown):
            await broker.access.audited(CALLER, Action.PURGE_HEAP, "jobs", lambda: raises(Unknown("perhaps")))
    lines = list(deeds(AUDIT, disk))
    assert [line["result"] for line in lines] == ["not_found", "unknown"]
    assert lines[0]["resource"] == "x" * 300
    assert lines[0]["principal"] == "User:ANONYMOUS"


async def test_who_leaves_while_it_is_done_leaves_a_line_behind():
    """AC12"""
    disk, begun, go_on = FakeDisk(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await go_on.wait()

    async with stand(disk=disk) as broker:
        asking = asyncio.create_task(broker.access.audited(CALLER, Action.PURGE_HEAP, "jobs", work))
        await begun.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        go_on.set()
    assert [line["result"] for line in deeds(AUDIT, disk)] == ["done"]


async def test_lines_that_come_together_share_a_sync_and_each_is_durable_when_it_is_told():
    """AU2"""
    disk = FakeDisk()
    writing = Audit(AuditFile(AUDIT, disk), InlineOffload())
    await writing.open()
    syncs: list[Path] = []
    disk.on_call = lambda call, path: syncs.append(path) if call == "sync" else None

    async def one(number: int) -> None:
        await writing.write(deed(number))
        assert f"heap-{number}" in [line["resource"] for line in deeds(AUDIT, disk.durable())]

    await asyncio.gather(*(one(number) for number in range(50)))
    await writing.close()
    assert check_chain(AUDIT, disk).lines == 50
    assert len(syncs) < 10


async def test_nobody_goes_on_behind_a_line_that_was_changed():
    """AU1"""
    disk = FakeDisk()
    await written(disk, 3)
    (name,) = audit_files(AUDIT, disk)
    disk.flip(AUDIT / name, 100)
    with pytest.raises(Corrupt):
        await written(disk, 1)
