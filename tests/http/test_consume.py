"""Records handed to groups over HTTP, and settled one by one."""

import json
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from .topics import new_topic, publish


def take(api: httpx.Client, topic: str, **query: object) -> list[dict]:
    answer = api.get(f"/topics/{topic}/consume", params={"group": "g", "form": "text", **query})
    assert answer.status_code == 200, answer.text
    return answer.json()["records"]


def ack(api: httpx.Client, topic: str, *offsets: int, partition: int = 0, group: str = "g") -> httpx.Response:
    body = {"group": group, "acks": [{"partition": partition, "offsets": list(offsets)}]}
    return api.post(f"/topics/{topic}/ack", json=body)


def nack(api: httpx.Client, topic: str, *offsets: int, **fields: object) -> httpx.Response:
    body = {"group": "g", "nacks": [{"partition": 0, "offsets": list(offsets), **fields}]}
    return api.post(f"/topics/{topic}/nack", json=body)


def committed(dray, topic: str, group: str = "g") -> int:
    """What a Kafka tool sees."""
    admin = AdminClient({"bootstrap.servers": dray.bootstrap})
    asked = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])]
    [found] = admin.list_consumer_group_offsets(asked).values()
    return found.result(60).topic_partitions[0].offset


def entries(dray) -> int:
    """How many entries the log has."""
    text = httpx.get(f"http://{dray.http}/metrics", timeout=60).text
    [line] = [line for line in text.splitlines() if line.startswith('dray_consume_settlements_total{outcome="acked"}')]
    return int(float(line.split()[-1]))


def test_records_come_in_order_are_leased_once_and_settled_one_by_one(dray, api):
    """W-20, W-23, W-27, CO4"""
    topic = new_topic(dray)
    publish(api, topic, *"abcde")
    records = take(api, topic, max=3)
    assert [(one["offset"], one["value_text"], one["attempts"]) for one in records] == [
        ("0", "a", 0), ("1", "b", 0), ("2", "c", 0),
    ]  # fmt: skip
    assert [one["value_text"] for one in take(api, topic)] == ["d", "e"]
    assert take(api, topic) == [], "everything is out"
    assert ack(api, topic, 1, 3).json() == {"acked": [{"partition": 0, "next_offset": "0"}]}
    assert ack(api, topic, 0).json() == {"acked": [{"partition": 0, "next_offset": "2"}]}
    assert ack(api, topic, 2).json() == {"acked": [{"partition": 0, "next_offset": "4"}]}
    assert committed(dray, topic) == 4


@pytest.mark.slow
def test_what_is_covered_is_answered_without_an_entry(dray, api):
    """W-02, W-22, W-24, CO1"""
    topic = new_topic(dray)
    publish(api, topic, *"abc")
    take(api, topic)
    ack(api, topic, 0, 2)
    before = entries(dray)
    for _ in range(3):
        assert ack(api, topic, 0).json()["acked"][0]["next_offset"] == "1"
        assert ack(api, topic, 2).json()["acked"][0]["next_offset"] == "1"
    assert entries(dray) == before
    ack(api, topic, 1)
    assert entries(dray) == before + 1
    assert committed(dray, topic) == 3


@pytest.mark.slow
def test_a_lease_that_passes_counts_as_a_failure_and_the_record_comes_again(dray, api):
    """W-37, B-2, CO8"""
    topic = new_topic(dray)
    publish(api, topic, "a", "b")
    assert [one["attempts"] for one in take(api, topic, lease="1s")] == [0, 0]
    ack(api, topic, 1)
    [again] = take(api, topic, wait="30s")
    assert (again["offset"], again["attempts"]) == ("0", 1)


def test_what_fails_too_often_goes_to_the_dead_letter_topic_once_with_its_story(dray, api):
    """X-2, CO6: a record fails three times where two retries are allowed."""
    topic = new_topic(dray)
    publish(api, topic, "bad", "good")
    take(api, topic)
    assert nack(api, topic, 0, error="no").json() == {"dead": []}
    [again] = take(api, topic, wait="30s")
    assert again["attempts"] == 1
    assert nack(api, topic, 0).json() == {"dead": []}
    take(api, topic, wait="30s")
    assert nack(api, topic, 0, error="still no").json() == {"dead": [{"partition": 0, "offset": "0"}]}
    ack(api, topic, 1)
    assert committed(dray, topic) == 2
    [dead] = api.get(f"/topics/dlq.{topic}/partitions/0/records", params={"form": "text"}).json()["records"]
    assert dead["value_text"] == "bad"
    consumer = Consumer({"bootstrap.servers": dray.bootstrap, "group.id": "x", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(f"dlq.{topic}", 0, 0)])
    headers = dict(consumer.poll(60).headers())
    consumer.close()
    assert headers["dray-topic"] == topic.encode()
    assert headers["dray-attempts"] == b"3"
    assert headers["dray-error"] == b"still no"
    assert nack(api, topic, 0).json() == {"dead": []}, "it is settled"
    assert api.get(f"/topics/dlq.{topic}/partitions/0").json()["version"] == "1"


