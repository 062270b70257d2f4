"""`dray produce` and `dray consume` in pipes: every record is counted, and nothing is lost on the way."""

import base64
import os
import sys

import pytest
from aiokafka.partitioner import DefaultPartitioner

from dray.cli.main import DRAY, run
from dray.testing import broker
from tests.cli.asking import dray
from tests.cli.command_story import Shop, lines


@pytest.fixture(scope="module")
def shop():
    with broker(topics__auto_create="false") as running:
        yield Shop(running.bootstrap)


@pytest.fixture
def topic(shop, request):
    name = request.node.name.replace("[", "-").replace("]", "")[:200]
    shop.good("topics", "create", name, "-p", 1)
    return name


def test_lines_go_in_and_come_out(shop, topic):
    told = shop("produce", topic, stdin=b"one\n\ntwo\r\nno end")
    assert told.out.decode().split() == ["PARTITION", "RECORDS", "FIRST", "LAST", "0", "4", "0", "3"]
    assert shop("consume", topic).out == b"one\n\ntwo\r\nno end\n"


@pytest.mark.slow
def test_keys_headers_and_tombstones_have_their_text(shop, topic):
    arguments = ("-K", r"\t", "--null", "NULL", "-H", "source=shop", "-H", "empty=", "-H", "none")
    assert shop("produce", topic, *arguments, stdin=b"a\t1\n\tempty key\nNULL\tno key\nb\tNULL\nc\t\n").code == 0
    headers = [("source", "shop"), ("empty", ""), ("none", None)]
    read = shop.read(topic)
    assert [(one["key"], one["value"]) for one in read] == [
        ("a", "1"), ("", "empty key"), (None, "no key"), ("b", None), ("c", ""),
    ]  # fmt: skip
    assert all([(h["key"], h["value"]) for h in one["headers"]] == headers for one in read)
    assert shop("consume", topic, "-K", "=", "--null", "~").out == b"a=1\n=empty key\n~=no key\nb=~\nc=\n"


@pytest.mark.slow
def test_one_key_for_all_and_a_key_of_its_own_exclude_each_other(shop, topic):
    assert shop("produce", topic, "-k", "k", stdin=b"1\n2\n").code == 0
    assert {one["key"] for one in shop.read(topic)} == {"k"}
    assert shop("produce", topic, "-k", "k", "-K", ":", stdin=b"").code == 2


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["base64", "hex"])
def test_binary_values_go_through_text(shop, topic, encoding):
    content = bytes(range(256))
    written = base64.b64encode(content) if encoding == "base64" else content.hex().encode()
    assert shop("produce", topic, "--encoding", encoding, stdin=written + b"\n").code == 0
    assert shop("consume", topic, "--encoding", encoding).out == written + b"\n"
    assert shop("consume", topic, "--delimiter", r"\0").out == content + b"\0"
    [told] = shop.read(topic)
    assert base64.b64decode(told["value"]["base64"]) == content


@pytest.mark.slow
def test_the_whole_input_is_one_record(shop, topic):
    content = os.urandom(500_000)
    assert shop("produce", topic, "--whole", stdin=content).code == 0
    assert shop("consume", topic).out == content + b"\n"


@pytest.mark.slow
def test_a_key_goes_where_other_clients_send_it(shop):
    """By murmur2, as Kafka's own client and those that follow it."""
    keys = [f"key {number}" for number in range(50)]
    shop.good("topics", "create", "keyed", "-p", 8)
    shop.good("produce", "keyed", "-K", ":", stdin="".join(f"{key}:\n" for key in keys).encode())
    choose = DefaultPartitioner()
    expected = {key: choose(key.encode(), list(range(8)), list(range(8))) for key in keys}
    assert {one["key"]: one["partition"] for one in shop.read("keyed")} == expected


def test_a_record_that_is_too_large_is_told_with_its_number_and_ends_the_command(shop, topic):
    """CL1, E1: what is not stored is failed, and the exit code is 1."""
    given = lines({"value": "a"}, {"value": "x" * 2_000_000})
    told = shop("produce", topic, "-i", "json", "--format", "json", stdin=given)
    assert told.code == 1
    assert (told.json["stored"], told.json["failed"], told.json["unknown"]) == (1, 1, 0)
    assert (told.json["failures"][0]["record"], told.json["failures"][0]["code"]) == (2, "MSG_SIZE_TOO_LARGE")
    assert told.json["error"]["kind"] == "invalid"


