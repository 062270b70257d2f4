"""A batch goes in, its offsets come out, and nothing is answered before it is durable."""



from dray.objects.memory import MemoryObjects
from tests.produce.broker import batch, broker, stored
from tests.replica.domain import new_log


async def test_a_batch_gets_the_next_offsets_of_its_stream_and_can_be_read_back():
    async with broker({0: await new_log()}, MemoryObjects()) as one:
        (stream,) = await one.streams()
        first = await one.produce.submit(batch(stream, b"a", records=3))
        second = await one.produce.submit(batch(stream, b"b", records=2))
        assert (first.base_offset, second.base_offset, second.log_start_offset) == (0, 3, 0)
        assert await stored(one, stream) == [(0, b"a"), (1, b"a"), (2, b"a"), (3, b"b"), (4, b"b")]
