"""Checkpoints on the disk of a broker: damaged, lost, left behind, and held by one of several brokers only."""

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import psutil
import pytest
import structlog

from dray.clock import SystemClock
from dray.disk import DirectoryLock, LocalDisk
from dray.errors import Corrupt, DrayError
from dray.ids import SystemEntropy
from dray.log.port import Position
from dray.log.segment import segment_name
from dray.log.urls import ServedLogs
from dray.machine import checkpoint
from dray.machine.topics import CreateTopic
from dray.node.directory import DataDirectory
from dray.node.inspection import current_machine, inspect, verify
from dray.node.joining import Joined, joined_directory, owner_of
from dray.node.metadata import Effects, Metadata, MetadataOptions, run_metadata
from dray.node.owning import Owned
from dray.node.recovery import LockedOut, recover
from dray.objects.memory import MemoryObjects
from dray.offload import ThreadOffload
from dray.replica import checkpointer, child
from dray.replica.checkpointer import Checkpointer
from dray.replica.checkpoints import FileCheckpoints, JoinedCheckpoints
from dray.replica.fold import InlineFolder
from dray.replica.replica import Replica
from dray.replica.writer import Timing

SMALL = MetadataOptions(segment_bytes=256, checkpoint_due_bytes=1 << 40, checkpoint_look_s=1e9)
"""The checkpointers of the brokers themselves rest: the tests say when one looks."""


@pytest.fixture
def effects():
    offload = ThreadOffload(4)
    yield Effects(clock=SystemClock(), entropy=SystemEntropy(), disk=LocalDisk(), offload=offload)
    offload.close()


@asynccontextmanager
async def serving(root: Path, effects: Effects, options: MetadataOptions = SMALL) -> AsyncIterator[Metadata]:
    root.mkdir(exist_ok=True)
    directory = DataDirectory(root)
    lock = DirectoryLock(root)
    try:
        identity = directory.claim(effects.disk, effects.entropy)
        async with run_metadata(Owned(directory=directory), identity, effects, options) as running:
            yield running
    finally:
        lock.release()


@asynccontextmanager
async def joined(
    owner: Path, root: Path, effects: Effects, options: MetadataOptions = SMALL
) -> AsyncIterator[Metadata]:
    root.mkdir(exist_ok=True)
    found = owner_of(DataDirectory(owner).socket, effects.disk)
    directory = joined_directory(root)
    identity = directory.claim(effects.disk, effects.entropy, found.identity.cluster)
    async with run_metadata(
        Joined(log_owner=found, directory=directory, objects=MemoryObjects()), identity, effects, options
    ) as running:
        yield running


def store_of(root: Path, effects: Effects) -> FileCheckpoints:
    return FileCheckpoints(DataDirectory(root).checkpoints(0), effects.disk, effects.offload)


def looking(replica: Replica, store: FileCheckpoints, effects: Effects, **settings) -> Checkpointer:
    given = {"due_bytes": 1, "kept_ms": 0} | settings
    return Checkpointer(replica, store, InlineFolder(replica.log, store), effects.clock, **given)


async def make_topics(replica: Replica, *names: str) -> None:
    for name in names:
        await replica.propose(CreateTopic(topic_id=uuid.uuid4().bytes, name=name, partitions=1))


def topics(replica: Replica) -> set[str]:
    return {topic.name for topic in replica.machine.topics.all.values()}


async def three_checkpoints(root: Path, effects: Effects, *, kept_ms: int = 0) -> set[str]:
    """A directory with a log, and the checkpoints of three moments of it, as far as they are kept."""
    async with serving(root, effects) as running:
        catalog = running.domains.catalog
        looker = looking(catalog, store_of(root, effects), effects, kept_ms=kept_ms)
        for number in range(3):
            await make_topics(catalog, f"before-{number}", f"also-{number}")
            await looker.step()
        await make_topics(catalog, "last")
        return topics(catalog)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x04
    path.write_bytes(content)


HURTS = {
    "flipped": flip,
    "newer": lambda path: path.write_bytes(path.read_bytes()[:8] + b"\x03" + path.read_bytes()[9:]),
    "torn": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 3]),
    "empty": lambda path: path.write_bytes(b""),
    "vanished": lambda path: path.unlink(),
}


def checkpoints_in(root: Path) -> list[Path]:
    return sorted(DataDirectory(root).checkpoints(0).glob("*.checkpoint"))


