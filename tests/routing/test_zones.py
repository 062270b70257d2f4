"""The zone of a client, whatever its client id looks like."""

import random

import pytest

from dray.routing.zones import zone_of

SEED = 20261117
NAMES = {
    "zone_id=a,k=v": "a",
    "k=v,zone_id=a": "a",
    " zone_id = use1-az1 , k=v": "use1-az1",
    "zone_id=a,zone_id=b": "a",
    "zone_id=,zone_id=b": "b",
    "zone_id=a=b": "a=b",
    "ZONE_ID=a": "",
    "Zone=a,zone_id=B": "B",
    "my-app,zone_id=a": "a",
    "zone_id": "",
    "zone_id=": "",
    "zone_id= ,k=v": "",
    "x=zone_id=a": "",
    "my_zone_id=a": "",
    "zone_idx=a": "",
    "=a,zone_id=b": "b",
    ",,,zone_id=b,,": "b",
    "": "",
    "sarama": "",
    "ws_az=us-east-1a,worker": "us-east-1a",
    "my-app,diskless_az=az1": "az1",
    "automq_az=az1": "az1",
    "automq_type=producer&automq_role=worker-1&automq_az=us-east-1a&producer-1": "us-east-1a",
    "k=automq_az=a": "",
}


@pytest.mark.parametrize(("client_id", "zone"), NAMES.items())
def test_a_client_id_names_a_zone_or_none(client_id: str, zone: str) -> None:
    """R-065, E-8, RG5: pairs in any order, spaces, unknown pairs, and the words of others."""
    assert zone_of(client_id) == zone


def test_no_client_id_names_none() -> None:
    """R-065"""
    assert zone_of(None) == ""


def test_an_id_as_long_as_the_protocol_takes_is_read_to_its_end() -> None:
    """R-065: also where every character looks like the beginning of something."""
    for filler in ("k=v,", "zone_id=,", "zone_id ", "automq_az=&", "    ", ",", "=", "é"):
        long = (filler * 32_768)[:32_700]
        assert zone_of(long) == ""
        assert zone_of(f"{long},zone_id=a") == "a"
    assert zone_of("zone_id=" + " " * 32_000 + "a" + " " * 700) == "a"


def test_no_text_makes_it_fail() -> None:
    """R-065, RG5: what it answers is a part of the text, without a comma."""
    print(f"seed {SEED}")
    dice = random.Random(SEED)
    pieces = ["zone_id", "ws_az", "automq_az", "=", ",", "&", " ", "a", "\0", "\n", "\ud800", "é", "z" * 300]
    named = 0
    for _ in range(5_000):
        text = "".join(dice.choices(pieces, k=dice.randrange(12)))
        zone = zone_of(text)
        assert zone in text
        assert "," not in zone
        assert zone == zone.strip()
        named += bool(zone)
    assert named > 100
