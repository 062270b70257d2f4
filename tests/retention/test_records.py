"""Records that somebody deletes."""

import pytest

from dray.errors import Unavailable
from dray.machine.names import StreamId
from dray.replica.freshness import Freshness
from dray.replica.replica import Replica
from dray.retention.errors import BeyondEnd
from dray.retention.floors import SLICE_ROWS
from dray.retention.records import TO_THE_END, TOGETHER, RecordService
from dray.topics.errors import UnknownPartition

from .shop import Broker, Cluster


@pytest.fixture
async def cluster() -> Cluster:
    return await Cluster().begin()


async def delete(broker: Broker, **wanted: int):
    """By stream number."""
    offsets = {StreamId(int(key[1:])): offset for key, offset in wanted.items()}
    return await RecordService(broker.domains).delete(offsets, Freshness())


async def test_the_start_rises_at_once_and_retention_takes_the_rows_that_are_left(cluster):
    """RT30, E-7: one slice goes with the command, whatever lies below the new start."""
    async with cluster.broker() as broker:
        (stream,) = (await broker.topic()).streams
        for _ in range(3):
            await broker.produce(*[(stream, 1)] * 900)
        answers = await delete(broker, **{f"s{stream}": 2_500})
        assert answers == {stream: 2_500}
        found = broker.stream(stream)
        assert (found.start, found.end, found.index.first_start) == (2_500, 2_700, SLICE_ROWS)
        await broker.retention().retain()
        assert broker.stream(stream).index.first_start == 2_500


async def test_many_streams_are_cut_in_few_entries(cluster):
    async with cluster.broker() as broker:
        streams = (await broker.topic(partitions=TOGETHER + 1)).streams
        await broker.produce(*[(stream, 2) for stream in streams])
        before = cluster.entries()
        answers = await delete(broker, **{f"s{stream}": TO_THE_END for stream in streams})
        assert answers == dict.fromkeys(streams, 2)
        assert cluster.entries() == before + 2


async def test_what_is_gone_already_writes_nothing(cluster):
    """RT30: never back."""
    async with cluster.broker() as broker:
        (stream,) = (await broker.topic()).streams
        await broker.produce((stream, 5))
        assert await delete(broker, **{f"s{stream}": 3}) == {stream: 3}
        before = cluster.entries()
        for offset in (0, 1, 3):
            assert await delete(broker, **{f"s{stream}": offset}) == {stream: 3}
        assert cluster.entries() == before


async def test_one_that_cannot_be_cut_hinders_no_other(cluster):
    """RT30: never beyond the end."""
    async with cluster.broker() as broker:
        one, two = (await broker.topic(partitions=2)).streams
        closed = await broker.topic("closed")
        (three,) = closed.streams
        await broker.topics.delete(closed)
        await broker.produce((one, 2))
        answers = await delete(broker, **{f"s{one}": 1, f"s{two}": 1, f"s{three}": TO_THE_END})
        assert answers[one] == 1
        assert isinstance(answers[two], BeyondEnd)
        assert isinstance(answers[three], UnknownPartition)


async def test_what_could_not_be_asked_is_no_answer(cluster, monkeypatch):
    """E1: neither done nor refused."""

    async def cut_off(self: Replica) -> None:
        raise Unavailable("the log does not answer")

    async with cluster.broker() as broker:
        (stream,) = (await broker.topic()).streams
        monkeypatch.setattr(Replica, "sync", cut_off)
        answers = await delete(broker, **{f"s{stream}": TO_THE_END})
        assert isinstance(answers[stream], Unavailable)
        monkeypatch.undo()