@pytest.mark.slow
def test_a_line_that_is_no_record_ends_the_command_or_is_passed_over(shop, topic):
    """CL1"""
    given = b'{"value":"1"}\nnonsense\n{"value":"3"}\n'
    stopped = shop("produce", topic, "-i", "json", stdin=given)
    assert stopped.code == 1
    assert "record 2: BAD_RECORD: this is no JSON" in stopped.err
    assert "taken=2 stored=1 failed=1 unknown=0" in stopped.err
    assert "what follows record 2 was not read" in stopped.err
    gone_on = shop("produce", topic, "-i", "json", "--keep-going", "--format", "json", stdin=given)
    assert gone_on.code == 1
    assert (gone_on.json["taken"], gone_on.json["stored"], gone_on.json["failed"]) == (3, 2, 1)
    assert shop("consume", topic).out == b"1\n1\n3\n"


def test_all_failures_are_counted_and_some_are_shown(shop, topic):
    """CL1"""
    told = shop("produce", topic, "-i", "json", "--keep-going", "--format", "json", stdin=b"x\n" * 1000)
    assert (told.json["taken"], told.json["failed"], len(told.json["failures"])) == (1000, 1000, 10)


@pytest.mark.slow
def test_a_topic_or_a_partition_that_is_not_there_is_told_before_anything_is_read(shop, topic):
    assert shop.refused("produce", "nowhere", stdin=b"x\n")["kind"] == "not_found"
    assert shop.refused("produce", topic, "-p", 7, stdin=b"x\n")["message"].startswith(
        "the topic has no such partition"
    )
    assert shop.refused("consume", "nowhere")["kind"] == "not_found"
    assert shop.refused("consume", topic, "-p", 7)["kind"] == "not_found"
    assert shop.good("produce", "made-on-the-way", "--create", stdin=b"x\n")["stored"] == 1


@pytest.mark.slow
def test_a_partition_that_json_names_is_used_unless_it_should_not_be(shop):
    shop.good("topics", "create", "numbered", "-p", 3)
    record = {"value": "v", "partition": 2, "offset": 9, "topic": "other", "timestamp": 1_700_000_000_000}
    shop.good("produce", "numbered", "-i", "json", stdin=lines(record))
    [told] = shop.read("numbered")
    assert (told["partition"], told["timestamp"]) == (2, 1_700_000_000_000)
    shop.good("produce", "numbered", "-i", "json", "-p", 1, stdin=lines(record))
    assert len(shop.read("numbered", "-p", 1)) == 1
    assert shop("produce", "numbered", "-i", "json", stdin=lines({"value": "v", "partition": 3})).code == 1


@pytest.mark.slow
def test_several_topics_are_read_together(shop):
    for name in ("left", "right"):
        shop.good("topics", "create", name, "-p", 1)
        shop.good("produce", name, stdin=name.encode())
    assert sorted(one["topic"] for one in shop.read("left", "right", "left")) == ["left", "right"]


@pytest.mark.slow
def test_rows_of_tsv_keep_their_columns(shop, topic):
    record = {"key": "a\tb", "value": "c\nd\\", "headers": [{"key": "h", "value": None}]}
    shop.good("produce", topic, "-i", "json", stdin=lines(record))
    [row] = shop("consume", topic, "--format", "tsv").rows
    assert (row[:3], row[4:]) == ([topic, "0", "0"], ["a\\tb", "c\\nd\\\\", "h=\\N"])


@pytest.mark.parametrize(
    "arguments",
    [
        ("--from", "latest"), ("--from", "noon"), ("--until", ":5", "--follow"), ("--until", ":5", "--group", "g"),
        ("--group", "g", "-p", "0"), ("--group", "g", "--from", ":3"), ("-n", "0"), ("--delimiter", ""),
        ("--key-separator", r"\q"), ("--encoding", "rot13"), ("--format", "xml"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_wrong_usage(shop, arguments):
    assert shop("consume", "t", *arguments).code == 2


@pytest.mark.slow
def test_a_member_that_others_leave_nothing_to_ends(shop, topic):
    """Of a topic with one partition, in a group that has read it."""
    shop.good("produce", topic, stdin=b"1\n2\n")
    assert len(shop.read(topic, "--group", topic)) == 2
    assert shop.read(topic, "--group", topic) == []


def test_without_the_library_it_is_told_what_to_install(shop, monkeypatch):
    for name in ("dray.kafka_client.writing", "dray.kafka_client.reading"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    for command in ("produce", "consume"):
        refused = shop(command, "t")
        assert refused.code == 1
        assert "pip install 'dray[cli]'" in refused.err
    assert shop("topics", "list").code == 0


def test_nobody_answers():
    """Neither command waits for a broker that is not there."""
    for command in ("produce", "consume"):
        refused = dray(command, "t", "--bootstrap", "127.0.0.1:1", "--format", "json")
        assert (refused.code, refused.json["error"]["kind"]) == (1, "unavailable")


def test_help_needs_no_library(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    assert run(["produce", "--help"], DRAY) == 0
    assert "--keep-going" in capsys.readouterr().out
