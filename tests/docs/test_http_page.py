"""docs/http.md: each request that it shows, made by curl, and what it is answered."""

import re
import subprocess
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from dray.cli.settings import SECTIONS
from dray.testing.broker import broker
from tests.docs.cli_page import shown

PAGE = (Path(__file__).parents[2] / "docs" / "http.md").read_text(encoding="utf-8")
_MASKS = (
    (re.compile(r'"\d{4}-\d\d-\d\dT[0-9:.]+Z"'), '"TIME"'),
    (re.compile(r"stream=\d+"), "stream=STREAM"),
    (re.compile(r'"message_id":"[0-9A-Z]{26}"'), '"message_id":"ID"'),
    (re.compile(r'"lease_token":"[^"]+"'), '"lease_token":"TOKEN"'),
    (re.compile(r'"lease_for":"[^"]+"'), '"lease_for":"LEFT"'),
    (re.compile(r'"payload_bytes":"\d+"'), '"payload_bytes":"BYTES"'),
)


def masked(text: str) -> str:
    for pattern, instead in _MASKS:
        text = pattern.sub(instead, text)
    return text


@pytest.mark.slow
def test_every_request_of_the_page_is_answered_as_it_says():
    """L-51, L-81, W-20"""
    with broker() as dray:
        admin = AdminClient({"bootstrap.servers": dray.bootstrap})
        for made in admin.create_topics([NewTopic("orders", num_partitions=2)]).values():
            made.result(60)
        requests = shown(PAGE)
        assert len(requests) > 10
        for one in requests:
            command = one.command.replace("localhost:7433", dray.http)
            done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)
            assert masked(done.stdout).rstrip("\n") == one.output.rstrip("\n"), one.command


def test_the_settings_that_it_names_are_there():
    for section, field in re.findall(r"`(http|consume|cluster)\.(\w+)`", PAGE):
        assert field in SECTIONS[section].model_fields, (section, field)
