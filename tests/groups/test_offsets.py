"""Committed offsets of consumers that assign their own partitions."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from dray.errors import Unavailable
from dray.groups.errors import BadGroupId
from dray.groups.offsets import (
    BYTES,
    NOTHING,
    TRIES,
    CommitCode,
    Committer,
    FetchedOffset,
    OffsetService,
    OffsetToCommit,
    Partition,
)
from dray.groups.placement import BUCKETS, bucket_of, domain_of_group
from dray.log.memory import MemoryLog
from dray.log.port import Position
from dray.machine.groups.codes import GroupCode
from dray.replica.errors import CommitUnknown, NotServing
from dray.replica.writer import Timing
from tests.replica.test_closing import SlowLog, until
from tests.retention.shop import Broker, Cluster

from .party import GROUP, Party


@pytest.fixture
async def cluster() -> Cluster:
    return await Cluster().begin(3)


def offsets_of(broker: Broker) -> OffsetService:
    return OffsetService(domains=broker.domains, topics=broker.topics)


def at(offset: int, **more) -> OffsetToCommit:
    return OffsetToCommit(offset=offset, **more)


ORDERS = [Partition(topic="orders", number=number) for number in range(4)]


async def test_what_was_committed_is_told_on_every_broker_at_once(cluster):
    """R-186, R-187, RT11: never older than a commit that another broker acknowledged."""
    async with cluster.broker() as one, cluster.broker("broker-2") as two:
        await one.topic(partitions=4)
        here, there = offsets_of(one), offsets_of(two)
        for number in range(20):
            codes = await here.commit("g", {ORDERS[1]: at(number, leader_epoch=3, metadata="m")})
            assert codes == {ORDERS[1]: CommitCode.COMMITTED}
            told = await there.fetch("g", ORDERS[:2])
            assert told == {ORDERS[0]: NOTHING, ORDERS[1]: FetchedOffset(offset=number, leader_epoch=3, metadata="m")}
            assert await there.fetch_all("g") == {ORDERS[1]: told[ORDERS[1]]}


class LateLog(MemoryLog):
    """Shows entries only up to the newest tail that was asked for, as a follower far away sees them."""

    told = 0

    def handle(self) -> MemoryLog:
        return self

    async def tail(self) -> Position:
        self.told = await super().tail()
        return self.told

    async def follow(self, after: Position) -> AsyncIterator[tuple[Position, bytes]]:
        async for position, entry in super().follow(after):
            while position > self.told:
                await asyncio.sleep(0)
            yield position, entry


async def test_a_broker_that_is_behind_asks_before_it_tells(cluster):
    """R-187, RT11: no old offset, and no -1 for a topic it has not heard of."""
    far = Cluster()
    far.logs = {domain: LateLog(log.sequence) for domain, log in cluster.logs.items()}
    async with cluster.broker() as one, far.broker("broker-2") as late:
        await one.topic(partitions=4)
        for number in range(3):
            await offsets_of(one).commit("g", {ORDERS[0]: at(number)})
            told = await offsets_of(late).fetch("g", ORDERS[:1])
            assert told[ORDERS[0]].offset == number
            await offsets_of(one).commit("g", {ORDERS[1]: at(number)})
            assert (await offsets_of(late).fetch_all("g"))[ORDERS[1]].offset == number


async def test_offsets_survive_all_brokers(cluster):
    """R-186."""
    async with cluster.broker() as broker:
        await broker.topic(partitions=4)
        await offsets_of(broker).commit("g", dict.fromkeys(ORDERS, at(5)))
    async with cluster.broker("broker-2") as broker:
        assert await offsets_of(broker).fetch_all("g") == dict.fromkeys(ORDERS, FetchedOffset(offset=5))


async def test_a_group_that_nobody_knows_has_no_offset_and_that_is_no_error(cluster):
    """R-187: -1, with the empty group id too."""
    async with cluster.broker() as broker:
        await broker.topic(partitions=4)
        service = offsets_of(broker)
        nowhere = Partition(topic="nowhere", number=0)
        assert await service.fetch("never", [ORDERS[0], nowhere]) == {ORDERS[0]: NOTHING, nowhere: NOTHING}
        assert await service.fetch_all("never") == {}
        assert await service.commit("", {ORDERS[0]: at(1)}) == {ORDERS[0]: CommitCode.COMMITTED}
        assert (await service.fetch("", ORDERS[:1]))[ORDERS[0]].offset == 1


async def test_a_topic_made_again_starts_without_offsets(cluster):
    """R-188: an offset belongs to the id of its topic."""
    async with cluster.broker() as broker:
        old = await broker.topic(partitions=4)
        service = offsets_of(broker)
        await service.commit("g", {ORDERS[0]: at(7)})
        await broker.topics.delete(old)
        assert await service.fetch_all("g") == {}
        await broker.topic(partitions=4)
        assert await service.fetch("g", ORDERS[:1]) == {ORDERS[0]: NOTHING}
        assert await service.fetch_all("g") == {}


async def test_each_partition_is_judged_for_itself(cluster):
    """R-186, RT12: one that is refused hinders no other."""
    async with cluster.broker() as broker:
        await broker.topic(partitions=4)
        service = offsets_of(broker)
        nowhere, beyond = Partition(topic="nowhere", number=0), Partition(topic="orders", number=4)
        wanted = {
            nowhere: at(1), ORDERS[0]: at(1, metadata="x" * 4096), ORDERS[1]: at(1, metadata="x" * 4097),
            beyond: at(1), ORDERS[2]: at(1, metadata="ä" * 4097), ORDERS[3]: at(-2),
        }  # fmt: skip
        codes = await service.commit("g", wanted)
        assert list(codes.items()) == [
            (nowhere, CommitCode.UNKNOWN_PARTITION), (ORDERS[0], CommitCode.COMMITTED),
            (ORDERS[1], CommitCode.METADATA_TOO_LARGE), (beyond, CommitCode.UNKNOWN_PARTITION),
            (ORDERS[2], CommitCode.METADATA_TOO_LARGE), (ORDERS[3], CommitCode.BAD_OFFSET),
        ]  # fmt: skip
        assert list(await service.fetch_all("g")) == [ORDERS[0]]


async def test_a_topic_made_through_another_broker_can_be_committed_to_at_once(cluster):
    """TS1: unknown is not said from memory."""
    async with cluster.broker() as one, cluster.broker("broker-2") as two:
        await two.domains.catalog.open_session()
        for number in range(20):
            await one.topic(f"t{number}")
            partition = Partition(topic=f"t{number}", number=0)
            assert await offsets_of(two).commit("g", {partition: at(1)}) == {partition: CommitCode.COMMITTED}


async def test_a_broker_that_slept_commits_nothing_until_it_may_serve_again(cluster):
    """RT14, R-043: what reached it before it slept would take the offset back."""
    timing = Timing(ttl_ms=15_000, keepalive_ms=5_000)
    async with cluster.broker(timing=timing) as broker:
        await broker.topic(partitions=4)
        service = offsets_of(broker)
        await service.commit("g", {ORDERS[0]: at(46)})
        cluster.clock.advance(11_000)
        with pytest.raises(NotServing):
            await service.commit("g", {ORDERS[0]: at(45)})
        while True:
            try:
                assert await service.commit("g", {ORDERS[0]: at(47)}) == {ORDERS[0]: CommitCode.COMMITTED}
                break
            except NotServing:  # until a beat was written
                await asyncio.sleep(0)


async def test_a_commit_that_is_refused_writes_nothing():
    """GS9: whoever goes on committing in a generation that is over fills no log; one that is right is not refused."""
    cluster = await Cluster().begin()
    async with cluster.broker("a") as one, cluster.broker("b") as two:
        await one.topic(partitions=4)
        party, _ = await Party.at(one), await Party.at(two, rank=1)
        service, elsewhere = offsets_of(one), offsets_of(two)
        joined = await party.alone()
        right = Committer(group=GROUP, generation=joined.generation, member=joined.member)
        # The other broker may not have heard of the member: it looks again before it says no.
        assert await elsewhere.commit(right, {ORDERS[0]: at(1)}) == {ORDERS[0]: CommitCode.COMMITTED}
        before = cluster.entries()
        late = replace(right, generation=joined.generation - 1)
        for _ in range(10):
            assert await service.commit(late, {ORDERS[0]: at(2)}) == {ORDERS[0]: GroupCode.OTHER_GENERATION}
        assert cluster.entries() == before


async def test_members_and_generations_are_refused(cluster):
    """R-185: there is nobody who could have joined."""
    async with cluster.broker() as broker:
        await broker.topic(partitions=4)
        service = offsets_of(broker)
        stranger = Committer(group="g", generation=3, member="m")
        unknown = {ORDERS[0]: GroupCode.UNKNOWN_GROUP}
        assert await service.commit(stranger, {ORDERS[0]: at(1)}) == unknown
        assert await service.commit(Committer(group="g", generation=0), {ORDERS[0]: at(1)}) == unknown
        with pytest.raises(BadGroupId):
            await service.commit("ä" * 16_384, {ORDERS[0]: at(1)})
        assert await service.commit(Committer(group="g", member="m"), {ORDERS[0]: at(1)}) == {
            ORDERS[0]: CommitCode.COMMITTED
        }
        assert await service.commit(stranger, {ORDERS[0]: at(2)}) == {ORDERS[0]: GroupCode.UNKNOWN_MEMBER}


async def test_a_large_commit_goes_in_parts_that_an_entry_takes(cluster):
    """RT13: by rows and by bytes of metadata."""
    async with cluster.broker() as broker:
        await broker.topic(partitions=2_500)
        service = offsets_of(broker)
        wanted = {Partition(topic="orders", number=number): at(number, metadata="m" * 2_000) for number in range(2_500)}
        codes = await service.commit("g", wanted)
        assert set(codes.values()) == {CommitCode.COMMITTED}
        entries = [entry for log in cluster.logs.values() for entry in log.sequence.entries]
        assert max(map(len, entries)) <= BYTES + 70_000
        told = await service.fetch_all("g")
        assert {partition.number: fetched.offset for partition, fetched in told.items()} == {
            number: number for number in range(2_500)
        }


@pytest.mark.parametrize(
    ("error", "code"), [(Unavailable("not now"), CommitCode.FAILED), (CommitUnknown("who knows"), CommitCode.UNSURE)]
)
async def test_what_is_not_surely_durable_is_not_called_committed(cluster, error, code):
    """RT12, E1."""
    async with cluster.broker() as broker:
        await broker.topic(partitions=4)
        service = offsets_of(broker)

        async def fail(*commands: object, **how: object) -> None:
            raise error

        replica = broker.domains[domain_of_group("g", 3)]
        propose, replica.propose = replica.propose, fail
        nowhere = Partition(topic="nowhere", number=0)
        codes = await service.commit("g", {ORDERS[0]: at(1), nowhere: at(1)})
        assert codes == {ORDERS[0]: code, nowhere: CommitCode.UNKNOWN_PARTITION}
        replica.propose = propose
        assert await service.fetch_all("g") == {}


async def test_commits_of_many_brokers_at_once_lose_none(cluster):
    """R-190: each partition ends at its own last acknowledged commit."""
    async with cluster.broker() as one, cluster.broker("broker-2") as two:
        await one.topic(partitions=4)
        await two.catalog.open_session()
        await two.catalog.sync()

        async def climb(broker: Broker, partition: Partition) -> None:
            for number in range(25):
                assert await offsets_of(broker).commit("g", {partition: at(number)}) == {
                    partition: CommitCode.COMMITTED
                }

        pairs = zip((one, two, one, two), ORDERS, strict=True)
        await asyncio.gather(*(climb(broker, partition) for broker, partition in pairs))
        for broker in (one, two):
            assert await offsets_of(broker).fetch_all("g") == dict.fromkeys(ORDERS, FetchedOffset(offset=24))


@asynccontextmanager
async def two_brokers(cluster: Cluster, **options) -> AsyncIterator[tuple[Broker, Broker, SlowLog]]:
    """With a topic and open sessions; the group's entries of the first one can be held."""
    async with cluster.broker(**options) as one, cluster.broker("broker-2", **options) as two:
        await one.topic(partitions=4)
        await two.catalog.sync()
        held = one.domains[domain_of_group("g", 3)]
        for replica in (held, two.domains[domain_of_group("g", 3)], two.catalog):
            await replica.open_session()
        log = SlowLog(held.log)
        held._writer._log = log
        yield one, two, log
        log.gate.set()


