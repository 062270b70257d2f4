"""Nothing overtakes: failed puts, ended sessions, slow puts and their hedges."""

import asyncio

import pytest

from dray.clock import ManualClock
from dray.machine.sessions import Expire
from dray.objects.port import StoreUnavailable
from dray.produce import telemetry
from dray.produce.errors import NotStored, Overtaken, StoredUnknown
from tests.produce.broker import GatedObjects, HeldLog, batch, broker, objects_in, outlast, settle, stored
from tests.replica.domain import new_log, replica_on


def told(answers) -> list[object]:
    """A base offset or the name of an error for each."""
    return [
        type(answer.exception()).__name__ if answer.exception() else answer.result().base_offset for answer in answers
    ]


@pytest.mark.parametrize("done_first", [(2, 3, 1, 0), (1, 0, 2, 3), (3, 2, 0, 1)], ids=str)
async def test_behind_a_failed_put_no_batch_of_its_producer_and_stream_is_stored(done_first):
    """R-092, PR2: object 1 fails; the later ones of the same producer fail too, others are stored."""
    log, objects = HeldLog(await new_log()), GatedObjects()
    async with broker({0: log}, objects, flush_batches=2, flushes=4) as one:
        stream, other = await one.streams(partitions=2)
        answers = []
        for number in range(5):  # four flushes and a queue
            answers.append(one.produce.submit(batch(stream, b"a%d" % number, producer=7, sequence=number)))
            rival = batch(other, b"b%d" % number) if number == 1 else batch(stream, b"b%d" % number, producer=9)
            answers.append(one.produce.submit(rival._replace(base_sequence=max(0, number - (number > 1)))))
        await objects.put_count(4)
        for number in done_first:
            objects.fail(number) if number == 1 else objects.let(number)
            await settle()
        objects.open_all()
        await asyncio.wait(answers)
        assert told(answers[0::2]) == [0, "NotStored", "Overtaken", "Overtaken", "Overtaken"]
        assert told(answers[1::2]) == [1, "NotStored", 2, 3, 4]
        assert [value for _, value in await stored(one, stream)] == [b"a0", b"b0", b"b2", b"b3", b"b4"]
        again = [one.produce.submit(batch(stream, producer=7, sequence=number)) for number in range(1, 5)]
        assert [answer.base_offset for answer in await asyncio.gather(*again)] == [5, 6, 7, 8]


async def test_batches_without_a_producer_id_keep_their_order_in_a_stream_too():
    """R-092: whoever sends without an id is one producer, for all we know."""
    objects = GatedObjects()
    async with broker({0: await new_log()}, objects, flush_batches=1) as one:
        stream, other = await one.streams(partitions=2)
        answers = [one.produce.submit(batch(target)) for target in (stream, stream, other)]
        await objects.put_count(3)
        objects.fail(0)
        objects.open_all()
        await asyncio.wait(answers)
        assert told(answers) == ["NotStored", "Overtaken", 0]


async def test_behind_a_commit_of_unknown_outcome_nothing_overtakes():
    """R-092, R-098, PR2: what might not be in the log counts as if it were not."""
    clock, log, objects = ManualClock(), HeldLog(await new_log()), GatedObjects()
    async with broker({0: log}, objects, clock=clock, flush_batches=1) as one:
        stream, other = await one.streams(partitions=2)
        log.lose_appends = 1_000
        answers = [one.produce.submit(batch(stream, producer=1, sequence=0))]
        await objects.put_count(1)
        objects.let(0)
        while "append" not in log.moments:
            await asyncio.sleep(0)
        answers += [one.produce.submit(batch(stream, producer=1, sequence=1)), one.produce.submit(batch(other))]
        objects.open_all()
        await outlast(clock, answers[0])
        log.lose_appends = 0
        for answer in answers:
            await outlast(clock, answer)
        assert told(answers) == ["StoredUnknown", "Overtaken", 0]
        assert one.replica.machine.streams.find(stream).end == 0
        assert StoredUnknown.kind is not NotStored.kind
        assert Overtaken.kind is NotStored.kind


async def test_an_object_whose_batches_were_all_overtaken_is_deleted_and_never_proposed():
    log, objects = HeldLog(await new_log()), GatedObjects()
    async with broker({0: log}, objects, flush_batches=1) as one:
        (stream,) = await one.streams()
        answers = [one.produce.submit(batch(stream)) for _ in range(2)]
        await objects.put_count(2)
        objects.let(1)
        await settle()
        objects.fail(0)
        await asyncio.wait(answers)
        await settle()
        assert log.appends == []
        assert objects.deleted == [objects.puts[1]]


