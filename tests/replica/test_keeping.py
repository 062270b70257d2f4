"""Who makes, checks and keeps checkpoints when things go wrong, and for how long they and the log are kept."""

import asyncio
from pathlib import Path

import pytest

from dray.clock import ManualClock, SystemClock
from dray.errors import Unavailable
from dray.ids import SeededEntropy
from dray.log.files import FileLog
from dray.log.memory import MemoryLog
from dray.machine import checkpoint
from dray.machine.sessions import KeepAlive, SessionKind
from dray.offload import InlineOffload
from dray.replica import checkpointer as checkpointer_module
from dray.replica.checkpointer import Checkpointer
from dray.replica.checkpoints import FileCheckpoints, MemoryCheckpoints, newest_machine
from dray.replica.fold import InlineFolder
from dray.replica.keeping import MOST, KeepLimits, Kept, needed_from
from dray.replica.opening import catch_up
from dray.replica.replica import Replica
from dray.sim.disk import FakeDisk
from tests.replica.domain import genesis, identity, new_log, replica_on, running
from tests.replica.test_checkpointer import checkpointer, make_topics

HOUR_MS = 3_600_000
LIFE_MS = 50 * 60_000


class FailingFolder(InlineFolder):
    """Folds, unless it is told not to; remembers what it was asked."""

    def __init__(self, log: MemoryLog, store: MemoryCheckpoints) -> None:
        super().__init__(log, store)
        self.asked: list[int] = []
        self.broken: set[int] | None = set()
        """Positions that fail; None: all of them."""

    async def fold(self, upto: int) -> None:
        self.asked.append(upto)
        if self.broken is None or upto in self.broken:
            raise Unavailable("no child could be started")
        await super().fold(upto)


def looking(replica: Replica, store: MemoryCheckpoints, folder: InlineFolder, clock=None, **settings) -> Checkpointer:
    return Checkpointer(replica, store, folder, clock or SystemClock(), **({"due_bytes": 1, "kept_ms": 0} | settings))


# -- how long ---------------------------------------------------------------


class Lives:
    """One broker on one directory, life after life."""

    def __init__(self) -> None:
        self.disk = FakeDisk()
        self.clock = ManualClock()
        self.store = FileCheckpoints(Path("/data/checkpoints"), self.disk, InlineOffload())
        self.topics = 0

    async def open_log(self) -> FileLog:
        log = await FileLog.open(
            Path("/data/log"), disk=self.disk, offload=InlineOffload(), clock=self.clock, segment_bytes=1_500
        )
        if await log.tail() == 0:
            await log.append(genesis())
        return log

    async def live(self, *, clean: bool, rounds: int = 1, round_ms: int = LIFE_MS) -> FileLog:
        log = await self.open_log()
        replica = Replica(
            log=log,
            machine=await newest_machine(self.store),
            identity=identity("broker", owner=True),
            clock=self.clock,
            entropy=SeededEntropy(f"life {self.topics}"),
            checkpoints=self.store,
        )
        await catch_up(replica, log, self.clock.boot_ns)
        async with replica.running():
            await replica.open_session()
            looker = Checkpointer(
                replica, self.store, InlineFolder(log, self.store), self.clock, due_bytes=2_000,
                log_bytes=log.bytes_behind,
            )  # fmt: skip
            for _ in range(rounds):
                await make_topics(replica, 6, first=self.topics)
                self.topics += 6
                self.clock.advance(round_ms)
                await replica.propose(KeepAlive())
                await looker.step()
            if clean:
                await looker.finish()
                await replica.close_session()
        if clean:
            await log.close()
        else:
            self.disk.restart()
        return log


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
async def test_lives_of_less_than_an_hour_keep_a_bounded_log(clean: bool) -> None:
    """CK5: what is kept is judged by the time in the log and not by how long this process has seen it."""
    lives = Lives()
    sizes = []
    for _ in range(12):
        log = await lives.live(clean=clean)
        sizes.append(log.bytes_behind(0))
    assert len(await lives.store.confirmed()) <= 6
    assert sizes[-1] <= 2 * sizes[2]
    assert max(sizes[6:]) <= 2 * sizes[2]
    log = await lives.open_log()
    machine = await newest_machine(lives.store)
    assert machine.position >= log._first - 1
    assert len(machine.topics.all) >= 6 * 11


