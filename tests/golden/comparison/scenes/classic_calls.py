"""What members of classic groups say, as requests."""

from dray.servers.kafka.codec import Message, encode
from dray.servers.kafka.messages.consumer_protocol_subscription import CODEC, ConsumerProtocolSubscription
from dray.servers.kafka.messages.describe_groups import DescribeGroupsRequest
from dray.servers.kafka.messages.heartbeat import HeartbeatRequest
from dray.servers.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from dray.servers.kafka.messages.leave_group import LeaveGroupRequest, MemberIdentity
from dray.servers.kafka.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.golden.comparison.talking import Talk

JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE = 11, 12, 13, 14, 15
MEMBER_ID_REQUIRED, REBALANCING = 79, 27
LAST = {JOIN: 9, HEARTBEAT: 4, LEAVE: 5, SYNC: 5, DESCRIBE: 6}


def subscription(*topics: str) -> bytes:
    """What a client says of the topics that it reads."""
    return b"\x00\x01" + b"".join(encode(CODEC.write[1], ConsumerProtocolSubscription(topics=topics)))


def joining(group: str, member: str = "", *protocols: str, metadata: bytes = b"reads", **fields) -> JoinGroupRequest:
    offers = [JoinGroupRequestProtocol(name=name, metadata=metadata) for name in protocols or ("range",)]
    given = {
        "session_timeout_ms": 60_000, "rebalance_timeout_ms": 60_000, "protocol_type": "consumer", "protocols": offers,
    } | fields  # fmt: skip
    return JoinGroupRequest(group_id=group, member_id=member, **given)


def syncing(group: str, member: str, generation: int, *others: str, **fields) -> SyncGroupRequest:
    """With others: their work is told too, each by its number."""
    rows = [
        SyncGroupRequestAssignment(member_id=one, assignment=b"work %d" % number)
        for number, one in enumerate((member, *others))
    ]
    given = {"protocol_type": "consumer", "protocol_name": "range", "assignments": rows} | fields
    return SyncGroupRequest(group_id=group, member_id=member, generation_id=generation, **given)


def beating(group: str, member: str, generation: int, **fields) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, member_id=member, generation_id=generation, **fields)


def leaving(group: str, *members: str | tuple[str, str], version: int = 5) -> LeaveGroupRequest:
    """Members by their ids, or by id and instance."""
    if version < 3:
        [member] = members
        return LeaveGroupRequest(group_id=group, member_id=str(member))
    named = [(one, None) if isinstance(one, str) else one for one in members]
    return LeaveGroupRequest(
        group_id=group, members=[MemberIdentity(member_id=one, group_instance_id=instance) for one, instance in named]
    )


async def tell(talk: Talk, shape: str, key: int, message: Message, version: int | None = None) -> Message:
    """In the last version, if no other is named."""
    answer = await talk.ask(shape, key, LAST[key] if version is None else version, message)
    assert answer is not None, shape
    return answer


async def describe(talk: Talk, shape: str, *groups: str, version: int = 6, **fields) -> None:
    await talk.ask(shape, DESCRIBE, version, DescribeGroupsRequest(groups=groups, **fields))


async def given_id(talk: Talk, group: str, *protocols: str, **fields) -> str:
    """The id of a member that may join now. Not compared."""
    answer = await settled(talk, JOIN, joining(group, "", *protocols, **fields))
    assert answer.error_code == MEMBER_ID_REQUIRED, answer
    return str(answer.member_id)


async def stable(talk: Talk, group: str, *protocols: str, **fields) -> str:
    """The only member of a group, in its first generation. Not compared."""
    member = await given_id(talk, group, *protocols, **fields)
    joined = await settled(talk, JOIN, joining(group, member, *protocols, **fields))
    kind = {name: fields[name] for name in ("protocol_type",) if name in fields}
    synced = await settled(
        talk, SYNC, syncing(group, member, joined.generation_id, protocol_name=joined.protocol_name, **kind)
    )
    assert (joined.error_code, synced.error_code) == (0, 0), (joined, synced)
    return member


async def settled(talk: Talk, key: int, message: Message) -> Message:
    answer = await talk.settled(key, LAST[key], message)
    assert answer is not None
    return answer
