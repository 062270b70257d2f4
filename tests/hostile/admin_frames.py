"""One good request of every API for administrators that only looks, or changes nothing that others need."""

from dray.servers.kafka.codec import Message
from dray.servers.kafka.messages import alter_configs, incremental_alter_configs
from dray.servers.kafka.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from dray.servers.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from dray.servers.kafka.messages.describe_cluster import DescribeClusterRequest
from dray.servers.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from dray.servers.kafka.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from dray.servers.kafka.messages.describe_producers import DescribeProducersRequest
from dray.servers.kafka.messages.describe_producers import TopicRequest as ProducersOf
from dray.servers.kafka.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from dray.servers.kafka.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


def admin_messages(topic: str) -> dict[int, Message]:
    """By the keys of their APIs."""
    return {
        21: DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])],
            timeout_ms=1_000,
        ),
        23: OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic=topic, partitions=[OffsetForLeaderPartition(partition=0)])]
        ),
        35: DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=topic, partitions=[0, 1])]),
        37: CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(name=topic, count=3, assignments=[CreatePartitionsAssignment(broker_ids=[1, 2])])
            ],
            timeout_ms=1_000,
            validate_only=True,
        ),
        60: DescribeClusterRequest(),
        61: DescribeProducersRequest(topics=[ProducersOf(name=topic, partition_indexes=[0, 1])]),
        75: DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=topic), TopicRequest(name="nobody")],
            cursor=Cursor(topic_name=topic, partition_index=1),
        ),
        32: DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=2, resource_name=topic, configuration_keys=None),
                DescribeConfigsResource(resource_type=32, resource_name="g", configuration_keys=["a", "b"]),
            ],
            include_synonyms=True,
        ),
        33: alter_configs.AlterConfigsRequest(
            resources=[
                alter_configs.AlterConfigsResource(
                    resource_type=2,
                    resource_name=topic,
                    configs=[alter_configs.AlterableConfig(name="segment.ms", value="1000")],
                )
            ],
            validate_only=True,
        ),
        44: incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[
                incremental_alter_configs.AlterConfigsResource(
                    resource_type=32,
                    resource_name="g",
                    configs=[
                        incremental_alter_configs.AlterableConfig(
                            name="consumer.session.timeout.ms", config_operation=0, value="50000"
                        )
                    ],
                )
            ],
            validate_only=True,
        ),
    }
