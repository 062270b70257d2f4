"""Streams over HTTP: publish, publish at a version, read, read as of a version."""

import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from dray.testing.broker import broker

from .topics import b64, new_topic, publish


def read(api: httpx.Client, topic: str, partition: int = 0, **query: object) -> list[str]:
    answer = api.get(f"/topics/{topic}/partitions/{partition}/records", params={"form": "text", **query})
    assert answer.status_code == 200, answer.text
    return [record["value_text"] for record in answer.json()["records"]]


def test_what_is_published_over_http_is_read_by_kafka_and_the_other_way_round(dray, api):
    """W-17, W-01, W-13, W-16, L-06, L-44: one log for both."""
    topic = new_topic(dray)
    sent = {"key": b64(b"\x00k"), "value": b64(b"\xff\x00"), "headers": [{"name": "h", "value": b64(b"\x01")}]}
    answer = api.post(f"/topics/{topic}/records", json={"records": [sent]})
    assert answer.json() == {"results": [{"partition": 0, "offset": "0"}]}
    producer = Producer({"bootstrap.servers": dray.bootstrap})
    producer.produce(topic, b"by kafka", key=b"k")
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": dray.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    record = consumer.poll(60)
    assert (record.key(), record.value(), record.headers()) == (b"\x00k", b"\xff\x00", [("h", b"\x01")])
    consumer.close()
    found = api.get(f"/topics/{topic}/partitions/0/records").json()
    assert [(one["offset"], one["key"], one["value"]) for one in found["records"]] == [
        ("0", b64(b"\x00k"), b64(b"\xff\x00")), ("1", b64(b"k"), b64(b"by kafka")),
    ]  # fmt: skip
    assert found["next_offset"] == "2"
    assert found["records"][0]["headers"] == [{"name": "h", "value": b64(b"\x01")}]


def test_a_key_goes_to_the_partition_that_kafka_clients_choose(dray, api):
    """The same key, the same partition, whoever publishes."""
    topic = new_topic(dray, 7)
    keys = [f"key-{number}" for number in range(40)] + ["", "ü", "abc"]
    answer = api.post(f"/topics/{topic}/records", json={"records": [{"key_text": key} for key in keys]})
    chosen = [result["partition"] for result in answer.json()["results"]]
    told: dict[int, int] = {}
    producer = Producer({"bootstrap.servers": dray.bootstrap, "partitioner": "murmur2"})
    for number, key in enumerate(keys):
        producer.produce(
            topic, b"", key=key.encode(), on_delivery=lambda _, record, n=number: told.update({n: record.partition()})
        )
    assert producer.flush(60) == 0
    assert [told[number] for number in range(len(keys))] == chosen


def test_json_goes_in_and_out_as_json(dray, api):
    topic = new_topic(dray)
    sent = {"records": [{"value_json": {"b": [1, 2.50], "a": None}}, {"value_text": "nö"}, {"value": b64(b"\xff")}, {}]}
    assert api.post(f"/topics/{topic}/partitions/0/records", json=sent).json() == {"base_offset": "0", "version": "4"}
    records = api.get(f"/topics/{topic}/partitions/0/records", params={"form": "json"}).json()["records"]
    assert records[0]["value_json"] == {"b": [1, 2.5], "a": None}
    assert records[2]["value"] == b64(b"\xff")
    assert "value" not in records[3], "a tombstone has none"
    assert [one.get("value_text") for one in api.get(
        f"/topics/{topic}/partitions/0/records", params={"form": "text"}).json()["records"]][1] == "nö"  # fmt: skip


def test_a_publish_with_another_version_gets_409_and_writes_nothing(dray, api):
    """L-32, L-50, L-51, L-60"""
    topic = new_topic(dray)
    path = f"/topics/{topic}/partitions/0"
    assert api.get(path).json() == {"topic": topic, "partition": 0, "log_start": "0", "version": "0"}
    first = api.post(f"{path}/records", json={"records": [{"value_text": "a"}], "expected_version": 0})
    assert first.json() == {"base_offset": "0", "version": "1"}
    for wrong in ({"expected_version": 0}, {"expected_version": "5"}):
        answer = api.post(f"{path}/records", json={"records": [{"value_text": "b"}], **wrong})
        assert answer.status_code == 409
        assert answer.json()["version"] == "1"
        assert answer.json()["error"]["kind"] == "CONFLICT"
    answer = api.post(f"{path}/records", json={"records": [{"value_text": "b"}]}, headers={"if-match": '"0"'})
    assert (answer.status_code, answer.headers["etag"]) == (409, '"1"')
    version = api.get(path).headers["etag"]
    again = api.post(f"{path}/records", json={"records": [{"value_text": "b"}]}, headers={"if-match": version})
    assert again.json()["version"] == "2"
    assert read(api, topic) == ["a", "b"]


