"""The receive buffer alone: frames in any pieces, views that stay true, memory that follows the bytes."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.servers.kafka.receive import IDLE_BYTES, FrameTooLarge, ReceiveBuffer
from dray.servers.kafka.settings import MIB

LIMIT = 4 * MIB


class Held:
    def __init__(self) -> None:
        self.bytes = 0

    def change(self, size: int) -> None:
        self.bytes += size


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def feed(buffer: ReceiveBuffer, raw: bytes, largest_read: int) -> None:
    """As a transport does: write into the tail, as much as fits."""
    tail = buffer.tail()
    assert len(tail) > 0
    count = min(len(raw), len(tail), largest_read)
    tail[:count] = raw[:count]
    tail.release()
    buffer.received(count)


@pytest.mark.slow
@given(
    sizes=st.lists(st.one_of(st.integers(10, 300), st.integers(10, 70_000)), min_size=1, max_size=40),
    reads=st.lists(st.one_of(st.integers(1, 100), st.integers(1, 100_000)), min_size=1, max_size=10),
    keep=st.integers(1, 20),
    seed=st.integers(0, 255),
)
@settings(max_examples=150, deadline=None)
def test_frames_come_out_as_they_went_in_and_views_stay_true(
    sizes: list[int], reads: list[int], keep: int, seed: int
) -> None:
    """KP11: views are kept across turn-overs, rewinds and spares; no byte under them changes."""
    held = Held()
    buffer = ReceiveBuffer(lambda _: LIMIT, held.change)
    bodies = [bytes((seed + n + k) & 0xFF for k in range(7)) * (size // 7 + 2) for n, size in enumerate(sizes)]
    stream = b"".join(map(frame, bodies))
    got: list[memoryview] = []
    position = turn = 0
    while position < len(stream):
        before = buffer.unread
        feed(buffer, stream[position:], reads[turn % len(reads)])
        position += buffer.unread - before
        while (view := buffer.next_frame()) is not None:
            got.append(view)
            if len(got) > keep:  # older views are let go, so that slabs can be used again
                at = len(got) - keep - 1
                assert got[at] == bodies[at]
                got[at].release()
        turn += 1
    assert len(got) == len(bodies)
    for view, body in list(zip(got, bodies, strict=True))[-keep:]:
        assert view == body
    for view in got:
        view.release()
    buffer.close()
    assert held.bytes == 0


@given(declared=st.integers(100_000, LIMIT), sent=st.integers(6, 99_999), reads=st.integers(1_000, 60_000))
@settings(max_examples=60, deadline=None)
def test_memory_follows_what_arrived_and_not_what_was_declared(declared: int, sent: int, reads: int) -> None:
    """KP12."""
    held = Held()
    buffer = ReceiveBuffer(lambda _: LIMIT, held.change)
    stream = struct.pack(">i", declared) + bytes(sent)
    position = 0
    while position < len(stream):
        before = buffer.unread
        feed(buffer, stream[position:], reads)
        position += buffer.unread - before
        assert buffer.next_frame() is None
    assert held.bytes <= max(2 * IDLE_BYTES, 4 * len(stream))


def test_a_connection_of_small_requests_stays_in_its_first_slab() -> None:
    held = Held()
    buffer = ReceiveBuffer(lambda _: LIMIT, held.change)
    for _ in range(5_000):
        feed(buffer, frame(bytes(100)), 1 << 20)
        view = buffer.next_frame()
        assert view is not None
        view.release()
    assert held.bytes == IDLE_BYTES


def test_lengths_are_checked_by_api_key() -> None:
    for length, key, fine in ((-1, 0, False), (9, 0, False), (10, 0, True), (1000, 0, True), (1000, 3, False)):
        buffer = ReceiveBuffer(lambda key: 1000 if key == 0 else 100, lambda _: None)
        feed(buffer, struct.pack(">ih", length, key), 100)
        try:
            assert buffer.next_frame() is None
            assert fine
        except FrameTooLarge:
            assert not fine
