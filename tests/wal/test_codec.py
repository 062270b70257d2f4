"""The WAL object, byte by byte."""

import random
import struct
import tracemalloc

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.errors import DrayError, Invalid
from dray.wal import codec
from dray.wal.codec import BadWalObject, Batch
from dray.wal.ids import LogId, SessionId, WalId, is_made_by, parse_wal_id, wal_id

LOG = LogId(bytes.fromhex("0102030405060708"))
WAL = wal_id(LOG, 7, 9)
CREATED_MS = 1_763_164_800_000

GOLDEN = bytes.fromhex(
    "44524159574f31"  # DRAYWO1
    "0001"  # version
    "0102030405060708" "00000007" "00000009"  # log id, session, counter
    "00000003"  # domain
    "0000019a84cfc400"  # created
    "00000002"  # chunks
    "0000000000000047"  # index at 71
    "00000002" "6161"  # stream 1: two batches
    "00000003" "626262"
    "00000005" "6363636363"  # stream 65537: one batch
    "0000000000000001" "0000000000000031" "0000000d" "00000005" "00000002" "ffffffffffffffff" "0000000000000014"
    "0000000000010001" "000000000000003e" "00000009" "00000004" "00000001" "000000000000001e" "0000000000000028"
)  # fmt: skip


def golden_object() -> codec.EncodedObject:
    chunks = [(1, [Batch(b"aa", 2, -1, 20), Batch(b"bbb", 3, 10, 15)]), (65537, [Batch(b"ccccc", 4, 30, 40)])]
    return codec.encode(WAL, 3, CREATED_MS, chunks)


def joined(encoded: codec.EncodedObject) -> bytes:
    return b"".join(bytes(part) for part in encoded.parts)


def test_the_object_is_laid_out_byte_for_byte_as_specified():
    """R-030, R-031, R-032, R-034: header, bodies, index, then the CRC32C of all before it."""
    assert joined(golden_object()) == GOLDEN + struct.pack(">I", crc32c(GOLDEN))


def test_the_golden_object_is_read_back():
    decoded = codec.decode(joined(golden_object()))
    assert decoded.header == codec.Header(wal_id=WAL, domain=3, created_ms=CREATED_MS, chunk_count=2, index_at=71)
    assert [chunk.stream for chunk in decoded.chunks] == [1, 65537]
    assert [bytes(data) for _, data in decoded.batches(decoded.chunks[0])] == [b"aa", b"bbb"]
    assert decoded.chunks[0].records == 5
    assert (decoded.chunks[0].min_timestamp_ms, decoded.chunks[0].max_timestamp_ms) == (-1, 20)


def test_positions_name_the_first_byte_of_the_batch_itself():
    """E-5: not its length; neighbours lie 4 bytes apart."""
    encoded = golden_object()
    whole = joined(encoded)
    assert encoded.positions == [[53, 59], [66]]
    assert [whole[53:55], whole[59:62], whole[66:71]] == [b"aa", b"bbb", b"ccccc"]
    assert encoded.size == len(whole)


def test_batches_are_stored_as_received_and_not_as_rows():
    """R-038, R-040: the departure from a row format, held."""
    received = random.Random(1).randbytes(10_000)
    encoded = codec.encode(WAL, 0, 0, [(1, [Batch(received, 1, 0, 0)])])
    assert received in joined(encoded)


def test_encoding_copies_no_record_byte():
    """W3: the very buffers that came in go out, and memory grows by bookkeeping only."""
    slab = bytearray(4 << 20)
    views = [memoryview(slab)[at : at + (64 << 10)] for at in range(0, len(slab), 64 << 10)]
    chunks = [(stream, [Batch(view, 1, 0, 0)]) for stream, view in enumerate(views)]
    codec.encode(WAL, 0, 0, chunks)
    tracemalloc.start()
    encoded = codec.encode(WAL, 0, 0, chunks)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert all(any(part is view for part in encoded.parts) for view in views)
    assert peak < 64 << 10, "an encoder that copies needs 4 MiB"


batches = st.lists(
    st.builds(
        Batch,
        st.binary(min_size=1, max_size=300),
        st.integers(1, 1000),
        st.integers(-1, 1 << 40),
        st.integers(-1, 1 << 40),
    ),
    min_size=1,
    max_size=5,
)


@given(st.dictionaries(st.integers(0, (1 << 64) - 1), batches, max_size=6), st.integers(0, (1 << 32) - 1))
def test_what_is_encoded_is_decoded(streams: dict[int, list[Batch]], domain: int):
    """R-033: a round trip for any streams and batches; counts and times equal a recount."""
    chunks = sorted(streams.items())
    decoded = codec.decode(joined(codec.encode(WAL, domain, CREATED_MS, chunks)))
    assert decoded.header.domain == domain
    assert len(decoded.chunks) == len(chunks)
    for chunk, (stream, originals) in zip(decoded.chunks, chunks, strict=True):
        assert chunk.stream == stream
        assert [bytes(data) for _, data in decoded.batches(chunk)] == [batch.data for batch in originals]
        assert chunk.records == sum(batch.records for batch in originals)
        assert chunk.min_timestamp_ms == min(batch.min_timestamp_ms for batch in originals)
        assert chunk.max_timestamp_ms == max(batch.max_timestamp_ms for batch in originals)