async def test_a_commit_that_the_network_held_is_proposed_again_while_its_client_waits(cluster):
    """RT23, C4: whoever waits is the newest, however long its entry was under way; its neighbours go in once."""
    async with two_brokers(cluster) as (one, two, log):
        log.gate.clear()
        waiting = asyncio.create_task(offsets_of(one).commit("g", {ORDERS[0]: at(45), ORDERS[1]: at(7)}))
        await until(lambda: log.waiting == 1)
        assert await offsets_of(two).commit("g", {ORDERS[0]: at(46)}) == {ORDERS[0]: CommitCode.COMMITTED}
        before = cluster.entries()
        log.gate.set()
        assert await waiting == dict.fromkeys(ORDERS[:2], CommitCode.COMMITTED)
        assert cluster.entries() == before + 2, "the entry that was held, and one more"
        told = await offsets_of(two).fetch("g", ORDERS[:2])
        assert [told[partition].offset for partition in ORDERS[:2]] == [45, 7]


async def test_a_stale_commit_whose_client_is_gone_is_left_alone(cluster):
    """RT23, R-043: the client committed through another broker, so 45 after 46 is nobody's wish."""
    async with two_brokers(cluster) as (one, two, log):
        log.gate.clear()
        waiting = asyncio.create_task(offsets_of(one).commit("g", {ORDERS[0]: at(45)}))
        await until(lambda: log.waiting == 1)
        waiting.cancel()  # as its connection is gone
        assert await offsets_of(two).commit("g", {ORDERS[0]: at(46)}) == {ORDERS[0]: CommitCode.COMMITTED}
        log.gate.set()
        await until(lambda: log.waiting == 0)
        assert await offsets_of(one).commit("g", {ORDERS[1]: at(1)}) == {ORDERS[1]: CommitCode.COMMITTED}
        for broker in (one, two):
            assert (await offsets_of(broker).fetch("g", ORDERS[:1]))[ORDERS[0]].offset == 46