async def test_a_flush_whose_batches_were_all_overtaken_before_it_was_written_writes_nothing():
    objects = GatedObjects()
    async with broker({0: await new_log()}, objects, flush_batches=1, flushes=2) as one:
        (stream,) = await one.streams()
        first = one.produce.submit(batch(stream))
        await objects.put_count(1)
        second = one.produce.submit(batch(stream))
        objects.fail(0)
        await asyncio.wait([first, second])
        objects.open_all()
        await settle()
        assert told([first, second]) == ["NotStored", "Overtaken"]
        assert (await one.produce.submit(batch(stream))).base_offset == 0
        assert one.produce.pressure.unacked == 0


# -- sessions --------------------------------------------------------------


async def expire_sessions_of(one, log) -> None:
    """What another broker does when this one was silent for too long."""
    session = one.replica.session
    async with replica_on(log, f"observer of {session.id}").running() as observer:
        last_n = observer.machine.sessions.live[session.id].last_n
        await observer.propose(Expire(session=session.id, last_n=last_n))
        await observer.close_session()


async def test_a_session_that_ended_between_put_and_append_costs_a_second_put():
    """Answer 7, R-108: the old object is never committed; the batches get their offsets all the same."""
    log, objects = await new_log(), GatedObjects()
    before = telemetry.REPUTS._value.get()
    async with broker({0: log.handle()}, objects, flush_batches=1) as one:
        (stream,) = await one.streams()
        answers = [one.produce.submit(batch(stream, value)) for value in (b"a", b"b")]
        await objects.put_count(2)
        old = one.replica.session
        await expire_sessions_of(one, log.handle())
        await settle()
        assert one.replica.session is None
        objects.open_all()
        await asyncio.wait(answers)
        assert told(answers) == [0, 1]
        assert await stored(one, stream) == [(0, b"a"), (1, b"b")]
        assert one.replica.session.id > old.id
        await settle()
        assert sorted(objects.deleted) == sorted(objects.puts[:2])
        assert len(objects.puts) == 4
    assert telemetry.REPUTS._value.get() - before == 2


async def test_a_session_that_ended_under_an_append_in_flight_is_refused_as_a_whole_and_put_again():
    """PR3, answer 7: the machine refuses the foreign objects, all of the proposal alike."""
    log, objects = await new_log(), GatedObjects(gated=False)
    held = HeldLog(log.handle())
    async with broker({0: held}, objects, flush_batches=1) as one:
        (stream,) = await one.streams()
        held.hold()
        answers = [one.produce.submit(batch(stream, value)) for value in (b"a", b"b", b"c")]
        while "append" not in held.moments:
            await asyncio.sleep(0)
        await settle()
        await expire_sessions_of(one, log.handle())
        held.let_go()
        await asyncio.wait(answers)
        assert told(answers) == [0, 1, 2]
        assert await stored(one, stream) == [(0, b"a"), (1, b"b"), (2, b"c")]
        await settle()
        assert len(objects.deleted) == len(objects.puts) - 3
        assert sorted(await objects_in(objects)) == sorted(set(objects.puts) - set(objects.deleted))


async def test_a_flush_of_an_ended_session_between_two_of_the_new_one_is_not_overtaken():
    """PR3: one proposal, one session; else the one in the middle would be refused alone."""
    log, objects = await new_log(), GatedObjects()
    async with broker({0: log.handle()}, objects, flush_batches=1) as one:
        (stream,) = await one.streams()
        answers = [one.produce.submit(batch(stream, value)) for value in (b"a", b"b")]
        await objects.put_count(2)
        await expire_sessions_of(one, log.handle())
        await settle()
        objects.let(0)
        await objects.put_count(3)  # a again, under the new session
        objects.let(1)
        answers.append(one.produce.submit(batch(stream, b"c")))
        await objects.put_count(4)
        objects.let(3)
        await settle()
        objects.let(2)
        await objects.put_count(5)  # b again
        objects.let(4)
        await asyncio.wait(answers)
        assert told(answers) == [0, 1, 2]
        assert await stored(one, stream) == [(0, b"a"), (1, b"b"), (2, b"c")]


async def test_behind_a_flush_that_lost_two_sessions_nothing_of_the_same_proposal_overtakes():
    """PR2, R-092: what is given up was in one entry with what may be put again."""
    log, objects = await new_log(), GatedObjects()
    held = HeldLog(log.handle())
    async with broker({0: held}, objects, flush_batches=1) as one:
        stream, other = await one.streams(partitions=2)
        held.hold()
        answers = [one.produce.submit(batch(stream, b"a"))]
        await objects.put_count(1)
        objects.let(0)
        await appended(held, 1)
        await expire_sessions_of(one, log.handle())
        held.let_go()
        await objects.put_count(2)  # a again, under the second session
        held.hold()
        answers += [one.produce.submit(batch(stream, b"b")), one.produce.submit(batch(other, b"c"))]
        await objects.put_count(4)
        for number in (2, 3, 1):  # a, b and c share an entry
            objects.let(number)
            await settle()
        await appended(held, 2)
        await expire_sessions_of(one, log.handle())
        held.let_go()
        objects.open_all()
        await asyncio.wait(answers)
        assert told(answers) == ["NotStored", "Overtaken", 0]
        assert await stored(one, stream) == []
        assert await stored(one, other) == [(0, b"c")]


