"""The frames of the load generator are what kio and kafka-python take them for."""

import io
import struct
from datetime import timedelta

import pytest
from kafka.record import MemoryRecords
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12 import request as fetch_v12
from kio.schema.fetch.v12 import response as fetched_v12
from kio.schema.produce.v9 import request as produce_v9
from kio.schema.produce.v9 import response as produced_v9
from kio.schema.request_header.v2.header import RequestHeader
from kio.serial import entity_reader, entity_writer

from bench._rawload import parse
from bench._wire import (
    CORRELATION,
    Refused,
    batches,
    fetch_request,
    fetch_response,
    produce_request,
    produce_response,
    record_batch,
)

NO_TIME = timedelta(0)


def unframed(frame: bytes) -> bytes:
    [size] = struct.unpack_from(">i", frame)
    assert size == len(frame) - 4
    return frame[4:]


def header_and_body(frame: bytes, entity: type) -> tuple[RequestHeader, object]:
    request = unframed(frame)
    header, used = entity_reader(RequestHeader)(request, 0)
    body, used_by_body = entity_reader(entity)(request, used)
    assert used + used_by_body == len(request)
    return header, body


def answer(entity: object) -> memoryview:
    out = io.BytesIO()
    out.write(struct.pack(">iB", CORRELATION, 0))
    entity_writer(type(entity))(out, entity)
    return memoryview(out.getvalue())


def fetched(records: bytes, error: ErrorCode = ErrorCode.none) -> memoryview:
    partition = fetched_v12.PartitionData(
        partition_index=2, error_code=error, high_watermark=500, aborted_transactions=None, records=records
    )
    topic = fetched_v12.FetchableTopicResponse(topic="t", partitions=(partition,))
    return answer(
        fetched_v12.FetchResponse(throttle_time=NO_TIME, error_code=ErrorCode.none, session_id=0, responses=(topic,))
    )


def test_a_batch_holds_its_values_under_a_right_checksum() -> None:
    values = [b"a" * 1024, b"", b"c" * 70_000]
    [batch] = _read(record_batch(values, 1_700_000_000_123))
    assert batch.validate_crc()
    assert [(record.offset, record.key, record.value) for record in batch] == [
        (n, None, value) for n, value in enumerate(values)
    ]
    assert {record.timestamp for record in _read(record_batch(values, 1_700_000_000_123))[0]} == {1_700_000_000_123}


def test_a_produce_frame_carries_each_batch_to_its_partition() -> None:
    batch = record_batch([b"x" * 200] * 128, 1)
    header, body = header_and_body(produce_request("topic-1", [(0, batch), (3, batch)]), produce_v9.ProduceRequest)
    assert (header.request_api_key, header.request_api_version, header.correlation_id) == (0, 9, CORRELATION)
    assert isinstance(body, produce_v9.ProduceRequest)
    assert body.acks == -1
    [topic] = body.topic_data
    assert topic.name == "topic-1"
    assert [(part.index, bytes(part.records or b"")) for part in topic.partition_data] == [(0, batch), (3, batch)]


def test_a_fetch_frame_asks_for_one_partition_at_one_offset() -> None:
    header, body = header_and_body(fetch_request("topic-1", 2, 1 << 40, 1 << 20), fetch_v12.FetchRequest)
    assert (header.request_api_key, header.request_api_version) == (1, 12)
    assert isinstance(body, fetch_v12.FetchRequest)
    assert (body.session_id, body.session_epoch, body.max_bytes) == (0, -1, 1 << 20)
    [topic] = body.topics
    [partition] = topic.partitions
    assert (topic.topic, partition.partition, partition.fetch_offset) == ("topic-1", 2, 1 << 40)


def test_a_produce_answer_is_read_to_its_last_partition_past_error_texts() -> None:
    first = produced_v9.PartitionProduceResponse(
        index=0,
        error_code=ErrorCode.invalid_record,
        base_offset=-1,
        record_errors=(
            produced_v9.BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="bad"),
            produced_v9.BatchIndexAndErrorMessage(batch_index=2, batch_index_error_message=None),
        ),
        error_message="worse" * 60,
    )
    second = produced_v9.PartitionProduceResponse(
        index=7, error_code=ErrorCode.none, base_offset=99, record_errors=()
    )  # fmt: skip
    topic = produced_v9.TopicProduceResponse(name="t", partition_responses=(first, second))
    found = produce_response(answer(produced_v9.ProduceResponse(responses=(topic,))))
    assert [(one.partition, one.error, one.base_offset) for one in found] == [(0, 87, -1), (7, 0, 99)]


def test_whole_batches_of_a_fetch_answer_are_counted_and_a_cut_one_is_not() -> None:
    batch = record_batch([b"x" * 100] * 10, 1)
    second = struct.pack(">q", 10) + batch[8:]
    frame = fetched(batch + second + batch[:80])
    found = fetch_response(frame)
    assert (found.error, found.high_watermark) == (0, 500)
    assert [(one.base_offset, one.records, one.size) for one in batches(found.records)] == [
        (0, 10, len(batch)),
        (10, 10, len(batch)),
    ]


def test_a_flipped_bit_in_a_fetched_record_is_noticed() -> None:
    batch = bytearray(record_batch([b"x" * 100], 1))
    batch[-20] ^= 1
    with pytest.raises(Refused, match="checksum"):
        list(batches(fetch_response(fetched(bytes(batch))).records))


def test_an_error_of_the_partition_is_told() -> None:
    assert fetch_response(fetched(b"", ErrorCode.offset_out_of_range)).error == 1


def test_an_answer_to_another_request_is_refused() -> None:
    frame = bytearray(fetched(b""))
    frame[3] ^= 1
    with pytest.raises(Refused, match="another request"):
        fetch_response(memoryview(frame))


def test_a_load_without_a_topic_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["produce", "127.0.0.1:9092"])
    assert "needs a topic" in capsys.readouterr().err


def _read(batch: bytes) -> list:
    records = MemoryRecords(batch)
    found = []
    while records.has_next():
        found.append(records.next_batch())
    return found
