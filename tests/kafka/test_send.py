"""What waits to be sent: in order, in chunks, and counted until it is gone."""

import random

import pytest

from dray.servers.kafka.send import CHUNK_BYTES, HIGH_BYTES, SendQueue
from tests.kafka.test_connection import MemoryTransport

SEED = 20261117


class Narrow(MemoryTransport):
    """Takes what it is given and hands it on only when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.held = bytearray()
        self.most = 0
        self.queue: SendQueue | None = None

    def write(self, data: bytes) -> None:
        self.held += data
        self.most = max(self.most, len(self.held))
        if len(self.held) > HIGH_BYTES and self.queue is not None:
            self.queue.pause()

    def get_write_buffer_size(self) -> int:
        return len(self.held)

    def hand_on(self, size: int) -> None:
        self.sent.append(bytes(self.held[:size]))
        del self.held[:size]
        if len(self.held) <= HIGH_BYTES // 4 and self.queue is not None:
            self.queue.resume()


@pytest.mark.slow
def test_bytes_leave_in_order_whatever_the_transport_takes() -> None:
    """KP17: and the transport never has more than a chunk or two of a large answer."""
    print(f"seed {SEED}")
    dice = random.Random(SEED)
    transport = Narrow()
    queue = transport.queue = SendQueue(transport)
    said = bytearray()
    for _ in range(25):
        parts = [dice.randbytes(dice.choice((1, 100, 70_000, 900_000))) for _ in range(dice.randrange(1, 12))]
        if dice.random() < 0.1:
            parts.append(dice.randbytes(3 * CHUNK_BYTES))
        size = sum(map(len, parts))
        queue.put(parts, size)
        said += b"".join(parts)
        transport.hand_on(dice.choice((0, 1000, 2 * CHUNK_BYTES)))
        gone = sum(map(len, transport.sent))
        assert queue.unsent_bytes == len(said) - gone
        assert queue.taken_bytes == gone
        assert queue.open or queue.unsent_bytes
    while queue.unsent_bytes:
        transport.hand_on(CHUNK_BYTES)
    assert b"".join(transport.sent) == said
    assert queue.open
    assert transport.most <= 3 * CHUNK_BYTES


def test_what_a_client_that_is_gone_has_not_taken_is_let_go() -> None:
    transport = Narrow()
    queue = transport.queue = SendQueue(transport)
    queue.put([bytes(3 * CHUNK_BYTES), bytes(CHUNK_BYTES)], 4 * CHUNK_BYTES)
    assert not queue.is_empty
    queue.drop()
    assert queue.is_empty
    assert queue.unsent_bytes == transport.get_write_buffer_size()
