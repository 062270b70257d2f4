"""The page in a real browser: it loads whole, runs nothing, asks for nothing else, and shows what there is."""

import re
import struct
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from dray.testing import broker
from tools.peers.chromium import page_as_seen, picture_of

pytestmark = pytest.mark.peers


def size_of(picture: Path) -> tuple[int, int]:
    """Width and height of a PNG."""
    start = picture.read_bytes()[:24]
    assert start.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", start[16:])
    return width, height


def test_a_thousand_topics_are_shown_without_a_complaint(tmp_path):
    with broker(tmp_path / "data") as dray:
        admin = AdminClient({"bootstrap.servers": dray.bootstrap})
        wanted = [NewTopic(f"shop.{number:04d}", 1) for number in range(1_000)]
        for future in admin.create_topics(wanted).values():
            future.result(120)
        url = f"http://{dray.http}/"
        seen = page_as_seen(url)
        assert len(set(re.findall(r'href="/topics/(shop\.\d{4})"', seen))) == 1_000
        assert "<script" not in seen
        assert "&lt;b&gt;z&lt;/b&gt;" in page_as_seen(f"{url}?q=%3Cb%3Ez%3C/b%3E")
        for name, width, dark in (("wide", 1280, False), ("narrow", 500, False), ("dark", 1280, True)):
            picture = tmp_path / f"{name}.png"
            assert picture_of(url, picture, width=width, dark=dark) == ""
            assert size_of(picture) == (width, 900)
        assert "0 to 0" not in page_as_seen(f"{url}topics/shop.0001")


def test_the_browser_would_complain(tmp_path):
    """What is looked for is there when a page breaks its own rules."""
    page = tmp_path / "bad.html"
    page.write_text(
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'"><script>alert(1)</script>'
    )
    assert "Content Security Policy" in picture_of(page.as_uri(), tmp_path / "bad.png")
