"""Sets of partitions agree with Python's own sets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.machine.groups import masks

PARTITIONS = st.frozensets(st.one_of(st.integers(0, 40), st.integers(0, masks.MAX_PARTITIONS - 1)), max_size=80)


@given(PARTITIONS)
def test_a_mask_holds_the_partitions_it_was_made_of(partitions: frozenset[int]) -> None:
    mask = masks.mask_of(sorted(partitions, reverse=True))

    assert mask == sum(1 << partition for partition in partitions)
    assert masks.partitions_of(mask) == sorted(partitions)
    assert masks.size_of({b"t": mask}) == len(partitions)


@given(PARTITIONS)
def test_both_ways_of_writing_a_mask_give_it_back(partitions: frozenset[int]) -> None:
    mask = masks.mask_of(sorted(partitions))

    assert masks.from_bytes(masks.to_bytes(mask)) == mask
    assert masks.unpack(masks.pack(sorted(partitions))) == mask


@given(PARTITIONS, st.integers(0, 90))
def test_the_lowest_partitions_are_the_first_in_order(partitions: frozenset[int], count: int) -> None:
    found = masks.lowest(masks.mask_of(sorted(partitions)), count)

    assert masks.partitions_of(found) == sorted(partitions)[:count]


@given(st.binary(max_size=40))
def test_any_bytes_are_a_bounded_mask_or_an_error(packed: bytes) -> None:
    try:
        mask = masks.unpack(packed)
    except ValueError:
        return
    assert mask.bit_length() <= masks.MAX_PARTITIONS


@pytest.mark.parametrize("packed", [b"\x80", masks.pack([masks.MAX_PARTITIONS]), b"\xff\xff\xff\xff\x01"])
def test_what_is_cut_or_out_of_bounds_is_refused(packed: bytes) -> None:
    with pytest.raises(ValueError):
        masks.unpack(packed)


def test_ten_thousand_scattered_partitions_of_a_thousand_members_are_small() -> None:
    rows = [masks.pack(range(member, 10_000, 1_000)) for member in range(1_000)]

    assert sum(map(len, rows)) < 20_000
