"""Heaps over HTTP: made, filled, popped, settled, looked at."""

import itertools
import json
import time

import httpx
import pytest

from .topics import b64, new_topic

_NUMBERS = itertools.count()


def new_heap(api: httpx.Client, **fields: object) -> str:
    name = f"h{next(_NUMBERS)}"
    made = api.post("/heaps", json={"topic": name, **fields})
    assert made.status_code == 200, made.text
    return name


def enqueue(api: httpx.Client, heap: str, payload: object, **fields: object) -> dict:
    answer = api.post("/enqueue", json={"topic": heap, "payload_json": payload, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def pop(api: httpx.Client, heap: str, **fields: object) -> list[dict]:
    answer = api.post("/pop", json={"topic": heap, "max": 100, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()["items"]


def ack(api: httpx.Client, heap: str, item: dict) -> httpx.Response:
    body = {"topic": heap, "lease_token": item["lease_token"], "message_id": item["message_id"]}
    return api.post("/ack", json=body)


def confirmed(refusal: httpx.Response) -> dict[str, str]:
    """What the second call sends (D-212)."""
    return {"confirmation": refusal.json()["confirmation"]}


@pytest.mark.slow
def test_a_heap_is_made_listed_altered_and_deleted(api):
    """D-210, D-020, D-021, D-017, A-30"""
    config = {"visibility_timeout": "45s", "max_retries": 3, "backoff": {"base": "0.5s"}, "dlq": {"retention": "60s"}}
    name = new_heap(api, mode="MAX", partitions=4, replication_factor=3, config=config)
    got = api.get(f"/heaps/{name}").json()
    assert (got["topic"], got["mode"], got["partitions"], got["replication_factor"]) == (name, "MAX", 4, 3)
    assert got["config"]["visibility_timeout"] == "45s"
    assert got["config"]["backoff"] == {"base": "0.5s", "cap": "300s", "jitter": True}
    assert got["config"]["dlq"] == {"enabled": True, "retention": "60s"}
    assert (got["revision"], got["durability"]) == ("0", "memory")
    altered = api.patch(f"/heaps/{name}", json={"config": {"paused": True}, "expected_revision": "0"})
    assert altered.json()["config"] == got["config"] | {"paused": True}
    assert api.patch(f"/heaps/{name}", json={"expected_revision": 0}).status_code == 409
    assert name in [heap["topic"] for heap in api.get("/heaps").json()["heaps"]]
    asked = api.delete(f"/heaps/{name}")
    assert asked.status_code == 428
    assert api.get(f"/heaps/{name}").status_code == 200
    assert api.delete(f"/heaps/{name}", params={"force": "true", **confirmed(asked)}).status_code == 204
    assert api.get(f"/heaps/{name}").status_code == 404
    assert api.post("/enqueue", json={"topic": name, "payload": ""}).status_code == 404


def test_lists_of_heaps_come_by_pages(api):
    prefix = f"page{next(_NUMBERS)}-"
    for number in range(5):
        assert api.post("/heaps", json={"topic": f"{prefix}{number}"}).status_code == 200
    found, token = [], ""
    while True:
        page = api.get("/heaps", params={"prefix": prefix, "page_size": 2, "page_token": token}).json()
        found += [heap["topic"] for heap in page["heaps"]]
        token = page.get("next_page_token", "")
        if not token:
            break
    assert found == [f"{prefix}{number}" for number in range(5)]


def test_the_best_priority_comes_first_and_numbers_of_64_bits_are_strings(api):
    """D-213, D-001, D-032, D-034"""
    heap = new_heap(api)
    for priority in ("9223372036854775807", -5, 0, "-9223372036854775808"):
        enqueue(api, heap, {"p": str(priority)}, priority=priority)
    items = pop(api, heap)
    assert [item["priority"] for item in items] == ["-9223372036854775808", "-5", "0", "9223372036854775807"]
    assert [item["payload_json"]["p"] for item in items] == [item["priority"] for item in items]
    assert items[0]["lease_for"].endswith("s")
    assert pop(api, heap) == [], "all are leased"


def test_bytes_go_through_whole_and_are_limited(api):
    """D-022, D-034"""
    heap = new_heap(api, config={"max_payload_bytes": 1_048_576})
    every = bytes(range(256)) * 4_096
    for payload in (b"", b"\x00\xff", every):
        assert api.post("/enqueue", json={"topic": heap, "payload": b64(payload)}).status_code == 200
    assert [item["payload"] for item in pop(api, heap)] == [b64(b""), b64(b"\x00\xff"), b64(every)]
    large = api.post("/enqueue", json={"topic": heap, "payload": b64(every + b"x")})
    assert (large.status_code, large.json()["error"]["kind"]) == (400, "INVALID")


def test_a_message_is_settled_in_every_way(api):
    """D-211, D-084, D-090, D-091, D-093, D-094, L4"""
    heap = new_heap(api, config={"max_retries": 1})
    enqueue(api, heap, 1)
    [item] = pop(api, heap)
    released = api.post("/nack", json={"topic": heap, "lease_token": item["lease_token"], "kind": "RELEASE"})
    assert released.json()["dead"] is False
    [item] = pop(api, heap)
    assert item["attempts"] == 0
    body = {"topic": heap, "lease_token": item["lease_token"], "backoff_override": "0s", "error": "no"}
    assert api.post("/nack", json=body).json()["dead"] is False
    [again] = pop(api, heap)
    assert again["attempts"] == 1
    extended = api.post("/extend", json={"topic": heap, "lease_token": again["lease_token"], "extension": "60s"})
    assert 60 < float(extended.json()["lease_for"][:-1]) <= 90.1
    lost = ack(api, heap, item)
    assert (lost.status_code, lost.json()["error"]["kind"]) == (409, "LOST")
    assert ack(api, heap, again).status_code == 204
    assert ack(api, heap, again).status_code == 204, "a repeat is harmless"
    assert pop(api, heap) == []
    [stats] = api.get("/stats", params={"topic": heap}).json()["heaps"]
    assert (stats["ready"], stats["leased"], stats["acked_total"], stats["failed_total"]) == ("0", "0", "1", "1")


def test_a_token_of_another_message_settles_nothing(api):
    heap = new_heap(api)
    enqueue(api, heap, 1)
    enqueue(api, heap, 2)
    one, two = pop(api, heap)
    body = {"topic": heap, "lease_token": one["lease_token"], "message_id": two["message_id"]}
    assert api.post("/ack", json=body).status_code == 409
    assert api.post("/ack", json={"topic": heap, "lease_token": "nonsense"}).status_code == 400
    [stats] = api.get("/stats", params={"topic": heap}).json()["heaps"]
    assert stats["leased"] == "2"


def test_many_settlements_are_told_each_for_itself(api):
    heap = new_heap(api)
    for number in range(3):
        enqueue(api, heap, number)
    items = pop(api, heap)
    answer = api.post("/settle", json={"topic": heap, "items": [
        {"lease_token": items[0]["lease_token"], "kind": "ACK"},
        {"lease_token": "x", "kind": "ACK"},
        {"lease_token": items[1]["lease_token"], "kind": "REJECT", "error": "bad"},
        {"lease_token": items[2]["lease_token"], "kind": "RENEW", "duration": "20s"},
        {"lease_token": items[2]["lease_token"], "kind": "EXTEND"},
    ]}).json()["results"]  # fmt: skip
    assert answer[0] == {"done": True}
    assert answer[1]["error"]["kind"] == "INVALID"
    assert answer[2] == {"done": True, "dead": True}
    assert answer[3]["done"] is True
    assert answer[4]["error"]["kind"] == "INVALID"
    assert api.post("/settle", json={"topic": heap, "items": [{"lease_token": "x"}]}).status_code == 400, "no kind"


def test_a_duplicate_is_told_with_the_first_id(api):
    """D-110, D-111, D-112"""
    heap = new_heap(api)
    first = enqueue(api, heap, 1, producer_id="p", epoch="7", seq="0")
    again = enqueue(api, heap, 1, producer_id="p", epoch=7, seq=0)
    assert again == first | {"duplicate": True}
    assert enqueue(api, heap, 1, producer_id="p", epoch=8, seq=0)["message_id"] != first["message_id"]
    assert enqueue(api, heap, 1, dedup_key="k") | {"duplicate": True} == enqueue(api, heap, 1, dedup_key="k")
    assert api.post("/enqueue", json={"topic": heap, "payload": "", "producer_id": "p"}).status_code == 400


def test_a_batch_is_taken_whole_and_a_bad_element_is_named(api):
    """D-140, D-141, D-142, L10"""
    heap = new_heap(api)
    items = [{"topic": heap, "payload_json": number} for number in range(3)]
    results = api.post("/enqueue:batch", json={"items": items}).json()["results"]
    assert len({one["message_id"] for one in results}) == 3
    torn = api.post("/enqueue:batch", json={"items": [*items, {"topic": heap, "payload_json": 1, "delay": "1s",
                                                              "not_before": "2030-01-01T00:00:00Z"}]})  # fmt: skip
    assert (torn.status_code, torn.json()["error"]["index"]) == (400, 3)
    other = new_heap(api)
    both = api.post("/enqueue:batch", json={"items": [{"topic": other, "payload_json": 9}, items[0]]}).json()["results"]
    assert len({one["message_id"] for one in both}) == 2
    gone = api.post("/enqueue:batch", json={"items": [items[0], {"topic": "none"}]})
    assert (gone.status_code, gone.json()["error"]["index"]) == (404, 1)
    many = api.post("/enqueue:many", json={"items": [items[0], {"topic": "none"}, {"topic": other}]}).json()["results"]
    assert ["message_id" in one for one in many] == [True, False, True]
    assert many[1]["error"]["kind"] == "NOT_FOUND"
    assert len(pop(api, heap)) == 5


def test_a_delayed_message_waits_for_its_time(api):
    """D-043, A-31"""
    heap = new_heap(api)
    enqueue(api, heap, "later", delay="3600s")
    enqueue(api, heap, "also later", not_before="2100-01-01T00:00:00Z")
    assert pop(api, heap) == []
    found = api.get("/peek", params={"topic": heap, "state": "DELAYED"}).json()["messages"]
    assert [one["message"]["payload_json"] for one in found] == ["later", "also later"]
    assert found[1]["not_before"] == "2100-01-01T00:00:00Z"


def test_a_pop_waits_for_the_next_message(api):
    """A-32"""
    from concurrent.futures import ThreadPoolExecutor

    heap = new_heap(api)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(pop, api, heap, wait="30s")
        enqueue(api, heap, "at last")
        [item] = waiting.result(60)
    assert item["payload_json"] == "at last"
    assert api.post("/pop", json={"topic": heap, "wait": "61s"}).status_code == 400


@pytest.mark.slow
def test_dead_letters_are_looked_at_replayed_and_deleted(api):
    """D-174, D-118, A-26"""
    heap = new_heap(api, config={"max_retries": 0})
    ids = [enqueue(api, heap, number)["message_id"] for number in range(4)]
    for item in pop(api, heap):
        body = {"topic": heap, "lease_token": item["lease_token"], "error": "broken"}
        assert api.post("/nack", json=body).json() == {"dead": True}
    dead = api.get(f"/heaps/{heap}/dlq").json()["messages"]
    assert [(one["message"]["message_id"], one["state"], one["last_error"]) for one in dead] == [
        (identity, "DEAD", "broken") for identity in ids
    ]
    replayed = api.post(f"/heaps/{heap}/dlq:replay", json={"message_ids": ids[:1]}).json()
    assert replayed == {"count": "1", "left": "0"}
    assert [item["message_id"] for item in pop(api, heap)] == ids[:1]
    assert api.post(f"/heaps/{heap}/dlq:delete", json={"message_ids": ids[1:2]}).json()["count"] == "1"
    asked = api.post(f"/heaps/{heap}/dlq:delete", json={"all": True})
    assert asked.status_code == 428
    wanted = {"all": True, "force": True, **confirmed(asked)}
    assert api.post(f"/heaps/{heap}/dlq:delete", json=wanted).json()["count"] == "2"
    assert api.post(f"/heaps/{heap}/dlq:replay", json={}).status_code == 400
    assert api.get(f"/heaps/{heap}/dlq").json() == {"messages": []}


def test_messages_are_buried_and_purged(api):
    """A-27, D-212"""
    heap = new_heap(api)
    first = enqueue(api, heap, 1)["message_id"]
    for number in range(3):
        enqueue(api, heap, number)
    assert api.post(f"/heaps/{heap}:bury", json={"message_ids": [first], "reason": "x"}).json()["count"] == "1"
    assert api.post(f"/heaps/{heap}:bury", json={"message_ids": ["nonsense"]}).status_code == 400
    asked = api.post(f"/heaps/{heap}:purge", json={})
    assert asked.status_code == 428
    assert api.post(f"/heaps/{heap}:purge", json={"force": True, **confirmed(asked)}).json()["count"] == "3"
    [stats] = api.get("/stats", params={"topic": heap}).json()["heaps"]
    assert (stats["ready"], stats["dead"]) == ("0", "1")


def test_statistics_are_told_by_partition_and_priority(api):
    heap = new_heap(api, partitions=2)
    for number in range(6):
        enqueue(api, heap, 0, priority=number % 3, partition_key=str(number))
    found = api.get("/stats", params={"topic": heap, "by_partition": "true", "by_priority": "true"}).json()["heaps"]
    assert found[0]["ready_by_priority"] == {"0": "2", "1": "2", "2": "2"}
    assert sum(int(part["ready"]) for part in found[1:]) == 6
    assert [part["partition"] for part in found[1:]] == [0, 1]


def test_a_stream_gives_messages_line_by_line_and_no_more_than_may_be_unsettled(api):
    """HL7, D-101, D-233"""
    heap = new_heap(api)
    for number in range(4):
        enqueue(api, heap, number)
    with api.stream("GET", f"/heaps/{heap}/messages", params={"max_unsettled": 2}) as answer:
        assert answer.headers["content-type"].startswith("application/x-ndjson")
        lines = (json.loads(line) for line in answer.iter_lines())
        assert next(lines) == {"status": {"stopping": False}}
        held = [next(lines), next(lines)]
        assert [one["payload_json"] for one in held] == [0, 1]
        [stats] = api.get("/stats", params={"topic": heap}).json()["heaps"]
        assert stats["leased"] == "2", "nothing more is taken"
        ack(api, heap, held[0])
        third = next(lines)
        assert third["payload_json"] == 2
        [stats] = api.get("/stats", params={"topic": heap}).json()["heaps"]
        assert (stats["ready"], stats["leased"], stats["acked_total"]) == ("1", "2", "1")
    assert ack(api, heap, third).status_code == 204, "a token outlives its stream (A-16)"


def test_a_stream_that_is_left_gives_its_place_back(dray, api):
    """HX2, HW1"""
    heap = new_heap(api)
    for _ in range(3):
        with api.stream("GET", f"/heaps/{heap}/messages") as answer:
            next(answer.iter_lines())

    def waiting() -> float:
        text = httpx.get(f"http://{dray.http}/metrics", timeout=60).text
        return float(next(line for line in text.splitlines() if line.startswith("dray_http_waiting ")).split()[1])

    deadline = time.monotonic() + 60
    while waiting() and time.monotonic() < deadline:
        pass
    assert waiting() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/heaps", {"topic": "{h}"}, 409),
        ("POST", "/heaps", {"topic": "a b"}, 400),
        ("POST", "/heaps", {"topic": "x", "mode": "MEDIUM"}, 400),
        ("POST", "/heaps", {"topic": "x", "replication_factor": 4}, 400),
        ("POST", "/heaps", {"topic": "x", "config": {"visibility_timeout": "0.5s"}}, 400),
        ("POST", "/heaps", {"topic": "x", "spread": True}, 501),
        ("PATCH", "/heaps/none", {}, 404),
        ("POST", "/enqueue", {"topic": "{h}", "payload": "", "priority": 1 << 63}, 400),
        ("POST", "/enqueue", {"topic": "{h}", "payload": "", "priority": -(1 << 63) - 1}, 400),
        ("POST", "/enqueue", {"topic": "{h}", "payload": "", "payload_json": 1}, 400),
        ("POST", "/enqueue", {"topic": "{h}", "payload": "YQ==", "payload_format": "JSON"}, 400),
        ("POST", "/enqueue", {"topic": "{h}", "payload": "", "dedup_key": "x" * 1_025}, 400),
        ("POST", "/enqueue", {"topic": "{h}", "payload": "", "producer_id": "p", "seq": 1 << 36}, 400),
        ("POST", "/enqueue", {"topic": "{h}", "payload": "", "delay": "-1s"}, 400),
        ("POST", "/enqueue:batch", {"items": []}, 400),
        ("POST", "/pop", {"topic": "none"}, 404),
        ("POST", "/pop", {"topic": "{h}", "max": 0}, 400),
        ("POST", "/pop", {"topic": "{h}", "visibility": "0.1s"}, 400),
        ("GET", "/heaps/none/messages", None, 404),
        ("GET", "/heaps/{h}/messages?max_unsettled=0", None, 400),
        ("GET", "/peek?topic={h}&page_token=nonsense", None, 400),
        ("GET", "/peek?topic={h}&state=FREE", None, 400),
        ("GET", "/stats?topic=none", None, 404),
        ("POST", "/settle", {"topic": "{h}", "items": [{"lease_token": "a", "kind": "KIND_UNSPECIFIED"}]}, 400),
    ],
)
def test_what_makes_no_sense_of_heaps_is_told_and_changes_nothing(api, method, path, body, status):
    heap = new_heap(api)
    sent = json.loads(json.dumps(body).replace("{h}", heap)) if body is not None else None
    answer = api.request(method, path.replace("{h}", heap), json=sent)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json"), answer.text
    [stats] = api.get("/stats", params={"topic": heap}).json()["heaps"]
    assert (stats["ready"], stats["delayed"], stats["leased"], stats["dead"]) == ("0", "0", "0", "0")


def test_a_heap_and_a_topic_do_not_share_a_name(dray, api):
    topic = new_topic(dray)
    assert api.post("/heaps", json={"topic": topic}).status_code == 409
