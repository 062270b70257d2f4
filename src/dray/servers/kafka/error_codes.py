"""Kafka's error codes, and which of them an error becomes.

Every handler turns an error into a code by `code_for`, and by nothing else.
What an error means is the same in every API, so it stands once, in `_MEANING`;
an error that is not there is told by its kind, and what is retriable by the
code that the clients of the API understand. Where one version of one API
wants another code, its handler says so at the place.
"""

from enum import Enum
from typing import Final

from dray.errors import DrayError, Kind, nearest
from dray.fetch import errors as fetch
from dray.groups import errors as groups
from dray.machine.command import NotActive
from dray.machine.groups.codes import GroupCode
from dray.produce import errors as produce
from dray.records import errors as records
from dray.retention import errors as retention
from dray.routing import errors as routing
from dray.servers.kafka.codes import ErrorCode
from dray.topics import errors as topics

__all__ = ["ErrorCode", "Family", "code_for"]


class Family(Enum):
    """What an API works on; decides which retriable code its clients understand."""

    DATA = "data"
    GROUP = "group"
    ADMIN = "admin"


OUTAGE: Final = {
    Family.DATA: ErrorCode.KAFKA_STORAGE_ERROR,
    Family.GROUP: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    Family.ADMIN: ErrorCode.REQUEST_TIMED_OUT,
}


_MEANING: Final[dict[type[DrayError], ErrorCode]] = {
    topics.UnknownTopic: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    topics.UnknownTopicId: ErrorCode.UNKNOWN_TOPIC_ID,
    topics.TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    topics.BadTopicName: ErrorCode.INVALID_TOPIC_EXCEPTION,
    topics.BadPartitions: ErrorCode.INVALID_PARTITIONS,
    topics.BadReplication: ErrorCode.INVALID_REPLICATION_FACTOR,
    topics.BadTopicConfig: ErrorCode.INVALID_CONFIG,
    records.InvalidBatch: ErrorCode.INVALID_RECORD,
    records.TooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    records.BadCrc: ErrorCode.CORRUPT_MESSAGE,
    records.BadCodec: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    records.BadTimestamp: ErrorCode.INVALID_TIMESTAMP,
    records.Transactional: ErrorCode.INVALID_TXN_STATE,
    produce.BadBatch: ErrorCode.INVALID_RECORD,
    produce.StreamMissing: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    produce.OutOfOrder: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    produce.ProducerFenced: ErrorCode.INVALID_PRODUCER_EPOCH,
    produce.TimedOut: ErrorCode.REQUEST_TIMED_OUT,
    fetch.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    fetch.StreamGone: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    groups.BadGroupConfig: ErrorCode.INVALID_CONFIG,
    retention.BeyondEnd: ErrorCode.OFFSET_OUT_OF_RANGE,
    routing.NotLeader: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    routing.NotCoordinator: ErrorCode.NOT_COORDINATOR,
    groups.BadGroupId: ErrorCode.INVALID_GROUP_ID,
    groups.BadSessionTimeout: ErrorCode.INVALID_SESSION_TIMEOUT,
    groups.BadPattern: ErrorCode.INVALID_REGULAR_EXPRESSION,
    groups.UnknownAssignor: ErrorCode.UNSUPPORTED_ASSIGNOR,
    groups.AssignmentTooLarge: ErrorCode.UNKNOWN_SERVER_ERROR,
    NotActive: ErrorCode.UNSUPPORTED_VERSION,
}
"""A class that is not here is told as the nearest of its bases."""


GROUP_CODES: Final = {
    GroupCode.ACCEPTED: ErrorCode.NONE,
    GroupCode.UNKNOWN_MEMBER: ErrorCode.UNKNOWN_MEMBER_ID,
    GroupCode.UNKNOWN_GROUP: ErrorCode.GROUP_ID_NOT_FOUND,
    GroupCode.FENCED_INSTANCE: ErrorCode.FENCED_INSTANCE_ID,
    GroupCode.OTHER_GENERATION: ErrorCode.ILLEGAL_GENERATION,
    GroupCode.OTHER_PROTOCOL: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    GroupCode.OTHER_KIND: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    GroupCode.REBALANCING: ErrorCode.REBALANCE_IN_PROGRESS,
    GroupCode.FULL: ErrorCode.GROUP_MAX_SIZE_REACHED,
    GroupCode.NOT_EMPTY: ErrorCode.NON_EMPTY_GROUP,
    GroupCode.MOVED: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    GroupCode.FENCED_EPOCH: ErrorCode.FENCED_MEMBER_EPOCH,
    GroupCode.STALE_EPOCH: ErrorCode.STALE_MEMBER_EPOCH,
    GroupCode.UNRELEASED_INSTANCE: ErrorCode.UNRELEASED_INSTANCE_ID,
    GroupCode.NEEDS_NEWER_API: ErrorCode.UNSUPPORTED_VERSION,
}
"""What a group says of a member or a call."""


def code_for(error: Exception, family: Family) -> ErrorCode:
    """What clients of this family are told of an error.

    After `Unavailable` nothing happened, after `Unknown` it may have: both are
    retriable, and neither is ever a definite failure (E1).
    """
    if isinstance(error, groups.GroupSaysNo):
        return GROUP_CODES[error.code]
    code = nearest(error, _MEANING, None)
    if code is not None:
        return code
    return _by_kind(error.kind, family) if isinstance(error, DrayError) else ErrorCode.UNKNOWN_SERVER_ERROR


def _by_kind(kind: Kind, family: Family) -> ErrorCode:
    match kind:
        case Kind.UNAVAILABLE | Kind.UNKNOWN | Kind.LOST | Kind.CONFLICT:
            return OUTAGE[family]
        case Kind.CORRUPT if family is Family.DATA:
            return ErrorCode.KAFKA_STORAGE_ERROR  # retriable: nothing is skipped, an operator may bring it back
        case Kind.INVALID:
            return ErrorCode.INVALID_REQUEST
        case _:
            return ErrorCode.UNKNOWN_SERVER_ERROR
