"""Options are read as Spark gives them, and a wrong one is told by name."""

import pytest

from dray.pipeline.errors import BadOption
from dray.pipeline.options import EARLIEST, LATEST, parse_options

BASE = {"path": "data", "subscribe": "orders"}


def test_names_come_in_any_case_and_have_the_defaults_of_the_kafka_source():
    options = parse_options({"PATH": "data", "subscribe": "a, b", "includeheaders": "true"})
    assert options.topics == {"a": None, "b": None}
    assert (options.starting, options.ending, options.fail_on_data_loss) == (EARLIEST, LATEST, True)
    assert options.include_headers


def test_offsets_are_given_for_each_partition():
    options = parse_options(BASE | {"startingOffsets": '{"orders":{"0":23,"1":-2}}'})
    assert options.starting == {"orders": {0: 23, 1: -2}}
    assert parse_options({"path": "d", "assign": '{"orders":[1,0,1]}'}).topics == {"orders": (0, 1)}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"startingOfsets": "earliest"}, "nearest=startingOffsets"),
        ({"kafka.bootstrap.servers": "x:1"}, "give path"),
        ({"assign": '{"orders":[0]}'}, "not both"),
        ({"startingOffsets": "latest"}, "option=startingOffsets"),
        ({"endingOffsets": "earliest"}, "option=endingOffsets"),
        ({"startingOffsets": '{"orders":{"0":-3}}'}, "number=-3"),
        ({"startingOffsets": "[1]"}, "it is JSON"),
        ({"startingOffsets": "earliest", "startingOffsetsByTimestamp": "{}"}, "not both"),
        ({"minPartitions": "0"}, "option=minPartitions"),
        ({"includeHeaders": "yes"}, "true or false"),
        ({"subscribe": "a,,b"}, "commas"),
        ({"path": ""}, "path is missing"),
    ],
)
def test_a_wrong_option_is_named(given, told):
    with pytest.raises(BadOption, match=told):
        parse_options(BASE | given)