@pytest.mark.parametrize("hurt", HURTS)
async def test_a_newest_checkpoint_that_cannot_be_read_costs_only_time(tmp_path, effects, hurt: str) -> None:
    """CK3, R-064: the one before it and the log between them are there; it is said aloud, kept, and made again."""
    expected = await three_checkpoints(tmp_path, effects)
    older, newest = checkpoints_in(tmp_path)
    HURTS[hurt](newest)
    left = newest.read_bytes() if newest.exists() else None
    with structlog.testing.capture_logs() as logs:
        async with serving(tmp_path, effects) as running:
            catalog = running.domains.catalog
            assert topics(catalog) == expected
            assert checkpoints_in(tmp_path) == [older]
            first = (await anext(aiter(catalog.log.follow(Position(int(older.stem))))))[0]
            assert first == int(older.stem) + 1
            await catalog.open_session()
            await looking(catalog, store_of(tmp_path, effects), effects, due_bytes=1 << 40).step()
            assert checkpoints_in(tmp_path) == [older, newest]
            assert checkpoint.summary(newest.read_bytes()).position == int(newest.stem)
    kept_aside = [path.read_bytes() for path in newest.parent.glob("*.damaged-*")]
    assert kept_aside == ([] if left is None else [left])
    assert [entry["position"] for entry in logs if entry["event"] == "replica.checkpoint_damaged"] == (
        [] if left is None else [int(newest.stem)]
    )


async def test_with_no_readable_checkpoint_the_whole_log_is_folded(tmp_path, effects) -> None:
    """CK3"""
    expected = await three_checkpoints(tmp_path, effects, kept_ms=1 << 40)
    assert len(checkpoints_in(tmp_path)) == 3
    for path in checkpoints_in(tmp_path):
        flip(path)
    async with serving(tmp_path, effects) as running:
        assert topics(running.domains.catalog) == expected


async def test_where_nothing_leads_to_the_trimmed_log_the_broker_says_what_to_do(tmp_path, effects) -> None:
    await three_checkpoints(tmp_path, effects)
    for path in checkpoints_in(tmp_path):
        flip(path)
    with pytest.raises(Corrupt, match=r"copy a newer \.checkpoint of another broker"):
        async with serving(tmp_path, effects):
            pass


async def test_recovery_and_a_look_use_the_older_checkpoint_and_touch_nothing(tmp_path, effects) -> None:
    """CK3, RC1"""
    expected = await three_checkpoints(tmp_path, effects)
    newest = checkpoints_in(tmp_path)[-1]
    flip(newest)
    before = {path.name: path.read_bytes() for path in newest.parent.iterdir()}
    directory = DataDirectory(tmp_path)
    async with inspect(directory, 0, effects.disk) as inspected:
        seen = await current_machine(inspected)
        with pytest.raises(Corrupt, match="cannot be read") as damaged:
            await verify(inspected)
    assert damaged.value.facts["position"] == int(newest.stem)
    assert {topic.name for topic in seen.topics.all.values()} == expected
    assert {path.name: path.read_bytes() for path in newest.parent.iterdir()} == before


def test_a_recovery_saves_everything_although_the_newest_checkpoint_is_damaged(tmp_path) -> None:
    """CK3, RC1"""
    offload = ThreadOffload(4)
    effects = Effects(clock=SystemClock(), entropy=SystemEntropy(), disk=LocalDisk(), offload=offload)
    expected = asyncio.run(three_checkpoints(tmp_path, effects))
    newest = checkpoints_in(tmp_path)[-1]
    flip(newest)
    found = recover(DataDirectory(tmp_path), 0, effects.disk, effects.entropy, effects.clock)
    assert (found.aside / "checkpoints" / newest.name).exists()
    (saved,) = checkpoints_in(tmp_path)
    machine = checkpoint.load(saved.read_bytes())
    assert {topic.name for topic in machine.topics.all.values()} == expected
    offload.close()


def test_a_recovery_of_a_log_that_others_trimmed_says_which_checkpoint_it_needs(tmp_path) -> None:
    """RC1, CK4: once a broker that joined could trim its owner's log; such a directory is refused, and then saved."""
    offload = ThreadOffload(4)
    effects = Effects(clock=SystemClock(), entropy=SystemEntropy(), disk=LocalDisk(), offload=offload)
    expected = asyncio.run(three_checkpoints(tmp_path, effects))
    elsewhere = [path.rename(tmp_path / path.name) for path in checkpoints_in(tmp_path)]
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != "LOCK"}
    with pytest.raises(LockedOut, match="trimmed above the newest checkpoint") as refused:
        recover(DataDirectory(tmp_path), 0, effects.disk, effects.entropy, effects.clock)
    assert {path: path.read_bytes() for path in before} == before
    home = DataDirectory(tmp_path).checkpoints(0)
    assert refused.value.facts["checkpoints"] == home
    elsewhere[-1].rename(home / elsewhere[-1].name)
    recover(DataDirectory(tmp_path), 0, effects.disk, effects.entropy, effects.clock)
    (saved,) = checkpoints_in(tmp_path)
    machine = checkpoint.load(saved.read_bytes())
    assert {topic.name for topic in machine.topics.all.values()} == expected
    offload.close()


