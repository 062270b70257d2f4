"""Kafka error codes, by what they prove about an operation.

A history is only as good as its `fail`s: an operation that is called failed
and happened all the same shows as an aborted read that is none, and one that
is called unknown and never happened hides nothing. So `fail` needs a proof,
and everything else is `info`: timeouts, disconnects, retriable codes, codes
this list does not know.

Clients repeat requests by themselves. A code that depends on nothing but the
request refuses every attempt alike. A code that depends on the state of the
cluster refuses this attempt and says nothing about the one before, whose
answer was lost: it is a proof only if there was just one attempt.
"""

from enum import Enum
from typing import Final


class Outcome(Enum):
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


# The request itself is at fault, so each attempt got the same answer.
REFUSED_ALWAYS: Final[dict[int, str]] = {
    10: "MESSAGE_TOO_LARGE",
    12: "OFFSET_METADATA_TOO_LARGE",
    17: "INVALID_TOPIC_EXCEPTION",
    18: "RECORD_LIST_TOO_LARGE",
    21: "INVALID_REQUIRED_ACKS",
    28: "INVALID_COMMIT_OFFSET_SIZE",
    32: "INVALID_TIMESTAMP",
    37: "INVALID_PARTITIONS",
    38: "INVALID_REPLICATION_FACTOR",
    39: "INVALID_REPLICA_ASSIGNMENT",
    40: "INVALID_CONFIG",
    76: "UNSUPPORTED_COMPRESSION_TYPE",
    87: "INVALID_RECORD",
}

# The broker judged this attempt and refused it before any effect; an earlier one may have been taken.
REFUSED_THIS_TIME: Final[dict[int, str]] = {
    22: "ILLEGAL_GENERATION",
    25: "UNKNOWN_MEMBER_ID",
    29: "TOPIC_AUTHORIZATION_FAILED",
    30: "GROUP_AUTHORIZATION_FAILED",
    31: "CLUSTER_AUTHORIZATION_FAILED",
    33: "UNSUPPORTED_SASL_MECHANISM",
    34: "ILLEGAL_SASL_STATE",
    35: "UNSUPPORTED_VERSION",
    36: "TOPIC_ALREADY_EXISTS",
    42: "INVALID_REQUEST",
    43: "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    44: "POLICY_VIOLATION",
    45: "OUT_OF_ORDER_SEQUENCE_NUMBER",
    47: "INVALID_PRODUCER_EPOCH",
    58: "SASL_AUTHENTICATION_FAILED",
    82: "FENCED_INSTANCE_ID",
    90: "PRODUCER_FENCED",
    110: "FENCED_MEMBER_EPOCH",
    113: "STALE_MEMBER_EPOCH",
}


def classify(kafka_error_code: int, *, single_attempt: bool = False) -> Outcome:
    """What an answer with this code proves. `single_attempt`: the client surely sent the request once."""
    if kafka_error_code == 0:
        return Outcome.OK
    if kafka_error_code in REFUSED_ALWAYS:
        return Outcome.FAIL
    if single_attempt and kafka_error_code in REFUSED_THIS_TIME:
        return Outcome.FAIL
    return Outcome.INFO
