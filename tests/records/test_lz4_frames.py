"""K-022, B7: which LZ4 frames may be stored, and that what was stored before is read."""

import pytest

from dray.records import BatchRules, Codec, NewRecord, ScratchPool, build_batch
from dray.records.codecs import expand
from dray.records.errors import BadCompression
from dray.records.layout import HEADER_SIZE
from tests.records.batch_samples import resealed, validate
from tests.records.lz4_frames import frames

POOL = ScratchPool(1 << 20)
PLAIN = build_batch([NewRecord(value=b"the same " * 5_000 + bytes([n])) for n in range(5)])
BODY = PLAIN[HEADER_SIZE:]
FRAMES = frames(BODY)


def batch_with(packed: bytes) -> bytes:
    return resealed(PLAIN[:HEADER_SIZE] + packed, attributes=(21, b"\0\3"))


@pytest.mark.parametrize("name", FRAMES)
def test_only_the_frames_that_every_client_reads_may_be_stored(name: str):
    """B7"""
    packed, may_be_stored = FRAMES[name]
    if may_be_stored:
        assert validate(batch_with(packed), BatchRules(), POOL).codec is Codec.LZ4
    else:
        with pytest.raises(BadCompression):
            validate(batch_with(packed), BatchRules(), POOL)


@pytest.mark.parametrize("name", ["linked blocks", "two frames"])
def test_frames_that_were_stored_before_are_still_read(name: str):
    """Lookups by time and Spark read what lies in the store."""
    assert bytes(expand(Codec.LZ4, FRAMES[name][0], len(BODY))) == BODY