async def test_one_that_decays_while_the_broker_lives_is_not_trimmed_to(tmp_path, effects) -> None:
    """CK3, CK4: both that would be kept are read again before anything goes."""
    async with serving(tmp_path, effects) as running:
        catalog = running.domains.catalog
        store = store_of(tmp_path, effects)
        looker = looking(catalog, store, effects)
        for number in range(2):
            await make_topics(catalog, f"a-{number}", f"b-{number}")
            await looker.step()
        trimmed_to = checkpoints_in(tmp_path)[0]
        flip(checkpoints_in(tmp_path)[1])
        await make_topics(catalog, "c", "d")
        await looker.step()
        # The second is aside; the log is kept from the first one on.
        assert trimmed_to in checkpoints_in(tmp_path)
        assert (await anext(aiter(catalog.log.follow(Position(int(trimmed_to.stem))))))[0] == int(trimmed_to.stem) + 1
        assert len(list(trimmed_to.parent.glob("*.damaged-*"))) == 1


@pytest.mark.slow
async def test_a_clean_stop_leaves_next_to_nothing_for_the_next_start(tmp_path, effects, monkeypatch) -> None:
    """With a child as in a process; the session is given back behind it, and that is all that is folded again."""
    monkeypatch.setattr(checkpointer, "STOP_S", 60.0)
    options = MetadataOptions(checkpoint_due_bytes=40_000, checkpoint_look_s=1e9)
    async with serving(tmp_path, effects, options) as running:
        await make_topics(running.domains.catalog, *(f"t-{number}" for number in range(40)))
    (newest,) = checkpoints_in(tmp_path)
    async with inspect(DataDirectory(tmp_path), 0, effects.disk) as inspected:
        assert await inspected.log.tail() - int(newest.stem) <= 3  # announced, confirmed, closed
    async with serving(tmp_path, effects, options) as running:
        assert len(topics(running.domains.catalog)) == 40


async def test_leftovers_of_an_earlier_life_go_at_the_start(tmp_path, effects) -> None:
    """Half-written and unconfirmed ones; strange names are left alone."""
    await three_checkpoints(tmp_path, effects)
    home = checkpoints_in(tmp_path)[0].parent
    for name in ("00000000000000000007.part4711", "00000000000000000007.made", "notes.checkpoint"):
        (home / name).write_bytes(b"x")
    async with serving(tmp_path, effects):
        pass
    assert sorted(path.name for path in home.iterdir() if path.suffix != ".checkpoint") == []
    assert (home / "notes.checkpoint").exists()


@pytest.mark.slow
async def test_the_owner_can_always_start_again_whoever_makes_the_checkpoints(tmp_path, effects) -> None:
    """CK4: three brokers; the joined ones make, confirm and would trim; the owner was slow, and starts again."""
    a, b, c = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    async with AsyncExitStack() as others:
        async with serving(a, effects) as owner:
            await make_topics(owner.domains.catalog, "first")
            joined_b = (await others.enter_async_context(joined(a, b, effects))).domains.catalog
            joined_c = (await others.enter_async_context(joined(a, c, effects))).domains.catalog
            await joined_b.open_session()
            await joined_c.open_session()
        async with serving(a, effects) as owner:  # again: now b is the oldest broker, so b makes them
            await owner.domains.catalog.open_session()
            making = looking(joined_b, own_store(a, b, effects), effects, trims=False)
            checking = looking(joined_c, own_store(a, c, effects), effects, trims=False)
            for number in range(4):
                await make_topics(joined_b, f"b-{number}", f"c-{number}")
                await making.step()
                await joined_c.sync()
                await checking.step()
                await joined_b.sync()
                await making.step()
            usable = [mark.position for mark in joined_b.machine.confirmations.usable()]
            assert len(usable) >= 2
            await make_topics(joined_b, "last")
            expected = topics(joined_b)
        async with serving(a, effects) as owner:
            catalog = owner.domains.catalog
            assert topics(catalog) == expected
            # And it keeps up by itself: what others agreed on is folded here before anything is trimmed.
            await catalog.open_session()
            await looking(catalog, store_of(a, effects), effects, due_bytes=1 << 40).step()
            assert int(checkpoints_in(a)[-1].stem) >= usable[-1]
        async with serving(a, effects) as owner:
            assert topics(owner.domains.catalog) == expected