def test_a_delayed_record_lets_others_go_first(dray, api):
    topic = new_topic(dray)
    publish(api, topic, "slow", "fast")
    take(api, topic, max=1)
    nack(api, topic, 0, delay="3600s")
    assert [one["value_text"] for one in take(api, topic)] == ["fast"]
    assert take(api, topic) == []


def test_a_tool_that_sets_the_group_back_gets_everything_again(dray, api):
    """C5, CO5"""
    topic = new_topic(dray)
    publish(api, topic, *"abc")
    take(api, topic)
    ack(api, topic, 0, 1, 2)
    admin = AdminClient({"bootstrap.servers": dray.bootstrap})
    wanted = [ConsumerGroupTopicPartitions("g", [TopicPartition(topic, 0, 1)])]
    for done in admin.alter_consumer_group_offsets(wanted).values():
        done.result(60)
    assert [one["value_text"] for one in take(api, topic)] == ["b", "c"]


@pytest.mark.slow
def test_two_consumers_of_a_group_share_and_two_groups_do_not(dray, api):
    topic = new_topic(dray, 3)
    for partition in range(3):
        publish(api, topic, *(f"{partition}/{number}" for number in range(10)), partition=partition)

    def drain(group: str) -> list[str]:
        with httpx.Client(base_url=str(api.base_url), timeout=60) as own:
            found: list[str] = []
            while some := take(own, topic, group=group, max=4):
                found += [one["value_text"] for one in some]
                for one in some:
                    ack(own, topic, int(one["offset"]), partition=one["partition"], group=group)
            return found

    with ThreadPoolExecutor(4) as pool:
        one, two, other = pool.map(drain, ["g1", "g1", "g2"])
    everything = sorted(f"{partition}/{number}" for partition in range(3) for number in range(10))
    assert sorted(one + two) == everything
    assert sorted(other) == everything


def test_a_consumer_that_waits_gets_the_next_record(dray, api):
    """CO9"""
    topic = new_topic(dray)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(take, api, topic, wait="30s")
        publish(api, topic, "at last")
        assert [one["value_text"] for one in waiting.result(60)] == ["at last"]


def test_records_come_as_lines_if_that_is_asked_for(dray, api):
    topic = new_topic(dray)
    publish(api, topic, "a", "b")
    answer = api.get(
        f"/topics/{topic}/consume", params={"group": "g"}, headers={"accept": "application/x-ndjson"}
    )  # fmt: skip
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line)["offset"] for line in answer.text.splitlines()] == ["0", "1"]


def test_a_group_with_members_settles_nothing_here(dray, api):
    """G9"""
    topic = new_topic(dray)
    publish(api, topic, "a")
    consumer = Consumer({"bootstrap.servers": dray.bootstrap, "group.id": "m", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    assert consumer.poll(60).value() == b"a"
    take(api, topic, group="m")
    answer = ack(api, topic, 0, group="m")
    assert answer.status_code == 409
    consumer.close()


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/topics/none/ack", {"group": "g", "acks": [{"partition": 0, "offsets": [0]}]}, 404),
        ("/topics/{t}/ack", {"group": "g", "acks": [{"partition": 3, "offsets": [0]}]}, 404),
        ("/topics/{t}/ack", {"group": "g", "acks": [{"partition": 0, "offsets": [9]}]}, 400),
        ("/topics/{t}/ack", {"group": "g", "acks": [{"partition": 0}]}, 400),
        ("/topics/{t}/ack", {"group": "", "acks": [{"partition": 0, "offsets": [0]}]}, 400),
        ("/topics/{t}/ack", {"group": "g", "acks": [{"partition": 0, "ranges": [{"start": 1, "end": 1}]}]}, 400),
        ("/topics/{t}/nack", {"group": "g", "nacks": [{"partition": 0, "offsets": [0]}]}, 400),
        ("/topics/{t}/nack", {"group": "g", "nacks": [{"partition": 0, "offsets": []}]}, 400),
    ],
)
def test_settling_what_makes_no_sense_changes_nothing(dray, api, path, body, status):
    """CO3"""
    topic = new_topic(dray)
    publish(api, topic, "a")
    answer = api.post(path.replace("{t}", topic), json=body)
    assert answer.status_code == status, answer.text
    assert len(take(api, topic)) == 1


def test_more_ranges_than_are_kept_are_refused_for_a_while(dray, api):
    """AO3: 429, and room again when the floor moves."""
    topic = new_topic(dray)
    publish(api, topic, *("x" for _ in range(2_100)))
    ranges = [{"start": number, "end": number + 1} for number in range(1, 2_001, 2)]
    answer = api.post(f"/topics/{topic}/ack", json={"group": "g", "acks": [{"partition": 0, "ranges": ranges}]})
    assert answer.status_code == 200, answer.text
    full = ack(api, topic, 2_050)
    assert (full.status_code, full.json()["error"]["kind"]) == (429, "LIMIT")
    assert full.headers["retry-after"]
    assert ack(api, topic, 0).json()["acked"][0]["next_offset"] == "2"
    assert ack(api, topic, 2_050).status_code == 200
