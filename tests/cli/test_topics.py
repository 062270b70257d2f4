"""`dray topics` and `dray configs`, against a broker that says what a test tells it to: old, forgetful or strange."""

import json

import pytest

from dray.servers.kafka.messages.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult
from dray.servers.kafka.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from dray.servers.kafka.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from dray.servers.kafka.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from dray.servers.kafka.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from dray.servers.kafka.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from tests.cli.asking import Told, dray
from tests.kafka_client.scripted import METADATA, Scripted

CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, DESCRIBE_CONFIGS, CREATE_PARTITIONS, ALTER = 19, 20, 21, 32, 37, 44
TOPICS = {"orders": [(0, 100), (40, 100)]}


def asking(broker: Scripted, *argv: object) -> Told:
    return dray(*argv, "--bootstrap", broker.address, "--format", "json")


def sent(broker: Scripted, key: int) -> list:
    return [request for api, _, request in broker.asked if api == key]


def created(code: int = 0, reason: str | None = None):
    made = CreatableTopicResult(
        name="new", error_code=code, error_message=reason, num_partitions=3, replication_factor=2
    )
    return lambda _: CreateTopicsResponse(topics=[made])


def told_configs(*rows: DescribeConfigsResourceResult):
    return lambda _: DescribeConfigsResponse(results=[DescribeConfigsResult(resource_type=2, configs=rows)])


def altered(code: int = 0, reason: str | None = None):
    told = AlterConfigsResourceResponse(error_code=code, error_message=reason)
    return lambda _: IncrementalAlterConfigsResponse(responses=[told])