async def test_a_broker_that_is_never_idle_trims_too() -> None:
    """CK2: the newest two are always young then; the log goes up to the newest that is old enough."""
    lives = Lives()
    log = await lives.live(clean=True, rounds=24, round_ms=10 * 60_000)
    kept = await lives.store.confirmed()
    assert 3 <= len(kept) <= MOST
    assert log._first > 1
    assert log.bytes_behind(0) < 12 * log.bytes_behind(kept[-2])


def kept(*ages_ms: int, log_bytes: int = 0) -> list[Kept]:
    count = len(ages_ms)
    return [
        Kept(position=10 * (at + 1), age_ms=age, log_bytes=log_bytes * (count - at)) for at, age in enumerate(ages_ms)
    ]


@pytest.mark.parametrize(
    ("have", "floor"),
    [
        (kept(), None),
        (kept(9 * HOUR_MS), None),
        (kept(9 * HOUR_MS, 8 * HOUR_MS), 10),
        (kept(9 * HOUR_MS, 8 * HOUR_MS, 7 * HOUR_MS), 20),
        (kept(9 * HOUR_MS, 2 * HOUR_MS, HOUR_MS // 2, 0), 20),
        (kept(HOUR_MS // 2, 0), None),
        (kept(HOUR_MS // 2, HOUR_MS // 3, 0), None),
        (kept(*[0] * (MOST + 3)), 40),
        (kept(-HOUR_MS, -HOUR_MS, -HOUR_MS), None),
    ],
)
def test_an_hour_is_kept_and_never_less_than_two(have: list[Kept], floor: int | None) -> None:
    """CK2, CK5"""
    assert needed_from(have, KeepLimits(kept_ms=HOUR_MS, kept_bytes=1_000), log_bytes=0) == floor


def test_more_bytes_than_may_be_kept_go_before_their_hour() -> None:
    """CK2: but never what lies between the two newest."""
    limits = KeepLimits(kept_ms=HOUR_MS, kept_bytes=250)
    assert needed_from(kept(3, 2, 1, 0, log_bytes=100), limits, log_bytes=600) == 30
    assert needed_from(kept(1, 0, log_bytes=100), limits, log_bytes=600) == 10
    assert needed_from(kept(3, 2, 1, 0, log_bytes=1_000), limits, log_bytes=6_000) == 30
    assert needed_from(kept(1, 0, log_bytes=100), limits, log_bytes=240) is None


# -- what fails ---------------------------------------------------------------


async def test_a_checkpoint_that_failed_is_tried_again_after_a_pause_that_doubles() -> None:
    log = await new_log()
    clock = ManualClock()
    replica = replica_on(log.handle(), clock=clock)
    store = MemoryCheckpoints()
    folder = FailingFolder(log.handle(), store)
    folder.broken = None
    async with running(replica):
        await make_topics(replica, 5)
        looker = looking(replica, store, folder, clock, due_bytes=2_000)
        await looker.step()
        await looker.step()
        assert len(folder.asked) == 1
        clock.advance(10_000)
        await looker.step()
        clock.advance(10_000)
        await looker.step()
        assert len(folder.asked) == 2
        clock.advance(10_000)
        folder.broken = set()
        await looker.step()
        assert len(folder.asked) == 3
        assert len(await store.confirmed()) == 1
        clock.advance(3_600_000)
        await looker.step()  # nothing is due any more
        assert len(folder.asked) == 3


async def two_brokers(log: MemoryLog) -> tuple[Replica, Replica]:
    return replica_on(log.handle(), "broker-1"), replica_on(log.handle(), "broker-2")


async def test_marks_below_a_copied_checkpoint_are_skipped_and_newer_ones_are_confirmed() -> None:
    """K1: a broker that joins late has a checkpoint above marks that nobody ever confirmed."""
    log = await new_log()
    maker, gone = await two_brokers(log)
    theirs, ours = MemoryCheckpoints(), MemoryCheckpoints()
    async with running(maker):
        await maker.open_session()
        making = looking(maker, theirs, InlineFolder(log.handle(), theirs), due_bytes=1 << 40)
        async with running(gone):
            await gone.open_session()
            await maker.sync()
            await make_topics(maker, 3)
            await making.make()  # two are alive: it stays unconfirmed
            await gone.close_session()
        await make_topics(maker, 3, first=3)
        await making.make()
        await making.step()
        (copied,) = await theirs.confirmed()
        await ours.write(copied, theirs.loadable()[copied])
        await ours.confirm(copied)
        late = replica_on(log.handle(), "broker-3")
        folder = FailingFolder(log.handle(), ours)
        async with running(late):
            await late.open_session()
            checking = looking(late, ours, folder, due_bytes=1 << 40)
            await checking.step()
            assert folder.asked == []
            await maker.sync()
            await make_topics(maker, 3, first=6)
            await making.make()
            await late.sync()
            await checking.step()
            assert len(folder.asked) == 1
            assert [mark.position for mark in late.machine.confirmations.usable()] == [copied, folder.asked[0]]


async def test_a_mark_that_cannot_be_checked_hinders_no_other() -> None:
    log = await new_log()
    maker, other = await two_brokers(log)
    store = MemoryCheckpoints()
    async with running(maker, other):
        await maker.open_session()
        await other.open_session()
        await maker.sync()
        making = looking(maker, store, InlineFolder(log.handle(), store), due_bytes=1 << 40)
        for number in range(2):
            await make_topics(maker, 3, first=3 * number)
            await making.make()
        await other.sync()
        first, second = (mark.position for mark in other.machine.confirmations.marks)
        own = MemoryCheckpoints()
        folder = FailingFolder(log.handle(), own)
        folder.broken = {first}
        await looking(other, own, folder, due_bytes=1 << 40).step()
        assert folder.asked[:2] == [first, second]
        assert [mark.position for mark in other.machine.confirmations.usable()] == [second]
        assert await own.confirmed() == [second]
        assert await own.made() == []


async def test_what_others_agreed_on_is_folded_here_too() -> None:
    """CK4: who keeps the log may be slower than two others; it gets what it needs to start again all the same."""
    log = await new_log()
    owner, maker, checker = (replica_on(log.handle(), f"broker-{number}") for number in range(3))
    stores = [MemoryCheckpoints() for _ in range(3)]
    async with running(owner, maker, checker):
        for replica in (owner, maker, checker):
            await replica.open_session()
        await make_topics(maker, 3)
        lookers = [
            looking(replica, store, InlineFolder(log.handle(), store), due_bytes=1 << 40)
            for replica, store in zip((owner, maker, checker), stores, strict=True)
        ]
        await lookers[1].make()
        await checker.sync()
        await lookers[2].step()
        await owner.sync()
        (mark,) = owner.machine.confirmations.usable()
        await lookers[0].step()
        assert await stores[0].confirmed() == [mark.position]
        assert stores[0].loadable() == stores[2].loadable()


async def test_who_disagrees_with_a_confirmed_checkpoint_says_so() -> None:
    """K1: and nobody uses it any more."""
    log = await new_log()
    owner, maker, checker = (replica_on(log.handle(), f"broker-{number}") for number in range(3))
    stores = [MemoryCheckpoints() for _ in range(3)]
    async with running(owner, maker, checker):
        for replica in (owner, maker, checker):
            await replica.open_session()
        await make_topics(maker, 3)
        lookers = [
            looking(replica, store, InlineFolder(log.handle(), store), due_bytes=1 << 40)
            for replica, store in zip((owner, maker, checker), stores, strict=True)
        ]
        await lookers[1].make()
        await checker.sync()
        await lookers[2].step()
        await owner.sync()
        (mark,) = owner.machine.confirmations.usable()

        async def wrongly(upto: int) -> None:
            machine = await newest_machine(stores[0])
            async for position, entry in log.follow(0):
                machine.apply(position, entry)
                if position == upto:
                    break
            machine.timeline.pause_end_ms += 1
            await stores[0].write(upto, checkpoint.dump(machine))

        lookers[0]._folder.fold = wrongly
        await lookers[0].step()
        assert await stores[0].confirmed() == []
        assert mark.disputed
        assert owner.machine.confirmations.usable() == []


async def test_what_another_made_is_not_made_again_by_who_takes_its_place() -> None:
    log = await new_log()
    maker, heir = await two_brokers(log)
    store = MemoryCheckpoints()
    async with running(heir):
        async with running(maker):
            await maker.open_session()
            await heir.open_session()
            await maker.sync()
            await make_topics(maker, 8)
            making = looking(maker, store, InlineFolder(log.handle(), store), due_bytes=3_000)
            inheriting = looking(heir, store, InlineFolder(log.handle(), store), due_bytes=3_000)
            await making.step()
            await heir.sync()
            await inheriting.step()
            await maker.close_session()
        await heir.sync()
        await inheriting.step()
        assert len(heir.machine.confirmations.marks) == 1


async def test_made_ones_that_will_never_be_adopted_go() -> None:
    log = await new_log()
    replica = replica_on(log.handle())
    disk = FakeDisk()
    store = FileCheckpoints(Path("/checkpoints"), disk, InlineOffload())
    async with running(replica):
        await make_topics(replica, 2)
        looker = checkpointer(replica, store, log.handle())
        await looker.step()
        (position,) = await store.confirmed()
        await store.write(position - 1, b"of an earlier look")
        await looker.step()
        assert await store.made() == []
        assert all(name.endswith(".checkpoint") for name in disk.list(Path("/checkpoints")))


# -- a clean stop ---------------------------------------------------------------


async def test_a_clean_stop_leaves_a_checkpoint_if_that_is_worth_it() -> None:
    log = await new_log()
    replica = replica_on(log.handle())
    store = MemoryCheckpoints()
    async with running(replica):
        await replica.open_session()
        looker = looking(replica, store, InlineFolder(log.handle(), store), due_bytes=32_000)
        await make_topics(replica, 3)
        await looker.finish()  # a few entries are folded in no time
        assert await store.confirmed() == []
        await make_topics(replica, 20, first=3)
        await looker.finish()
        (position,) = await store.confirmed()
        assert len((await newest_machine(store)).topics.all) == 23
        await replica.close_session()
        assert await log.tail() - position <= 3


@pytest.mark.parametrize("kind", [SessionKind.BROKER, SessionKind.TOOL])
async def test_at_a_stop_beside_other_brokers_nobody_would_confirm_it(kind: SessionKind) -> None:
    log = await new_log()
    replica, other = replica_on(log.handle(), "broker-1"), replica_on(log.handle(), "other", kind=kind)
    store = MemoryCheckpoints()
    async with running(replica, other):
        await replica.open_session()
        await other.open_session()
        await make_topics(replica, 10)
        await looking(replica, store, InlineFolder(log.handle(), store)).finish()
        assert len(await store.confirmed()) == (1 if kind is SessionKind.TOOL else 0)


@pytest.mark.parametrize("hangs", [True, False])
async def test_a_stop_goes_on_when_its_checkpoint_does_not(monkeypatch, hangs: bool) -> None:
    log = await new_log()
    replica = replica_on(log.handle())
    store = MemoryCheckpoints()

    class Broken(InlineFolder):
        async def fold(self, upto: int) -> None:
            if hangs:
                await asyncio.Event().wait()
            raise Unavailable("no child could be started")

    monkeypatch.setattr(checkpointer_module, "STOP_S", 0.05)
    async with running(replica):
        await make_topics(replica, 5)
        async with asyncio.timeout(30):
            await looking(replica, store, Broken(log.handle(), store)).finish()
        await replica.close_session()
        assert replica.session is None


async def test_the_first_fold_gives_the_loop_its_turns_and_checks_every_entry() -> None:
    """Q6: what a start folds is what a follower would have folded, and a contradiction stops it."""
    log = await new_log()
    writer = replica_on(log.handle(), "broker-1")
    async with running(writer):
        await make_topics(writer, 50)
    reader = replica_on(log.handle(), "broker-2")
    turns, ticks = 0, iter(range(0, 1 << 60, 2_000_000))

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    folded = await catch_up(reader, log.handle(), lambda: next(ticks))
    task.cancel()
    assert folded == await log.tail()
    assert turns > folded // 4
    assert reader.machine.digest == writer.machine.digest

    wrong = replica_on(log.handle(), "broker-3")
    wrong.machine.digest ^= 1
    wrong._digests.remember(0, 1)
    await catch_up(wrong, log.handle(), lambda: next(ticks))
    assert wrong.failed.done()
    assert wrong.machine.position < await log.tail()
