"""ConsumerGroupHeartbeat (68): join a consumer group, stay in it, leave it (KIP-848).

Left out: an online move of a classic group that has members; it is told 69.

An outage is told as 15 and nothing else: clients take unknown codes of a
heartbeat as fatal. They should where the active version has no such groups:
that is 35, as Kafka tells it of a feature that is off.
"""

from typing import Final

from dray.errors import Invalid
from dray.groups.consumer import GOES_AWAY, JOINS, LEAVES, Heartbeat, Told
from dray.machine.groups.beats import MAX_NAMES
from dray.machine.groups.masks import Masks, partitions_of
from dray.machine.names import TopicId
from dray.servers.kafka.error_codes import GROUP_CODES, ErrorCode, Family, code_for
from dray.servers.kafka.handler import Context, Endpoint, check_count
from dray.servers.kafka.leading import check_coordinator
from dray.servers.kafka.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

_FIRST_WITH_OWN_IDS: Final = 1
"""Since then a member makes its own id."""


async def handle(request: ConsumerGroupHeartbeatRequest, context: Context) -> ConsumerGroupHeartbeatResponse:
    wrong = _wrong(request, context.version)
    if wrong is not None:
        return _refusal(ErrorCode.INVALID_REQUEST, wrong)
    owned = request.topic_partitions
    check_count(sum(len(one.partitions) for one in owned or ()))
    await check_coordinator(request.group_id, context)
    call = Heartbeat(
        group=request.group_id,
        member=request.member_id,
        epoch=request.member_epoch,
        instance=request.instance_id,
        rack=request.rack_id,
        client_id=context.client_id or "",
        client_host=f"/{context.peer.address}",
        rebalance_ms=request.rebalance_timeout_ms,
        names=request.subscribed_topic_names,
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=None if owned is None else {TopicId(one.topic_id): one.partitions for one in owned},
    )
    try:
        answer = await context.services.consumers.beat(call)
    except Invalid as error:
        return _refusal(code_for(error, Family.GROUP), str(error))
    if isinstance(answer, Told):
        return _answer(answer)
    return _refusal(GROUP_CODES[answer], answer.value)


def _wrong(request: ConsumerGroupHeartbeatRequest, version: int) -> str | None:
    """What makes no sense in a request, whatever the group is like."""
    epoch = request.member_epoch
    if not request.group_id or request.instance_id == "" or request.rack_id == "":
        return "group, instance and rack are not empty"
    if not request.member_id and (version >= _FIRST_WITH_OWN_IDS or epoch != JOINS):
        return "a member has an id"
    if epoch < GOES_AWAY or (epoch == GOES_AWAY and request.instance_id is None):
        return "an epoch is from -2 on, and -2 is for static members"
    if epoch == JOINS:
        return _wrong_join(request)
    if len(request.subscribed_topic_names or ()) > MAX_NAMES or len(request.topic_partitions or ()) > MAX_NAMES:
        return "too many topics: use a pattern"
    return None


def _wrong_join(request: ConsumerGroupHeartbeatRequest) -> str | None:
    if request.rebalance_timeout_ms == -1:
        return "who joins says how long a rebalance may take"
    if request.topic_partitions is None or request.topic_partitions:
        return "who joins owns nothing, and says so"
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "who joins subscribes something"
    if len(request.subscribed_topic_names or ()) > MAX_NAMES:
        return "too many topics: use a pattern"
    return None


def _answer(told: Told) -> ConsumerGroupHeartbeatResponse:
    assignment = None if told.assigned is None or told.epoch <= LEAVES else _assignment(told.assigned)
    return ConsumerGroupHeartbeatResponse(
        error_message=None,
        member_id=told.member,
        member_epoch=told.epoch,
        heartbeat_interval_ms=told.interval_ms,
        assignment=assignment,
    )


def _assignment(assigned: Masks) -> Assignment:
    """An empty one is a struct without topics, not null (R-183)."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic, partitions=partitions_of(mask)) for topic, mask in sorted(assigned.items())
        ]
    )


def _refusal(code: ErrorCode, message: str | None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message, member_id=None)


def refuse(request: ConsumerGroupHeartbeatRequest, code: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    """Also a fault of ours is told as 15: a client that is told -1 stops for good."""
    return _refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE if code is ErrorCode.UNKNOWN_SERVER_ERROR else code, None)


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)
