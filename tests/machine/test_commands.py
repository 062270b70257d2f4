"""The commands' codec."""

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.machine import command as machine_command
from dray.machine.append import Append, AppendRow, pack_rows
from dray.machine.brokers import Listener, RegisterBroker
from dray.machine.command import MAX_ROWS, BadCommand, Command
from dray.machine.confirmations import Checkpointed
from dray.machine.garbage import Gone, MarkDeleting, Pin, Unpin
from dray.machine.head import Activate, Genesis
from dray.machine.machine import Machine
from dray.machine.names import StreamId, TopicId, WalId, parse_wal_id, wal_id
from dray.machine.offsets import CommitOffsets, ExpireOffsets, OffsetKey, OffsetReason, OffsetRow
from dray.machine.producer_ids import AllocateProducerId
from dray.machine.sessions import Close, Expire, KeepAlive, Open, SessionKind, Swept
from dray.machine.streams import CloseStream, ExpireProducers, FloorReason, OpenStream, RaiseFloor
from dray.machine.topics import AlterTopic, CreateTopic, DeleteTopic, TopicGone, TopicReady

DECODERS = Machine().decoders


def encode(command: Command) -> tuple[int, bytes]:
    return machine_command.encode(command, 1)


def decode(number: int, payload: bytes | memoryview) -> Command:
    return DECODERS.decode(number, payload, 1)


T = TopicId(b"t" * 16)
LISTENER = Listener(name="PLAIN", host="::1", port=9092)
SAMPLES = [
    Genesis(cluster_id=b"c" * 16, log_id=b"l" * 8, domain=0, domains=16, generation=3),
    Open(
        name="b", nonce=b"n" * 16, seen=7, instance=b"i" * 16, kind=SessionKind.COMPACTOR,
        lowest_version=1, highest_version=2, wall_ms=5, store_date_ms=6, accept_clock=True, owner=True,
    ),
    Close(), KeepAlive(), Expire(session=1, last_n=2), Activate(version=2),
    Checkpointed(position=9, hash=b"h" * 32, size=10, confirms=True),
    RegisterBroker(broker_id=-1, zone="a", rack="", listeners=(LISTENER, LISTENER), started_ms=1, capacity={"x": ""}),
    CreateTopic(topic_id=T, name="ü", partitions=3_000, configs={"retention.ms": "1"}),
    TopicReady(topic_id=T), DeleteTopic(topic_id=T), TopicGone(topic_id=T),
    AlterTopic(topic_id=T, set={"a": "b"}, remove=("c",), partitions=4, expected_revision=0),
    OpenStream(stream=StreamId(65_536), topic_id=T, partition=1, name_existed_before=True, producer_floor=5),
    CloseStream(stream=StreamId(1), limit=1),
    Append(wal_id=WalId(b"w" * 16), size=99, created_ms=1, zone="zoné", packed=pack_rows([(1,) * 9] * 3)),
    RaiseFloor(stream=StreamId(1), reason=FloorReason.TIME, bound=5),
    AllocateProducerId(), ExpireProducers(stream=StreamId(1), idle_ms=5, start=3),
    CommitOffsets(group="", rows=(OffsetRow(topic_id=T, partition=0, offset=-1, metadata="é"),), retention_ms=0),
    ExpireOffsets(group="g", reason=OffsetReason.DELETED, rows=(OffsetKey(
        topic_id=T, partition=1, commit_position=2),)),
    Pin(pin="p"), Unpin(pin="p"), MarkDeleting(objects=(1, 2), grace_ms=0), Gone(objects=()),
    Swept(sessions=(1, 2, 3)),
]  # fmt: skip


def test_every_command_survives_the_codec_and_has_its_number():
    """M1. A number once given is never given to another."""
    assert len(SAMPLES) == 26
    numbers = []
    for command in SAMPLES:
        number, payload = encode(command)
        assert decode(number, memoryview(payload)) == command
        numbers.append(number)
    assert numbers == list(range(1, 27))


@pytest.mark.parametrize("command", SAMPLES, ids=lambda command: type(command).__name__)
def test_a_payload_that_is_cut_or_too_long_is_a_bad_command(command):
    """M1"""
    number, payload = encode(command)
    for size in range(len(payload)):
        with pytest.raises(BadCommand):
            decode(number, payload[:size])
    with pytest.raises(BadCommand):
        decode(number, payload + b"\x00")


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(st.integers(0, 255), st.binary(max_size=200))
def test_any_bytes_are_a_command_or_a_bad_command(number, payload):
    """M1"""
    try:
        command = decode(number, payload)
    except BadCommand:
        return
    assert decode(*encode(command)) == command


def test_mutated_payloads_are_a_command_or_a_bad_command():
    """M1"""
    dice = random.Random(5)
    for command in SAMPLES * 40:
        number, payload = encode(command)
        raw = bytearray(payload)
        for _ in range(dice.randrange(1, 4)):
            if raw:
                raw[dice.randrange(len(raw))] = dice.randrange(256)
        try:
            decode(number, bytes(raw)).needs()
        except BadCommand:
            continue


def test_declared_lengths_are_bounded_by_what_was_received():
    """M1: nothing is allocated for what is not there."""
    for payload in (b"\x91\xdd\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff", b"\x91\xc6\xff\xff\xff\xff"):
        for number in range(1, 27):
            with pytest.raises(BadCommand):
                decode(number, payload)


def test_no_command_touches_more_rows_than_the_cap():
    """M2, Q8"""
    many = MAX_ROWS + 1
    too_much = [
        Append(wal_id=WalId(b"w" * 16), size=9, created_ms=1, zone="", packed=pack_rows([(1,) * 9] * many)),
        MarkDeleting(objects=(1,) * many, grace_ms=0), Gone(objects=(1,) * many), Swept(sessions=(1,) * many),
        CreateTopic(topic_id=T, name="t", partitions=many), CloseStream(stream=StreamId(1), limit=many),
        RaiseFloor(stream=StreamId(1), reason=FloorReason.SIZE, bound=0, limit=many),
        ExpireProducers(stream=StreamId(1), idle_ms=0, limit=many),
        CommitOffsets(group="g", rows=(OffsetRow(topic_id=T, partition=0, offset=0),) * many),
    ]  # fmt: skip
    for command in too_much:
        with pytest.raises(BadCommand):
            decode(*encode(command))
    assert all(1 <= command.needs() <= MAX_ROWS for command in SAMPLES)
    assert SAMPLES[15].needs() == 3


def test_append_lies_in_its_documented_bytes():
    """The layout that a native kernel reads."""
    rows = [AppendRow(StreamId(1), 2, 3, 4, 5, 6, 7, 8, 9), AppendRow(StreamId(11), 12, 13, -1, -1, 16, 17, 18, -1)]
    command = Append(wal_id=WalId(b"w" * 16), size=99, created_ms=7, zone="ab", packed=pack_rows(rows))
    number, payload = encode(command)
    head = b"w" * 16 + struct.pack("<IqHB", 99, 7, 2, 2) + b"ab"
    assert payload == head + struct.pack("<QqqqiIIIh", *rows[0]) + struct.pack("<QqqqiIIIh", *rows[1])
    decoded = decode(number, payload)
    assert isinstance(decoded, Append)
    assert list(decoded.rows()) == rows


def test_a_wal_id_names_its_log_session_and_counter():
    name = wal_id(b"log-id-8", 7, 9)
    assert name == b"log-id-8" + bytes([0, 0, 0, 7, 0, 0, 0, 9])
    parts = parse_wal_id(name)
    assert (parts.log_id, parts.session, parts.counter) == (b"log-id-8", 7, 9)
