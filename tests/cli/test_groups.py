"""`dray groups`, against a broker that says what Apache Kafka and Dray say, in old and new versions."""

import json
import struct

import pytest

from dray.cli.main import DRAY, run
from dray.kafka_client.places import AtOffset, AtTime, BadTarget, Shifted, parse_target
from dray.servers.kafka.codec import encode
from dray.servers.kafka.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeResponse,
    Member,
    TopicPartitions,
)
from dray.servers.kafka.messages.consumer_group_describe import DescribedGroup as DescribedConsumers
from dray.servers.kafka.messages.consumer_protocol_assignment import CODEC as ASSIGNMENT
from dray.servers.kafka.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from dray.servers.kafka.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from dray.servers.kafka.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from dray.servers.kafka.messages.list_groups import ListedGroup, ListGroupsResponse
from dray.servers.kafka.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from dray.servers.kafka.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from tests.kafka_client.scripted import (
    CONSUMER_GROUP_DESCRIBE,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    Scripted,
)

TOPICS = {"orders": [(0, 100), (40, 100)], "quiet": [(0, 0)]}
OFFSETS = {("orders", 0): 90, ("orders", 1): 10, ("gone", 0): 7}


def classic(state: str = "Empty", *members: DescribedGroupMember):
    described = DescribedGroup(
        group_id="g", group_state=state, protocol_type="consumer", protocol_data="range", members=members
    )
    return lambda _: DescribeGroupsResponse(groups=[described])


def owner(*places: tuple[str, list[int]]) -> DescribedGroupMember:
    owned = ConsumerProtocolAssignment(assigned_partitions=[TopicPartition(*place) for place in places])
    raw = struct.pack(">h", 3) + b"".join(encode(ASSIGNMENT.write[3], owned))
    return DescribedGroupMember(member_id="m-1", client_id="shop", client_host="/10.0.0.1", member_assignment=raw)


def offsets(committed: dict[tuple[str, int], int] = OFFSETS):
    """What OffsetFetch says, in the form of the version that was asked."""

    def say(request):
        rows = sorted(committed.items())
        if request.groups:
            topics = [
                OffsetFetchResponseTopics(
                    name=topic, partitions=[OffsetFetchResponsePartitions(partition_index=number, committed_offset=at)]
                )
                for (topic, number), at in rows
            ]
            return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])
        old = [
            OffsetFetchResponseTopic(
                name=topic, partitions=[OffsetFetchResponsePartition(partition_index=number, committed_offset=at)]
            )
            for (topic, number), at in rows
        ]
        return OffsetFetchResponse(topics=old)

    return say


def commits(code: int = 0):
    def say(request):
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    return say


def asking(broker: Scripted, *argv: str) -> int:
    return run(["groups", *argv, "--bootstrap", broker.address], DRAY)


def test_a_list_is_text_tsv_or_one_json_object(capsys):
    rows = [ListedGroup("b\tc", "consumer", "Stable", "Consumer"), ListedGroup("a", "", "Empty", "classic")]
    with Scripted({LIST_GROUPS: lambda _: ListGroupsResponse(groups=rows)}) as broker:
        assert asking(broker, "list") == 0
        assert capsys.readouterr().out.splitlines() == [
            "GROUP  TYPE      STATE   PROTOCOL",
            "a      classic   Empty   -",
            "b\\tc   consumer  Stable  consumer",
        ]
        assert asking(broker, "list", "--format", "tsv") == 0
        assert capsys.readouterr().out == "a\tclassic\tEmpty\t-\nb\\tc\tconsumer\tStable\tconsumer\n"
        assert asking(broker, "list", "--format", "json") == 0
        (first, _) = json.loads(capsys.readouterr().out)["groups"]
        assert first == {"group": "a", "type": "classic", "state": "Empty", "protocol": ""}


@pytest.mark.parametrize(
    ("last", "states", "types"), [(2, (), ()), (4, ("Stable",), ()), (5, ("Stable",), ("classic",))]
)
def test_filters_are_sent_to_brokers_that_have_them(last, states, types, capsys):
    with Scripted({LIST_GROUPS: lambda _: ListGroupsResponse()}, versions={LIST_GROUPS: (0, last)}) as broker:
        assert asking(broker, "list", "--state", "Stable", "--type", "classic") == 0
        [(_, version, request)] = [one for one in broker.asked if one[0] == LIST_GROUPS]
        assert (version, tuple(request.states_filter), tuple(request.types_filter)) == (last, states, types)


