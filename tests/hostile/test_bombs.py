"""A few bytes that would become gigabytes, in every codec and every wrapping."""

import asyncio
import gzip
import struct
from collections.abc import Iterator

import cramjam
import pytest

from dray.records import DEFAULT_CAP_BYTES, Codec, NewRecord, build_batch
from tests.durability.daemon import Drayd
from tests.golden.asking import Asker
from tests.hostile.watching import MIB, unharmed
from tests.records.batch_samples import batch_of, resealed

pytestmark = pytest.mark.slow

LARGEST = 1_048_588 - 61
ZEROS = bytes(MIB)


def streamed(compressor, mebibytes: int) -> bytes:
    """Zeros, compressed as one frame."""
    for _ in range(mebibytes):
        compressor.compress(ZEROS)
    return bytes(compressor.finish())


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def snappy_literal(declared: int) -> bytes:
    return varint(declared) + b"\xf0\x00" + b"x"


def xerial(*blocks: bytes) -> bytes:
    framed = b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + framed


def bombs() -> Iterator[tuple[str, Codec, bytes]]:
    yield "gzip, one member", Codec.GZIP, streamed(cramjam.gzip.Compressor(), 512)
    member = gzip.compress(bytes(8 * MIB))
    yield "gzip, many members", Codec.GZIP, member * (LARGEST // len(member))
    nested = gzip.compress(gzip.compress(bytes(64 * MIB), 9))
    yield "gzip in gzip", Codec.GZIP, nested
    frame = streamed(cramjam.zstd.Compressor(), 1024)
    yield "zstd, one frame", Codec.ZSTD, frame
    yield "zstd, many frames", Codec.ZSTD, frame * (LARGEST // len(frame))
    # A frame header that asks for a window of 2 TiB, and one that promises 2^64-1 bytes.
    yield "zstd, huge window", Codec.ZSTD, b"\x28\xb5\x2f\xfd\x00\xf8" + b"\x01\x00\x00" * 100
    yield "zstd, huge content size", Codec.ZSTD, b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 8 + b"\x01\x00\x00"
    yield "lz4", Codec.LZ4, streamed(cramjam.lz4.Compressor(), 200)[:LARGEST]
    yield "snappy that lies", Codec.SNAPPY, snappy_literal((1 << 32) - 1)
    yield "snappy", Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(bytes(20 * MIB)))[:LARGEST]
    yield "xerial that lies", Codec.SNAPPY, xerial(*[snappy_literal((1 << 32) - 1)] * 1000)
    block = bytes(cramjam.snappy.compress_raw(bytes(MIB)))
    yield "xerial, many blocks", Codec.SNAPPY, xerial(*[block] * (LARGEST // (len(block) + 4)))
    yield "xerial, block length of -1", Codec.SNAPPY, b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, -1)
    yield "xerial, block length of 2^31-1", Codec.SNAPPY, b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, (1 << 31) - 1)


def as_batch(codec: Codec, compressed: bytes) -> bytes:
    return resealed(batch_of(compressed, 1), attributes=(21, struct.pack(">h", codec)))


async def test_bombs_are_refused_and_nobody_else_notices(drayd: Drayd) -> None:
    """R-088, T08: each from eight connections at once; together they take no more than two caps."""
    prepared = [(name, as_batch(codec, compressed)) for name, codec, compressed in bombs()]
    async with Asker(drayd.bootstrap) as ask:
        await ask.create("bombed")

    async def throw(name: str, records: bytes) -> None:
        async with Asker(drayd.bootstrap) as ask:
            answer = await ask.produce("bombed", records)
            assert answer.error_code in (2, 10, 87), (name, answer)

    async with unharmed(drayd, "beside-bombs", growth_bytes=2 * DEFAULT_CAP_BYTES + 32 * MIB):
        for name, records in prepared:
            await asyncio.gather(*(throw(name, records) for _ in range(8)))
    async with Asker(drayd.bootstrap) as ask:
        assert (await ask.offset_at("bombed", -1)).offset == 0


def test_the_bombs_are_bombs() -> None:
    """What the server must not do: expand them."""
    sizes = {name: len(compressed) for name, _, compressed in bombs()}
    assert max(sizes.values()) <= LARGEST
    assert len(cramjam.lz4.decompress(streamed(cramjam.lz4.Compressor(), 16))) == 16 * MIB


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD], ids=lambda codec: codec.name)
async def test_honest_records_that_compress_well_are_taken(drayd: Drayd, codec: Codec) -> None:
    """The cap refuses bombs, not a large batch of zeros."""
    async with Asker(drayd.bootstrap) as ask:
        topic = f"zeros-{codec.name}"
        await ask.create(topic)
        records = build_batch([NewRecord(value=bytes(8 * MIB), timestamp=0)], codec=codec)
        answer = await ask.produce(topic, records)
        assert answer.error_code == 0, answer