async def test_a_stale_commit_whose_client_sends_no_more_is_not_proposed_again(cluster):
    """RT23, R-043: who was killed has closed its side, and nothing is cancelled for that."""
    async with two_brokers(cluster) as (one, two, log):
        log.gate.clear()
        commit = offsets_of(one).commit("g", {ORDERS[0]: at(45), ORDERS[1]: at(7)}, is_awaited=lambda: False)
        waiting = asyncio.create_task(commit)
        await until(lambda: log.waiting == 1)
        assert await offsets_of(two).commit("g", {ORDERS[0]: at(46)}) == {ORDERS[0]: CommitCode.COMMITTED}
        log.gate.set()
        assert await waiting == {ORDERS[0]: CommitCode.STALE, ORDERS[1]: CommitCode.COMMITTED}
        assert (await offsets_of(two).fetch("g", ORDERS[:1]))[ORDERS[0]].offset == 46


async def test_a_stale_commit_that_is_too_old_is_left_to_its_client(cluster):
    """RT23, RP8: it gets no younger by being proposed again."""
    timing = Timing(ttl_ms=60_000, keepalive_ms=20_000, settle_ms=30_000, wait_ms=5_000)
    async with two_brokers(cluster, timing=timing) as (one, two, log):
        log.gate.clear()
        waiting = asyncio.create_task(offsets_of(one).commit("g", {ORDERS[0]: at(45)}))
        await until(lambda: log.waiting == 1)
        assert await offsets_of(two).commit("g", {ORDERS[0]: at(46)}) == {ORDERS[0]: CommitCode.COMMITTED}
        cluster.clock.advance(6_000)
        log.gate.set()
        assert await waiting == {ORDERS[0]: CommitCode.FAILED}
        assert (await offsets_of(one).fetch("g", ORDERS[:1]))[ORDERS[0]].offset == 46


