"""One good request of every API for administrators that only looks, or changes nothing that others need."""

from dray.servers.kafka.codec import Message
from dray.servers.kafka.messages import alter_configs, incremental_alter_configs
from dray.servers.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource


def admin_messages(topic: str) -> dict[int, Message]:
    """By the keys of their APIs."""
    return {
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