@pytest.mark.parametrize("last", [5, 9])
def test_a_classic_group_is_described_with_its_lag(capsys, last):
    """What retention took is not behind; a topic that is gone has no end."""
    says = {DESCRIBE_GROUPS: classic("Stable", owner(("orders", [0]), ("quiet", [0]))), OFFSET_FETCH: offsets()}
    with Scripted(says, TOPICS, {OFFSET_FETCH: (1, last)}) as broker:
        assert asking(broker, "describe", "g", "--format", "tsv") == 0
        assert [line.split("\t") for line in capsys.readouterr().out.splitlines()] == [
            ["gone", "0", "7", "-", "-", "-", "-", "-", "-"],
            ["orders", "0", "90", "0", "100", "10", "shop", "/10.0.0.1", "m-1"],
            ["orders", "1", "10", "40", "100", "60", "-", "-", "-"],
            ["quiet", "0", "-", "0", "0", "-", "shop", "/10.0.0.1", "m-1"],
        ]
        assert asking(broker, "describe", "g") == 0
        told = capsys.readouterr().out
        assert "state:     Stable" in told
        assert "lag:       70" in told
        assert asking(broker, "describe", "g", "--format", "json") == 0
        document = json.loads(capsys.readouterr().out)
        assert [row["lag"] for row in document["partitions"]] == [None, 10, 60, None]
        assert document["members"][0]["partitions"][0] == {"topic": "orders", "partition": 0}


def test_a_group_of_the_consumer_protocol_is_described(capsys):
    member = Member(member_id="m", client_id="c", assignment=Assignment([TopicPartitions(bytes(16), "orders", [1])]))
    described = DescribedConsumers(group_id="g", group_state="Stable", assignor_name="uniform", members=[member])
    says = {
        CONSUMER_GROUP_DESCRIBE: lambda _: ConsumerGroupDescribeResponse(groups=[described]),
        OFFSET_FETCH: offsets({}),
    }
    with Scripted(says, TOPICS) as broker:
        assert asking(broker, "describe", "g", "--format", "json") == 0
        document = json.loads(capsys.readouterr().out)
        assert (document["type"], document["assignor"]) == ("consumer", "uniform")
        assert [(row["topic"], row["partition"], row["lag"]) for row in document["partitions"]] == [("orders", 1, None)]


def test_a_group_that_is_not_there_is_told(capsys):
    with Scripted({DESCRIBE_GROUPS: classic("Dead"), OFFSET_FETCH: offsets({})}) as broker:
        assert asking(broker, "describe", "g") == 1
        assert "there is no such group group=g" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ("earliest", {("orders", 0): 0, ("orders", 1): 40}),
        ("latest", {("orders", 0): 100, ("orders", 1): 100}),
        (":20", {("orders", 0): 20, ("orders", 1): 40}),
        ("@60", {("orders", 0): 60, ("orders", 1): 60}),
        ("@1000", {("orders", 0): 100, ("orders", 1): 100}),
        ("-30", {("orders", 0): 60, ("orders", 1): 40}),
        ("+50", {("orders", 0): 100, ("orders", 1): 60}),
    ],
)
def test_a_reset_shows_what_it_would_do_and_then_does_it(to, expected, capsys):
    says = {DESCRIBE_GROUPS: classic(), OFFSET_FETCH: offsets(), OFFSET_COMMIT: commits()}
    with Scripted(says, TOPICS) as broker:
        assert asking(broker, "reset", "g", "--to", to, "--dry-run", "--format", "json") == 0
        planned = json.loads(capsys.readouterr().out)
        assert planned["dry_run"] is True
        assert {(row["topic"], row["partition"]): row["to"] for row in planned["partitions"]} == expected
        assert not [one for one in broker.asked if one[0] == OFFSET_COMMIT]
        assert asking(broker, "reset", "g", "--to", to, "--yes") == 0
        [(_, _, request)] = [one for one in broker.asked if one[0] == OFFSET_COMMIT]
        assert (request.group_id, request.member_id, request.generation_id_or_member_epoch) == ("g", "", -1)
        sent = {(t.name, one.partition_index): one.committed_offset for t in request.topics for one in t.partitions}
        assert sent == expected


