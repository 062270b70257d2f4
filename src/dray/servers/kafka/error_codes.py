"""Kafka's error codes, and which of them an error becomes.

Every handler turns an error into a code by `code_for`, and by nothing else.
What an error means is the same in every API, so it stands once, in `_MEANING`;
an error that is not there is told by its kind, and what is retriable by the
code that the clients of the API understand. Where one version of one API
wants another code, its handler says so at the place.
"""

from enum import Enum, IntEnum
from typing import Final

from dray.errors import DrayError, Kind
from dray.fetch import errors as fetch
from dray.groups import errors as groups
from dray.groups.configs import BadGroupConfig
from dray.machine.groups.codes import GroupCode
from dray.produce import errors as produce
from dray.records import errors as records
from dray.retention import errors as retention
from dray.topics import errors as topics


class ErrorCode(IntEnum):
    """The codes that Dray sends; names and numbers are Kafka's."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    THROTTLING_QUOTA_EXCEEDED = 89
    RESOURCE_NOT_FOUND = 91
    UNKNOWN_TOPIC_ID = 100
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    INVALID_REGULAR_EXPRESSION = 128


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
    BadGroupConfig: ErrorCode.INVALID_CONFIG,
    retention.BeyondEnd: ErrorCode.OFFSET_OUT_OF_RANGE,
    groups.BadGroupId: ErrorCode.INVALID_GROUP_ID,
    groups.BadSessionTimeout: ErrorCode.INVALID_SESSION_TIMEOUT,
    groups.BadPattern: ErrorCode.INVALID_REGULAR_EXPRESSION,
    groups.UnknownAssignor: ErrorCode.UNSUPPORTED_ASSIGNOR,
    groups.AssignmentTooLarge: ErrorCode.UNKNOWN_SERVER_ERROR,
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
    for base in type(error).__mro__:
        code = _MEANING.get(base)
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