def trimmed(request):
    rows = [
        DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[
                DeleteRecordsPartitionResult(partition_index=one.partition_index, low_watermark=one.offset)
                for one in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return DeleteRecordsResponse(topics=rows)


@pytest.mark.parametrize(
    ("key", "command"),
    [
        (CREATE_TOPICS, ("topics", "create", "new")),
        (DELETE_TOPICS, ("topics", "delete", "orders", "--yes")),
        (ALTER, ("topics", "alter", "orders", "--set", "a=b")),
        (ALTER, ("configs", "alter", "broker", "1", "--delete", "a")),
        (CREATE_PARTITIONS, ("topics", "add-partitions", "orders", "--add", "1")),
        (DELETE_RECORDS, ("topics", "trim", "orders", "--before", "latest", "--yes")),
    ],
)
def test_a_change_whose_answer_is_lost_may_have_happened(key, command):
    """E1"""
    with Scripted({key: lambda _: None, DESCRIBE_CONFIGS: told_configs()}, TOPICS) as broker:
        told = asking(broker, *command)
        assert (told.code, told.json["error"]["kind"]) == (1, "unknown")
        if "--yes" not in command:
            told = asking(broker, *command, "--dry-run")
            assert (told.code, told.json["error"]["kind"]) == (1, "unavailable")


def test_what_is_only_tried_is_sent_as_such():
    says = {
        CREATE_TOPICS: created(),
        ALTER: altered(),
        DESCRIBE_CONFIGS: told_configs(),
        CREATE_PARTITIONS: lambda _: CreatePartitionsResponse(results=[CreatePartitionsTopicResult(name="orders")]),
        DELETE_RECORDS: trimmed,
        DELETE_TOPICS: lambda _: DeleteTopicsResponse(responses=[DeletableTopicResult(name="orders")]),
    }
    with Scripted(says, TOPICS) as broker:
        for command in (
            ("create", "new"), ("alter", "orders", "--set", "a=b"), ("add-partitions", "orders", "--total", "5"),
            ("trim", "orders", "--before", ":50"), ("delete", "orders"),
        ):  # fmt: skip
            told = asking(broker, "topics", *command, "--dry-run")
            assert (told.code, told.json["dry_run"]) == (0, True)
        assert [sent(broker, key)[0].validate_only for key in (CREATE_TOPICS, ALTER, CREATE_PARTITIONS)] == [True] * 3
        assert sent(broker, DELETE_RECORDS) == sent(broker, DELETE_TOPICS) == []


def test_why_a_broker_refuses_is_told():
    with Scripted({CREATE_TOPICS: created(40, "no\x1b[2Jsuch config")}, TOPICS) as broker:
        told = asking(broker, "topics", "create", "new")
        assert told.json["error"]["message"] == (
            "the broker refused code=INVALID_CONFIG topic=new reason='no\\x1b[2Jsuch config'"
        )


def test_brokers_decide_what_was_not_said_and_get_what_was():
    with Scripted({CREATE_TOPICS: created()}, {"new": [(0, 0)]}) as broker:
        assert asking(broker, "topics", "create", "new").json["partitions"] == 3
        assert asking(broker, "topics", "create", "new", "-p", 7, "-r", 2, "-c", "a=b=c", "-c", "d=").code == 0
        plain, full = (request.topics[0] for request in sent(broker, CREATE_TOPICS))
        assert (plain.num_partitions, plain.replication_factor, list(plain.configs)) == (-1, -1, [])
        assert (full.num_partitions, full.replication_factor) == (7, 2)
        assert [(one.name, one.value) for one in full.configs] == [("a", "b=c"), ("d", "")]


@pytest.mark.parametrize("last", [1, 5, 6])
def test_a_topic_is_deleted_by_brokers_old_and_new(last):
    topics = dict(TOPICS)

    def forget(request):
        topics.clear()
        return DeleteTopicsResponse(responses=[DeletableTopicResult(name="orders")])

    with Scripted({DELETE_TOPICS: forget}, topics, {DELETE_TOPICS: (1, last)}) as broker:
        told = asking(broker, "topics", "delete", "orders", "--yes")
        assert told.json == {"topic": "orders", "dry_run": False, "partitions": 2, "records": 160}
        [request] = sent(broker, DELETE_TOPICS)
        assert (list(request.topic_names), [one.name for one in request.topics]) == (
            ([], ["orders"]) if last == 6 else (["orders"], [])
        )


@pytest.mark.parametrize("last", [1, 8, 12])
def test_topics_are_described_by_brokers_old_and_new_and_without_configs(last):
    with Scripted({}, TOPICS, {METADATA: (0, last)}) as broker:
        told = asking(broker, "topics", "describe", "orders").json
        assert [(one["start"], one["end"]) for one in told["partitions"]] == [(0, 100), (40, 100)]
        assert told["configs"] is None


def test_all_topics_of_a_large_cluster_are_listed():
    """30,000 partitions: more than a broker would take in one question."""
    topics = {f"topic-{number:04}": [(0, 0)] * 10 for number in range(3000)}
    with Scripted({}, topics) as broker:
        told = dray("topics", "list", "--format", "tsv", "--bootstrap", broker.address)
        assert told.rows == [[name, "10", "0"] for name in sorted(topics)]


def test_a_trim_names_only_what_changes():
    with Scripted({DELETE_RECORDS: trimmed}, TOPICS) as broker:
        told = asking(broker, "topics", "trim", "orders", "--before", ":30", "--yes").json
        assert [(one["from"], one["to"]) for one in told["partitions"]] == [(0, 30), (40, 40)]
        [request] = sent(broker, DELETE_RECORDS)
        [topic] = request.topics
        assert [(one.partition_index, one.offset) for one in topic.partitions] == [(0, 30)]
        assert asking(broker, "topics", "trim", "orders", "--before", "earliest").code == 0
        assert len(sent(broker, DELETE_RECORDS)) == 1


def test_secrets_are_not_told():
    rows = [
        DescribeConfigsResourceResult(name="z", value="1", config_source=1),
        DescribeConfigsResourceResult(name="password", value=None, config_source=4, is_sensitive=True),
        DescribeConfigsResourceResult(name="odd", value="2", config_source=99),
    ]
    with Scripted({DESCRIBE_CONFIGS: told_configs(*rows)}, TOPICS) as broker:
        told = dray("configs", "describe", "topic", "orders", "--format", "tsv", "--bootstrap", broker.address)
        assert told.rows == [["odd", "2", "unknown"], ["password", "***", "static"], ["z", "1", "topic"]]


def test_the_first_broker_that_answers_is_asked():
    with Scripted({}, TOPICS) as broker:
        both = f"127.0.0.1:1, {broker.address}"
        told = dray("topics", "describe", "orders", "--bootstrap", both, "--format", "json")
        assert told.code == 0
        assert dray("topics", "describe", "orders", "--bootstrap", f"{broker.address},", "--format", "json").code == 2


def test_names_cannot_give_orders_to_a_terminal():
    with Scripted({}, {"evil\x1b[2J\n": [(0, 0)]}) as broker:
        told = dray("topics", "describe", "evil\x1b[2J\n", "--bootstrap", broker.address)
        assert told.code == 0
        assert b"\x1b" not in told.out
        assert b"evil\\x1b[2J\\n" in told.out


@pytest.mark.parametrize(
    "command",
    [
        ("topics", "alter", "orders"), ("topics", "alter", "orders", "--set", "a"),
        ("topics", "create", "t", "-p", "0"),
        ("topics", "alter", "orders", "--set", "a=b", "--delete", "a"), ("topics", "add-partitions", "orders"),
        ("topics", "add-partitions", "orders", "--add", "1", "--total", "2"), ("topics", "trim", "orders"),
        ("topics", "trim", "orders", "--before", "noon"), ("configs", "describe", "planet", "x"),
        ("topics", "create"), ("topics", "list", "--format", "xml"), ("nonsense",), ("topics", "nonsense"),
    ],
)  # fmt: skip
def test_wrong_usage_is_told_with_exit_code_two(command):
    told = dray(*command)
    assert (told.code, told.out) == (2, b"")
    assert told.err.startswith("dray: ")
    assert "\n  next: " in told.err


def test_an_error_is_the_one_json_object():
    told = dray("topics", "alter", "orders", "--format", "json")
    assert told.code == 2
    assert json.loads(told.out)["error"]["kind"] == "invalid"
    assert told.err == ""
