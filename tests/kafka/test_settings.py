"""The limits of the Kafka server are settings, and settings that contradict each other are refused."""

import json
from dataclasses import fields

import pytest

from dray.cli.main import run
from dray.cli.settings import SECTIONS
from dray.config import load, parse_set
from dray.servers.kafka.messages.api_versions import ApiVersionsRequest
from dray.servers.kafka.settings import KafkaSettings, Limits
from dray.testing import broker
from tests.golden.asking import API_VERSIONS, Asker, schema
from tests.kafka.wire import request_bytes

HELLO = ApiVersionsRequest(client_software_name="a", client_software_version="1")


def settings(*given: str) -> KafkaSettings:
    return load(SECTIONS, environ={}, overrides=[parse_set(f"kafka.{one}") for one in given]).get(KafkaSettings)


def test_the_defaults_of_the_server_are_those_of_its_settings() -> None:
    assert settings().limits() == Limits()


CHANGED = {
    "max_connections": 7,
    "max_connections_per_address": 5,
    "frame_bytes": 3 << 20,
    "request_bytes": 1 << 20,
    "first_request_bytes": 5000,
    "first_frame_bytes": 2500000,
    "connection_inflight_bytes": 4 << 20,
    "connection_inflight_requests": 9,
    "process_inflight_bytes": 8 << 20,
    "unsent_bytes": 2 << 20,
    "idle_timeout": "11s",
    "first_request_timeout": "15s",
    "frame_timeout": "12s",
    "slowest_rate": 1000,
    "write_timeout": "13s",
    "stop_timeout": "14s",
}


def test_every_limit_can_be_set() -> None:
    assert set(CHANGED) == {field.name for field in fields(Limits)}
    limits = settings(*(f"{name}={value}" for name, value in CHANGED.items())).limits()
    for name, value in CHANGED.items():
        found = getattr(limits, name)
        assert found == value or f"{found.total_seconds():.0f}s" == value, name


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["max_connections=0"], "max_connections"),
        (["max_connections=10", "max_connections_per_address=11"], "max_connections_per_address"),
        (["frame_bytes=1MiB"], "frame_bytes"),
        (["frame_bytes=2GiB", "process_inflight_bytes=4GiB"], "frame_bytes"),
        (["frame_bytes=600MiB"], "process_inflight_bytes"),
        (["request_bytes=200MiB"], "request_bytes"),
        (["first_request_bytes=9MiB"], "first_request_bytes"),
        (["first_request_bytes=1KiB"], "first_request_bytes"),
        (["first_frame_bytes=1MiB"], "first_frame_bytes"),
        (["first_frame_bytes=101MiB"], "first_frame_bytes"),
        (["first_request_timeout=0"], "first_request_timeout"),
        (["connection_inflight_bytes=0"], "connection_inflight_bytes"),
        (["connection_inflight_bytes=600MiB"], "connection_inflight_bytes"),
        (["connection_inflight_requests=0"], "connection_inflight_requests"),
        (["unsent_bytes=1KiB"], "unsent_bytes"),
        (["slowest_rate=0"], "slowest_rate"),
        (["idle_timeout=0"], "idle_timeout"),
        (["frame_timeout=0"], "frame_timeout"),
        (["write_timeout=0"], "write_timeout"),
        (["stop_timeout=21s"], "stop_timeout"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_limits_that_contradict_each_other_are_refused_by_name(given: list[str], named: str, capsys) -> None:
    """Exit code 2, before anything is opened."""
    arguments = [part for one in given for part in ("--set", f"kafka.{one}")]
    assert run(["config", "check", *arguments]) == 2
    assert f"kafka.{named}" in capsys.readouterr().err


def test_the_limits_are_shown_and_described(capsys) -> None:
    assert run(["config", "show", "--format", "json", "--set", "kafka.frame_bytes=50MiB"]) == 0
    shown = json.loads(capsys.readouterr().out)["settings"]
    assert shown["kafka.frame_bytes"] == {"value": "50MiB", "origin": "--set kafka.frame_bytes"}
    assert run(["config", "schema"]) == 0
    described = json.loads(capsys.readouterr().out)["$defs"]["KafkaSettings"]["properties"]
    for field in fields(Limits):
        assert described[field.name]["description"], field.name
        assert f"kafka.{field.name}" in shown


async def test_a_broker_keeps_the_limits_it_was_given() -> None:
    with broker(kafka__max_connections=1, kafka__first_request_bytes="4KiB") as running:
        async with Asker(running.bootstrap) as one:
            one.writer.write(request_bytes(schema(API_VERSIONS), 0, HELLO, 1))
            await one.frame()
            async with Asker(running.bootstrap) as second:
                assert await second.closed()
    with broker(kafka__first_request_bytes="4KiB") as running:
        async with Asker(running.bootstrap) as stranger:
            stranger.writer.write(request_bytes(schema(API_VERSIONS), 0, HELLO, 1, surplus=bytes(5000)))
            assert await stranger.closed()