def test_a_topic_that_the_group_never_read_can_be_named(capsys):
    with Scripted({DESCRIBE_GROUPS: classic(), OFFSET_FETCH: offsets()}, TOPICS) as broker:
        assert asking(broker, "reset", "g", "--to", "latest", "--topic", "quiet", "--dry-run", "--format", "tsv") == 0
        assert capsys.readouterr().out == "quiet\t0\t-\t0\n"
        assert asking(broker, "reset", "g", "--to", "latest", "--topic", "nope", "--dry-run") == 1
        assert "there is no such topic topic=nope" in capsys.readouterr().err


@pytest.mark.parametrize("command", [("reset", "g", "--to", "latest"), ("delete", "g")])
def test_nothing_is_changed_without_a_yes_or_with_members(command, capsys, monkeypatch):
    never = {OFFSET_COMMIT: commits(), DELETE_GROUPS: lambda _: DeleteGroupsResponse()}
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    with Scripted({DESCRIBE_GROUPS: classic(), OFFSET_FETCH: offsets(), **never}, TOPICS) as broker:
        assert asking(broker, *command) == 1
        assert "this was not confirmed" in capsys.readouterr().err
        assert not {one[0] for one in broker.asked} & never.keys()
    with Scripted({DESCRIBE_GROUPS: classic("Stable", owner()), OFFSET_FETCH: offsets(), **never}, TOPICS) as broker:
        assert asking(broker, *command, "--yes", "--format", "json") == 1
        assert json.loads(capsys.readouterr().out)["error"]["kind"] == "conflict"
        assert not {one[0] for one in broker.asked} & never.keys()


@pytest.mark.parametrize(("code", "exit_code", "told"), [(0, 0, "g"), (68, 1, "NON_EMPTY_GROUP"), (-7, 1, "code=-7")])
def test_a_group_is_deleted_or_the_broker_says_why_not(code, exit_code, told, capsys):
    deleted = DeleteGroupsResponse(results=[DeletableGroupResult("g", code)])
    says = {DESCRIBE_GROUPS: classic(), OFFSET_FETCH: offsets(), DELETE_GROUPS: lambda _: deleted}
    with Scripted(says, TOPICS) as broker:
        assert asking(broker, "delete", "g", "--yes") == exit_code
        captured = capsys.readouterr()
        assert told in captured.out + captured.err


def test_a_lost_answer_is_unknown_where_something_may_have_changed_and_unavailable_elsewhere(capsys):
    """E1"""
    says = {
        DESCRIBE_GROUPS: classic(),
        OFFSET_FETCH: offsets(),
        OFFSET_COMMIT: lambda _: None,
        LIST_GROUPS: lambda _: None,
    }
    with Scripted(says, TOPICS) as broker:
        assert asking(broker, "reset", "g", "--to", "latest", "--yes", "--format", "json") == 1
        assert json.loads(capsys.readouterr().out)["error"]["kind"] == "unknown"
        assert asking(broker, "list", "--format", "json") == 1
        assert json.loads(capsys.readouterr().out)["error"]["kind"] == "unavailable"


def test_what_a_broker_does_not_serve_is_told(capsys):
    with Scripted({}) as broker:
        assert asking(broker, "list") == 1
        assert "the broker does not speak this api=ListGroups" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("earliest", AtTime(-2)), ("latest", AtTime(-1)), (":0", AtOffset(0)), ("+1", Shifted(1)), ("-1", Shifted(-1)),
        ("@1700000000000", AtTime(1_700_000_000_000)), ("@2026-11-17", AtTime(1_794_873_600_000)),
        ("@2026-11-17T01:00:00+01:00", AtTime(1_794_873_600_000)),
    ],
)  # fmt: skip
def test_places_are_written_like_this(text, target):
    assert parse_target(text) == target


@pytest.mark.parametrize("text", ["", "5", ":", ":-1", "@", "@noon", "first", "+", ":99999999999999999999"])
def test_anything_else_is_wrong_usage(text, capsys):
    with pytest.raises(BadTarget):
        parse_target(text)
    assert run(["groups", "reset", "g", f"--to={text}"], DRAY) == 2
    assert "earliest, latest, :OFFSET" in capsys.readouterr().err
