"""The broker inside a test process."""

import urllib.request
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from dray.config import BadConfig
from dray.disk import DirectoryInUse
from dray.testing import broker
from tests.clients.kinds import AT_MS, CONFLUENT, Written


def test_it_serves_clients_and_health() -> None:
    with broker() as dray:
        assert CONFLUENT.write(dray.bootstrap, "t", [Written(None, b"v", AT_MS)]) == [0]
        for path in ("livez", "healthz", "readyz", "metrics"):
            with urllib.request.urlopen(f"http://{dray.http}/{path}", timeout=30) as answer:
                assert answer.status == 200, path


def test_two_run_beside_each_other_and_know_nothing_of_each_other() -> None:
    with broker() as one, broker() as two:
        CONFLUENT.write(one.bootstrap, "only-here", [Written(None, b"v", AT_MS)])
        assert "only-here" not in AdminClient({"bootstrap.servers": two.bootstrap}).list_topics(timeout=30).topics


def test_settings_are_keywords() -> None:
    with broker(topics__partitions=4) as dray:
        CONFLUENT.write(dray.bootstrap, "wide", [Written(None, b"v", AT_MS)])
        admin = AdminClient({"bootstrap.servers": dray.bootstrap})
        assert len(admin.list_topics(timeout=30).topics["wide"].partitions) == 4


def test_a_setting_that_does_not_exist_is_told_at_once() -> None:
    with pytest.raises(BadConfig, match="partition"), broker(topics__partition=4):
        pytest.fail("it started")


def test_a_directory_serves_one_broker_at_a_time(tmp_path: Path) -> None:
    with broker(tmp_path), pytest.raises(DirectoryInUse), broker(tmp_path):
        pytest.fail("it started")


def test_an_error_in_the_block_stops_the_broker(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), broker(tmp_path):
        raise ZeroDivisionError
    with broker(tmp_path) as dray:
        assert dray.bootstrap
