"""Does a request mean the log that there is? Its leader epoch says so (RG1)."""

from dray.servers.kafka.error_codes import ErrorCode


def epoch_error(asked: int, epoch: int) -> ErrorCode | None:
    """What a request for a partition of this leader epoch is told, if it names another one (RG1)."""
    if asked > epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if 0 <= asked < epoch:  # a negative one means that none is named, as in Kafka
        return ErrorCode.FENCED_LEADER_EPOCH
    return None
