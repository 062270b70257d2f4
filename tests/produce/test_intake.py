"""What is refused about a batch before it is stored: by whatever protocol it came."""

import random

import pytest

from dray.clock import ManualClock
from dray.machine.topics import Topic
from dray.offload import InlineOffload
from dray.produce.batches import Stored
from dray.produce.intake import Intake, appended_ms
from dray.produce.unpacking import Unpacking
from dray.records import Codec, InvalidBatch, NewRecord, build_batch, one_batch, plain_request
from dray.records.errors import BadCodec, BadCrc, BadTimestamp, NullKey, TooLarge
from dray.topics.service import NewTopic
from tests.kafka.wire import PRODUCE, request_bytes
from tests.kafka.wire import produce as produce_request
from tests.produce.broker import Broker, GatedObjects, broker
from tests.replica.domain import new_log

NOW_MS = 1_700_000_000_000
OWNER = object()


def intake(clock: ManualClock) -> Intake:
    return Intake(clock=clock, unpacking=Unpacking(InlineOffload(), 1))


async def topic(one: Broker, name: str, **configs: str) -> Topic:
    wanted = {key.replace("_", "."): value for key, value in configs.items()}
    return await one.topics.create(NewTopic(name=name, partitions=1, replication_factor=1, configs=wanted))


def batch(value: bytes = b"v", *, at: int = NOW_MS, key: bytes | None = b"k", codec: Codec = Codec.NONE) -> bytes:
    return build_batch([NewRecord(key, value, at)], codec=codec)


async def test_a_batch_is_judged_by_the_rules_of_its_topic() -> None:
    """R-104: and what is stored of it was seen in its records (PR7)."""
    clock = ManualClock(wall_ms=NOW_MS)
    async with broker({0: await new_log()}, GatedObjects(), clock=clock) as one:
        plain, small = await topic(one, "plain"), await topic(one, "small", max_message_bytes="100")
        keyed = await topic(one, "keyed", cleanup_policy="compact,delete")
        check = intake(clock).check
        taken, stamp_ms = await check(plain, plain.streams[0], batch(), owner=OWNER)
        assert (taken.stream, taken.records, taken.max_timestamp_ms, stamp_ms) == (plain.streams[0], 1, NOW_MS, -1)
        wrong = bytearray(batch())
        wrong[-1] ^= 1
        for where, data, refusal in (
            (plain, bytes(wrong), BadCrc),
            (plain, batch(at=NOW_MS + 7_200_000), BadTimestamp),
            (small, batch(bytes(200)), TooLarge),
            (keyed, batch(key=None), NullKey),
        ):
            with pytest.raises(refusal):
                await check(where, where.streams[0], data, owner=OWNER)


async def test_the_brokers_time_is_told_and_of_a_duplicate_the_earlier_one() -> None:
    """R-104."""
    clock = ManualClock(wall_ms=NOW_MS)
    async with broker({0: await new_log()}, GatedObjects(), clock=clock) as one:
        stamped = await topic(one, "stamped", message_timestamp_type="LogAppendTime")
        taken, stamp_ms = await intake(clock).check(stamped, stamped.streams[0], batch(at=5), owner=OWNER)
        assert (taken.min_timestamp_ms, taken.max_timestamp_ms, stamp_ms) == (NOW_MS, NOW_MS, NOW_MS)
        assert one_batch(taken.data).max_timestamp == NOW_MS
    assert appended_ms(NOW_MS, Stored(7, 0)) == NOW_MS
    assert appended_ms(NOW_MS, Stored(7, 0, NOW_MS - 10)) == NOW_MS - 10
    assert appended_ms(-1, Stored(7, 0, NOW_MS)) == -1


async def test_zstd_is_refused_to_whoever_speaks_a_version_that_does_not_know_it() -> None:
    clock = ManualClock(wall_ms=NOW_MS)
    async with broker({0: await new_log()}, GatedObjects(), clock=clock) as one:
        plain = await topic(one, "plain")
        data = batch(codec=Codec.ZSTD)
        assert (await intake(clock).check(plain, plain.streams[0], data, owner=OWNER)).batch.records == 1
        with pytest.raises(BadCodec):
            await intake(clock).check(plain, plain.streams[0], data, owner=OWNER, knows_zstd=False)


async def test_what_is_taken_as_a_row_is_what_check_would_have_taken() -> None:
    """PL1: and what is not taken as a row, check refuses or has to change."""
    seed = 5
    print(f"seed {seed}")
    dice = random.Random(seed)
    clock = ManualClock(wall_ms=NOW_MS)
    async with broker({0: await new_log()}, GatedObjects(), clock=clock) as one:
        topics = [
            await topic(one, "plain"),
            await topic(one, "stamped", message_timestamp_type="LogAppendTime"),
            await topic(one, "small", max_message_bytes="150"),
            await topic(one, "keyed", cleanup_policy="compact,delete"),
            await topic(one, "windowed", message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="1000"),
        ]
        taking, count = intake(clock), 0
        for _ in range(300):
            where = dice.choice(topics)
            at = dice.choice([-1, 0, NOW_MS - 1001, NOW_MS - 1000, NOW_MS, NOW_MS + 1000, NOW_MS + 1001, NOW_MS * 2])
            data = bytearray(batch(bytes(dice.randrange(150)), at=at, key=dice.choice([None, b"k"])))
            if dice.random() < 0.1:
                data[-1] ^= 1
            frame = memoryview(request_bytes(PRODUCE, 9, produce_request(bytes(data), timeout_ms=1000), 1))[4:]
            found = plain_request(frame)
            if found is None:
                continue
            row = taking.take_row(where, frame, found[2][0], NOW_MS)
            try:
                checked = await taking.check(where, where.streams[0], bytes(data), owner=OWNER)
            except InvalidBatch:
                assert row is None
            else:
                assert row == (None if checked.stamp_ms >= 0 else checked.batch)
                count += row is not None
        assert count > 30


async def test_every_producer_gets_an_id_of_its_own() -> None:
    """R-099."""
    log = await new_log()
    async with (
        broker({0: log}, GatedObjects()) as one,
        broker({0: log}, GatedObjects(), name="broker-2") as two,
    ):
        given = [await each.produce.new_producer() for each in (one, two, one)]
        assert len(set(given)) == 3
