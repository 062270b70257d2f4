"""Which records of a refused batch are at fault. Looked up only then: a good batch pays nothing for it."""

from itertools import islice
from typing import Final

from dray.buffers import Buffer
from dray.records import kernel
from dray.records.layout import NO_TIMESTAMP
from dray.records.view import BatchView

MOST: Final = 100
"""So many are named: a batch may have a hundred thousand, and a client wants to see a few."""
LARGEST: Final = 1_100_000
"""Bytes, just above the default of max.message.bytes: in larger records nobody is named, it would hold the loop."""


def untimely(records: Buffer, batch: BatchView, earliest: int, latest: int) -> tuple[int, ...]:
    """The first records whose timestamp, if they have one, is not within these bounds."""
    if len(records) > LARGEST:
        return ()
    raw = kernel.to_columns([(records, batch.record_count, 0, batch.base_timestamp, False)])
    timestamps = memoryview(raw[2]).cast("q")
    faulty = (number for number, at in enumerate(timestamps) if not earliest <= at <= latest and at != NO_TIMESTAMP)
    return tuple(islice(faulty, MOST))


def keyless(records: Buffer, batch: BatchView) -> tuple[int, ...]:
    """The first records without a key."""
    if len(records) > LARGEST:
        return ()
    raw = kernel.to_columns([(records, batch.record_count, 0, batch.base_timestamp, False)])
    validity = raw[3][0]
    if validity is None:
        return ()
    bits = memoryview(validity)
    return tuple(islice((at for at in range(raw[0]) if not bits[at >> 3] >> (at & 7) & 1), MOST))
