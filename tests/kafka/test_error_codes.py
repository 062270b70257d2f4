"""Errors become codes in one table; what is not in it is told by its kind."""

import pytest

from dray.errors import Conflict, Corrupt, DrayError, Invalid, Lost, NotFound, Unavailable, Unknown
from dray.fetch.errors import DamagedObject
from dray.machine.command import NotActive
from dray.produce.errors import Overtaken, StoredUnknown, TimedOut
from dray.records.errors import BadDeltas, ExpandsTooFar
from dray.servers.kafka.error_codes import OUTAGE, ErrorCode, Family, code_for
from dray.topics.errors import UnknownPartition, UnknownTopic, UnknownTopicId


@pytest.mark.parametrize("family", Family)
def test_a_class_is_told_as_the_nearest_of_its_bases(family: Family) -> None:
    assert code_for(UnknownTopic("no"), family) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code_for(UnknownPartition("no"), family) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code_for(UnknownTopicId("no"), family) is ErrorCode.UNKNOWN_TOPIC_ID
    assert code_for(BadDeltas("no"), family) is ErrorCode.INVALID_RECORD
    assert code_for(ExpandsTooFar("no"), family) is ErrorCode.MESSAGE_TOO_LARGE
    assert code_for(TimedOut("no"), family) is ErrorCode.REQUEST_TIMED_OUT
    assert code_for(NotActive("no"), family) is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("family", Family)
@pytest.mark.parametrize("error", [Unavailable, Unknown, Conflict, Lost, StoredUnknown, Overtaken])
def test_what_may_be_tried_again_is_never_told_as_a_definite_failure(family: Family, error: type[DrayError]) -> None:
    """E1."""
    assert code_for(error("later"), family) is OUTAGE[family]


def test_what_the_table_does_not_know_is_told_by_its_kind() -> None:
    assert code_for(Invalid("no"), Family.GROUP) is ErrorCode.INVALID_REQUEST
    assert code_for(NotFound("no"), Family.ADMIN) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert code_for(DrayError("no"), Family.DATA) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert code_for(ValueError("no"), Family.DATA) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_damage_is_retriable_where_records_are_read_and_nowhere_else() -> None:
    assert code_for(DamagedObject("no"), Family.DATA) is ErrorCode.KAFKA_STORAGE_ERROR
    assert code_for(Corrupt("no"), Family.GROUP) is ErrorCode.UNKNOWN_SERVER_ERROR
