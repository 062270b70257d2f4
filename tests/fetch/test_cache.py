"""The object cache: bounded by bytes, views without copies, no piece within another."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.fetch.cache import PART_OVERHEAD_BYTES, ObjectCache, fetched_piece, written_piece
from tests.fetch.world import random_batch

CONTENT = random.Random(1).randbytes(5_000)


@given(
    limit=st.integers(0, 12_000),
    pieces=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4_999), st.integers(1, 3_000)), max_size=40),
    asked=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4_999), st.integers(1, 500)), max_size=20),
)
@settings(max_examples=100, deadline=None)
def test_whatever_is_kept_the_limit_holds_and_views_are_true(limit, pieces, asked):
    """F1, F2, R-128."""
    cache = ObjectCache(limit)
    for path, start, size in pieces:
        cache.keep(fetched_piece(path, start, memoryview(CONTENT)[start : start + size]))
        held = [piece for found in cache._by_path.values() for piece in found]
        assert cache.bytes == sum(piece.own_bytes for piece in held) <= limit  # F1
        assert set(held) == set(cache._used)
        for found in cache._by_path.values():  # F2
            assert all(a.start < b.start and a.end < b.end for a, b in itertools.pairwise(found))
        for wanted, at, length in asked:
            end = min(at + length, len(CONTENT))
            piece = cache.find(wanted, at)
            covered = any(p.path == wanted and p.start <= at and end <= p.end for p in held)
            view = piece.cut(at, end) if piece is not None and end <= piece.end else None
            assert (view is not None) == covered
            assert view is None or bytes(view) == CONTENT[at:end]


def test_a_written_object_is_kept_as_it_was_put():
    """No part is copied, and what no batch can be is left out."""
    dice = random.Random(3)
    data = [random_batch(dice) for _ in range(5)]
    parts: list[bytes] = [b"h" * 49]
    for batch in data:
        parts += (len(batch).to_bytes(4, "big"), batch)
    parts.append(b"crc!")
    cache = ObjectCache(10**6)
    cache.add("x", parts, sum(map(len, parts)))
    assert cache.bytes == sum(map(len, data)) + PART_OVERHEAD_BYTES * len(data)
    at = 49
    for batch in data:
        at += 4
        piece = cache.find("x", at)
        assert piece.trusted
        assert piece.cut(at, at + len(batch)).obj is batch
        assert piece.cut(at, at + len(batch) + 1) is None
        at += len(batch)
    assert cache.find("x", at + 4) is None
    cache.forget("x")
    assert cache.bytes == 0


def test_views_into_slabs_count_the_slabs_and_small_ones_are_copied():
    """F1, R-128: a hundred bytes that hold a megabyte are not a hundred bytes."""
    dice = random.Random(4)
    batch = random_batch(dice)
    full = bytearray(b"length" + batch + b"frame")
    cache = ObjectCache(10**6)
    cache.add("full", [memoryview(full)[6 : 6 + len(batch)]], len(batch))
    view = cache.find("full", 0).cut(0, len(batch))
    assert view.obj is full
    assert cache.bytes == len(full) + PART_OVERHEAD_BYTES
    slab = bytearray(100_000)
    slab[50 : 50 + len(batch)] = batch
    parts = [b"size", memoryview(slab)[50 : 50 + len(batch)]]
    cache.add("slab", parts, 4 + len(batch))
    copied = cache.find("slab", 4)
    assert copied.trusted
    assert copied.own_bytes == 4 + len(batch) + PART_OVERHEAD_BYTES
    parts.clear()
    slab.clear()  # nothing holds it any more: a bytearray with a view cannot be resized
    assert bytes(copied.cut(4, 4 + len(batch))) == batch


def test_an_object_of_many_small_parts_is_kept_as_one():
    """F1: what it counts is its bytes, and every batch of it is found."""
    dice = random.Random(5)
    batches = [random_batch(dice)[:100] for _ in range(40)]
    parts = [part for batch in batches for part in (len(batch).to_bytes(4, "big"), batch)]
    content = b"".join(parts)
    cache = ObjectCache(10**6)
    cache.add("many", parts, len(content))
    assert cache.bytes == len(content) + PART_OVERHEAD_BYTES
    for start in range(4, len(content), 104):
        piece = cache.find("many", start)
        assert piece.trusted
        assert bytes(piece.cut(start, start + 100)) == content[start : start + 100]
    large = [random_batch(dice) + bytes(2_000) for _ in range(40)]
    cache.add("large", large, sum(map(len, large)))
    assert cache.find("large", 0).cut(0, len(large[0])).obj is large[0], "what is large is not copied"


@given(
    limit=st.integers(0, 600_000),
    objects=st.lists(
        st.lists(st.tuples(st.integers(0, 5), st.integers(61, 60_000)), min_size=1, max_size=6), max_size=15
    ),
)
@settings(max_examples=50, deadline=None)
def test_each_slab_is_counted_once_however_many_objects_look_into_it(limit, objects):
    """F1, R-128: what the cache keeps alive is within the limit."""
    slabs = [bytearray(70_000) for _ in range(6)]
    cache = ObjectCache(limit)
    for number, parts in enumerate(objects):
        cache.add(f"o{number}", [memoryview(slabs[at])[:size] for at, size in parts], sum(size for _, size in parts))
        held = list(cache._used)
        alive = {id(part.obj): len(part.obj) for piece in held for part in piece._parts}
        overhead = sum(PART_OVERHEAD_BYTES * len(piece._parts) for piece in held)
        assert cache.bytes == sum(alive.values()) + overhead <= limit
    for number in range(len(objects)):
        cache.forget(f"o{number}")
    assert (cache.bytes, cache._holders) == (0, {})
    held = []
    for slab in slabs:
        slab.clear()  # no view is left


def test_the_least_recently_used_goes_first():
    """F1."""
    cache = ObjectCache(3 * (100 + PART_OVERHEAD_BYTES))
    for path in "abc":
        cache.keep(fetched_piece(path, 0, memoryview(CONTENT)[:100]))
    assert cache.find("a", 0) is not None
    cache.keep(fetched_piece("d", 0, memoryview(CONTENT)[:100]))
    assert [cache.find(path, 0) is not None for path in "abcd"] == [True, False, True, True]


@pytest.mark.parametrize("limit", [0, 99])
def test_what_is_larger_than_the_cache_is_not_kept(limit):
    cache = ObjectCache(limit)
    cache.add("x", [CONTENT], len(CONTENT))
    cache.keep(written_piece("x", [CONTENT]))
    assert cache.bytes == 0
    assert cache.find("x", 0) is None
