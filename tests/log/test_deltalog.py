"""The delta log in memory and on a directory: the contract, and what only names that are created once do."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from pathlib import Path

import pytest

from dray.buffers import Buffer
from dray.clock import ManualClock, SystemClock
from dray.disk import LocalDisk
from dray.errors import Corrupt, Unavailable
from dray.ids import SystemEntropy
from dray.log.delta.commits import boundaries_prefix, commit_name, commits_prefix
from dray.log.delta.engine import DeltaLog
from dray.log.port import BEFORE_ALL, Log, LostReply, NotAppended, Position
from dray.objects.files import FileObjects
from dray.objects.memory import MemoryObjects
from dray.objects.port import ObjectInfo, Objects, PutUnknown, Settles, StoreUnavailable
from dray.objects.retry import RetryingObjects, RetryPolicy
from dray.offload import InlineOffload, ThreadOffload
from tests.log.contract import (
    DEADLINE_S,
    BeginningLogContract,
    LogContract,
    NeighbourLogContract,
    SharedLogContract,
    deaf,
    fill,
    take,
)  # fmt: skip
from tests.log.test_files import LimitedDisk

DOMAIN = 3


class Shaky(MemoryObjects):
    """A store that is away for a few requests, and counts them."""

    def __init__(self, inner: Objects) -> None:
        self.inner = inner
        self.away = 0
        self.calls: list[tuple[str, str]] = []
        self.gate: asyncio.Event | None = None
        self.seconds = 0.0

    def _ask(self, call: str, path: str) -> None:
        self.calls.append((call, path))
        if self.away:
            self.away -= 1
            raise StoreUnavailable("away, by the test")

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        self._ask("put", path)
        if self.gate is not None:
            await self.gate.wait()
        await asyncio.sleep(self.seconds)
        await self.inner.put(path, parts)

    async def get(self, path: str, start: int = 0, end: int | None = None) -> memoryview:
        self._ask("get", path)
        await asyncio.sleep(self.seconds)
        return await self.inner.get(path, start, end)

    async def head(self, path: str) -> ObjectInfo:
        self._ask("head", path)
        return await self.inner.head(path)

    async def delete(self, path: str) -> None:
        self._ask("delete", path)
        await self.inner.delete(path)

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        self._ask("list", prefix)
        return self.inner.list(prefix)


class Patient(RetryingObjects):
    """As brokers reach a store; an answer may be lost for good."""

    lose_next_put = False

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        await super().put(path, parts)
        if self.lose_next_put:
            self.lose_next_put = False
            raise PutUnknown("the answer was lost by the test")


class DeltaFactory:
    """Handles on one store; each has a way of its own to it, which can be hurt."""

    max_entry_bytes = 4096
    domain = DOMAIN

    def __init__(self, objects: Objects, url: str = "deltalog:", **options) -> None:
        self.objects = objects
        self.url = url
        self.options = {"idle_s": (0.01, 0.05), **options}
        self.handles: list[DeltaLog] = []
        self.ways: dict[DeltaLog, tuple[Patient, Shaky]] = {}

    async def open(self) -> DeltaLog:
        return await self._open(DOMAIN)

    async def open_other(self) -> DeltaLog:
        return await self._open(DOMAIN + 1)

    async def open_neighbour(self) -> Log:
        root = Path(self.url.removeprefix("deltalog:"))
        files = FileObjects(root.with_name(f"{root.name}-b"), LocalDisk(), InlineOffload())
        await files.open()
        self.handles.append(DeltaLog(files, DOMAIN, clock=SystemClock(), entropy=SystemEntropy()))
        return await self.handles[-1].open()

    async def append_unheard(self, log: Log, entry: bytes) -> Position:
        assert isinstance(log, DeltaLog)
        with deaf(log._bell):
            return await log.append(entry)

    async def _open(self, domain: int) -> DeltaLog:
        shaky = Shaky(self.objects)
        patient = Patient(shaky, SystemClock(), SystemEntropy(), RetryPolicy(first_pause_seconds=0.001))
        log = DeltaLog(
            patient, domain, clock=SystemClock(), entropy=SystemEntropy(), max_entry_bytes=self.max_entry_bytes,
            settle=self.objects.settle if isinstance(self.objects, Settles) else None, **self.options,
        )  # fmt: skip
        self.handles.append(log)
        self.ways[log] = patient, shaky
        return await log.open()

    async def restart(self) -> None:
        await self.close()

    async def go_back(self, to: Position) -> None:
        """Wiped, or as it was when it was shorter."""
        async for info in self.objects.list("log/" if not to else commits_prefix(DOMAIN)):
            if not to or info.path >= commit_name(DOMAIN, to):
                await self.objects.delete(info.path)

    async def disconnect(self) -> None:
        for _, shaky in self.ways.values():
            shaky.away = 2

    async def append_with_lost_reply(self, log: Log, entry: bytes) -> None:
        assert isinstance(log, DeltaLog)
        self.ways[log][0].lose_next_put = True
        await log.append(entry)

    async def close(self) -> None:
        for handle in self.handles:
            await handle.close()


async def factory_on(kind: str, root: Path, **options) -> AsyncIterator[DeltaFactory]:
    offload = ThreadOffload(4)
    objects: Objects
    if kind == "memory":
        objects = MemoryObjects(SystemClock())
    else:
        objects = files = FileObjects(root, LocalDisk(), offload)
        await files.open()
    factory = DeltaFactory(objects, f"deltalog:{root}", **options)
    yield factory
    await factory.close()
    offload.close()


class TestDeltaLogInMemory(LogContract, BeginningLogContract):
    @pytest.fixture
    async def log_factory(self, tmp_path: Path) -> AsyncIterator[DeltaFactory]:
        async for factory in factory_on("memory", tmp_path):
            yield factory


class TestDeltaLogThatDeletesAtOnce(LogContract):
    """LG41, LG43: what was trimmed is gone, so whoever slept looks at the boundary every time."""

    @pytest.fixture
    async def log_factory(self, tmp_path: Path) -> AsyncIterator[DeltaFactory]:
        async for factory in factory_on("memory", tmp_path, grace_s=0, check_s=0):
            yield factory


@pytest.mark.slow
class TestDeltaLogInADirectory(LogContract, BeginningLogContract, SharedLogContract, NeighbourLogContract):
    @pytest.fixture
    async def log_factory(self, tmp_path: Path) -> AsyncIterator[DeltaFactory]:
        async for factory in factory_on("directory", tmp_path, check_s=0.2):
            yield factory


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[DeltaFactory]:
    async for factory in factory_on("memory", tmp_path):
        yield factory


async def everything(objects: Objects, prefix: str) -> dict[str, bytes]:
    return {info.path: bytes(await objects.get(info.path)) async for info in objects.list(prefix)}


async def test_a_commit_is_what_the_specification_says(memory: DeltaFactory) -> None:
    """L-11, L-12, L-13, L-17, L-18, L-38, L-90, LG40: anybody can read the log, and no file of it ever changes."""
    log = await memory.open()
    await fill(log, 3)
    before = await everything(memory.objects, commits_prefix(DOMAIN))
    await fill(log, 2)
    after = await everything(memory.objects, commits_prefix(DOMAIN))
    assert before.items() <= after.items()
    assert [name.rsplit("/", 1)[1] for name in after] == [f"{version:020d}.json" for version in range(5)]
    for version, body in enumerate(after.values()):
        commit = json.loads(body)
        assert (commit["version"], commit["operations"], commit["checkpoint_hint"]) == (version, [], False)
        assert datetime.fromisoformat(commit["timestamp"]).tzinfo is not None
    assert len({json.loads(body)["txn_id"] for body in after.values()}) == 5


async def test_only_commits_count_and_what_else_lies_beside_them_is_nothing(memory: DeltaFactory) -> None:
    """L-03, L-40: an empty place begins with version 0; no other name is read, changed or deleted."""
    log = await memory.open()
    entries = await fill(log, 3)
    names = ("7.json", f"{9:020d}.tmp", f"{9:020d}.checkpoint.json", "x")
    strays = {f"{commits_prefix(DOMAIN)}{name}" for name in names}
    for name in strays:
        await memory.objects.put(name, [b"not a commit"])
    other = await memory.open()
    assert await other.tail() == 3
    assert await take(other, BEFORE_ALL, 3) == entries
    entries += await fill(other, 2, name="more")
    assert await take(log, BEFORE_ALL, 5) == entries
    commits = {commit_name(DOMAIN, version) for version in range(5)}
    assert set(await everything(memory.objects, commits_prefix(DOMAIN))) == strays | commits


@pytest.mark.parametrize(
    "damage",
    [
        lambda body: body[:-9],
        lambda body: b"",
        lambda body: body.replace(b'"version":2', b'"version":1'),
        lambda body: body.replace(b'"entry":"Z', b'"entry":"Y'),
    ],
    ids=["torn", "empty", "another version", "another entry"],
)
async def test_a_commit_that_is_damaged_is_told_and_never_delivered(memory: DeltaFactory, damage) -> None:
    """LG40."""
    entries = await fill(await memory.open(), 4)
    name = commit_name(DOMAIN, 2)
    body = bytes(await memory.objects.get(name))
    assert damage(body) != body
    await memory.objects.delete(name)
    await memory.objects.put(name, [damage(body)])
    reader = await memory.open()
    with pytest.raises(Corrupt):
        await take(reader, BEFORE_ALL, 3)
    with pytest.raises(Corrupt):
        await take(reader, 2, 1)
    assert await take(reader, 3, 1) == entries[3:]


async def test_a_commit_that_is_missing_is_told_and_not_passed_over(memory: DeltaFactory) -> None:
    """LG44."""
    log = await memory.open()
    entries = await fill(log, 5)
    other = await memory.open()
    await memory.objects.delete(commit_name(DOMAIN, 2))
    stream = other.follow(BEFORE_ALL)
    assert [await anext(stream), await anext(stream)] == entries[:2]
    with pytest.raises(Corrupt, match="restore it from a backup"):
        await anext(stream)


async def test_a_log_that_is_wiped_under_a_follower_and_a_writer_is_told_to_both(tmp_path: Path) -> None:
    """LG44: also to who asks later, and though somebody wrote on in what was wiped before the first look."""
    async for memory in factory_on("memory", tmp_path, check_s=0):
        log = await memory.open()
        entries = await fill(log, 5)
        stream = log.follow(BEFORE_ALL)
        assert [await anext(stream) for _ in entries] == entries
        for name in await everything(memory.objects, "log/"):
            await memory.objects.delete(name)
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(Corrupt, match="restore it from a backup"):
                await asyncio.gather(*(log.append(b"on and on") for _ in range(20)))
            with pytest.raises(Corrupt, match="restore it from a backup"):
                [entry async for entry in stream]
        with pytest.raises(Corrupt, match="restore it from a backup"):
            await log.tail()


async def test_a_writer_that_slept_through_a_trim_goes_on_behind_the_tail(tmp_path: Path) -> None:
    """LG41, LG43: it wins a version that was deleted, and does not believe it."""
    async for memory in factory_on("memory", tmp_path, grace_s=0):
        sleeper, other = await memory.open(), await memory.open()
        await fill(sleeper, 3)
        entries = await fill(other, 20, name="other")
        await other.trim(entries[-1][0])
        assert not await everything(memory.objects, commits_prefix(DOMAIN))
        position = await sleeper.append(b"awake")
        assert position == entries[-1][0] + 1
        assert await take(other, entries[-1][0], 1) == [(position, b"awake")]
        assert list(await everything(memory.objects, commits_prefix(DOMAIN))) == [commit_name(DOMAIN, 23)]


async def test_a_put_that_was_on_its_way_through_a_trim_is_not_believed(tmp_path: Path) -> None:
    """LG43: it was at the end when it began."""
    async for memory in factory_on("memory", tmp_path, grace_s=0):
        sleeper, other = await memory.open(), await memory.open()
        await fill(sleeper, 2)
        way = memory.ways[sleeper][1]
        way.gate = asyncio.Event()
        waking = asyncio.ensure_future(sleeper.append(b"awake"))
        while ("put", commit_name(DOMAIN, 2)) not in way.calls:
            await asyncio.sleep(0)
        entries = await fill(other, 10, name="other")
        await other.trim(entries[-1][0])
        way.gate.set()
        assert await waking == entries[-1][0] + 1


async def test_nothing_is_deleted_before_its_grace_and_all_of_it_after(tmp_path: Path) -> None:
    """LG41: what a process that died left over is deleted by the next that trims."""
    clock = ManualClock()
    objects = MemoryObjects(clock)

    async def opened() -> DeltaLog:
        return await DeltaLog(objects, DOMAIN, clock=clock, entropy=SystemEntropy(), grace_s=60).open()

    log = await opened()
    await fill(log, 30)
    await log.trim(Position(10))
    clock.advance(59_000)
    await log.trim(Position(11))
    assert len(await everything(objects, commits_prefix(DOMAIN))) == 30
    again = await opened()  # the first one is gone; this one has just learnt of the boundaries
    await again.trim(Position(12))
    clock.advance(61_000)
    await again.trim(Position(20))
    assert min(await everything(objects, commits_prefix(DOMAIN))) == commit_name(DOMAIN, 12)
    clock.advance(61_000)
    await again.trim(Position(20))
    assert min(await everything(objects, commits_prefix(DOMAIN))) == commit_name(DOMAIN, 20)
    assert len(await everything(objects, boundaries_prefix(DOMAIN))) == 1
    assert await (await opened()).tail() == 30


async def test_an_idle_log_is_asked_seldom_and_at_once_when_somebody_waits(tmp_path: Path) -> None:
    """What nothing costs: one request a second, and one a check."""
    async for memory in factory_on("memory", tmp_path, idle_s=(0.01, 600)):
        log, other = await memory.open(), await memory.open()
        stream = log.follow(BEFORE_ALL)
        waiting = asyncio.ensure_future(anext(stream))
        calls = memory.ways[log][1].calls
        async with asyncio.timeout(DEADLINE_S):
            while len(calls) < 8:  # 0.01, 0.02, 0.04 ...
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.02)
        position = await other.append(b"unheard of")
        log.hurry()
        async with asyncio.timeout(DEADLINE_S):
            assert await waiting == (position, b"unheard of")


async def test_appends_to_a_store_that_is_away_are_refused_and_those_unsure_are_lost_replies(
    memory: DeltaFactory,
) -> None:
    """LG4."""
    log = await memory.open()
    await fill(log, 1)
    memory.ways[log][1].away = 1_000
    with pytest.raises(NotAppended, match="did not take"):
        await log.append(b"surely not")
    memory.ways[log][1].away = 0
    with pytest.raises(LostReply):
        await memory.append_with_lost_reply(log, b"perhaps")
    assert [entry for _, entry in await take(await memory.open(), 1, 1)] == [b"perhaps"]


@pytest.mark.slow
async def test_a_directory_without_room_refuses_shows_what_it_has_and_goes_on_when_there_is_some(
    tmp_path: Path,
) -> None:
    """LG4, LG41: a trim is written down before anything is deleted, so it needs room as well, and says so."""
    disk, offload = LimitedDisk(), ThreadOffload(2)
    files = FileObjects(tmp_path, disk, offload)
    await files.open()
    factory = DeltaFactory(files)
    log = await factory.open()
    entries = await fill(log, 6)
    disk.full = True
    for _ in range(3):
        with pytest.raises(NotAppended, match="did not take"):
            await log.append(b"no room")
    with pytest.raises(Unavailable, match="full"):
        await log.trim(entries[3][0])
    assert await take(await factory.open(), BEFORE_ALL, 6) == entries
    disk.full = False
    entries += await fill(log, 1, name="more")
    await log.trim(entries[3][0])
    assert await take(log, entries[3][0], 3) == entries[4:]
    await factory.close()
    offload.close()


async def test_of_three_writers_the_slowest_gets_a_quarter_of_its_share_at_least(tmp_path: Path) -> None:
    """Every request takes as long as it does in a cloud: who lost must read before it can put."""
    async for memory in factory_on("memory", tmp_path):
        won = dict[DeltaLog, int]()
        handles = [await memory.open() for _ in range(3)]
        for log in handles:
            memory.ways[log][1].seconds = 0.004
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.gather(*(append_until(log, won, 120) for log in handles))
        assert min(won.get(log, 0) for log in handles) * 4 >= sum(won.values()) / 3, won.values()


async def append_until(log: DeltaLog, won: dict[DeltaLog, int], total: int) -> None:
    while sum(won.values()) < total:
        await log.append(b"mine")
        won[log] = won.get(log, 0) + 1
