"""The bytes of a segment."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.log.segment import (
    BAD,
    HEADER,
    SHORT,
    VERSION,
    BadHeader,
    NewerFormat,
    check_header,
    encode_header,
    encode_record,
    first_of,
    proof_of_damage,
    record_end,
    segment_name,
)

POSITIONS = st.one_of(st.integers(1, 300), st.sampled_from([(1 << 24) - 3, (1 << 24) - 1, (1 << 40) - 2, (1 << 63)]))


def batch(first: int, entries: list[bytes]) -> bytes:
    return b"".join(b"".join(encode_record(first + place, place, entry)) for place, entry in enumerate(entries))


@given(st.integers(1, (1 << 63) - 1))
def test_the_name_of_a_segment_gives_its_first_position_back(first: int) -> None:
    assert first_of(segment_name(first)) == first


@pytest.mark.parametrize("name", ["0.log", "0" * 20 + ".log", "1" * 20, "x" * 20 + ".log", "1" * 20 + ".log.repair"])
def test_other_names_are_no_segments(name: str) -> None:
    assert first_of(name) is None


@given(POSITIONS, st.integers(0, HEADER.size * 8 - 1))
def test_every_flipped_bit_of_a_header_is_seen(first: int, bit: int) -> None:
    header = bytearray(encode_header(first))
    check_header(bytes(header), first)
    header[bit // 8] ^= 1 << bit % 8
    with pytest.raises(BadHeader):
        check_header(bytes(header), first)


def test_a_newer_version_is_named_with_ours() -> None:
    from crc32c import crc32c

    head = HEADER.pack(b"DRAYLOG\n", VERSION + 1, 0, 1, 0)[:-4]
    with pytest.raises(NewerFormat, match=f"found={VERSION + 1} supported={VERSION}"):
        check_header(head + crc32c(head).to_bytes(4, "little"), 1)


@given(POSITIONS, st.lists(st.binary(min_size=1, max_size=80), min_size=1, max_size=5))
def test_records_come_back_in_their_places_and_nowhere_else(first: int, entries: list[bytes]) -> None:
    """LG5."""
    buffer = batch(first, entries)
    at = 0
    for position, entry in enumerate(entries, first):
        assert record_end(buffer, at, position + 1) == BAD
        end = record_end(buffer, at, position)
        assert buffer[end - len(entry) : end] == entry
        assert record_end(buffer[: end - 1], at, position) == SHORT
        at = end
    assert at == len(buffer)


@pytest.mark.slow
@settings(max_examples=200)
@given(
    POSITIONS,
    st.lists(st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=4), min_size=2, max_size=4),
    st.randoms(use_true_random=False),
)
def test_a_valid_record_of_a_later_batch_proves_damage(
    first: int, batches: list[list[bytes]], dice: random.Random
) -> None:
    """LG6: whatever the damaged part looks like, and whatever it says about its length."""
    parts, position = [], first
    for entries in batches:
        parts.append(batch(position, entries))
        position += len(entries)
    broken = bytearray(parts[0])
    broken[: dice.randint(1, len(broken))] = dice.choice([b"", b"\0" * 30, dice.randbytes(90)])
    buffer = bytes(broken) + b"".join(parts[1:])
    if record_end(buffer, 0, first) == BAD:
        assert proof_of_damage(buffer, first) is not None


@pytest.mark.slow
@settings(max_examples=200)
@given(POSITIONS, st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=6), st.data())
def test_the_remains_of_one_batch_prove_nothing(first: int, entries: list[bytes], data: st.DataObject) -> None:
    """LG6: sectors of one unsynced write reach the disk in any order, or as zeros, or not at all."""
    buffer = bytearray(batch(first, entries))
    start = data.draw(st.integers(0, len(encode_record(first, 0, entries[0])[0]) + len(entries[0]) - 1))
    end = data.draw(st.integers(start + 1, len(buffer)))
    buffer[start:end] = bytes(end - start)
    torn = bytes(buffer[: data.draw(st.integers(0, len(buffer)))])
    if record_end(torn, 0, first) <= 0:
        assert proof_of_damage(torn, first) is None


def test_a_later_batch_proves_damage_where_bytes_are_missing() -> None:
    """LG6: the rest is too short for all the records that should be in it."""
    lost = batch(1, [b"\0", b"\0", b"\0"])[43:] + batch(4, [b"\0"])
    assert proof_of_damage(lost, 1) == 4


def test_the_search_for_later_records_is_quick_in_zeros_and_in_noise() -> None:
    noise = random.Random(3).randbytes(2 << 20)
    for rest in (bytes(16 << 20), noise, noise + bytes(1 << 20)):
        assert proof_of_damage(rest, 12) is None
    assert proof_of_damage(noise + batch(14, [b"later"]), 12) == 14