@pytest.mark.slow
def test_of_many_who_expect_one_version_one_wins_and_all_do_after_retries(dray, api):
    """L-33, L-80, L-93, L-95, L-02"""
    topic = new_topic(dray)
    path = f"/topics/{topic}/partitions/0"
    conflicts = []
    ready = threading.Barrier(8)

    def worker(number: int) -> None:
        with httpx.Client(base_url=str(api.base_url), timeout=60) as own:
            version = own.get(path).json()["version"]
            ready.wait(60)
            for step in range(5):
                while True:
                    body = {"records": [{"value_text": f"{number}/{step}"}], "expected_version": version}
                    answer = own.post(f"{path}/records", json=body)
                    version = answer.json()["version"]
                    if answer.status_code == 200:
                        break
                    assert answer.status_code == 409, answer.text
                    conflicts.append(number)

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(worker, number) for number in range(8)]:
            done.result(120)
    values = read(api, topic, max=1000)
    assert sorted(values) == sorted(f"{number}/{step}" for number in range(8) for step in range(5))
    assert len(conflicts) >= 7, "eight began with one version"


def test_a_transaction_is_done_once_and_told_alike_each_time(dray, api):
    """L-81, W-35: a retry after a lost reply makes no second record."""
    topic = new_topic(dray)
    path = f"/topics/{topic}/partitions/0/records"
    body = {"records": [{"value_text": "a"}, {"value_text": "b"}], "expected_version": 0, "txn_id": "order-17"}
    first = api.post(path, json=body).json()
    publish(api, topic, "between")
    second = api.post(path, json=body)
    assert second.status_code == 200
    assert second.json() == first | {"repeated": True}
    assert read(api, topic) == ["a", "b", "between"]
    other = api.post(path, json={"records": [{"value_text": "z"}], "txn_id": "order-17"})
    assert other.status_code == 409
    assert read(api, topic) == ["a", "b", "between"]


def test_a_batch_over_partitions_is_stored_whole_or_not_at_all(dray, api):
    """PB1, PB2, L-01, L-61: an array, all of it or nothing, the bad element named."""
    topic = new_topic(dray, 3)
    path = f"/topics/{topic}/records:batch"
    records = [{"value_text": f"v{number}", "partition": number % 3} for number in range(6)]
    answer = api.post(path, json={"records": records, "txn_id": "t"})
    assert [(one["partition"], one["offset"]) for one in answer.json()["results"]] == [
        (0, "0"), (1, "0"), (2, "0"), (0, "1"), (1, "1"), (2, "1"),
    ]  # fmt: skip
    assert api.post(path, json={"records": records, "txn_id": "t"}).json()["repeated"] is True
    bad = [*records, {"value_text": "x", "partition": 9}]
    answer = api.post(path, json={"records": bad})
    assert answer.status_code == 404
    assert answer.json()["error"]["index"] == 6
    moved = api.post(path, json={"records": records, "expected_versions": {"0": 2, "2": 7}})
    assert moved.status_code == 409
    assert moved.json()["version"] == "2"
    huge = api.post(path, json={"records": [records[0], {"value": b64(bytes(2 << 20)), "partition": 1}]})
    assert (huge.status_code, huge.json()["error"]["index"]) == (400, 1)
    assert [read(api, topic, number) for number in range(3)] == [["v0", "v3"], ["v1", "v4"], ["v2", "v5"]]


def test_a_read_as_of_a_version_gives_the_same_bytes_for_ever(dray, api):
    """L-72, L-73, L-82, L-96, L-100"""
    topic = new_topic(dray)
    publish(api, topic, "a", "b", "c")
    path = f"/topics/{topic}/partitions/0/records"
    query = {"offset": 1, "as_of": 3, "max": 100}
    before = api.get(path, params=query)
    assert [one["offset"] for one in before.json()["records"]] == ["1", "2"]
    for number in range(5):
        publish(api, topic, f"later {number}")
        assert api.get(path, params=query).content == before.content
    assert api.get(path, params={"as_of": 9}).status_code == 416
    assert api.get(path, params={"as_of": 3, "offset": 3}).json() == {"records": [], "next_offset": "3"}


