"""Payloads that are said to be JSON: judged by its grammar, and without making values of them."""

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.heaps.errors import BadMessage
from dray.heaps.producing import check_message
from dray.machine.heaps.catalog import Heap, HeapState
from dray.machine.heaps.config import HeapConfig, Mode

from .stand import job

HEAP = Heap(
    id=b"h" * 16, name="jobs", mode=Mode.MIN, shard=1, partitions=1, replication_factor=1, state=HeapState.READY,
    created_ms=0, changed_ms=0, revision=0, told=0, config=HeapConfig(json=True, max_payload_bytes=8 << 20),
)  # fmt: skip
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4))
LEGAL = [b"1e400", b"[1E+5, -0.0]", b' {"a":1,"a":2}\n', '"\U0001f600"'.encode()]
WRONG = [
    b"", b" ", b"nul", b"01", b"1e", b"-", b"[1,]", b'{"a":}', b"{1:2}", b'"\n"', b'"\\x"', b'"\\u12"', b"1 2", b"NaN",
    b'"\xff"', b'{"\xff":1}', b'["\\ud800"]', b"[01]", b"\x00", b"\xef\xbb\xbf1", b"'a'",
]  # fmt: skip


def is_taken(payload: bytes) -> bool:
    try:
        check_message(HEAP, job(payload))
    except BadMessage:
        return False
    return True


@given(VALUES)
def test_what_is_json_is_taken(value):
    """D-035"""
    assert is_taken(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


@given(VALUES, st.data())
def test_what_a_parser_does_not_read_is_not_taken(value, data):
    """D-035: a byte is cut out of a text or changed, and the two agree."""
    text = json.dumps(value).encode()
    at = data.draw(st.integers(0, len(text) - 1))
    changed = (
        text[:at] + data.draw(st.sampled_from([b"", b",", b"]", b"}", b'"', b"1", b"\\", b"\xff"])) + text[at + 1 :]
    )
    try:
        json.loads(changed.decode(), parse_constant=lambda name: 1 / 0)
    except (ValueError, ZeroDivisionError):
        assert not is_taken(changed), changed


@pytest.mark.parametrize("payload", LEGAL)
def test_texts_that_are_json_whatever_their_values_are_are_taken(payload):
    assert is_taken(payload)


@pytest.mark.parametrize("payload", WRONG)
def test_texts_that_are_no_json_are_not_taken(payload):
    """D-035"""
    assert not is_taken(payload)


def test_a_payload_that_is_nested_too_deeply_is_refused_as_any_other():
    with pytest.raises(BadMessage, match="deep"):
        check_message(HEAP, job(b"[" * 100_000 + b"]" * 100_000))


def test_nothing_is_made_of_a_large_payload():
    """HP3: values of it would take twenty times its size."""
    payload = b"[" + b",".join([b"[]"] * (1 << 20)) + b"]"
    tracemalloc.start()
    try:
        check_message(HEAP, job(payload))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * len(payload)
