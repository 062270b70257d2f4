"""Requests that are too large, too slow, cut off, or no requests at all: told in JSON, and nothing is lost."""

import json
import socket
import threading
import time

import httpx
import pytest

from dray.servers.http.errors import TooManyAtOnce
from dray.servers.http.waiting import WaitingRequests
from dray.testing.broker import TestBroker, broker

from .topics import b64, new_topic, publish

DEEP = b'{"records":[{"value_json":' + b"[" * 50_000 + b"]" * 50_000 + b"}]}"


def ask(address: str, raw: bytes, *, close: bool = False) -> bytes:
    """What a server answers to bytes; `close`: leave without waiting for it."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(raw)
        if close:
            return b""
        connection.shutdown(socket.SHUT_WR)
        parts = []
        while part := connection.recv(65_536):
            parts.append(part)
        return b"".join(parts)


def head(path: str, size: int, *extra: str) -> bytes:
    lines = [f"POST /v1{path} HTTP/1.1", "host: x", "content-type: application/json", f"content-length: {size}", *extra]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


@pytest.fixture(scope="module")
def small() -> "TestBroker":
    """A broker with a small limit and little patience."""
    with broker(http__max_body="64KiB", http__body_timeout="300ms") as running:
        yield running


def test_a_body_above_the_limit_is_refused_by_its_head_and_by_its_length(small):
    """HR1"""
    topic = new_topic(small)
    with httpx.Client(base_url=f"http://{small.http}/v1", timeout=60) as api:
        body = {"records": [{"value": b64(bytes(60 << 10))}]}
        assert api.post(f"/topics/{topic}/records", json=body).status_code == 413
        told = ask(small.http, head(f"/topics/{topic}/records", 10**15))
        assert b" 413 " in told.splitlines()[0]

        def parts():
            for _ in range(100):
                yield bytes(1 << 10)

        answer = api.post(f"/topics/{topic}/records", content=parts(), headers={"content-type": "application/json"})
        assert answer.status_code == 413
        assert api.get(f"/topics/{topic}/partitions/0").json()["version"] == "0"


def test_a_body_that_does_not_come_is_not_waited_for(small):
    """HR1"""
    topic = new_topic(small)
    host, _, port = small.http.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(head(f"/topics/{topic}/records", 1_000) + b'{"records"')
        assert b" 408 " in connection.recv(65_536)


def test_a_body_that_is_cut_off_does_nothing(dray, api):
    """HR1"""
    topic = new_topic(dray)
    body = json.dumps({"records": [{"value_text": "x"}]}).encode()
    ask(dray.http, head(f"/topics/{topic}/records", len(body)) + body[:-1], close=True)
    ask(dray.http, head(f"/topics/{topic}/records", len(body)) + body[:-1])
    assert api.get(f"/topics/{topic}/partitions/0").json()["version"] == "0"
    publish(api, topic, "still alive")


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"{}", {"content-type": "text/plain"}, 415),
        (b"{}", {"content-type": "application/x-www-form-urlencoded"}, 415),
        (b"{}", {"content-type": "application/json", "content-encoding": "gzip"}, 415),
        (b"", {"content-type": "application/json"}, 400),
        (b"{", {"content-type": "application/json"}, 400),
        (b"\xff\xfe", {"content-type": "application/json"}, 400),
        (b"null", {"content-type": "application/json"}, 400),
        (b"[" * 100_000, {"content-type": "application/json"}, 400),
        (DEEP, {"content-type": "application/json"}, 400),
        (b'{"records":[{"value_json":1e999999}]}', {"content-type": "application/json; charset=utf-8"}, 200),
        (b'{"records":[{"value_text":"\\ud800"}]}', {"content-type": "application/json"}, 400),
        (b'{"records":[{}],"records":[{}]}', {"content-type": "application/vnd.x+json"}, 200),
    ],
)  # fmt: skip
def test_what_is_no_json_of_ours_is_told_so(dray, api, content, headers, status):
    """HR1, HX1"""
    topic = new_topic(dray)
    answer = api.post(f"/topics/{topic}/records", content=content, headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json"), answer.text[:300]
    if status >= 400:
        assert answer.json()["error"]["message"]
        assert api.get(f"/topics/{topic}/partitions/0").json()["version"] == "0"


def test_methods_that_a_path_does_not_have_are_told_with_those_that_it_has(dray, api):
    """HX1"""
    topic = new_topic(dray)
    path = f"/topics/{topic}/partitions/0/records"
    answer = api.delete(path)
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS, POST")
    options = api.options(path)
    assert (options.status_code, options.headers["allow"]) == (204, "GET, HEAD, OPTIONS, POST")
    seen = api.head(path)
    assert (seen.status_code, seen.content) == (200, b"")
    for nowhere in ("/", "/topics", "/heaps/x/y", "/heaps/x:y"):
        assert api.get(nowhere).status_code in (404, 405)
        assert api.get(nowhere).headers["content-type"] == "application/json"


@pytest.mark.slow
def test_a_large_body_is_taken_apart_without_holding_up_others(dray, api):
    """HR2, HR4: small requests go on while sixteen megabytes of JSON are read and stored."""
    topic, other = new_topic(dray, **{"max.message.bytes": "10485760"}), new_topic(dray)
    records = [{"key_text": str(number), "value_json": {"n": [number] * 50}} for number in range(9_000)]
    content = json.dumps({"records": records}).encode()
    waits, stop = [], threading.Event()

    def beside() -> None:
        with httpx.Client(base_url=str(api.base_url), timeout=60) as own:
            while not stop.is_set():
                begun = time.monotonic()
                assert own.get(f"/topics/{other}/partitions/0").status_code == 200
                waits.append(time.monotonic() - begun)

    thread = threading.Thread(target=beside)
    thread.start()
    try:
        for _ in range(20):  # on a fast machine one is done before others have asked
            answer = api.post(f"/topics/{topic}/records", content=content, headers={"content-type": "application/json"})
            assert answer.status_code == 200, answer.text[:300]
            assert len(answer.json()["results"]) == 9_000
            if len(waits) > 3:
                break
    finally:
        stop.set()
        thread.join(60)
    assert len(waits) > 3, "others were served meanwhile"


def test_more_who_wait_than_may_wait_are_told_to_come_again():
    """HW1"""
    waiting = WaitingRequests(limit=1)
    with waiting.place(), pytest.raises(TooManyAtOnce), waiting.place():
        pass
    with waiting.place():
        pass


def test_a_client_that_leaves_while_it_waits_takes_nothing_with_it(dray, api):
    """HW2: the record is there for the next one."""
    topic = new_topic(dray)
    ask(dray.http, f"GET /v1/topics/{topic}/consume?group=g&wait=60s HTTP/1.1\r\nhost: x\r\n\r\n".encode(), close=True)
    text = ""
    deadline = time.monotonic() + 60
    while "dray_http_waiting 0.0" not in text and time.monotonic() < deadline:
        text = httpx.get(f"http://{dray.http}/metrics", timeout=60).text
    publish(api, topic, "for somebody else")
    found = api.get(f"/topics/{topic}/consume", params={"group": "g", "form": "text", "wait": "30s"}).json()["records"]
    assert [one["value_text"] for one in found] == ["for somebody else"]


def test_old_pages_are_where_they_were(dray):
    base = f"http://{dray.http}"
    assert httpx.get(f"{base}/livez", timeout=60).text == "ok\n"
    assert httpx.get(f"{base}/", timeout=60).status_code == 200
