"""CreateTopics, DeleteTopics and Metadata."""

from dray.servers.kafka.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from dray.servers.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from dray.servers.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.golden.asking import CREATE_TOPICS, DELETE_TOPICS, METADATA
from tests.golden.comparison.talking import Talk

_VALUES = {
    "cleanup.policy": ("compact", "delete,compact", "", "compact,compact", "nope", "DELETE", " delete "),
    "retention.ms": ("-1", "-2", "abc", "", "1e3", "9223372036854775808"),
    "max.message.bytes": ("0", "-1", "2147483648"),
    "compression.type": ("gzip", "GZIP", "none", ""),
    "min.insync.replicas": ("0", "2"),
    "segment.bytes": ("1", "1048575", "1048576"),
    "message.timestamp.type": ("logappendtime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": ("1.5", "0.3", "1e-1", "NaN"),
    "unclean.leader.election.enable": ("yes", "TRUE"),
    "message.format.version": ("3.0",),
    "nope.nope": ("1",),
    "remote.storage.enable": ("true", "false"),
    "index.interval.bytes": ("-1",),
    "flush.messages": ("0",),
    "local.retention.ms": ("-2", "5"),
    "delete.retention.ms": ("-1",),
    "max.compaction.lag.ms": ("0",),
    "segment.ms": ("0",),
    "message.timestamp.before.max.ms": ("-1",),
    "compression.gzip.level": ("0", "10"),
    "compression.lz4.level": ("0", "18"),
    "compression.zstd.level": ("23",),
    "leader.replication.throttled.replicas": ("*", "1:2", "x"),
    "retention.bytes": ("-2",),
}


def new_topic(name: str, partitions: int = 1, factor: int = 1, **more) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, **more)


async def create(talk: Talk, shape: str, *topics: CreatableTopic, version: int = 7, only_check: bool = False) -> None:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=30_000, validate_only=only_check)
    await talk.ask(shape, CREATE_TOPICS, version, request)


async def create_topics_in_every_version(talk: Talk) -> None:
    for version in range(2, 8):
        await create(talk, f"version {version}", new_topic(talk.name()), version=version)


async def create_topics_of_many_sizes(talk: Talk) -> None:
    for partitions, factor in ((0, 1), (-1, -1), (-2, 1), (1, 0), (1, -2), (1, 2), (-1, 1), (1, -1)):
        shape = f"{partitions} partitions, {factor} replicas"
        await create(talk, shape, new_topic(talk.name(), partitions, factor))


async def create_topics_by_name(talk: Talk) -> None:
    dotted, scored = talk.name("a.b"), ""
    scored = dotted.replace("a.b", "a_b")
    for name in ("", ".", "..", "a/b", "x" * 250, "é"):
        await create(talk, f"named {name[:5]!r}", new_topic(name))
    await create(talk, "with a dot", new_topic(dotted))
    await create(talk, "that differs in an underscore", new_topic(scored))
    twice, once = talk.name(), talk.name()
    await create(talk, "one twice, one once", new_topic(twice), new_topic(twice), new_topic(once))
    await create(talk, "that exists", new_topic(once))
    await create(talk, "none")


async def create_topics_only_checked(talk: Talk) -> None:
    name = talk.name()
    await create(talk, "a good one", new_topic(name, 3), only_check=True)
    await create(talk, "the same again", new_topic(name, 3), only_check=True)
    await create(talk, "no partitions", new_topic(name, 0), only_check=True)
    await create(talk, "one that exists", new_topic(await talk.topic()), only_check=True)


async def create_topics_with_configs(talk: Talk) -> None:
    for key, values in _VALUES.items():
        for value in values:
            configs = [CreatableTopicConfig(name=key, value=value)]
            wanted = new_topic(talk.name(), configs=configs)
            answer = await talk.call(CREATE_TOPICS, 7, CreateTopicsRequest(topics=[wanted], validate_only=True))
            assert answer is not None
            talk.keep(f"{key}={value!r}", {"error_code": answer.topics[0].error_code}, CREATE_TOPICS)
    null = [CreatableTopicConfig(name="retention.ms", value=None)]
    await create(talk, "a null value", new_topic(talk.name(), configs=null), only_check=True)
    doubled = [CreatableTopicConfig(name="retention.ms", value=value) for value in ("5", "x")]
    await create(talk, "a key twice", new_topic(talk.name(), configs=doubled), only_check=True)


