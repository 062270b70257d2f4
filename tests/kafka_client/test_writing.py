"""What becomes of records is counted: those that nobody answered for are unknown, not failed."""

import socket

import pytest

from dray.kafka_client.record import Outgoing
from dray.kafka_client.writing import FAILURES_KEPT, RecordFailure, RecordWriter, Tally


def written(address: str, timeout_s: float, *values: bytes) -> RecordWriter:
    writer = RecordWriter(address, "t", compression="none", timeout_s=timeout_s)
    for number, value in enumerate(values, start=1):
        writer.write(number, Outgoing(key=None, value=value))
    return writer


@pytest.mark.slow
def test_a_record_that_nobody_answered_for_is_unknown():
    """CL1, E1: neither stored nor failed."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        writer = written(f"127.0.0.1:{silent.getsockname()[1]}", 0.5, b"one", b"two")
        while writer.pending():
            pass  # each record has its time limit
    assert (writer.tally.stored, writer.tally.failed, writer.tally.unknown) == (0, 0, 2)
    assert [one.record for one in writer.tally.failures] == [1, 2]
    assert not writer.tally.good


def test_what_is_given_up_is_counted():
    """CL1"""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        writer = written(f"127.0.0.1:{silent.getsockname()[1]}", 600, b"one", b"two", b"three")
        writer.abandon()
    assert writer.tally.stored + writer.tally.failed + writer.tally.unknown == 3
    assert writer.tally.stored == 0


def test_a_record_that_the_library_refuses_is_failed():
    """CL1: it was never sent."""
    writer = written("127.0.0.1:1", 600)
    writer.write(1, Outgoing(key=None, value=b"x" * (101 << 20)))
    assert (writer.tally.failed, writer.tally.failures[0].code) == (1, "MSG_SIZE_TOO_LARGE")


def test_the_tally_keeps_ends_and_the_first_failures():
    tally = Tally()
    for offset in (5, 3, 9):
        tally.accept(0, offset)
    tally.accept(4, 1)
    for number in range(100):
        tally.refuse(RecordFailure(record=number, code="C", reason="r"))
    assert (tally.partitions[0].records, tally.partitions[0].first, tally.partitions[0].last) == (3, 3, 9)
    assert (tally.stored, tally.failed, len(tally.failures)) == (4, 100, FAILURES_KEPT)
