"""Who is let in: keys that are valid, wrong, revoked, expired, unknown; and those who guess."""

import asyncio

import pytest

from dray.access import keys, verifying
from dray.access.errors import OverLimit, Unauthenticated
from dray.access.keys import new_key, parse_key
from dray.access.limits import MOST_BUCKETS, PER_ADDRESS, PER_KEY, Buckets, network_of
from dray.access.principals import ANONYMOUS
from dray.access.verifying import WRONG
from dray.clock import ManualClock
from dray.errors import Invalid, Unavailable
from dray.ids import SystemEntropy
from dray.machine.access import KeyRole
from dray.machine.sessions import KeepAlive

from .stand import TESTER, Stand, stand, two


def guess_at(text: str) -> str:
    """A key with the same id, whole, and another secret."""
    while True:
        other = new_key(SystemEntropy()).reveal()
        head = text[:14] + other[14:57]
        made = head + "_" + keys._crc(head)
        if made != text:
            return made


@pytest.fixture
def hashes(monkeypatch) -> list[str]:
    """Every hash that is made while checking."""
    made: list[str] = []
    really = verifying.fits

    def counted(secret: str, stored: str) -> bool:
        made.append(stored)
        return really(secret, stored)

    monkeypatch.setattr(verifying, "fits", counted)
    return made


async def test_a_key_is_hashed_once_a_minute_and_looked_at_every_time(hashes):
    """D-203, A-36, AC9"""
    async with stand() as broker:
        record, text = await broker.key("worker")
        for _ in range(5):
            caller = await broker.admit(text)
        assert str(caller.principal) == f"User:key-{record.id}"
        assert caller.key_id == record.id
        assert len(hashes) == 1
        broker.clock.advance(59_999)
        await broker.admit(text)
        assert len(hashes) == 1
        broker.clock.advance(1)
        await broker.admit(text)
        assert len(hashes) == 2


async def test_a_revoked_key_does_nothing_once_that_is_applied_here():
    """AK2, AC5, D-253"""
    async with two() as (first, second):
        record, text = await first.key()
        await second.admit(text)
        await first.admit(text)
        await first.keys.revoke(record.id, TESTER)
        with pytest.raises(Unauthenticated, match=WRONG):
            await first.admit(text)
        await second.replica.sync()
        with pytest.raises(Unauthenticated, match=WRONG):
            await second.admit(text)


async def test_a_key_that_was_made_elsewhere_a_moment_ago_is_known():
    """AC6: no negative answer from memory"""
    async with two() as (first, second):
        _, text = await first.key()
        assert (await second.admit(text)).rights is not None


async def test_a_key_expires_by_the_time_of_the_log():
    """D-253"""
    async with stand() as broker:
        _, text = await broker.key(life_ms=3_600_000)
        await broker.admit(text)
        broker.clock.advance(30 * 86_400_000)
        await broker.admit(text)
        _, short = await broker.key("short", life_ms=1)
        expires_ms = broker.replica.machine.time_ms + 1
        while broker.replica.machine.time_ms <= expires_ms:
            await broker.replica.propose(KeepAlive())
        with pytest.raises(Unauthenticated, match=WRONG):
            await broker.admit(short)


async def test_every_wrong_key_is_told_the_same_and_an_unknown_one_costs_no_hash(hashes):
    """D-203, D-257"""
    async with stand() as broker:
        record, text = await broker.key()
        unknown = new_key(SystemEntropy()).reveal()
        told = []
        for shown in (unknown, guess_at(text)):
            with pytest.raises(Unauthenticated) as refusal:
                await broker.admit(shown)
            told.append(str(refusal.value))
        assert told == [WRONG, WRONG]
        assert hashes == [record.hash]