async def create_topics_with_assignments(talk: Talk) -> None:
    answer = await talk.call(METADATA, 12, MetadataRequest(topics=[]))
    assert answer is not None
    broker = answer.brokers[0].node_id

    def placed(*places: tuple[int, list[int]]) -> list[CreatableReplicaAssignment]:
        return [CreatableReplicaAssignment(partition_index=at, broker_ids=ids) for at, ids in places]

    for shape, count, assignments in (
        ("two partitions", -1, placed((0, [broker]), (1, [broker]))),
        ("and a number of partitions", 2, placed((0, [broker]))),
        ("that begin at 1", -1, placed((1, [broker]))),
        ("without brokers", -1, placed((0, []))),
        ("with one broker twice", -1, placed((0, [broker, broker]))),
        ("to a broker that is not there", -1, placed((0, [broker + 99]))),
        ("of one partition twice", -1, placed((0, [broker]), (0, [broker]))),
    ):
        await create(talk, shape, new_topic(talk.name(), count, -1 if count < 0 else 1, assignments=assignments))


async def delete_topics_in_many_ways(talk: Talk) -> None:
    one, two, three, nowhere = await talk.topic(), await talk.topic(), await talk.topic(), talk.name("nowhere")

    async def delete(shape: str, *topics: DeleteTopicState, version: int = 6, names: tuple[str, ...] = ()) -> None:
        request = DeleteTopicsRequest(topics=list(topics), topic_names=list(names), timeout_ms=30_000)
        await talk.ask(shape, DELETE_TOPICS, version, request)

    by_name = [DeleteTopicState(name=name) for name in (one, two, three)]
    by_id = [DeleteTopicState(name=None, topic_id=talk.ids[name]) for name in (one, two, three)]
    await delete("an unknown name", DeleteTopicState(name=nowhere))
    await delete("an unknown id", DeleteTopicState(name=None, topic_id=b"\x02" * 16))
    await delete("a name that no topic can have", DeleteTopicState(name="a/b"))
    await delete("neither", DeleteTopicState(name=None))
    await delete("nothing")
    await delete("name and id", DeleteTopicState(name=two, topic_id=talk.ids[two]))
    await delete("a name twice", by_name[1], by_name[1])
    await delete("an id twice", by_id[1], by_id[1])
    await delete("by name and by id", by_name[1], by_id[1])
    await delete("by id", by_id[0])
    await delete("by id again", by_id[0])
    await delete("by name in version 5", version=5, names=(three, nowhere))
    await delete("unknown in version 1", version=1, names=(nowhere,))


async def metadata_in_every_version(talk: Talk) -> None:
    topic, nowhere = await talk.topic(2), talk.name("nowhere")
    for version in range(14):
        await metadata(talk, f"version {version}", topic, nowhere, version=version)
    for version in (1, 9, 12):
        await metadata(talk, f"no topics in version {version}", version=version)
    await metadata(talk, "a topic twice", topic, topic)
    await metadata(talk, "names that no topic can have", "a/b", "", ".", "x" * 250, version=9)
    request = MetadataRequest(topics=[MetadataRequestTopic(name="a/b")], allow_auto_topic_creation=True)
    await talk.ask("a bad name to be made", METADATA, 9, request)


async def metadata_by_id(talk: Talk) -> None:
    topic = await talk.topic(2)
    known, unknown = talk.ids[topic], b"\x01" * 16
    for shape, version, topics in (
        ("a known one", 12, [(None, known)]),
        ("an unknown one", 12, [(None, unknown)]),
        ("both", 12, [(None, known), (None, unknown)]),
        ("with its name", 12, [(topic, known)]),
        ("neither", 12, [(None, bytes(16))]),
        ("with its name in version 10", 10, [(topic, known)]),
        ("without its name in version 11", 11, [(None, known)]),
        ("one by name, one by id", 13, [(topic, bytes(16)), (None, known)]),
    ):
        wanted = [MetadataRequestTopic(name=name, topic_id=number) for name, number in topics]
        await talk.ask(shape, METADATA, version, MetadataRequest(topics=wanted, allow_auto_topic_creation=False))


async def metadata_with_authorized_operations(talk: Talk) -> None:
    topic = [MetadataRequestTopic(name=await talk.topic())]
    request = MetadataRequest(
        topics=topic, include_cluster_authorized_operations=True, include_topic_authorized_operations=True
    )
    await talk.ask("version 10", METADATA, 10, request)


async def metadata(talk: Talk, shape: str, *names: str, version: int = 12) -> None:
    topics = [MetadataRequestTopic(name=name) for name in names]
    await talk.ask(shape, METADATA, version, MetadataRequest(topics=topics, allow_auto_topic_creation=version < 4))


SCENES = (
    create_topics_in_every_version,
    create_topics_of_many_sizes,
    create_topics_by_name,
    create_topics_only_checked,
    create_topics_with_configs,
    create_topics_with_assignments,
    delete_topics_in_many_ways,
    metadata_in_every_version,
    metadata_by_id,
    metadata_with_authorized_operations,
)
