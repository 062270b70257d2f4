"""A plain Produce request as rows: the kernel, its twin, and the code for every request say the same."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.produce.batches import received
from dray.records import BatchRules, NewRecord, ScratchPool, build_batch, pure_request
from dray.records.errors import InvalidBatch
from dray.records.layout import Codec
from dray.records.pure_request import MOST_ROWS, Plain, Row
from dray.servers.kafka.codec import Malformed, decode
from dray.servers.kafka.messages.produce import SCHEMA as PRODUCE
from dray.servers.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dray.servers.kafka.messages.request_header import CODEC as REQUEST_HEADER
from dray.servers.kafka.messages.request_header import RequestHeader
from tests.records.batch_samples import damaged, record_lists, resealed, seeded_records, validate

_kernel = pytest.importorskip("dray.records._kernel", reason="built without a compiler")

RULES = BatchRules(max_bytes=1 << 30)
ANY_TIME = BatchRules(max_bytes=1 << 30, append_time=True)
POOL = ScratchPool(1 << 20)
SIDES = [_kernel.plain_request, pure_request.plain_request]


def frame_of(
    topics: dict[str, list[bytes | None]],
    *,
    client_id: str | None = "client",
    transactional_id: str | None = None,
    acks: int = -1,
    timeout_ms: int = 30_000,
) -> bytes:
    """A request of version 9 without its length: for each topic the batches of partitions 0, 1, ..."""
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                name=name,
                partition_data=[
                    PartitionProduceData(index=index, records=batch) for index, batch in enumerate(batches)
                ],
            )
            for name, batches in topics.items()
        ],
    )
    header = RequestHeader(0, 9, 77, client_id)
    return b"".join((*REQUEST_HEADER.write[2](header), *PRODUCE.request.write[9](request)))


def told_by_the_code_for_every_request(frame: bytes) -> Plain:
    """What the generated readers and the validation find; an error where they refuse."""
    view = memoryview(frame)
    header, position, _ = decode(REQUEST_HEADER.read[2], view, 0)
    request, _, _ = decode(PRODUCE.request.read[9], view, position)
    assert request.acks in (-1, 1)
    assert request.transactional_id is None
    rows: list[Row] = []
    for topic in request.topic_data:
        for part in topic.partition_data:
            assert isinstance(part.records, memoryview)
            found = validate(part.records, RULES, POOL)
            start = bytes(frame).find(bytes(part.records)) if not rows else frame.find(bytes(part.records), rows[-1][3])
            batch = received(0, found)  # type: ignore[arg-type]
            rows.append(
                (topic.name, part.index, start, start + len(part.records), found.batch.crc, batch.records,
                 batch.min_timestamp_ms, batch.max_timestamp_ms, first_null_key(found.batch.records, batch.records),
                 batch.producer_id, batch.producer_epoch, batch.base_sequence)
            )  # fmt: skip
    return header.correlation_id, request.timeout_ms, rows


def first_null_key(records: memoryview, count: int) -> int:
    return _kernel.scan(records, count, 0)[2]


batches = st.builds(
    build_batch,
    record_lists,
    producer_id=st.sampled_from((-1, 0, 9)),
    producer_epoch=st.just(3),
    base_sequence=st.just(11),
)
requests = st.dictionaries(
    st.text(min_size=1, max_size=9), st.lists(batches, min_size=1, max_size=3), min_size=1, max_size=3
)


@pytest.mark.slow
@settings(max_examples=60)
@given(topics=requests, client_id=st.one_of(st.none(), st.text(max_size=9)), acks=st.sampled_from((-1, 1)))
def test_what_is_plain_is_read_as_the_code_for_every_request_reads_it(
    topics: dict[str, list[bytes | None]], client_id: str | None, acks: int
):
    """B3, B5, PR7"""
    frame = frame_of(topics, client_id=client_id, acks=acks, timeout_ms=-1)
    expected = told_by_the_code_for_every_request(frame)
    for side in SIDES:
        assert side(memoryview(frame)) == expected


@pytest.mark.slow
def test_both_judge_damaged_requests_alike_and_take_nothing_that_would_be_refused():
    """B1, B3: lengths that lie, tags that appear, bytes that are gone."""
    seed = 8120
    print("seed", seed)
    dice = random.Random(seed)
    plain = refused = 0
    for _ in range(4_000):
        whole = {
            f"topic-{number}": [build_batch(seeded_records(dice, 4)) for _ in range(dice.randrange(1, 3))]
            for number in range(dice.randrange(1, 3))
        }
        frame = damaged(dice, frame_of({**whole}))
        ours, twins = (side(frame) for side in SIDES)
        assert ours == twins, frame.hex()
        if ours is None:
            refused += 1
            continue
        plain += 1
        for name, _, start, end, crc, *_ in ours[2]:
            assert name.encode() in frame
            try:
                validate(resealed(frame[start:end]), ANY_TIME, POOL)
            except InvalidBatch as error:
                pytest.fail(f"{error} {frame.hex()}")
            assert int.from_bytes(frame[start + 17 : start + 21], "big") == crc
        decode(PRODUCE.request.read[9], memoryview(frame), decode(REQUEST_HEADER.read[2], memoryview(frame), 0)[1])
    assert plain > 100
    assert refused > 100


@given(frame=st.binary(max_size=80))
def test_both_judge_any_bytes_alike(frame: bytes):
    """B3"""
    ours, twins = (side(frame) for side in SIDES)
    assert ours == twins


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_request_cut_anywhere_is_not_plain(cut: int):
    """B1"""
    frame = frame_of({"t": [build_batch([NewRecord(b"k", b"v")])]})
    for side in SIDES:
        assert side(frame) is not None
        assert side(frame[:-cut]) is None
        assert side(frame + b"\0" * cut) is None


GOOD = build_batch([NewRecord(b"k", b"v"), NewRecord(None, b"w")])


@pytest.mark.parametrize(
    "frame",
    [
        frame_of({"t": [GOOD]}, acks=0),
        frame_of({"t": [GOOD]}, acks=2),
        frame_of({"t": [GOOD]}, transactional_id="tx"),
        frame_of({"t": [None]}),
        frame_of({"t": [b""]}),
        frame_of({"t": []}),
        frame_of({}),
        frame_of({"t": [GOOD] * (MOST_ROWS + 1)}),
        frame_of({"t": [GOOD + GOOD]}),
        frame_of({"t": [build_batch([NewRecord(b"k", b"v")], codec=Codec.GZIP)]}),
        frame_of({"t": [resealed(GOOD, magic=(16, b"\x01"))]}),
        frame_of({"t": [resealed(GOOD, base_offset=(0, (5).to_bytes(8, "big")))]}),
        frame_of({"t": [resealed(GOOD, append_time=(21, b"\x00\x08"))]}),
        frame_of({"t": [resealed(GOOD, transactional=(21, b"\x00\x10"))]}),
        frame_of({"t": [resealed(GOOD, not_known=(21, b"\x40\x00"))]}),
        frame_of({"t": [resealed(GOOD, count=(57, (3).to_bytes(4, "big")))]}),
        frame_of({"t": [resealed(GOOD, producer=(43, (9).to_bytes(8, "big")))]}),
    ],
    ids=[
        "no answer wanted", "acks of two", "a transaction", "null records", "no records", "no partition", "no topic",
        "too many partitions", "two batches", "compressed", "an older format", "a base offset", "append time",
        "transactional", "a bit not known", "a wrong count", "a producer without a sequence",
    ],
)  # fmt: skip
def test_what_is_unusual_is_left_to_the_code_for_every_request(frame: bytes):
    """B3"""
    for side in SIDES:
        assert side(frame) is None


def test_as_many_partitions_as_there_are_rows_are_plain():
    frame = frame_of({"a": [GOOD] * (MOST_ROWS - 1), "b": [GOOD]})
    for side in SIDES:
        found = side(frame)
        assert found is not None
        assert len(found[2]) == MOST_ROWS


@pytest.mark.parametrize("tag_at", ["header", "partition", "topic", "request"])
@pytest.mark.parametrize("side", SIDES, ids=["kernel", "twin"])
def test_a_tagged_field_is_unusual_wherever_it_is(side: Callable[[bytes], Plain | None], tag_at: str):
    """B3, KP3: the code for every request skips it."""
    frame = frame_of({"t": [GOOD]}, client_id=None)
    at = {"header": 10, "partition": len(frame) - 3, "topic": len(frame) - 2, "request": len(frame) - 1}[tag_at]
    assert frame[at] == 0
    tagged = frame[:at] + b"\x01\x63\x02zz" + frame[at + 1 :]
    assert side(tagged) is None
    _, position, _ = decode(REQUEST_HEADER.read[2], memoryview(tagged), 0)
    request, _, _ = decode(PRODUCE.request.read[9], memoryview(tagged), position)
    assert request.topic_data[0].name == "t"


def test_names_that_are_not_utf8_are_not_plain():
    frame = frame_of({"topic": [GOOD]}, client_id="client")
    for name in (b"topic", b"client"):
        wrong = frame.replace(name, b"\xff" * len(name))
        for side in SIDES:
            assert side(wrong) is None
        with pytest.raises(Malformed):
            told_by_the_code_for_every_request(wrong)
