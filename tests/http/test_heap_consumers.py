"""Consumers over HTTP that ignore the protocol: they harm nobody, and nothing is lost."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from dray.heaps.ids import LeaseToken, format_token

from .test_heaps import ack, confirmed, enqueue, new_heap, pop
from .topics import b64

LONG_S = 120.0
QUICK = {"visibility_timeout": "1s", "max_retries": 1_000, "backoff": {"base": "0s", "cap": "0s"}}


@contextmanager
def stream(api: httpx.Client, heap: str, **asked: object) -> Iterator[Iterator[dict]]:
    """The messages of a stream, as they come."""
    with api.stream("GET", f"/heaps/{heap}/messages", params=asked) as answer:
        assert answer.status_code == 200
        lines = (json.loads(line) for line in answer.iter_lines())
        assert "status" in next(lines)
        yield messages(lines)


def messages(lines: Iterator[dict]) -> Iterator[dict]:
    """Without the lines that only say that there is nothing; those come for ever."""
    deadline = time.monotonic() + LONG_S
    for line in lines:
        assert time.monotonic() < deadline, "nothing came"
        if "status" not in line:
            yield line


def stats(api: httpx.Client, heap: str) -> dict:
    [found] = api.get("/stats", params={"topic": heap}).json()["heaps"]
    return found


@pytest.mark.slow
def test_a_consumer_that_never_acks_loses_its_messages_and_they_go_to_others(api):
    """D-087, D-092: L8"""
    heap = new_heap(api, config=QUICK)
    sent = {enqueue(api, heap, number)["message_id"] for number in range(3)}
    with stream(api, heap, max_unsettled=3) as lines:
        assert {next(lines)["message_id"] for _ in range(3)} == sent
        done: set[str] = set()
        deadline = time.monotonic() + LONG_S
        while done != sent and time.monotonic() < deadline:  # the silent one is given some of them again meanwhile
            for item in pop(api, heap, wait="2s", visibility="60s"):
                assert int(item["attempts"]) > 0
                assert ack(api, heap, item).status_code == 204
                done.add(item["message_id"])
    assert done == sent
    assert stats(api, heap)["acked_total"] == "3"


def test_wrong_tokens_settle_nothing_and_make_no_room(api):
    """L2: HL7"""
    heap, other = new_heap(api), new_heap(api)
    for number in range(2):
        enqueue(api, heap, number)
        enqueue(api, other, number)
    foreign = pop(api, other)[0]["lease_token"]
    with stream(api, heap, max_unsettled=1) as lines:
        held = next(lines)
        wrong = [format_token(LeaseToken(0, 1, b"w" * 16)), foreign, "", "x" * 36, held["lease_token"][:-1]]
        items = [{"lease_token": text, "kind": "ACK"} for text in wrong] * 50
        answer = api.post("/settle", json={"topic": heap, "items": items})
        assert not any(one.get("done") for one in answer.json().get("results", []))
        assert (stats(api, heap)["leased"], stats(api, heap)["acked_total"]) == ("1", "0")
        assert ack(api, heap, held).status_code == 204
        assert next(lines)["payload_json"] == 1
    assert stats(api, other)["leased"] == "2"


@pytest.mark.parametrize("most", [(1 << 32) - 1, 10_001, -1])
def test_nobody_holds_more_than_a_consumer_may(api, most):
    """HL1: refused before anything is taken."""
    heap = new_heap(api)
    enqueue(api, heap, 0)
    assert api.get(f"/heaps/{heap}/messages", params={"max_unsettled": most}).status_code == 400
    assert stats(api, heap)["ready"] == "1"


@pytest.mark.slow
def test_a_stream_that_never_reads_holds_a_bounded_part_and_nobody_else(dray, api):
    """D-106: HL5, HW1"""
    heap = new_heap(api)
    body = b64(b"x" * 8_000)
    for _ in range(12):
        items = [{"topic": heap, "payload": body}] * 250
        assert api.post("/enqueue:batch", json={"items": items}).status_code == 200
    host, _, port = dray.http.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as deaf:
        deaf.sendall(f"GET /v1/heaps/{heap}/messages?max_unsettled=10000 HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        deadline = time.monotonic() + LONG_S
        while int(stats(api, heap)["leased"]) < 100 and time.monotonic() < deadline:
            time.sleep(0.02)  # another look at another process: nothing tells when
        assert int(stats(api, heap)["leased"]) < 2_600, "what the deaf one holds is bounded"
        assert len(pop(api, heap, wait="30s")) == 100
    deadline = time.monotonic() + LONG_S
    while int((left := stats(api, heap))["leased"]) > 2_500 and time.monotonic() < deadline:
        time.sleep(0.02)  # another look at another process: nothing tells when
    assert (left["failed_total"], left["dead"]) == ("0", "0")


@pytest.mark.slow
def test_a_heap_that_is_deleted_ends_its_streams(api):
    """D-192, D-223"""
    heap = new_heap(api)
    with stream(api, heap) as lines:
        refusal = api.delete(f"/heaps/{heap}")
        assert refusal.status_code == 428
        gone = api.delete(f"/heaps/{heap}", params={**confirmed(refusal), "force": "true"})
        assert gone.status_code in (200, 204), gone.text
        assert next(lines)["error"]["kind"] == "NOT_FOUND"
        assert list(lines) == []
