"""Requests of administrators that name as much as one may."""

from collections.abc import Iterator, Sequence

from dray.servers.kafka.codec import Message
from dray.servers.kafka.messages import alter_configs, incremental_alter_configs
from dray.servers.kafka.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from dray.servers.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from dray.servers.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from dray.servers.kafka.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from dray.servers.kafka.messages.describe_producers import DescribeProducersRequest
from dray.servers.kafka.messages.describe_producers import TopicRequest as ProducersOf
from dray.servers.kafka.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from dray.servers.kafka.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

Sized = tuple[str, int, int, Message]
_TOPIC, _GROUP = 2, 32


def largest_admin_requests(topics: Sequence[str], wide: int, names: Sequence[str]) -> Iterator[Sized]:
    """Name, key, version and message; `topics` have `wide` partitions each, and nobody has one of the names."""
    yield from _of_configs(topics, names)
    numbers = list(range(wide))
    cuts = [DeleteRecordsPartition(partition_index=number, offset=0) for number in numbers]
    all_cuts = [DeleteRecordsPartition(partition_index=number, offset=-1) for number in numbers]
    for shape, places in (("nothing deleted", cuts), ("all deleted", all_cuts)):
        wanted = [DeleteRecordsTopic(name=name, partitions=places) for name in topics]
        yield shape, 21, 2, DeleteRecordsRequest(topics=wanted, timeout_ms=60_000)
    nobody = [DeleteRecordsTopic(name=name, partitions=cuts[:1]) for name in names]
    yield "deleted of nobody", 21, 2, DeleteRecordsRequest(topics=nobody, timeout_ms=60_000)
    epochs = [OffsetForLeaderPartition(partition=number, leader_epoch=0) for number in numbers]
    asked = [OffsetForLeaderTopic(topic=name, partitions=epochs) for name in topics]
    yield "epochs", 23, 4, OffsetForLeaderEpochRequest(topics=asked)
    yield "sizes", 35, 4, DescribeLogDirsRequest(topics=None)
    places = [DescribableLogDirTopic(topic=name, partitions=numbers[:-1]) for name in topics]
    yield "sizes by name", 35, 4, DescribeLogDirsRequest(topics=places)
    more = [CreatePartitionsTopic(name=name, count=1, assignments=None) for name in names]
    yield "partitions of nobody", 37, 3, CreatePartitionsRequest(topics=more, timeout_ms=60_000)
    one = CreatePartitionsTopic(name=topics[0], count=10_000, assignments=None)
    yield "many partitions", 37, 3, CreatePartitionsRequest(topics=[one], timeout_ms=60_000)
    producers = [ProducersOf(name=name, partition_indexes=numbers) for name in topics]
    yield "producers", 61, 0, DescribeProducersRequest(topics=producers)
    yield "partitions", 75, 0, DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in topics])
    yield "partitions of all", 75, 0, DescribeTopicPartitionsRequest(topics=[])
    unknown = [TopicRequest(name=name) for name in names]
    yield "partitions told of nobody", 75, 0, DescribeTopicPartitionsRequest(topics=unknown)


def _of_configs(topics: Sequence[str], names: Sequence[str]) -> Iterator[Sized]:
    for shape, kind, wanted in (
        ("configs", _TOPIC, [*topics] * (len(names) // len(topics))),
        ("configs of nobody", _TOPIC, names),
        ("configs of groups", _GROUP, names),
    ):
        resources = [DescribeConfigsResource(kind, name, configuration_keys=None) for name in wanted]
        yield shape, 32, 4, DescribeConfigsRequest(resources=resources, include_synonyms=True)
    whole = [
        alter_configs.AlterConfigsResource(
            resource_type=_GROUP,
            resource_name=name,
            configs=[alter_configs.AlterableConfig(name="consumer.session.timeout.ms", value="50000")],
        )
        for name in names
    ]
    yield "altered, checked", 33, 2, alter_configs.AlterConfigsRequest(resources=whole, validate_only=True)
    some = [
        incremental_alter_configs.AlterConfigsResource(
            resource_type=_TOPIC,
            resource_name=name,
            configs=[incremental_alter_configs.AlterableConfig(name="segment.ms", config_operation=0, value="1")],
        )
        for name in names
    ]
    yield "altered of nobody", 44, 1, incremental_alter_configs.IncrementalAlterConfigsRequest(resources=some)
    keys = [
        incremental_alter_configs.AlterableConfig(name=f"key-{number}", config_operation=1, value=None)
        for number in range(len(names))
    ]
    one = incremental_alter_configs.AlterConfigsResource(resource_type=_TOPIC, resource_name=topics[0], configs=keys)
    yield "many keys", 44, 1, incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[one])


def too_large_admin_requests(topic: str, most: int) -> Iterator[Sized]:
    """As `largest_admin_requests`, of one thing more than a request may name."""
    many = most + 1
    names = [f"nobody-{number}" for number in range(many)]
    more = [CreatePartitionsTopic(name=name, count=1, assignments=None) for name in names]
    yield "CreatePartitions", 37, 3, CreatePartitionsRequest(topics=more, timeout_ms=60_000)
    cuts = [DeleteRecordsPartition(partition_index=number, offset=0) for number in range(many)]
    gone = [DeleteRecordsTopic(name=topic, partitions=cuts)]
    yield "DeleteRecords", 21, 2, DeleteRecordsRequest(topics=gone, timeout_ms=60_000)
    asked = [DescribeConfigsResource(_TOPIC, name, configuration_keys=None) for name in names]
    yield "DescribeConfigs", 32, 4, DescribeConfigsRequest(resources=asked)
    whole = [alter_configs.AlterConfigsResource(resource_type=_TOPIC, resource_name=name) for name in names]
    yield "AlterConfigs", 33, 2, alter_configs.AlterConfigsRequest(resources=whole)
    some = [incremental_alter_configs.AlterConfigsResource(resource_type=_TOPIC, resource_name=name) for name in names]
    yield "IncrementalAlterConfigs", 44, 1, incremental_alter_configs.IncrementalAlterConfigsRequest(resources=some)
    sizes = [DescribableLogDirTopic(topic=topic, partitions=list(range(many)))]
    yield "DescribeLogDirs", 35, 4, DescribeLogDirsRequest(topics=sizes)
    wanted = [TopicRequest(name=name) for name in names]
    yield "DescribeTopicPartitions", 75, 0, DescribeTopicPartitionsRequest(topics=wanted)
    epochs = [OffsetForLeaderPartition(partition=number, leader_epoch=0) for number in range(many)]
    yield (
        "OffsetForLeaderEpoch",
        23,
        4,
        OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=epochs)]),
    )
    producers = [ProducersOf(name=topic, partition_indexes=list(range(many)))]
    yield "DescribeProducers", 61, 0, DescribeProducersRequest(topics=producers)
