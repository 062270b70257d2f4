"""A small batch that would become a large one is refused before it has become one."""

import pytest

from dray.records import BatchRules, Codec, NewRecord, ScratchPool, build_batch
from dray.records.codecs import SANE_BYTES, SANE_RATIO
from dray.records.errors import ExpandsTooFar
from tests.records.batch_samples import validate

MIB = 1 << 20


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD], ids=lambda codec: codec.name)
def test_what_expands_too_far_for_its_size_is_refused(codec: Codec) -> None:
    """B4: the cap of all batches is higher, and a batch of that size has to be large to begin with."""
    pool = ScratchPool()
    large = build_batch([NewRecord(value=bytes(40 * MIB), timestamp=0)], codec=codec)
    assert len(large) * SANE_RATIO < 40 * MIB
    with pytest.raises(ExpandsTooFar) as refused:
        validate(large, BatchRules(), pool)
    assert refused.value.facts["cap_bytes"] == max(SANE_BYTES, SANE_RATIO * (len(large) - 61))
    modest = build_batch([NewRecord(value=bytes(SANE_BYTES - MIB), timestamp=0)], codec=codec)
    assert validate(modest, BatchRules(), pool).record_count == 1


def test_what_is_stored_already_stays_readable() -> None:
    pool = ScratchPool()
    large = build_batch([NewRecord(value=bytes(40 * MIB), timestamp=0)], codec=Codec.GZIP)
    assert validate(large, BatchRules(zero_base_offset=False), pool).record_count == 1
