"""Durations and sizes: what people write, and that what is shown reads back the same."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.config import Size, format_duration, parse_duration


@pytest.mark.parametrize(
    ("written", "meant", "shown"),
    [
        ("30s", timedelta(seconds=30), "30s"),
        ("250ms", timedelta(milliseconds=250), "250ms"),
        ("1h", timedelta(hours=1), "1h"),
        ("60m", timedelta(hours=1), "1h"),
        ("1.5h", timedelta(minutes=90), "90m"),
        (" 2 d ", timedelta(days=2), "2d"),
        ("1500us", timedelta(microseconds=1500), "1500us"),
        ("0", timedelta(0), "0s"),
        (0, timedelta(0), "0s"),
        ("3S", timedelta(seconds=3), "3s"),
    ],
)
def test_a_duration_is_read_with_its_unit_and_shown_normalised(written, meant, shown):
    assert parse_duration(written) == meant
    assert format_duration(meant) == shown


@pytest.mark.parametrize(
    "nonsense",
    ["", "30", 30, 1.5, True, False, "s", "-1s", "1s2", "1 fortnight", "1e3s", "٣s", None, "0.1us", "9" * 18 + "d"],
)
def test_a_duration_without_a_unit_or_a_meaning_is_refused(nonsense):
    with pytest.raises(ValueError, match="duration"):
        parse_duration(nonsense)


def test_a_negative_duration_is_refused():
    with pytest.raises(ValueError, match="zero or more"):
        parse_duration(timedelta(seconds=-1))


@pytest.mark.parametrize(
    ("written", "meant", "shown"),
    [
        ("64MiB", 64 << 20, "64MiB"),
        ("4mb", 4_000_000, "4MB"),
        ("1.5GiB", 3 << 29, "1536MiB"),
        ("1024", 1024, "1KiB"),
        (1000, 1000, "1KB"),
        ("1 kib", 1024, "1KiB"),
        (1536, 1536, "1536B"),
        ("17b", 17, "17B"),
        (0, 0, "0B"),
    ],
)
def test_a_size_is_read_in_either_base_and_shown_normalised(written, meant, shown):
    assert Size(written) == meant
    assert str(Size(written)) == shown


@pytest.mark.parametrize("nonsense", ["", "64M", "MiB", "-1", -1, 1.5, True, "0.3B", None, "9" * 18 + "TiB"])
def test_a_size_without_a_meaning_is_refused(nonsense):
    with pytest.raises(ValueError, match="size"):
        Size(nonsense)


@given(st.integers(0, (1 << 63) - 1))
def test_a_shown_size_reads_back_as_itself(amount):
    assert Size(str(Size(amount))) == amount


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=36500)))
def test_a_shown_duration_reads_back_as_itself(amount):
    assert parse_duration(format_duration(amount)) == amount