async def test_a_commit_that_others_are_always_ahead_of_is_given_up_in_the_end(cluster):
    """RT23: a bounded number of tries, and the client is told to try again."""
    async with two_brokers(cluster) as (one, two, log):
        log.gate.clear()
        waiting = asyncio.create_task(offsets_of(one).commit("g", {ORDERS[0]: at(45)}))
        for number in range(TRIES):
            await until(lambda: log.waiting == 1 or waiting.done())
            await offsets_of(two).commit("g", {ORDERS[0]: at(100 + number)})
            log.gate.set()
            await until(lambda: log.waiting == 0)
            log.gate.clear()
        assert await waiting == {ORDERS[0]: CommitCode.STALE}
        assert (await offsets_of(two).fetch("g", ORDERS[:1]))[ORDERS[0]].offset == 100 + TRIES - 1


def test_groups_spread_over_the_data_domains_and_stay_where_they_are():
    groups = [f"group-{number}" for number in range(2_000)]
    assert {domain_of_group(group, 1) for group in groups} == {0}
    assert {domain_of_group(group, 16) for group in groups} == set(range(1, 17))
    assert all(0 <= bucket_of(group) < BUCKETS for group in groups)
    assert (bucket_of("orders"), bucket_of("")) == (bucket_of("orders"), bucket_of(""))


