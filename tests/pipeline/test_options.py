"""Options are read as Spark gives them, and a wrong one is told by name."""

import pytest

from dray.pipeline.errors import BadOption
from dray.pipeline.options import (
    EARLIEST,
    LATEST,
    Offsets,
    Times,
    is_table,
    pack_options,
    parse_options,
    unpack_options,
)

BASE = {"path": "data", "subscribe": "orders"}


def test_names_come_in_any_case_and_have_the_defaults_of_the_kafka_source():
    options = parse_options({"PATH": "data", "subscribe": "a, b", "includeheaders": "true"})
    assert options.topics == {"a": None, "b": None}
    assert options.starting == Offsets(option="startingOffsets", given=EARLIEST)
    assert options.ending == Offsets(option="endingOffsets", given=LATEST)
    assert (options.fail_on_data_loss, options.latest_if_no_match, options.max_records) == (True, False, None)
    assert options.include_headers


def test_offsets_are_given_for_each_partition():
    options = parse_options(BASE | {"startingOffsets": '{"orders":{"0":23,"1":-2}}'})
    assert options.starting.given == {"orders": {0: 23, 1: -2}}
    assert parse_options({"path": "d", "assign": '{"orders":[1,0,1]}'}).topics == {"orders": (0, 1)}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"startingOfsets": "earliest"}, "nearest=startingOffsets"),
        ({"kafka.bootstrap.servers": "x:1"}, "give path"),
        ({"assign": '{"orders":[0]}'}, "give one of subscribe"),
        ({"subscribePattern": "o.*"}, "give one of subscribe"),
        ({"startingOffsets": "latest"}, "option=startingOffsets"),
        ({"endingOffsets": "earliest"}, "option=endingOffsets"),
        ({"startingOffsets": '{"orders":{"0":-3}}'}, "number=-3"),
        ({"startingOffsets": "[1]"}, "it is JSON"),
        ({"startingOffsets": '{"orders":{"0":9223372036854775808}}'}, "it is JSON|number=9223372036854775808"),
        ({"startingOffsets": '{"orders":{"0":-1}}'}, "begins at earliest .* option=startingOffsets"),
        ({"endingOffsets": '{"orders":{"0":-2}}'}, "ends at latest .* option=endingOffsets"),
        ({"startingTimestamp": "-1"}, "option=startingTimestamp"),
        ({"endingTimestamp": "yesterday"}, "option=endingTimestamp"),
        ({"endingOffsetsByTimestamp": "1700000000000"}, "it is JSON"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "error or latest"),
        ({"maxRecordsPerPartition": "0"}, "option=maxRecordsPerPartition"),
        ({"location": "elsewhere", "option.startingOffset": "earliest"}, "option=option.startingoffset"),
        ({"minPartitions": "0"}, "option=minPartitions"),
        ({"includeHeaders": "yes"}, "true or false"),
        ({"subscribe": "a,,b"}, "commas"),
        ({"path": ""}, "path is missing"),
    ],
)
def test_a_wrong_option_is_named(given, told):
    with pytest.raises(BadOption, match=told):
        parse_options(BASE | given)


def test_a_time_comes_before_times_by_partition_and_those_before_offsets():
    """As in Spark's Kafka source, where all of them may be given."""
    offsets = {"startingOffsets": '{"orders":{"0":1}}', "endingOffsets": '{"orders":{"0":2}}'}
    by_partition = {
        "startingOffsetsByTimestamp": '{"orders":{"0":3}}', "endingOffsetsByTimestamp": '{"orders":{"0":4}}',
    }  # fmt: skip
    options = parse_options(BASE | offsets | by_partition)
    assert options.starting == Times(option="startingOffsetsByTimestamp", given={"orders": {0: 3}})
    assert options.ending == Times(option="endingOffsetsByTimestamp", given={"orders": {0: 4}})
    options = parse_options(BASE | offsets | by_partition | {"startingTimestamp": "5", "endingTimestamp": "6"})
    assert options.starting == Times(option="startingTimestamp", given=5)
    assert options.ending == Times(option="endingTimestamp", given=6)


@pytest.mark.parametrize("pattern", ["(", "[a-z&&[^b]]+", r"\p{Alpha}+", "[[a]]", "a{2}{3}", "(?<name>a)"])
def test_a_pattern_that_means_something_else_in_java_is_refused_and_not_guessed(pattern):
    with pytest.raises(BadOption, match="subscribePattern is a regular expression"):
        parse_options({"path": "data", "subscribePattern": pattern})


@pytest.mark.parametrize(
    ("given", "path"),
    [("file:/a/b", "/a/b"), ("file:///a b", "/a b"), ("/a%20b", "/a%20b"), ("file:/a%20b", "/a%20b"), ("a/b", "a/b")],
)
def test_a_path_may_be_a_uri_as_spark_writes_them(given, path):
    assert parse_options(BASE | {"path": given}).path == path


def test_what_spark_adds_for_a_table_is_no_option_and_the_rest_is_carried_by_its_schema():
    table = BASE | {
        "provider": "dray",
        "location": "file:/d",
        "owner": "me",
        "option.subscribe": "orders",
        "comment": "c",
    }
    assert is_table(table)
    assert not is_table(BASE)
    assert parse_options(table) == parse_options(BASE)
    carried = unpack_options(pack_options(table | {"path": "file:/some/where"}))
    assert carried == {"path": "/some/where", "subscribe": "orders"}
    assert unpack_options(pack_options(table))["path"].startswith("/")
