"""The injected effects: time and randomness."""

import asyncio

from dray.clock import ManualClock, SystemClock
from dray.errors import DrayError, Invalid, Kind, Unknown
from dray.ids import SeededEntropy, SystemEntropy, new_uuid


async def test_sleepers_wake_in_order_of_their_deadlines_when_time_is_advanced():
    clock = ManualClock()
    woken: list[str] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(name)

    async with asyncio.TaskGroup() as group:
        group.create_task(sleeper("late", 2))
        group.create_task(sleeper("early", 1))
        await asyncio.sleep(0)
        clock.advance(999)
        await asyncio.sleep(0)
        assert woken == []
        clock.advance(5_000)
    assert woken == ["early", "late"]


def test_a_jump_of_the_wall_clock_moves_no_duration():
    clock = ManualClock()
    before = clock.boot_ns()
    clock.jump_wall(10 * 365 * 86_400_000)
    assert clock.boot_ns() == before


def test_the_boot_clock_of_the_system_never_runs_back():
    clock = SystemClock()
    readings = [clock.boot_ns() for _ in range(1000)]
    assert readings == sorted(readings)


def test_the_same_seed_gives_the_same_ids():
    assert new_uuid(SeededEntropy(7)) == new_uuid(SeededEntropy(7))
    assert new_uuid(SeededEntropy(7)) != new_uuid(SeededEntropy(8))


def test_uuids_are_version_four_and_never_zero():
    identity = new_uuid(SystemEntropy())
    assert identity.version == 4
    assert identity.int != 0


def test_an_error_says_its_facts_behind_its_message():
    error = Invalid("no such key", key="wal.lingr", nearest="wal.linger")
    assert str(error) == "no such key key=wal.lingr nearest=wal.linger"


def test_unknown_is_a_kind_of_its_own():
    """E1: nobody who catches Unavailable catches an unknown outcome by accident."""
    assert Unknown.kind is Kind.UNKNOWN
    assert DrayError.kind is Kind.INTERNAL
    assert {kind.value for kind in Kind} >= {"retry later; nothing happened"}
