"""The history of a heap as rows: a broker is killed again and again, and every event is there once."""

import json
import random
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

import dray
from tests.cli.daemon import Daemon, serving

pytestmark = pytest.mark.slow  # a broker that is killed, and Spark

TOPIC = "parcels.history"
LONG_S = 60
KILLS = 3
PAGE = (Path(__file__).parents[2] / "docs" / "queues.md").read_text(encoding="utf-8")
PROGRAM: dict = {}
exec(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[2], PROGRAM)


def api_of(running: Daemon) -> httpx.Client:
    return httpx.Client(base_url=f"http://{running.http}/v1", timeout=LONG_S)


class Work:
    """What one client did, and what it was told."""

    def __init__(self) -> None:
        self.dice = random.Random(15)
        self.enqueued: set[str] = set()
        self.acked: set[str] = set()
        self.sent = 0

    def run(self, api: httpx.Client, steps: int) -> None:
        for _ in range(steps):
            if self.dice.random() < 0.5:
                self.sent += 1
                body = {"topic": "parcels", "payload_json": self.sent, "producer_id": "anna", "seq": self.sent}
                self.enqueued.add(api.post("/enqueue", json=body).raise_for_status().json()["message_id"])
            else:
                self.pop(api)

    def pop(self, api: httpx.Client) -> int:
        body = {"topic": "parcels", "max": 2, "wait": "0s", "consumer": "w", "visibility": "1s"}
        found = api.post("/pop", json=body).raise_for_status().json().get("items", [])
        for message in found:
            settled = {"topic": "parcels", "message_id": message["message_id"], "lease_token": message["lease_token"]}
            if self.dice.random() < 0.2:
                api.post("/nack", json={**settled, "error": "boom"})
            elif api.post("/ack", json=settled).is_success:
                self.acked.add(message["message_id"])
        return len(found)


def history(directory: Path) -> list[dict]:
    values = dray.read(TOPIC, directory, columns=["value"]).column("value").to_pylist()
    return [json.loads(value) for value in values]


def settled(api: httpx.Client) -> tuple[int, ...]:
    found = api.get("/stats", params={"topic": "parcels"}).raise_for_status().json()["heaps"][0]
    names = ("enqueued_total", "granted_total", "acked_total", "failed_total", "dead_total")
    return tuple(int(found.get(name, 0)) for name in names)


def counted(rows: list[dict]) -> tuple[int, ...]:
    counts = Counter(row["event"] for row in rows)
    failed = counts["nacked"] + counts["expired"]
    return counts["enqueued"], counts["leased"], counts["acked"], failed, counts["dead"]


def test_a_history_survives_kills_and_spark_reads_what_consumers_were_told(tmp_path, spark):
    """HI1, D-004: kill -9, each event once, in the order of the log"""
    data, work = tmp_path / "data", Work()
    arguments = ("--data", data, "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grpc", "")
    for life in range(KILLS + 1):
        with serving(*arguments) as running, api_of(running) as api:
            if life == 0:
                config = {"history": TOPIC, "max_retries": 2, "backoff": {"base": "0s"}}
                api.post("/heaps", json={"topic": "parcels", "config": config}).raise_for_status()
            with suppress(httpx.HTTPError):
                work.run(api, 30 if life < KILLS else 10)
            if life < KILLS:
                continue  # the end of the block kills it, whatever it was doing
            while api.get("/stats", params={"topic": "parcels"}).json()["heaps"][0].get("leased", "0") != "0":
                work.pop(api)
            while counted(rows := history(data)) != settled(api):
                pass  # it is told within a second or two
            parsed = PROGRAM["rows"](spark, str(data)).collect()  # as the page has it
    assert [row["number"] for row in rows] == list(range(len(rows)))
    assert [row["position"] for row in rows] == sorted(row["position"] for row in rows)
    assert work.enqueued, "nobody enqueued: the run proves nothing"
    assert work.acked, "nobody acked: the run proves nothing"
    assert {row["message"] for row in rows if row["event"] == "enqueued"} >= work.enqueued
    acked = Counter(row["message"] for row in rows if row["event"] == "acked")
    assert set(acked) >= work.acked
    assert set(acked.values()) <= {1}
    assert [(row["number"], row["event"], row["message"]) for row in parsed] == [
        (row["number"], row["event"], row["message"]) for row in rows
    ]
    assert (rows[0]["event"], rows[0]["who"], rows[0]["heap"]) == ("enqueued", "anna", "parcels")
    assert parsed[0]["time"].year > 2000