@pytest.mark.slow
async def test_thousands_of_wrong_keys_cost_a_handful_of_hashes_and_keep_nobody_out(hashes):
    """T31: who guesses is not listened to; who holds the key is"""
    async with stand() as broker:
        _, text = await broker.key()
        await broker.admit(text)
        hashes.clear()
        told = {"wrong": 0, "limited": 0}
        for number in range(3_000):
            try:
                await broker.admit(guess_at(text), f"10.0.0.{number % 3}")
            except Unauthenticated:
                told["wrong"] += 1
            except OverLimit:
                told["limited"] += 1
            if number % 500 == 0:
                await broker.admit(text)
        assert told == {"wrong": 3 * PER_KEY, "limited": 3_000 - 3 * PER_KEY}
        assert len(hashes) == 3 * PER_KEY
        broker.clock.advance(61_000)  # its digest is too old: it is hashed again, also while others guess
        for _ in range(PER_ADDRESS + 1):
            with pytest.raises((Unauthenticated, OverLimit)):
                await broker.admit(guess_at(text))
        await broker.admit(text)


async def test_a_wrong_key_is_remembered_for_ten_seconds(hashes):
    async with stand() as broker:
        _, text = await broker.key()
        wrong = guess_at(text)
        for _ in range(5):
            with pytest.raises(Unauthenticated):
                await broker.admit(wrong)
        assert len(hashes) == 1
        broker.clock.advance(10_000)
        with pytest.raises(Unauthenticated):
            await broker.admit(wrong)
        assert len(hashes) == 2


async def test_a_fleet_that_shows_one_key_at_once_makes_one_hash(hashes):
    """A-36"""
    async with stand() as broker:
        _, text = await broker.key()
        callers = await asyncio.gather(*(broker.admit(text) for _ in range(200)))
        assert len({caller.key_id for caller in callers}) == 1
        assert len(hashes) == 1


async def test_one_that_is_revoked_while_it_is_checked_is_not_let_in(monkeypatch):
    """AC5"""
    async with stand() as broker:
        record, text = await broker.key()
        checking, go_on = asyncio.Event(), asyncio.Event()

        async def slowly(self, shown, stored):
            checking.set()
            await go_on.wait()
            return True

        monkeypatch.setattr(verifying.KeyVerifier, "_hash", slowly)
        admitted = asyncio.create_task(broker.admit(text))
        await checking.wait()
        await broker.keys.revoke(record.id, TESTER)
        go_on.set()
        with pytest.raises(Unauthenticated):
            await admitted


async def test_where_nothing_can_be_judged_nothing_is_called_wrong(monkeypatch):
    """AC6"""
    async with stand() as broker:
        _, text = await broker.key()

        def stale() -> None:
            raise Unavailable("the log could not be written for too long")

        monkeypatch.setattr(broker.replica, "check_serving", stale)
        with pytest.raises(Unavailable):
            await broker.admit(text)


@pytest.mark.slow
async def test_too_many_at_once_wait_no_longer_than_they_must(monkeypatch):
    """AC9: a queue has an end"""
    monkeypatch.setattr(verifying, "MOST_WAITING", 3)
    async with stand() as broker:
        texts = [(await broker.key(str(number)))[1] for number in range(6)]
        found = await asyncio.gather(*(broker.admit(text) for text in texts), return_exceptions=True)
        assert sum(isinstance(one, OverLimit) for one in found) == 3
        assert all(isinstance(one, OverLimit) or one.key_id for one in found)


@pytest.mark.parametrize(
    ("required", "loopback", "needed"),
    [("auto", True, False), ("auto", False, True), ("on", True, True), ("off", False, False)],
)
async def test_a_key_is_needed_unless_all_is_on_loopback_and_none_was_made(required, loopback, needed):
    """heaps §6: access.required"""
    async with stand(required=required, loopback=loopback) as broker:
        assert broker.access.required is needed
        if needed:
            with pytest.raises(Unauthenticated, match="a key is needed"):
                await broker.admit(None)
        else:
            assert (await broker.admit(None)).principal == ANONYMOUS


async def test_the_first_key_closes_the_doors_and_to_revoke_it_does_not_open_them():
    """access §11: never back to open"""
    async with stand() as broker:
        await broker.admit(None)
        record, text = await broker.key()
        assert record.role is KeyRole.ADMIN, "somebody must be able to make the next one"
        with pytest.raises(Unauthenticated):
            await broker.admit(None)
        await broker.admit(text)
        second, _ = await broker.key("second")
        assert second.role is KeyRole.OPERATOR
        await broker.keys.revoke(record.id, TESTER)
        with pytest.raises(Unauthenticated):
            await broker.admit(None)