@pytest.mark.slow
def test_pages_are_cut_by_records_and_bytes_and_leave_nothing_out(dray, api):
    """RR1"""
    topic = new_topic(dray)
    values = [f"{number:03d}" * 20 for number in range(50)]
    for first in range(0, 50, 7):
        publish(api, topic, *values[first : first + 7])
    for limits in ({"max": 1}, {"max": 7}, {"max_bytes": 200}, {"max_bytes": 1}, {"max": 10_000}):
        found, offset = [], 0
        while offset < 50:
            path = f"/topics/{topic}/partitions/0/records"
            page = api.get(path, params={"offset": offset, "form": "text", **limits}).json()
            found += [one["value_text"] for one in page["records"]]
            offset = int(page["next_offset"])
        assert found == values, limits


def test_below_the_log_start_is_gone_and_beyond_the_end_is_not_there(dray, api):
    """RR2"""
    topic = new_topic(dray)
    publish(api, topic, "a", "b", "c")
    admin = AdminClient({"bootstrap.servers": dray.bootstrap})
    for done in admin.delete_records([TopicPartition(topic, 0, 2)]).values():
        done.result(60)
    path = f"/topics/{topic}/partitions/0/records"
    gone = api.get(path, params={"offset": 1})
    assert gone.status_code == 410
    assert gone.json()["log_start"] == "2"
    beyond = api.get(path, params={"offset": 4})
    assert (beyond.status_code, beyond.json()["version"]) == (416, "3")
    assert api.get(path, params={"offset": 3}).json() == {"records": [], "next_offset": "3"}
    assert api.get(path, params={"offset": 1, "as_of": 3}).status_code == 410


def test_a_read_that_waits_is_answered_by_the_next_record(dray, api):
    """L-96: not before it is confirmed."""
    topic = new_topic(dray)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(read, api, topic, wait="30s")
        publish(api, topic, "at last")
        assert waiting.result(60) == ["at last"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/topics/none/partitions/0", None, 404),
        ("GET", "/topics/{t}/partitions/7", None, 404),
        ("GET", "/topics/{t}/partitions/x", None, 400),
        ("GET", "/topics/{t}/partitions/0/records?offset=-1", None, 400),
        ("GET", "/topics/{t}/partitions/0/records?ofset=1", None, 400),
        ("GET", "/topics/{t}/partitions/0/records?wait=61s", None, 400),
        ("GET", "/topics/{t}/partitions/0/records?max=1&max=2", None, 400),
        ("POST", "/topics/{t}/records", {"records": []}, 400),
        ("POST", "/topics/{t}/records", {"records": [{"value": "no base64!"}]}, 400),
        ("POST", "/topics/{t}/records", {"records": [{"value_text": "a", "value": ""}]}, 400),
        ("POST", "/topics/{t}/records", {"records": [{"valu": "YQ=="}]}, 400),
        ("POST", "/topics/{t}/records", {"records": [{}], "more": 1}, 400),
        ("POST", "/topics/{t}/partitions/0/records", {"records": [{}], "expected_version": -1}, 400),
        ("POST", "/topics/{t}/partitions/0/records", {"records": [{}], "expected_version": 1 << 64}, 400),
        ("POST", "/topics/{t}/partitions/0/records", {"records": [{}], "txn_id": ""}, 400),
        ("PUT", "/topics/{t}/records", None, 405),
        ("GET", "/nothing/here", None, 404),
    ],
)
def test_what_makes_no_sense_is_told_in_json_and_nothing_is_written(dray, api, method, path, body, status):
    topic = new_topic(dray)
    answer = api.request(method, path.replace("{t}", topic), json=body)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json"), answer.text
    assert answer.json()["error"]["message"]
    assert api.get(f"/topics/{topic}/partitions/0").json()["version"] == "0"


@pytest.mark.slow
def test_everything_is_there_after_a_restart(tmp_path):
    """W-03, W-04, W-05, W-19, W-28, W-37, L-05, L-75, CO7: transactions and acks too."""
    with broker(tmp_path) as dray, httpx.Client(base_url=f"http://{dray.http}/v1", timeout=60) as api:
        topic = new_topic(dray)
        path = f"/topics/{topic}/partitions/0/records"
        body = {"records": [{"value_text": value} for value in "abcd"], "txn_id": "t"}
        first = api.post(path, json=body).json()
        assert len(api.get(f"/topics/{topic}/consume", params={"group": "g"}).json()["records"]) == 4
        api.post(f"/topics/{topic}/ack", json={"group": "g", "acks": [{"partition": 0, "offsets": [0, 2]}]})
    with broker(tmp_path) as dray, httpx.Client(base_url=f"http://{dray.http}/v1", timeout=60) as api:
        assert read(api, topic) == list("abcd")
        assert api.post(path, json=body).json() == first | {"repeated": True}
        again = api.get(f"/topics/{topic}/consume", params={"group": "g", "form": "text"}).json()["records"]
        assert [one["value_text"] for one in again] == ["b", "d"]
