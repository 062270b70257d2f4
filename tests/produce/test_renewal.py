"""A session that can name no more objects is followed by another one, and nobody notices (RP10)."""

import asyncio
from collections import Counter

import pytest

from dray.errors import DrayError
from dray.machine.sessions import KeepAlive
from dray.objects.memory import MemoryObjects
from dray.replica.session import COUNTERS, OwnSession, Spent
from dray.wal.ids import SessionId, parse_wal_id
from tests.produce.broker import GatedObjects, batch, broker, stored
from tests.replica.domain import new_log

FEW = 32
"""Objects that a session of these tests can name; 2^32 - 1 are what it has in life."""


async def test_every_batch_is_stored_once_and_in_order_while_sessions_follow_each_other():
    """RP10, W1, PR2: a flush under way when its session ends is put again under the next."""
    objects = GatedObjects(gated=False)
    count = 600
    async with broker({0: await new_log()}, objects, counters=FEW, flush_batches=1, flushes=4) as one:
        (stream,) = await one.streams()
        answers = []
        for number in range(count):
            answers.append(one.produce.submit(batch(stream, b"%d" % number, producer=7, sequence=number)))
            if number % 7 == 0:
                await asyncio.gather(*answers[-3:])
        offsets = [answer.base_offset for answer in await asyncio.gather(*answers)]
        assert offsets == list(range(count))
        assert [value for _, value in await stored(one, stream)] == [b"%d" % number for number in range(count)]
        assert one.replica.machine.sessions.newest >= count // FEW
        assert not [path for path, times in Counter(objects.puts).items() if times > 1]
        assert len(one.replica.machine.sessions.live) == 1


async def test_a_session_is_followed_while_it_still_has_names_and_without_a_moment_of_not_serving():
    """RP10: a beat is enough, and whoever looks at any entry finds a live session."""
    async with broker({0: await new_log()}, MemoryObjects(), counters=FEW) as one:
        replica = one.replica
        first = await replica.open_session()
        while not first.spent:
            first.take_counter()
        assert not first.exhausted
        gaps = []
        apply = replica.apply

        def watched(position, entry):
            apply(position, entry)
            try:
                replica.check_serving()
            except DrayError as error:
                gaps.append(error)

        replica.apply = watched
        await replica.propose(KeepAlive())
        assert replica.session.id == first.id + 1
        assert replica.session.next_counter == 0
        assert not gaps
        assert not replica.failed.done()


async def test_who_finds_no_name_left_waits_for_the_next_session():
    """RP10: the last names are gone before another session is open."""
    async with broker({0: await new_log()}, MemoryObjects(), counters=FEW) as one:
        (stream,) = await one.streams()
        session = await one.replica.open_session()
        while not session.exhausted:
            session.take_counter()
        with pytest.raises(Spent):
            session.take_counter()
        answers = [one.produce.submit(batch(stream, b"%d" % number)) for number in range(5)]
        assert [answer.base_offset for answer in await asyncio.gather(*answers)] == list(range(5))
        assert one.replica.session.id > session.id


def test_a_counter_has_32_bits_and_none_is_given_twice():
    """RP10, W1."""
    session = OwnSession(id=SessionId(1), opened_ms=0, opened_boot_ns=0, next_counter=COUNTERS - 2)
    assert session.spent
    assert [session.take_counter(), session.take_counter()] == [0xFFFF_FFFE, 0xFFFF_FFFF]
    with pytest.raises(Spent):
        session.take_counter()
    assert parse_wal_id(b"log-id-1" + b"\0\0\0\1" + b"\xff" * 4).counter == COUNTERS
