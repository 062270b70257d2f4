"""Names of objects."""

from dataclasses import replace
from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.objects.paths import (
    ZONE_BYTES_MAX,
    BadName,
    ParquetName,
    WalName,
    check_name,
    check_prefix,
    is_given_once,
    owner_of,
)

ZONES = st.text(max_size=ZONE_BYTES_MAX).filter(lambda zone: len(zone.encode(errors="replace")) <= ZONE_BYTES_MAX)
NAMES = st.builds(
    WalName,
    zone=ZONES.filter(lambda zone: zone.encode(errors="ignore").decode() == zone),
    domain=st.integers(0, (1 << 32) - 1),
    day=st.dates(),
    wal_id=st.binary(min_size=16, max_size=16),
)


def test_a_wal_path_is_what_the_format_says() -> None:
    """R-025"""
    created = datetime(2026, 1, 2, 23, 59, 59, 999_000, tzinfo=UTC)
    name = WalName.of(zone="use1-az1", domain=7, created_ms=int(created.timestamp() * 1000), wal_id=bytes(range(16)))
    assert name.path() == ("wal/v1/zone=use1-az1/domain=7/date=2026/01/02/000102030405060708090a0b0c0d0e0f.wo")
    later = WalName.of(zone="", domain=0, created_ms=int(created.timestamp() * 1000) + 1, wal_id=bytes(16))
    assert later.day == date(2026, 1, 3)
    assert WalName.of(zone="", domain=0, created_ms=-1, wal_id=bytes(16)).day == date(1969, 12, 31)


@given(NAMES)
def test_builder_and_parser_are_inverse(name: WalName) -> None:
    """R-025, O4"""
    path = name.path()
    assert WalName.parse(path) == name
    assert check_name(path) == path, "O5: any zone gives a good name"


@given(st.text(alphabet="wal/v1zone=domain0123456789abcdef.date%-_ ä", max_size=120) | st.text(max_size=60))
def test_the_parser_takes_only_what_the_builder_makes(text: str) -> None:
    """O4"""
    try:
        name = WalName.parse(text)
    except BadName:
        return
    assert name.path() == text


FILES = st.builds(
    ParquetName,
    topic_id=st.binary(min_size=16, max_size=16),
    partition=st.integers(0, (1 << 31) - 1),
    domain=st.integers(0, (1 << 32) - 1),
    day=st.dates(),
    file_id=st.binary(min_size=16, max_size=16),
)


@given(FILES)
def test_the_name_of_a_file_says_whose_it_is(name: ParquetName) -> None:
    """R-025, O4, O5: a topic's id, since its name may be too long for a path."""
    path = name.path()
    assert ParquetName.parse(path) == name
    assert check_name(path) == path
    assert is_given_once(path)
    assert owner_of(path) == (name.domain, name.file_id)
    for wrong in (path.replace("partition=", "partition=0"), path.upper(), path + "x", path.replace("/date=", "/day=")):
        with pytest.raises(BadName):
            owner_of(wrong)


def test_the_path_of_a_file_is_what_the_format_says() -> None:
    """R-025"""
    name = ParquetName.of(topic_id=b"t" * 16, partition=7, domain=2, created_ms=0, file_id=bytes(range(16)))
    folder = "compaction/v1/topic=74747474747474747474747474747474/partition=7/domain=2/date=1970/01/01"
    assert name.path() == f"{folder}/000102030405060708090a0b0c0d0e0f.parquet"
    for bad in ({"topic_id": b"t"}, {"partition": -1}, {"partition": 1 << 31}, {"domain": -1}, {"file_id": b""}):
        with pytest.raises(BadName):
            replace(name, **bad).path()


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("zone=a", "zone=a=41"),  # A needs no escape
        ("zone=a", "zone=a=2f"),  # escapes are in capitals
        ("zone=a", "zone=a="),
        ("zone=a", "zone=a=C3"),  # half a letter
        ("zone=a", "zone=a=2"),
        ("domain=7", "domain=07"),
        ("domain=7", "domain=4294967296"),
        ("date=2026/01/02", "date=2026/02/30"),
        ("date=2026/01/02", "date=0000/01/02"),
        ("date=2026/01/02", "date=2026/1/2"),
        ("0f.wo", "0F.wo"),
        ("0f.wo", "0.wo"),
        ("0f.wo", "0f.wo\n"),
        ("v1", "v2"),
    ],
)
def test_other_spellings_are_refused(right: str, wrong: str) -> None:
    """O4: one meaning, one name."""
    good = "wal/v1/zone=a/domain=7/date=2026/01/02/000102030405060708090a0b0c0d0e0f.wo"
    assert WalName.parse(good).path() == good
    with pytest.raises(BadName):
        WalName.parse(good.replace(right, wrong))


@pytest.mark.parametrize(
    "bad",
    [
        {"domain": -1},
        {"domain": 1 << 32},
        {"wal_id": b"short"},
        {"zone": "x" * (ZONE_BYTES_MAX + 1)},
        {"zone": "ä" * ZONE_BYTES_MAX},
        {"zone": "\ud800"},
    ],
)
def test_what_has_no_name_is_refused(bad: dict[str, object]) -> None:
    fields: dict[str, object] = {"zone": "a", "domain": 0, "day": date(2026, 1, 2), "wal_id": bytes(16)} | bad
    with pytest.raises(BadName):
        WalName(**fields).path()  # type: ignore[arg-type]


def test_a_creation_time_beyond_the_calendar_is_refused() -> None:
    with pytest.raises(BadName, match="no date"):
        WalName.of(zone="", domain=0, created_ms=1 << 62, wal_id=bytes(16))


@pytest.mark.parametrize("prefix", ["", "wal/", "wal/v1/zo", "a"])
def test_a_prefix_is_the_beginning_of_a_name(prefix: str) -> None:
    assert check_prefix(prefix) == prefix


@pytest.mark.parametrize("prefix", ["/", "a//", "../", "a b", "/a"])
def test_what_no_name_begins_with_is_refused(prefix: str) -> None:
    with pytest.raises(BadName):
        check_prefix(prefix)
