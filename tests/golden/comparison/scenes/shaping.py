"""Batches with something changed, their length and CRC made right again."""

from dray.records.layout import HEADER_SIZE
from tests.records.batch_samples import resealed

_FIELDS = {
    "base_offset": (0, 8),
    "leader_epoch": (12, 4),
    "magic": (16, 1),
    "attributes": (21, 2),
    "last_delta": (23, 4),
    "base_timestamp": (27, 8),
    "max_timestamp": (35, 8),
    "producer_id": (43, 8),
    "epoch": (51, 2),
    "sequence": (53, 4),
    "count": (57, 4),
}


def changed(batch: bytes, **fields: int) -> bytes:
    """The batch with other header fields."""
    patches = {}
    for name, value in fields.items():
        at, size = _FIELDS[name]
        patches[name] = (at, value.to_bytes(size, "big", signed=True))
    return resealed(batch, **patches)


def with_body(batch: bytes, body: bytes, **fields: int) -> bytes:
    """The header of a batch around other records."""
    return changed(batch[:HEADER_SIZE] + body, **fields)


def counted(batch: bytes, count: int, last_delta: int) -> bytes:
    return changed(batch, count=count, last_delta=last_delta)


def body_of(batch: bytes) -> bytes:
    return batch[HEADER_SIZE:]