async def test_offsets_of_made_up_groups_stop_at_a_budget_and_known_ones_move_on(cluster):
    """RT21: whoever has an offset goes on; there is room again when others are forgotten."""
    async with cluster.broker() as one:
        await one.topic(partitions=4)
        service = OffsetService(domains=one.domains, topics=one.topics, budget_bytes=20_000)
        codes = [(await service.commit(f"made-up-{n}", {ORDERS[0]: at(n)}))[ORDERS[0]] for n in range(60)]
        taken = codes.count(CommitCode.COMMITTED)
        assert 20 <= taken < 40
        assert codes == [CommitCode.COMMITTED] * taken + [CommitCode.NO_ROOM] * (60 - taken)
        held = sum(replica.machine.offsets.bytes for _, replica in one.domains)
        assert held <= 20_000
        # An offset that is there moves, also together with one that finds no room; its metadata does not grow.
        both = await service.commit("made-up-3", {ORDERS[0]: at(99), ORDERS[1]: at(1, metadata="m" * 3_000)})
        assert both == {ORDERS[0]: CommitCode.COMMITTED, ORDERS[1]: CommitCode.NO_ROOM}
        assert (await service.fetch("made-up-3", ORDERS[:1]))[ORDERS[0]].offset == 99
        grown = await service.commit("made-up-3", {ORDERS[0]: at(100, metadata="m" * 4_000)})
        assert grown == {ORDERS[0]: CommitCode.NO_ROOM}
        larger = OffsetService(domains=one.domains, topics=one.topics, budget_bytes=60_000)
        assert await larger.commit("made-up-59", {ORDERS[0]: at(1)}) == {ORDERS[0]: CommitCode.COMMITTED}
