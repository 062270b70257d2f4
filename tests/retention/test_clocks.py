"""Brokers that are started with wrong clocks, in any order: nothing young goes, and what is old goes after all."""

from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random

import pytest

from dray.replica.session import StoreDate

from .shop import DAY, HOUR, MINUTE, NOW, Cluster

RETENTION = 2 * DAY
YEAR = 365 * DAY
WRONG = (-60 * YEAR, -YEAR, -5 * DAY, -3 * HOUR, 3 * HOUR, 20 * HOUR, 3 * DAY, 40 * DAY, 10 * YEAR)


@pytest.fixture
async def cluster() -> Cluster:
    return await Cluster().begin()


@asynccontextmanager
async def start(cluster, wrong_by=0, **options):
    """One life of a broker on a machine whose clock is wrong by so much."""
    cluster.clock.jump_wall(wrong_by)
    try:
        async with cluster.broker(**options) as broker:
            await broker.catalog.open_session()
            yield broker
    finally:
        cluster.clock.jump_wall(-wrong_by)


@dataclass
class Row:
    """What a record is by the right clock."""

    stamp: int
    arrived: int

    @property
    def age_begins(self) -> int:
        """What a wrong clock stamped in the future counts from its arrival."""
        return self.arrived if self.stamp < 0 else min(self.stamp, self.arrived)


class History:
    """Everything that was produced, and what retention has taken of it."""

    def __init__(self, cluster, dice: Random) -> None:
        self.cluster = cluster
        self.dice = dice
        self.rows: list[Row] = []
        self.gone = 0

    async def live(self, broker, stream, wrong_by: int, hours: int) -> None:
        for _ in range(hours):
            right = self.cluster.clock.wall_ms() - wrong_by
            if self.dice.random() < 0.3:
                stamp = self.dice.choice([right, max(0, right + wrong_by), right - 10 * DAY, -1])
                await broker.produce((stream, 1), stamp=stamp)
                self.rows.append(Row(stamp=stamp, arrived=right))
            await broker.pass_time(HOUR)
            await broker.retention().retain()
            self.check(broker.stream(stream).start, right + HOUR)

    def check(self, start: int, now: int) -> None:
        """RT20"""
        for row in self.rows[self.gone : start]:
            assert row.age_begins + RETENTION < now, f"{row} went at {now}"
        self.gone = start


@pytest.mark.parametrize("seed", range(8))
async def test_no_row_goes_that_is_young_by_the_right_clock_and_in_the_end_all_go(cluster, seed):
    """RT20: any sequence of stops, and of starts of which most have a wrong clock."""
    dice = Random(f"clocks {seed}")
    history = History(cluster, dice)
    async with start(cluster) as broker:
        (stream,) = (await broker.topic(retention_ms=str(RETENTION))).streams
    for _ in range(6):
        wrong_by = dice.choice((0, 0, dice.choice(WRONG), dice.choice(WRONG)))
        cluster.clock.advance(dice.choice((0, MINUTE, HOUR, 16 * HOUR, 5 * DAY, 40 * DAY)))
        async with start(cluster, wrong_by, asks_for_lead=dice.random() < 0.3) as broker:
            await history.live(broker, stream, wrong_by, dice.choice((1, 3, 30, 60)))
    async with start(cluster) as broker:
        await broker.pass_time(RETENTION + 9 * DAY)
        await broker.retention().retain()
        assert broker.stream(stream).start == len(history.rows) > 0


async def test_after_a_month_in_a_drawer_a_laptop_goes_on_to_delete_without_a_word_from_anybody(cluster):
    """RT20: what it lived through counts, so a week of retention ends after a week of use."""
    async with start(cluster) as broker:
        (stream,) = (await broker.topic(retention_ms=str(7 * DAY))).streams
        await broker.produce((stream, 1))
        await broker.pass_time(DAY)
    for _ in range(3):
        cluster.clock.advance(30 * DAY)
        async with start(cluster) as broker:
            assert not broker.machine.timeline.paused
            await broker.produce((stream, 1))
            await broker.retention().retain()
            assert broker.stream(stream).start == 0
            await broker.pass_time(DAY)
    async with start(cluster) as broker:
        for day, expected in enumerate((0, 0, 1, 2, 3, 4)):
            await broker.pass_time(DAY + HOUR)
            await broker.retention().retain()
            assert broker.stream(stream).start == expected, f"day {day}"


async def test_a_clock_that_a_store_vouches_for_is_believed_at_once(cluster):
    """Q7: the calendar counts, after the hour of pause."""
    async with start(cluster) as broker:
        (stream,) = (await broker.topic(retention_ms=str(7 * DAY))).streams
        await broker.produce((stream, 1))
    cluster.clock.advance(30 * DAY)
    date = StoreDate(date_ms=cluster.clock.wall_ms() + 2 * MINUTE, boot_ns=cluster.clock.boot_ns())
    async with start(cluster, store_date=date) as broker:
        await broker.retention().retain()
        assert broker.stream(stream).start == 0
        await broker.pass_time(HOUR)
        await broker.retention().retain()
        assert broker.stream(stream).start == 1


async def test_a_log_that_ran_ahead_deletes_nothing_until_somebody_vouches_for_the_clock(cluster, caplog):
    """RT20: an operator believed a wrong clock once; the records of the present stay, and so do offsets."""
    async with start(cluster) as broker:
        (stream,) = (await broker.topic(retention_ms=str(2 * DAY))).streams
        await broker.produce((stream, 1))
    async with start(cluster, 10 * YEAR, accept_clock=True) as broker:
        assert broker.machine.time_ms >= NOW + 10 * YEAR
    async with start(cluster) as broker:
        await broker.produce((stream, 1))
        await broker.pass_time(3 * DAY)
        service = broker.retention()
        before = cluster.entries()
        await service.retain()
        await service.expire()
        assert (broker.stream(stream).start, cluster.entries()) == (0, before)
    async with start(cluster, accept_clock=True) as broker:
        await broker.produce((stream, 1))
        await broker.pass_time(HOUR)
        await broker.retention().retain()
        assert broker.stream(stream).start == 2
