"""What can go wrong when a broker is asked."""

from typing import Final

from dray.errors import Conflict, DrayError, Invalid, NotFound, Unavailable
from dray.errors import Unknown as UnknownOutcome
from dray.servers.kafka.codes import ErrorCode


class NoBroker(Unavailable):
    """Nobody answers at an address, or what answers is no Kafka broker."""

    advice = "check that the broker runs and that --bootstrap is its Kafka address"


class NoLeader(Unavailable):
    """A partition that is new, or moves, is nobody's at the moment."""


class NotServed(Invalid):
    """The broker does not have this API in a version that we speak."""

    advice = "this needs a newer broker"


class LostAnswer(UnknownOutcome):
    """A change was sent and its answer never came."""


class NoSuchGroup(NotFound):
    """The group has neither members nor offsets."""

    advice = "`dray groups list` shows the groups there are"


class GroupInUse(Conflict):
    """Its members would overwrite the change, or be cut off by it."""

    advice = "stop the members of the group first; `dray groups describe` shows them"


class TopicNotThere(NotFound):
    """No topic of the cluster has this name."""

    advice = "`dray topics list` shows the topics there are, `dray topics create` makes one"


class PartitionNotThere(NotFound):
    """The topic has fewer partitions."""

    advice = "`dray topics describe` shows the partitions"


class TopicThere(Conflict):
    """The name is taken."""

    advice = "choose another name, or add --if-not-exists"


class SaidNo(Invalid):
    """The broker refused, and will refuse again."""


_KINDS: Final[dict[int, type[DrayError]]] = {
    ErrorCode.GROUP_ID_NOT_FOUND: NoSuchGroup,
    ErrorCode.NON_EMPTY_GROUP: GroupInUse,
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: GroupInUse,
    ErrorCode.UNKNOWN_MEMBER_ID: GroupInUse,
    ErrorCode.REBALANCE_IN_PROGRESS: GroupInUse,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: TopicNotThere,
    ErrorCode.TOPIC_ALREADY_EXISTS: TopicThere,
    ErrorCode.LEADER_NOT_AVAILABLE: NoLeader,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: NoLeader,
    ErrorCode.REQUEST_TIMED_OUT: UnknownOutcome,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Unavailable,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Unavailable,
    ErrorCode.NOT_COORDINATOR: Unavailable,
    ErrorCode.KAFKA_STORAGE_ERROR: Unavailable,
}


def refusal(code: int, reason: str | None = None, /, **facts: object) -> DrayError:
    """What a code of a broker means to whoever asked, and what it says beside."""
    name = ErrorCode(code).name if code in ErrorCode.__members__.values() else str(code)
    said = {"reason": repr(reason)} if reason else {}
    return _KINDS.get(code, SaidNo)("the broker refused", code=name, **facts, **said)


def check(code: int, reason: str | None = None, /, **facts: object) -> None:
    """Raise what a code means, unless all is well."""
    if code != ErrorCode.NONE:
        raise refusal(code, reason, **facts)
