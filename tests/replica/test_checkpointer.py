"""Checkpoints: made from the log, confirmed before use, trimmed to with care."""

import asyncio

import pytest

from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.errors import DrayError
from dray.log.port import Position
from dray.machine import checkpoint
from dray.machine.machine import Machine
from dray.machine.sessions import KeepAlive
from dray.machine.topics import CreateTopic
from dray.offload import InlineOffload
from dray.replica.checkpointer import Checkpointer
from dray.replica.checkpoints import FileCheckpoints, MemoryCheckpoints, newest_machine
from dray.replica.fold import InlineFolder, fold_to

from .domain import new_log, replica_on, running


def checkpointer(replica, store, log, **settings) -> Checkpointer:
    given = {"due_bytes": 1, "kept_ms": 0} | settings
    return Checkpointer(replica, store, InlineFolder(log, store), SystemClock(), **given)


@pytest.fixture(params=["memory", "files"])
def store(request, tmp_path):
    if request.param == "memory":
        return MemoryCheckpoints()
    return FileCheckpoints(tmp_path / "checkpoints", LocalDisk(), InlineOffload())


async def make_topics(replica, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        topic = CreateTopic(topic_id=number.to_bytes(15, "big") + b"\x01", name=f"t{number}", partitions=2)
        await replica.propose(topic)


async def test_a_lone_replica_makes_confirms_and_loads_its_checkpoint(store):
    """CK1: the file is read back and its digest compared before anyone may load it."""
    log = await new_log()
    replica = replica_on(log.handle())
    async with running(replica):
        await make_topics(replica, 5)
        await checkpointer(replica, store, log.handle()).step()
        assert len(await store.confirmed()) == 1
        await make_topics(replica, 3, first=5)
        loaded = await newest_machine(store)
        assert loaded.position < replica.machine.position
        await fold_to(loaded, log.handle(), replica.machine.position)
        assert checkpoint.dump(loaded) == checkpoint.dump(replica.machine)


async def test_one_is_due_for_the_rows_of_the_log_however_few_its_bytes_are(store, monkeypatch):
    """What a start would fold is bounded in rows too; made once, it is due again only for what came since."""
    log = await new_log()
    replica = replica_on(log.handle())
    async with running(replica):
        await make_topics(replica, 5)
        maker = checkpointer(replica, store, log.handle(), due_bytes=1 << 30)
        await maker.step()
        assert await store.confirmed() == []
        rows = replica.rows_since_checkpoint
        assert rows >= 5
        monkeypatch.setattr("dray.replica.checkpointer.DUE_ROWS", rows - 1)
        await maker.step()
        assert len(await store.confirmed()) == 1
        assert replica.rows_since_checkpoint < rows
        await maker.step()
        assert len(await store.confirmed()) == 1


async def test_with_two_brokers_the_other_one_confirms(store):
    """K1: the maker's word alone is not enough."""
    log = await new_log()
    maker, other = replica_on(log.handle(), "broker-1"), replica_on(log.handle(), "broker-2")
    async with running(maker, other):
        await maker.open_session()
        await other.open_session()
        await maker.sync()
        await make_topics(maker, 5)
        making, checking = checkpointer(maker, store, log.handle()), checkpointer(other, store, log.handle())
        await making.step()
        assert await store.confirmed() == []
        await other.sync()
        await checking.step()
        await maker.sync()
        await making.step()
        assert len(await store.confirmed()) == 1


async def test_a_checkpoint_on_which_replicas_disagree_is_never_used(store):
    log = await new_log()
    maker, other = replica_on(log.handle(), "broker-1"), replica_on(log.handle(), "broker-2")
    async with running(maker, other):
        await maker.open_session()
        await other.open_session()
        await make_topics(maker, 5)

        class Corrupted(InlineFolder):
            async def fold(self, upto: int) -> None:
                machine = Machine()
                await fold_to(machine, self._log, upto)
                machine.timeline.pause_end_ms += 1
                await self._store.write(machine.position, checkpoint.dump(machine))

        making = Checkpointer(maker, store, Corrupted(log.handle(), store), SystemClock(), due_bytes=1, kept_ms=0)
        await making.step()
        await other.sync()
        await checkpointer(other, store, log.handle(), due_bytes=1 << 30).step()
        await maker.sync()
        await making._adopt()
        assert await store.confirmed() == []
        assert any(mark.disputed for mark in maker.machine.confirmations.marks)


async def test_a_fold_that_gives_another_digest_stops_the_replica(store):
    log = await new_log()
    replica = replica_on(log.handle())
    async with running(replica):
        await replica.open_session()
        replica.machine.digest ^= 1
        with pytest.raises(DrayError, match="disagree"):
            await checkpointer(replica, store, log.handle()).make()
        assert replica.failed.done()
        assert await store.confirmed() == []


async def test_the_log_is_trimmed_to_the_older_of_two_checkpoints_and_a_late_replica_jumps(store):
    """CK2, RP3, R-048: whoever was away loads a checkpoint and goes on, never skipping."""
    log = await new_log()
    replica = replica_on(log.handle())
    async with running(replica):
        maker = checkpointer(replica, store, log.handle())
        for round_number in range(4):
            await make_topics(replica, 3, first=3 * round_number)
            await maker.step()
        kept = await store.confirmed()
        assert len(kept) == 2
        assert log.sequence.first == kept[0] + 1
        late = replica_on(log.handle(), "broker-2")
        late._checkpoints = store
        async with running(late):
            await late.sync()
            assert checkpoint.dump(late.machine) == checkpoint.dump(replica.machine)


async def test_an_hour_of_log_and_checkpoints_is_kept():
    log = await new_log()
    replica = replica_on(log.handle())
    store = MemoryCheckpoints()
    async with running(replica):
        maker = checkpointer(replica, store, log.handle(), kept_ms=3_600_000)
        for round_number in range(4):
            await make_topics(replica, 2, first=2 * round_number)
            await maker.step()
        assert len(await store.confirmed()) >= 3
        assert log.sequence.first == 1


async def test_what_was_in_flight_over_a_jump_stays_unknown(store):
    """RP3: a replica that skipped its own entry's place cannot know its verdict."""
    log = await new_log()
    replica = replica_on(log.handle())
    async with running(replica):
        await replica.open_session()
        replica._writer.jumped()
        assert replica.session is None
        await replica.propose(KeepAlive())


async def test_a_replica_without_checkpoints_stops_when_history_is_trimmed():
    log = await new_log()
    other = replica_on(log.handle(), "broker-1")
    async with running(other):
        await make_topics(other, 3)
    await log.trim(Position(3))
    late = replica_on(log.handle(), "broker-2")
    with pytest.raises(DrayError, match="trimmed"):
        async with asyncio.timeout(60), late.running():
            pass


async def test_a_made_checkpoint_that_was_damaged_on_disk_is_never_adopted(tmp_path):
    """CK1: what is usable by the log is read whole and checked once more before it gets its name."""
    log = await new_log()
    replica = replica_on(log.handle())
    store = FileCheckpoints(tmp_path, LocalDisk(), InlineOffload())
    async with running(replica):
        await replica.open_session()
        maker = checkpointer(replica, store, log.handle())
        await maker.make()
        (made,) = tmp_path.glob("*.made")
        content = bytearray(made.read_bytes())
        content[len(content) // 2] ^= 1
        made.write_bytes(content)
        await maker._adopt()
        assert await store.confirmed() == []
        assert not made.exists()
        await maker.make()
        await maker._adopt()
        assert len(await store.confirmed()) == 1