def test_every_cut_is_refused():
    """R-035, answers 23: also a cut by exactly the footer's four bytes."""
    whole = joined(golden_object())
    for size in range(len(whole)):
        with pytest.raises(BadWalObject):
            codec.decode(whole[:size])
    with pytest.raises(BadWalObject, match="bytes behind its end"):
        codec.decode(whole + b"x")


def test_every_flipped_bit_is_found():
    """R-034."""
    whole = joined(golden_object())
    for bit in range(len(whole) * 8):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << (bit % 8)
        with pytest.raises(BadWalObject):
            codec.decode(damaged)


def resealed(body: bytearray) -> bytes:
    return bytes(body) + struct.pack(">I", crc32c(bytes(body)))


@pytest.mark.parametrize(
    ("at", "raw", "reason"),
    [
        (0, b"KAFSCAL", "not a WAL object"),
        (7, b"\x00\x02", "another version"),
        (37, b"\xff\xff\xff\xff", "cut or has bytes"),
        (41, b"\x00" * 7 + b"\x10", "overlaps the header"),
        (41, b"\x7f" + b"\xff" * 7, "cut or has bytes"),
        (71 + 44 + 8, b"\x00" * 7 + b"\x31", "overlap or leave a gap"),
        (71 + 44, b"\x00" * 8, "not sorted"),
        (71 + 16, b"\x00\x00\x00\x0e", "gap"),
        (71 + 44 + 16, b"\x00\x00\x00\x08", "do not reach"),
        (49, b"\xff\xff\xff\xff", "crosses the end"),
        (71 + 24, b"\xff\xff\xff\xff", "ends inside|crosses"),
        (71 + 24, b"\x00\x00\x00\x01", "behind its last batch"),
    ],
)
def test_a_lie_with_a_right_crc_is_refused_with_its_reason(at: int, raw: bytes, reason: str):
    """R-035, R-036, W2: W4 is checked field by field, not left to the CRC."""
    body = bytearray(GOLDEN)
    body[at : at + len(raw)] = raw
    with pytest.raises(BadWalObject, match=reason):
        codec.decode(resealed(body))


def test_an_error_about_a_newer_file_names_both_versions():
    """R-036."""
    body = bytearray(GOLDEN)
    body[7:9] = b"\x00\x09"
    with pytest.raises(BadWalObject, match="version=9 known=1"):
        codec.decode(resealed(body))


@settings(max_examples=300)
@given(st.binary(max_size=400), st.integers(0, 1 << 30))
def test_the_parser_survives_any_bytes(noise: bytes, seed: int):
    """R-035: a clean error or a whole object, in bounded memory, whatever comes in."""
    rng = random.Random(seed)
    body = bytearray(GOLDEN)
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(body))
        body[at : at + rng.randint(0, 8)] = noise[: rng.randint(0, 8)]
    for candidate in (noise, bytes(body), resealed(body)):
        try:
            decoded = codec.decode(candidate)
        except DrayError:
            continue
        assert b"".join(bytes(data) for chunk in decoded.chunks for _, data in decoded.batches(chunk))


def test_chunks_out_of_order_or_empty_are_refused_before_anything_is_written():
    with pytest.raises(Invalid):
        codec.encode(WAL, 0, 0, [(2, [Batch(b"x", 1, 0, 0)]), (1, [Batch(b"x", 1, 0, 0)])])
    with pytest.raises(Invalid):
        codec.encode(WAL, 0, 0, [(2, [])])


@given(st.binary(min_size=8, max_size=8), st.integers(1, (1 << 32) - 1), st.integers(0, (1 << 32) - 1))
def test_a_wal_id_is_parsed_into_what_it_was_made_of(log_id: bytes, session: int, counter: int):
    """W1: the three parts are all of it."""
    name = parse_wal_id(wal_id(LogId(log_id), session, counter))
    assert (name.log_id, name.session, name.counter) == (log_id, session, counter)
    made = wal_id(LogId(log_id), session, counter)
    assert is_made_by(made, LogId(log_id), SessionId(session))
    assert not is_made_by(made, LogId(log_id), SessionId(session ^ 1))
    assert not is_made_by(made, LogId(log_id[1:] + b"x"), SessionId(session)) or log_id[1:] + b"x" == log_id


def test_the_wal_id_has_a_fixed_byte_form():
    assert WalId(bytes.fromhex("01020304050607080000000700000009")) == WAL
    for bad in ((b"short", 1, 1), (LOG, 0, 1), (LOG, 1 << 32, 1), (LOG, 1, 1 << 32)):
        with pytest.raises(Invalid):
            wal_id(LogId(bad[0]), bad[1], bad[2])
    with pytest.raises(Invalid):
        parse_wal_id(b"x" * 15)
