"""A disk that is full refuses messages; what was told to be durable is there when it has room again."""

import time
from pathlib import Path

import httpx
import pytest

from tests.cli.daemon import serving
from tests.disk.mounts import small_filesystem

pytestmark = pytest.mark.slow
LONG_S = 180.0
LARGE = "x" * 60_000
"""Goes to an object."""
SMALL = "x" * 100
"""Goes with its entry."""


def put(api: httpx.Client, key: str, text: str) -> int:
    body = {"topic": "jobs", "payload_json": {"key": key, "text": text}, "dedup_key": key}
    return api.post("/enqueue", json=body).status_code


def fill(path: Path) -> None:
    """Until nothing more fits."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 4 << 10, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


def put_until_refused(api: httpx.Client, prefix: str, text: str) -> list[str]:
    """Keys that are told to be durable; the first that is not is told to have not happened, or not to be known."""
    taken = []
    deadline = time.monotonic() + LONG_S
    while time.monotonic() < deadline:
        key = f"{prefix}-{len(taken)}"
        status = put(api, key, text)
        if status != 200:
            assert status in (503, 504), status
            return taken
        taken.append(key)
    raise AssertionError("a full disk took everything")


def take_all(api: httpx.Client) -> list[str]:
    found: list[str] = []
    deadline = time.monotonic() + LONG_S
    while time.monotonic() < deadline:
        answer = api.post("/pop", json={"topic": "jobs", "max": 100, "wait": "1s"})
        if answer.status_code != 200:
            continue
        items = answer.json()["items"]
        if not items:
            return found
        for item in items:
            acked = api.post("/ack", json={"topic": "jobs", "lease_token": item["lease_token"]})
            assert acked.status_code == 204, acked.text
            found.append(item["payload_json"]["key"])
    raise AssertionError("the messages never end")


def test_what_a_full_disk_took_is_there_and_what_it_refused_is_told(tmp_path: Path) -> None:
    """L12, GH1: each message that was told to be durable comes once; nothing else is told to be."""
    with small_filesystem(tmp_path / "small", 48) as mounted:
        data, filler = mounted.path / "data", mounted.path / "filler"
        flags = ("--kafka", "0", "--http", "0", "--grpc", "", "--set", "broker.disk_reserve=1MiB")
        with (
            serving("--data", data, *flags) as drayd,
            httpx.Client(base_url=f"http://{drayd.http}/v1", timeout=120) as api,
        ):
            assert api.post("/heaps", json={"topic": "jobs"}).status_code == 200
            taken = [key for key in ("a", "b") if put(api, key, LARGE) == 200]
            assert taken == ["a", "b"]
            fill(filler)
            taken += put_until_refused(api, "large", LARGE)
            taken += put_until_refused(api, "small", SMALL)
            filler.unlink()
            deadline = time.monotonic() + LONG_S
            while put(api, "last", SMALL) != 200:
                assert time.monotonic() < deadline, "there is room again"
            found = take_all(api)
    assert len(found) == len(set(found)), "each comes once"
    assert {*taken, "last"} <= set(found), "nothing that was told to be durable is lost"