async def appended(log: HeldLog, times: int) -> None:
    """Until so many entries with Appends were sent."""
    while log.moments.count("append") < times:
        await asyncio.sleep(0)
    await settle()


async def test_a_session_that_ends_again_and_again_fails_retriably():
    log, objects = await new_log(), GatedObjects()
    async with broker({0: log.handle()}, objects) as one:
        (stream,) = await one.streams()
        answer = one.produce.submit(batch(stream))
        for number in range(2):
            await objects.put_count(number + 1)
            await settle()
            await expire_sessions_of(one, log.handle())
            await settle()
            objects.let(number)
        with pytest.raises(NotStored):
            await answer
        assert len(objects.puts) == 2
        objects.open_all()
        assert (await one.produce.submit(batch(stream))).base_offset == 0


# -- hedging ---------------------------------------------------------------


async def a_slow_put(one, objects, clock, stream):
    """Some quick puts, then one that takes longer than usual: returns its answer when the hedge has begun."""
    objects.gated = False
    for _ in range(6):
        await one.produce.submit(batch(stream))
    objects.gated = True
    answer = one.produce.submit(batch(stream, b"slow"))
    await objects.put_count(7)
    await settle()
    clock.advance(99)
    await settle()
    assert len(objects.puts) == 7
    clock.advance(1)
    await objects.put_count(8)
    return answer


@pytest.mark.parametrize("winner", [6, 7], ids=["first", "second"])
async def test_a_slow_put_is_hedged_and_committed_once(winner):
    """PR6: the first to finish is committed, the other is deleted when it finishes."""
    clock, log, objects = ManualClock(), HeldLog(await new_log()), GatedObjects()
    loser = 13 - winner
    async with broker({0: log}, objects, clock=clock, hedge_floor_s=0.1) as one:
        (stream,) = await one.streams()
        answer = await a_slow_put(one, objects, clock, stream)
        objects.let(winner)
        assert (await answer).base_offset == 6
        assert objects.deleted == []
        assert one.produce.pressure.unacked > 0, "the late put still holds its bytes"
        objects.let(loser)
        await settle()
        assert objects.deleted == [objects.puts[loser]]
        assert one.produce.pressure.unacked == 0
        assert len(log.appends) == 7
        assert (await stored(one, stream))[-1] == (6, b"slow")


async def test_of_two_hedged_puts_that_finish_together_one_is_committed():
    clock, objects = ManualClock(), GatedObjects()
    async with broker({0: await new_log()}, objects, clock=clock, hedge_floor_s=0.1) as one:
        (stream,) = await one.streams()
        answer = await a_slow_put(one, objects, clock, stream)
        objects.let(6)
        objects.let(7)
        assert (await answer).base_offset == 6
        await settle()
        assert len(objects.deleted) == 1
        assert len(await stored(one, stream)) == 7


@pytest.mark.parametrize("first_to_fail", [6, 7])
async def test_a_hedge_saves_a_put_that_fails_and_one_that_fails_alone_does_not_hurt(first_to_fail):
    clock, objects = ManualClock(), GatedObjects()
    async with broker({0: await new_log()}, objects, clock=clock, hedge_floor_s=0.1) as one:
        (stream,) = await one.streams()
        answer = await a_slow_put(one, objects, clock, stream)
        objects.fail(first_to_fail, StoreUnavailable("gone"))
        await settle()
        assert not answer.done()
        objects.let(13 - first_to_fail)
        assert (await answer).base_offset == 6


async def test_when_both_of_a_hedged_pair_fail_the_flush_fails_and_the_next_slow_put_is_hedged_again():
    clock, objects = ManualClock(), GatedObjects()
    async with broker({0: await new_log()}, objects, clock=clock, hedge_floor_s=0.1) as one:
        (stream,) = await one.streams()
        answer = await a_slow_put(one, objects, clock, stream)
        objects.fail(6)
        objects.fail(7)
        with pytest.raises(NotStored):
            await answer
        answer = one.produce.submit(batch(stream))
        await objects.put_count(9)
        await settle()
        clock.advance(100)
        await objects.put_count(10)
        objects.open_all()
        assert (await answer).base_offset == 6


async def test_only_one_put_of_a_domain_is_hedged_at_a_time():
    """A store that is slow as a whole is not asked for twice the work."""
    clock, objects = ManualClock(), GatedObjects()
    async with broker({0: await new_log()}, objects, clock=clock, hedge_floor_s=0.1, flush_batches=1) as one:
        (stream,) = await one.streams()
        first = await a_slow_put(one, objects, clock, stream)
        second = one.produce.submit(batch(stream))
        await objects.put_count(9)
        await settle()
        clock.advance(1_000)
        await settle()
        assert len(objects.puts) == 9
        objects.open_all()
        assert [(await first).base_offset, (await second).base_offset] == [6, 7]
