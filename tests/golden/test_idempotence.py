"""InitProducerId and what a producer with an id may send."""

import pytest

from dray.servers.kafka.messages.init_producer_id import InitProducerIdRequest
from tests.golden.asking import INIT_PRODUCER_ID, Asker, batch

LAST = (1 << 31) - 1


class Writer:
    """A producer that numbers its batches as a test says."""

    def __init__(self, ask: Asker, name: str, producer_id: int) -> None:
        self.ask = ask
        self.name = name
        self.id = producer_id

    async def send(self, sequence: int, *, count: int = 1, epoch: int = 0) -> tuple[int, int]:
        values = [b"%d" % (sequence + n) for n in range(count)]
        records = batch(*values, producer_id=self.id, producer_epoch=epoch, base_sequence=sequence)
        answer = await self.ask.produce(self.name, records)
        return answer.error_code, answer.base_offset


@pytest.fixture
async def writer(ask: Asker, name: str) -> Writer:
    await ask.create(name)
    return Writer(ask, name, await ask.producer_id())


@pytest.mark.parametrize("version", range(6))
async def test_ids_are_unique_and_rise(ask: Asker, version: int) -> None:
    """R-099."""
    ids = [await ask.producer_id(version) for _ in range(5)]
    assert ids == sorted(set(ids))


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"transactional_id": ""}, 42),
        ({"transactional_id": "t"}, 42),
        ({"transactional_id": None, "producer_id": 5}, 42),
        ({"transactional_id": None, "producer_epoch": 5}, 42),
        ({"transactional_id": None, "producer_id": 1 << 50, "producer_epoch": 1}, 0),
    ],
)
async def test_transactions_and_half_a_bump_are_refused_at_once(ask: Asker, options: dict, code: int) -> None:
    answer = await ask.call(INIT_PRODUCER_ID, 4, InitProducerIdRequest(**options))
    assert answer.error_code == code
    if not code:
        assert (answer.producer_epoch, answer.producer_id < 1 << 50) == (0, True)


async def test_the_same_batch_again_gets_the_first_offset(writer: Writer, dray) -> None:
    """R-100, R-101: through another connection too."""
    assert await writer.send(0, count=3) == (0, 0)
    assert await writer.send(0, count=3) == (0, 0)
    async with Asker(dray.bootstrap) as other:
        assert await Writer(other, writer.name, writer.id).send(0, count=3) == (0, 0)
    assert await writer.send(3) == (0, 3)


async def test_five_batches_back_are_known_and_the_sixth_is_not(writer: Writer) -> None:
    """R-100."""
    for sequence in range(6):
        assert await writer.send(sequence) == (0, sequence)
    assert await writer.send(1) == (0, 1)
    assert await writer.send(0) == (45, -1)
    assert await writer.send(6) == (0, 6)


async def test_a_gap_is_refused_until_it_is_filled(writer: Writer) -> None:
    """R-100."""
    assert await writer.send(0) == (0, 0)
    assert await writer.send(2) == (45, -1)
    assert await writer.send(1) == (0, 1)
    assert await writer.send(2) == (0, 2)


async def test_a_producer_that_the_stream_does_not_know_begins_at_zero(writer: Writer) -> None:
    """A later batch must not overtake a first one that was lost."""
    assert await writer.send(5) == (45, -1)
    assert await writer.send(0) == (0, 0)


async def test_epochs_only_rise_and_begin_at_zero(writer: Writer) -> None:
    """R-100."""
    assert await writer.send(0, epoch=1) == (0, 0)
    assert await writer.send(1, epoch=0) == (47, -1)
    assert await writer.send(3, epoch=2) == (45, -1)
    assert await writer.send(0, epoch=2) == (0, 1)
    assert await writer.send(1, epoch=1) == (47, -1)


async def test_the_sequence_wraps(writer: Writer) -> None:
    """R-100: after 2^31-1 comes 0, also in the middle of a batch. A batch cannot be that long, so the id begins there
    where its topic name existed before: such a producer may begin anywhere."""
    await writer.ask.delete(writer.name)
    await writer.ask.create(writer.name)
    assert await writer.send(LAST - 1) == (0, 0)
    assert await writer.send(LAST, count=3) == (0, 1)
    assert await writer.send(LAST, count=3) == (0, 1)
    assert await writer.send(3) == (45, -1)
    assert await writer.send(2) == (0, 4)
