"""Other protocols on the Kafka port, and what only looks like them."""

import pytest

from dray.servers.kafka.receive import FrameTooLarge, NotKafka, ReceiveBuffer


def refusal(start: bytes) -> FrameTooLarge:
    buffer = ReceiveBuffer(lambda key: 1 << 20, lambda change: None)
    buffer.tail()[: len(start)] = start
    buffer.received(len(start))
    with pytest.raises(FrameTooLarge) as caught:
        buffer.next_frame()
    return caught.value


@pytest.mark.parametrize(
    ("start", "spoken"),
    [
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"HEAD / HTTP/1.0\r\n", "HTTP"),
        (b"PRI * HTTP/2.0\r\n\r\n", "HTTP"),
        (b"OPTIONS * HTTP/1.1", "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "TLS"),
        (b"\x16\x03\x03\x00\xf4\x01", "TLS"),
    ],
)
def test_another_protocol_is_named(start, spoken):
    found = refusal(start)
    assert isinstance(found, NotKafka)
    assert f"a client spoke {spoken} to the Kafka port" in str(found)
    assert found.reason == f"{spoken} on the Kafka port"


@pytest.mark.parametrize(
    "start", [b"\x16\x00\x03\x01\x00\x00", b"\x7f\xff\xff\xff\x00\x00", b"GETTING", b"\x00\x00\x00\x01ab"]
)
def test_anything_else_is_a_frame_of_a_wrong_size(start):
    found = refusal(start)
    assert not isinstance(found, NotKafka)
    assert found.reason == "frame too large"


@pytest.mark.parametrize("length", [0, 1, 9, -1, -(1 << 31)])
def test_a_length_that_no_request_has_is_refused_before_anything_follows_it(length):
    found = refusal(length.to_bytes(4, "big", signed=True))
    assert not isinstance(found, NotKafka)
    assert found.reason == "frame too large"


@pytest.mark.parametrize(
    "start", [b"GET ", b"\x16\x03\x01\x02\x00", b"\x00\x00\x00\x0a", b"\x7f\xff\xff\xff", b"\x00\x00\x00"]
)
def test_what_may_still_be_a_request_or_another_protocol_is_waited_for(start):
    buffer = ReceiveBuffer(lambda key: 1 << 20, lambda change: None)
    buffer.tail()[: len(start)] = start
    buffer.received(len(start))
    assert buffer.next_frame() is None