@pytest.mark.slow
async def test_three_brokers_trim_and_each_of_them_starts_again(tmp_path, effects) -> None:
    """CK4: with their own checkpointers and children, as a process wires them."""
    busy = MetadataOptions(
        segment_bytes=256, checkpoint_due_bytes=4_000, checkpoint_kept_ms=0, checkpoint_look_s=0.1,
        timing=Timing(ttl_ms=60_000, keepalive_ms=20_000, settle_ms=40_000),
    )  # fmt: skip
    a, b, c = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    async with AsyncExitStack() as others:
        async with serving(a, effects, busy) as owner:
            await make_topics(owner.domains.catalog, "first")
            second = (await others.enter_async_context(joined(a, b, effects, busy))).domains.catalog
            third = (await others.enter_async_context(joined(a, c, effects, busy))).domains.catalog
            await second.open_session()
            await third.open_session()
        async with serving(a, effects, busy) as owner, asyncio.timeout(120):  # now the second one makes them
            catalog = owner.domains.catalog
            await catalog.open_session()
            number = 0
            log = DataDirectory(a).log(0)
            while (log / segment_name(1)).exists() or len(checkpoints_in(a)) < 2:
                number += 1
                await make_topics(second, f"t-{number}")
                await asyncio.sleep(0.05)
            expected = topics(second)
        async with serving(a, effects, busy) as owner:
            assert topics(owner.domains.catalog) >= expected
            assert not second.failed.done()
            assert not third.failed.done()
    async with serving(a, effects, busy) as owner, joined(a, b, effects, busy) as again:
        await again.domains.catalog.sync()
        await owner.domains.catalog.sync()
        assert topics(again.domains.catalog) == topics(owner.domains.catalog) >= expected


def own_store(owner: Path, root: Path, effects: Effects) -> FileCheckpoints:
    theirs, ours = DataDirectory(owner).checkpoints(0), joined_directory(root).checkpoints(0)
    return JoinedCheckpoints(
        ours, FileCheckpoints(theirs, effects.disk, effects.offload), effects.disk, effects.offload
    )


async def test_who_joined_takes_the_owners_checkpoints_as_they_come(tmp_path, effects) -> None:
    """SV3, CK1: so a joined broker that fell behind a trimmed log goes on; a damaged one is passed over."""
    await three_checkpoints(tmp_path / "a", effects)
    store = own_store(tmp_path / "a", tmp_path / "b", effects)
    older, newest = checkpoints_in(tmp_path / "a")
    flip(newest)
    assert await store.confirmed() == [int(older.stem)]
    flip(newest)  # as it was
    again = own_store(tmp_path / "a", tmp_path / "b", effects)
    assert await again.confirmed() == [int(older.stem), int(newest.stem)]
    await again.remove(int(older.stem))
    assert await again.confirmed() == [int(newest.stem)]  # older ones are not taken again
    assert (await again.load(int(newest.stem))).position == int(newest.stem)


async def test_a_child_that_cannot_be_started_or_hangs_is_an_ordinary_failure(tmp_path, monkeypatch) -> None:
    """The checkpointer goes on after it: nothing but a DrayError leaves the folder."""
    folder = child.ChildFolder(log=ServedLogs(tmp_path / "nobody"), domain=0, directory=tmp_path, deadline_s=0.05)
    with pytest.raises(DrayError, match="in time"):
        await folder.fold(1)

    async def no_process(*_: object, **__: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", no_process)
    with pytest.raises(DrayError, match="could not be started"):
        await folder.fold(1)


ORPHANS = """
import asyncio, sys
from pathlib import Path
from dray.log.urls import ServedLogs
from dray.replica.child import ChildFolder

place = Path(sys.argv[1])
asyncio.run(ChildFolder(log=ServedLogs(place / "nobody"), domain=0, directory=place).fold(1))
"""


@pytest.mark.slow
async def test_a_child_ends_with_its_parent_though_its_log_is_gone(tmp_path) -> None:
    """CH1: after kill -9, too."""
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", ORPHANS, str(tmp_path))
    async with asyncio.timeout(60):
        while not (children := psutil.Process(parent.pid).children()):
            await asyncio.sleep(0.05)
        (made,) = children
        while "dray.replica.child" not in made.cmdline():  # it was not begun yet
            await asyncio.sleep(0.05)
        parent.kill()
        await parent.wait()
        while made.is_running() and made.status() != psutil.STATUS_ZOMBIE:
            await asyncio.sleep(0.05)