async def test_a_key_that_is_shown_is_checked_also_where_none_is_needed():
    async with stand(required="off") as broker:
        with pytest.raises(Unauthenticated):
            await broker.admit(new_key(SystemEntropy()).reveal())
        record, text = await broker.key()
        assert (await broker.admit(text)).key_id == record.id
        assert (await broker.admit(None)).key_id == ""


async def test_when_keys_were_used_is_written_down_to_the_minute():
    """D-252, D-311"""
    async with stand() as broker:
        record, text = await broker.key()
        await broker.admit(text)
        assert broker.replica.machine.access.keys[record.id].used_ms == 0
        await broker.access.write_uses()
        used_ms = broker.replica.machine.access.keys[record.id].used_ms
        assert used_ms > 0
        assert used_ms % 60_000 == 0
        position = broker.replica.machine.position
        await broker.access.write_uses()
        assert broker.replica.machine.position == position, "nothing was used since: nothing is written"


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "x" * 101}, {"name": "two\nlines"}, {"principal": "User:"}, {"principal": "Group:x"},
        {"principal": "a" * 300}, {"principal": "a\0b"}, {"life_ms": -1}, {"life_ms": 1 << 62},
    ],
)  # fmt: skip
async def test_a_key_that_makes_no_sense_is_not_made(fields):
    async with stand() as broker:
        with pytest.raises(Invalid):
            await broker.key(**fields)
        assert not broker.replica.machine.access.keys


async def streams_end(broker: Stand, *streams) -> None:
    watching = asyncio.create_task(broker.access.run())
    try:
        async with asyncio.timeout(30):
            await asyncio.gather(*(stream.ended.wait() for stream in streams))
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def test_open_streams_end_with_their_key_on_every_broker_and_others_go_on():
    """AC5, D-253"""
    async with two() as (first, second):
        record, text = await first.key()
        _, other = await first.key("other")
        with (
            first.access.streams.hold(await first.admit(text)) as here,
            second.access.streams.hold(await second.admit(text)) as there,
            second.access.streams.hold(await second.admit(other)) as stays,
        ):
            await first.keys.revoke(record.id, TESTER)
            await asyncio.gather(streams_end(first, here), streams_end(second, there))
            assert not stays.ended.is_set()


async def test_streams_of_nobody_end_when_the_first_key_is_made():
    async with stand() as broker:
        with broker.access.streams.hold(await broker.admit(None)) as stream:
            await broker.key()
            await streams_end(broker, stream)


async def test_one_key_has_so_many_streams_and_another_has_its_own():
    """D-283"""
    async with stand(streams_per_key=2) as broker:
        first = await broker.admit((await broker.key("first"))[1])
        other = await broker.admit((await broker.key("other"))[1])
        with broker.access.streams.hold(first), broker.access.streams.hold(first):
            with pytest.raises(OverLimit, match="as many streams open as it may"), broker.access.streams.hold(first):
                pass
            with broker.access.streams.hold(other):
                pass
        with broker.access.streams.hold(first):
            pass


def test_a_bucket_fills_again_with_time_and_there_are_not_too_many():
    clock = ManualClock()
    buckets: Buckets[int] = Buckets(clock, 10)
    assert [buckets.take(1) for _ in range(12)] == [True] * 10 + [False] * 2
    clock.advance(6_000)
    assert [buckets.take(1) for _ in range(2)] == [True, False]
    buckets.give_back(1)
    assert buckets.take(1)
    for number in range(2 * MOST_BUCKETS):
        buckets.take(number)
    assert len(buckets._left) == MOST_BUCKETS


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.1.2.3", "10.1.2.3"), ("::ffff:10.1.2.3", "10.1.2.3"), ("2001:db8:1:2ff::5", "2001:db8:1:200::/56"),
        ("fe80::1%eth0", "fe80::/56"), ("unix:", "unix:"), ("x" * 999, "x" * 64),
    ],
)  # fmt: skip
def test_who_guesses_has_an_address_or_a_network(address, network):
    assert network_of(address) == network


def test_a_guess_is_a_whole_key():
    text = new_key(SystemEntropy()).reveal()
    assert parse_key(guess_at(text)).id == parse_key(text).id
