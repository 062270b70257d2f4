"""One good request of every API of groups and their members."""

from dray.servers.kafka.codec import Message
from dray.servers.kafka.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from dray.servers.kafka.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from dray.servers.kafka.messages.delete_groups import DeleteGroupsRequest
from dray.servers.kafka.messages.describe_groups import DescribeGroupsRequest
from dray.servers.kafka.messages.heartbeat import HeartbeatRequest
from dray.servers.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from dray.servers.kafka.messages.leave_group import LeaveGroupRequest, MemberIdentity
from dray.servers.kafka.messages.list_groups import ListGroupsRequest
from dray.servers.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from dray.servers.kafka.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment


def group_messages(topic: str) -> dict[int, Message]:
    """By the keys of their APIs."""
    return {
        11: JoinGroupRequest(
            group_id="joined", session_timeout_ms=6_000, rebalance_timeout_ms=6_000, protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=name, metadata=b"\0\1\0\0\0\0") for name in ("range", "sticky")],
        ),
        12: HeartbeatRequest(group_id="joined", generation_id=1, member_id="m"),
        13: LeaveGroupRequest(
            group_id="joined", member_id="m",
            members=[MemberIdentity(member_id="m", group_instance_id=instance) for instance in (None, "i")],
        ),
        14: SyncGroupRequest(
            group_id="joined", generation_id=1, member_id="m", protocol_type="consumer", protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id="m", assignment=b"\0\1")],
        ),
        15: DescribeGroupsRequest(groups=["joined", "g"]),
        16: ListGroupsRequest(states_filter=["Stable"], types_filter=["classic"]),
        42: DeleteGroupsRequest(groups_names=["nobody", "g"]),
        47: OffsetDeleteRequest(
            group_id="g",
            topics=[OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=1)])],
        ),
        68: ConsumerGroupHeartbeatRequest(
            group_id="beating", member_id="m", member_epoch=0, rebalance_timeout_ms=6_000,
            subscribed_topic_names=[topic], subscribed_topic_regex="fuzz.*", server_assignor="range",
            topic_partitions=[TopicPartitions(topic_id=b"t" * 16, partitions=[0, 1])],
        ),
        69: ConsumerGroupDescribeRequest(group_ids=["beating", "g"]),
    }  # fmt: skip
