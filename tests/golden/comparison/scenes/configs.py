"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs."""

from collections.abc import Sequence

from dray.servers.kafka.messages import alter_configs, incremental_alter_configs
from dray.servers.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from dray.servers.kafka.messages.metadata import MetadataRequest
from tests.golden.asking import METADATA
from tests.golden.comparison.talking import Talk

DESCRIBE, ALTER, ALTER_SOME = 32, 33, 44
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
_OF_BROKERS = (
    "auto.create.topics.enable", "default.replication.factor", "delete.topic.enable", "group.consumer.assignors",
    "group.max.session.timeout.ms", "group.min.session.timeout.ms", "num.partitions", "offset.metadata.max.bytes",
    "offsets.retention.minutes", "socket.request.max.bytes", "connections.max.idle.ms", "broker.rack",
)  # fmt: skip
_OF_GROUPS = ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms", "consumer.assignment.interval.ms")


async def own_id(talk: Talk) -> str:
    answer = await talk.call(METADATA, 12, MetadataRequest(topics=[]))
    assert answer is not None
    return str(answer.brokers[0].node_id)


async def caught_up(talk: Talk) -> None:
    """A broker of Kafka hears of changes in their order: one that leads a new topic has heard of all before it."""
    await talk.topic()


async def describe(
    talk: Talk, shape: str, *named: tuple[int, str, Sequence[str] | None], version: int = 4, synonyms: bool = True
) -> None:
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        for kind, name, keys in named
    ]
    request = DescribeConfigsRequest(
        resources=resources, include_synonyms=synonyms, include_documentation=synonyms and version >= 3
    )
    await talk.ask(shape, DESCRIBE, version, request)


async def change(
    talk: Talk,
    shape: str,
    *named: tuple[int, str, Sequence[tuple[str, int, str | None]]],
    version: int = 1,
    only_check: bool = False,
) -> None:
    resources = [
        incremental_alter_configs.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[
                incremental_alter_configs.AlterableConfig(name=key, config_operation=how, value=value)
                for key, how, value in changes
            ],
        )
        for kind, name, changes in named
    ]
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=resources, validate_only=only_check)
    await talk.ask(shape, ALTER_SOME, version, request)


async def replace(
    talk: Talk,
    shape: str,
    *named: tuple[int, str, Sequence[tuple[str, str | None]]],
    version: int = 2,
    only_check: bool = False,
) -> None:
    resources = [
        alter_configs.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[alter_configs.AlterableConfig(name=key, value=value) for key, value in configs],
        )
        for kind, name, configs in named
    ]
    request = alter_configs.AlterConfigsRequest(resources=resources, validate_only=only_check)
    await talk.ask(shape, ALTER, version, request)


async def configs_of_topics(talk: Talk) -> None:
    topic, other = await talk.topic(max_message_bytes="5000", retention_ms="9000"), await talk.topic()
    for version in range(1, 5):
        await describe(talk, f"version {version}", (TOPIC, topic, None), version=version)
    await describe(talk, "without more", (TOPIC, topic, None), synonyms=False)
    await describe(talk, "no keys", (TOPIC, topic, []))
    await describe(talk, "some keys", (TOPIC, topic, ["retention.ms", "nope", "retention.ms", ""]))
    await describe(talk, "one twice", (TOPIC, topic, ["retention.ms"]), (TOPIC, topic, ["segment.ms"]))
    await describe(talk, "nothing")
    for shape, name in (("one without a name", ""), ("one that cannot be", "a/b"), ("no topic", talk.name("nowhere"))):
        await describe(talk, f"a topic and {shape}", (TOPIC, other, ["retention.ms"]), (TOPIC, name, None))


async def configs_of_others(talk: Talk) -> None:
    own, group = await own_id(talk), talk.name("group")
    await describe(talk, "a broker", (BROKER, own, _OF_BROKERS))
    for kind, word in ((BROKER, "broker"), (LOGGER, "loggers"), (GROUP, "group"), (METRICS, "metrics")):
        await describe(talk, f"{word} without a name", (kind, "", ["x"]))
    for kind, word in ((BROKER, "broker"), (LOGGER, "loggers")):
        await describe(talk, f"{word} of another", (kind, "987", None))
        await describe(talk, f"{word} of x", (kind, "x", None))
    await describe(talk, "loggers", (LOGGER, own, ["x"]))
    await describe(talk, "a group", (GROUP, group, _OF_GROUPS))
    await describe(talk, "metrics", (METRICS, "m", ["x"]))
    for kind in (0, 1, 3, 99):
        await describe(talk, f"type {kind}", (kind, "x", None))


