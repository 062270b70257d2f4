"""Batches that lie, batches in every compression, and what a reader finds of them."""

import struct
import zlib

from dray.records import Codec, NewRecord, build_batch
from dray.records.codecs import compress, compress_xerial
from tests.golden.comparison.scenes.shaping import body_of, changed, counted, with_body
from tests.golden.comparison.talking import Talk
from tests.records.lz4_frames import frames

PACKED = [codec for codec in Codec if codec is not Codec.NONE]


async def batches_that_are_none(talk: Talk) -> None:
    one = talk.batch()
    await talk.offer("empty", b"")
    await talk.offer("half a header", one[:40])
    await talk.offer("a byte short", one[:-1])
    await talk.offer("bytes behind it", one + bytes(7))
    await talk.offer("two batches", one + one)
    await talk.offer("a wrong checksum", one[:17] + b"\1\2\3\4" + one[21:])
    for magic in (-1, 3):
        await talk.offer(f"magic {magic}", changed(one, magic=magic))
    body = b"\x01\x00" + struct.pack(">q", talk.now_ms) + b"\xff\xff\xff\xff" + struct.pack(">i", 1) + b"v"
    message = struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body
    await talk.offer("magic 1", message)
    await talk.offer("magic 1 in version 3", message, version=3)


async def batches_with_odd_headers(talk: Talk) -> None:
    three = talk.batch(b"1", b"2", b"3")
    for count, last in ((2, 1), (4, 3), (3, 1), (1, 2), (0, -1), (-1, -2), (2**31 - 1, 2**31 - 2)):
        await talk.offer(f"count {count}, last delta {last}", counted(three, count, last))
    await talk.offer("no records", with_body(three, b"", count=0, last_delta=-1))
    for base in (5, -1):
        await talk.offer(f"base offset {base}", changed(three, base_offset=base))
    await talk.offer("a leader epoch", changed(three, leader_epoch=77))
    for bits in (0x40, 0x4000, -0x8000):
        await talk.offer(f"attributes {bits}", changed(three, attributes=bits))
    for codec in (5, 6, 7):
        await talk.offer(f"codec {codec}", changed(three, attributes=codec))


async def batches_with_a_lying_newest_time(talk: Talk) -> None:
    topic = await talk.topic()
    await talk.produce("newest time 5", topic, changed(talk.batch(b"1", b"2"), max_timestamp=5))
    await talk.fetch("what is stored", (topic, [(0, 0)]))
    await talk.offsets("its newest record", (topic, [(0, -3)]))


async def batches_with_odd_records(talk: Talk) -> None:
    one, two = talk.batch(b"abcdef"), talk.batch(b"a", b"b")
    await talk.offer("records behind the counted ones", with_body(talk.batch(b"a"), body_of(two)))
    await talk.offer("zeros behind the records", with_body(one, body_of(one) + b"\0\0"))
    await talk.offer("offset deltas 0, 0", with_body(two, body_of(talk.batch(b"a")) * 2))
    for first in (0x02, 0x7F):
        await talk.offer(f"a record of length {first // 2}", with_body(one, bytes([first]) + body_of(one)[1:]))
    attributes = bytearray(one)
    attributes[62] = 0x55
    await talk.offer("attributes of a record", changed(bytes(attributes)))
    for name, header in (
        ("a header without a key", b"\x01\x02x"),
        ("a header key that is no text", b"\x04\xff\xfe\x02x"),
        ("a header without a value", b"\x02h\x01"),
    ):
        record = b"\x00\x00\x00\x01\x02v\x02" + header
        await talk.offer(name, with_body(one, bytes([len(record) * 2]) + record))
    nulls = [NewRecord(key=b"", value=b"", timestamp=talk.now_ms), NewRecord(timestamp=talk.now_ms)]
    await talk.offer("nulls and nothing", build_batch(nulls))


async def batches_in_every_compression(talk: Talk) -> None:
    for codec in PACKED:
        good = talk.batch(b"a" * 1000, b"b", codec=codec)
        await talk.offer(f"{codec.name}", good)
        for count in (1, 3):
            await talk.offer(f"{codec.name} with a count of {count}", counted(good, count, count - 1))
        doubled = with_body(good, compress(codec, body_of(talk.batch(b"a")) * 2), count=2, last_delta=1)
        await talk.offer(f"{codec.name} with offset deltas 0, 0", doubled)
        longer = with_body(good, compress(codec, body_of(talk.batch(b"a", b"b")) + b"\0\0"))
        await talk.offer(f"{codec.name} with zeros behind the records", longer)
    await talk.offer("xerial", talk.batch(b"a" * 1000, codec=Codec.SNAPPY, xerial=True))


async def batches_that_do_not_decompress(talk: Talk) -> None:
    one = talk.batch(b"a" * 5000)
    for codec in PACKED:
        good = compress(codec, body_of(one))
        await talk.offer(f"{codec.name}: rubbish", with_body(one, b"rubbish " * 9, attributes=codec))
        await talk.offer(f"{codec.name}: nothing", with_body(one, b"", attributes=codec))
        await talk.offer(f"{codec.name}: half", with_body(one, good[: len(good) // 2], attributes=codec))
        await talk.offer(f"{codec.name}: a byte short", with_body(one, good[:-1], attributes=codec))
        await talk.offer(f"{codec.name}: junk behind it", with_body(one, good + b"junkjunk", attributes=codec))
        zeros = with_body(one, good + bytes(8), attributes=codec)
        await talk.offer(f"{codec.name}: zeros behind it", zeros)


async def batches_of_several_frames(talk: Talk) -> None:
    many = talk.batch(*(b"a" * 40_000 + bytes([n]) for n in range(5)))
    body = body_of(many)
    for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD):
        packed = compress(codec, body[:50_000]) + compress(codec, body[50_000:])
        await talk.offer(f"{codec.name}: two", with_body(many, packed, attributes=codec))
    halves = compress_xerial(body[:50_000]) + compress_xerial(body[50_000:])
    await talk.offer("xerial: two", with_body(many, halves, attributes=Codec.SNAPPY))
    empty = compress(Codec.GZIP, b"") + compress(Codec.GZIP, body)
    await talk.offer("GZIP: an empty one first", with_body(many, empty, attributes=Codec.GZIP))
    skipped = b"\x50\x2a\x4d\x18\x04\x00\x00\x00skip"
    for codec in (Codec.LZ4, Codec.ZSTD):
        packed = compress(codec, body)
        await talk.offer(f"{codec.name}: a skippable one first", with_body(many, skipped + packed, attributes=codec))
        await talk.offer(f"{codec.name}: a skippable one last", with_body(many, packed + skipped, attributes=codec))


async def batches_of_odd_lz4(talk: Talk) -> None:
    """K-022: which LZ4 frames may be stored."""
    many = talk.batch(*(b"a" * 40_000 + bytes([n]) for n in range(5)))
    for kind, (packed, _) in frames(body_of(many)).items():
        await talk.offer(kind, with_body(many, packed, attributes=Codec.LZ4))


SCENES = (
    batches_that_are_none,
    batches_with_odd_headers,
    batches_with_a_lying_newest_time,
    batches_with_odd_records,
    batches_in_every_compression,
    batches_that_do_not_decompress,
    batches_of_several_frames,
    batches_of_odd_lz4,
)
