"""Does a request mean the log that there is? Its leader epoch says so (RG1)."""

from typing import Final

from dray.servers.kafka.error_codes import ErrorCode

UNCHECKED: Final = -1
"""What a request says that names no leader epoch."""


def epoch_error(asked: int, epoch: int) -> ErrorCode | None:
    """What a request for a partition of this leader epoch is told, if it names another one (RG1)."""
    if asked > epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if asked != UNCHECKED and asked < epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return None