async def changed_configs_of_topics(talk: Talk) -> None:
    topic = await talk.topic(retention_ms="9000")

    async def some(shape: str, *changes: tuple[str, int, str | None], **options) -> None:
        await change(talk, shape, (TOPIC, topic, changes), **options)
        await caught_up(talk)
        keys = ["retention.ms", "cleanup.policy", "segment.ms"]
        await describe(talk, f"{shape}: then", (TOPIC, topic, keys), synonyms=False)

    await some("set", ("retention.ms", SET, "7000"))
    await some("set in version 0", ("retention.ms", SET, "7001"), version=0)
    await some("only checked", ("retention.ms", SET, "8000"), only_check=True)
    await some("a wrong one only checked", ("retention.ms", SET, "x"), only_check=True)
    await some("to null", ("retention.ms", SET, None))
    await some("back to the default", ("retention.ms", DELETE, None))
    await some("back again", ("retention.ms", DELETE, "5"))
    await some("an unknown one back", ("nope", DELETE, None))
    await some("an unknown one", ("nope", SET, "1"))
    await some("one without a name", ("", SET, "1"))
    await some("a good and an unknown one", ("segment.ms", SET, "7000"), ("nope", SET, "1"))
    await some("a wrong value", ("retention.ms", SET, "x"))
    await some("added to a number", ("retention.ms", APPEND, "1"))
    await some("taken from a number", ("retention.ms", SUBTRACT, "1"))
    await some("operation 4", ("retention.ms", 4, "1"))
    await some("added", ("cleanup.policy", APPEND, "compact"))
    await some("added again", ("cleanup.policy", APPEND, "compact,delete"))
    await some("taken", ("cleanup.policy", SUBTRACT, "compact,nope"))
    await some("nothing taken", ("cleanup.policy", SUBTRACT, None))
    await some("one twice", ("retention.ms", SET, "5"), ("retention.ms", DELETE, None))
    await some("nothing")


async def changed_configs_of_odd_things(talk: Talk) -> None:
    topic, nowhere, own = await talk.topic(), talk.name("nowhere"), await own_id(talk)
    set_it = [("retention.ms", SET, "7000")]
    for shape, kind, name, changes in (
        ("a topic that is not there", TOPIC, nowhere, set_it),
        ("a topic without a name", TOPIC, "", set_it),
        ("a topic that cannot be", TOPIC, "a/b", set_it),
        ("a broker, fixed", BROKER, own, [("node.id", SET, "7")]),
        ("a broker, nothing", BROKER, own, []),
        ("another broker", BROKER, "987", [("num.io.threads", SET, "7")]),
        ("broker x", BROKER, "x", [("num.io.threads", SET, "7")]),
        ("a logger", LOGGER, own, [("no.such.logger", SET, "INFO")]),
        ("loggers of another", LOGGER, "987", [("no.such.logger", SET, "INFO")]),
        ("loggers of nobody", LOGGER, "", [("no.such.logger", SET, "INFO")]),
        ("a group without a name", GROUP, "", [("consumer.session.timeout.ms", SET, "50000")]),
        ("type 99", 99, "x", []),
        ("type 3", 3, "x", set_it),
    ):
        await change(talk, shape, (kind, name, changes))
        if kind != LOGGER:
            whole = [(key, value) for key, _, value in changes]
            await replace(talk, f"{shape}, whole", (kind, name, whole))
    await change(talk, "one topic twice", (TOPIC, topic, set_it), (TOPIC, topic, [("segment.ms", SET, "9000")]))
    await change(talk, "good and bad", (TOPIC, topic, set_it), (TOPIC, nowhere, set_it))
    await replace(talk, "loggers, whole", (LOGGER, own, [("no.such.logger", "INFO")]))
    await change(talk, "nothing at all")
    await replace(talk, "nothing at all, whole")


async def whole_configs_of_topics(talk: Talk) -> None:
    topic = await talk.topic(retention_ms="9000", segment_ms="8000")
    good, other = ("retention.ms", "7000"), ("segment.ms", "6000")
    for shape, configs in (
        ("one", [good]),
        ("another", [other]),
        ("null", [("retention.ms", None)]),
        ("an unknown one", [("nope", "1")]),
        ("a wrong value", [("retention.ms", "x")]),
        ("one twice", [good, good]),
        ("none", []),
    ):
        await replace(talk, f"{shape}, checked", (TOPIC, topic, configs), only_check=True)
        await replace(talk, shape, (TOPIC, topic, configs), version=0 if shape == "one" else 2)
        await caught_up(talk)
        await describe(talk, f"{shape}: then", (TOPIC, topic, ["retention.ms", "segment.ms"]), synonyms=False)


async def changed_configs_of_groups(talk: Talk) -> None:
    group, session = talk.name("group"), "consumer.session.timeout.ms"
    for shape, changes in (
        ("set", [(session, SET, "50000")]),
        ("too small", [(session, SET, "5")]),
        ("too large", [(session, SET, "5000000")]),
        ("no number", [(session, SET, "x")]),
        ("null", [(session, SET, None)]),
        ("added to", [(session, APPEND, "1")]),
        ("an unknown one", [("nope", SET, "1")]),
        ("an unknown one back", [("nope", DELETE, None)]),
        ("back to the default", [(session, DELETE, None)]),
        ("nothing", []),
    ):
        await change(talk, shape, (GROUP, group, changes))
        await caught_up(talk)
        await describe(talk, f"{shape}: then", (GROUP, group, [session]), synonyms=False)
    await change(talk, "set again", (GROUP, group, [(session, SET, "50000")]))
    await replace(talk, "whole", (GROUP, group, [("consumer.heartbeat.interval.ms", "6000")]))
    await caught_up(talk)
    await describe(talk, "whole: then", (GROUP, group, _OF_GROUPS[:2]), synonyms=True)
    await replace(talk, "whole, unknown", (GROUP, group, [("nope", "6000")]))


SCENES = (
    configs_of_topics,
    configs_of_others,
    changed_configs_of_topics,
    changed_configs_of_odd_things,
    whole_configs_of_topics,
    changed_configs_of_groups,
)
