"""The supported matrix: which Kafka APIs Dray speaks, in which versions, for whom, and by which code.

This table is the only place that says so. The answer to ApiVersions, the
dispatcher, the access rules and docs/kafka-support.md are made from it.

Invariants
    KP5  What is advertised is served, with one exception that Kafka makes
         too: a lower minimum may be advertised than is served.
    KP6  Every row says who may call it. A row without a rule is one that must
         be answered before login.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dray.access.authorizer import Access, Operation, Resource
from dray.errors import Invalid
from dray.servers.kafka.error_codes import Family
from dray.servers.kafka.messages.index import MODULES

_APIS: Final = "dray.servers.kafka.apis."


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One row of the matrix."""

    key: int
    name: str
    advertised: tuple[int, int]
    """Lowest and highest version that clients are told."""
    served: tuple[int, int]
    """Lowest and highest version that is answered."""
    flexible: int | None
    """The first version with compact encodings and tagged fields."""
    access: tuple[Access, ...]
    """What the caller needs; the handler checks it for each resource it touches (KP6)."""
    family: Family
    module: str
    """Where its ENDPOINT is; imported at the first request."""
    note: str
    """What is left out, in one line."""
    before_login: bool = False
    bulk: bool = False
    """Its requests carry records: they may be as large as the frame limit."""
    overlaps: bool = False
    """Requests of this API on one connection may run at the same time, in the order of their turns."""
    abandoned: bool = False
    """Its work is for the answer only, and may wait for long: it is cancelled as soon as the client sends no more."""
    breakable: bool = False
    """It may be left in the middle: it is cancelled when the connection is lost. Not what goes in several steps, and
    not what counts without an answer."""

    @property
    def cancellable(self) -> bool:
        """Whether nobody misses the rest of it when its connection is lost."""
        return self.abandoned or self.breakable


APIS: Final[tuple[Api, ...]] = (
    Api(
        key=0,
        name="Produce",
        advertised=(0, 12),
        served=(3, 12),
        flexible=9,
        access=((Operation.WRITE, Resource.TOPIC),),
        family=Family.DATA,
        module=_APIS + "produce",
        note="No transactions (48). Versions 0 to 2 are advertised as Kafka does, and refused.",
        bulk=True,
        overlaps=True,
    ),
    Api(
        key=1,
        name="Fetch",
        advertised=(4, 16),
        served=(4, 16),
        flexible=12,
        access=((Operation.READ, Resource.TOPIC),),
        family=Family.DATA,
        module=_APIS + "fetch",
        note="Fetch sessions are declined: every answer is whole.",
        abandoned=True,
    ),
    Api(
        key=2,
        name="ListOffsets",
        advertised=(1, 10),
        served=(1, 10),
        flexible=6,
        access=((Operation.DESCRIBE, Resource.TOPIC),),
        family=Family.DATA,
        module=_APIS + "list_offsets",
        note="No tiered storage: its timestamps are answered as a log without tiers does.",
        breakable=True,
    ),
    Api(
        key=3,
        name="Metadata",
        advertised=(0, 13),
        served=(0, 13),
        flexible=9,
        access=((Operation.DESCRIBE, Resource.TOPIC),),
        family=Family.ADMIN,
        module=_APIS + "metadata",
        note="No authorized operations. Who names a zone in its client id is told of the brokers there.",
    ),
    Api(
        key=8,
        name="OffsetCommit",
        advertised=(2, 9),
        served=(2, 9),
        flexible=8,
        access=((Operation.READ, Resource.GROUP), (Operation.READ, Resource.TOPIC)),
        family=Family.GROUP,
        module=_APIS + "offset_commit",
        note="Whole.",
        breakable=True,
    ),
    Api(
        key=9,
        name="OffsetFetch",
        advertised=(1, 9),
        served=(1, 9),
        flexible=6,
        access=((Operation.DESCRIBE, Resource.GROUP), (Operation.DESCRIBE, Resource.TOPIC)),
        family=Family.GROUP,
        module=_APIS + "offset_fetch",
        note="Whole.",
        breakable=True,
    ),
    Api(
        key=10,
        name="FindCoordinator",
        advertised=(0, 6),
        served=(0, 6),
        flexible=3,
        access=((Operation.DESCRIBE, Resource.GROUP),),
        family=Family.GROUP,
        module=_APIS + "find_coordinator",
        note="Groups only: transactions and share groups are refused with 42, below version 4 transactions with 53.",
        breakable=True,
    ),
    Api(
        key=11,
        name="JoinGroup",
        advertised=(0, 9),
        served=(0, 9),
        flexible=6,
        access=((Operation.READ, Resource.GROUP),),
        family=Family.GROUP,
        module=_APIS + "join_group",
        note="Whole.",
        abandoned=True,
    ),
    Api(
        key=12,
        name="Heartbeat",
        advertised=(0, 4),
        served=(0, 4),
        flexible=4,
        access=((Operation.READ, Resource.GROUP),),
        family=Family.GROUP,
        module=_APIS + "heartbeat",
        note="Whole.",
        breakable=True,
    ),
    Api(
        key=13,
        name="LeaveGroup",
        advertised=(0, 5),
        served=(0, 5),
        flexible=4,
        access=((Operation.READ, Resource.GROUP),),
        family=Family.GROUP,
        module=_APIS + "leave_group",
        note="Whole.",
    ),
    Api(
        key=14,
        name="SyncGroup",
        advertised=(0, 5),
        served=(0, 5),
        flexible=4,
        access=((Operation.READ, Resource.GROUP),),
        family=Family.GROUP,
        module=_APIS + "sync_group",
        note="Whole.",
        abandoned=True,
    ),
    Api(
        key=15,
        name="DescribeGroups",
        advertised=(0, 6),
        served=(0, 6),
        flexible=5,
        access=((Operation.DESCRIBE, Resource.GROUP),),
        family=Family.GROUP,
        module=_APIS + "describe_groups",
        note="No authorized operations.",
        breakable=True,
    ),
    Api(
        key=16,
        name="ListGroups",
        advertised=(0, 5),
        served=(0, 5),
        flexible=3,
        access=((Operation.DESCRIBE, Resource.GROUP),),
        family=Family.GROUP,
        module=_APIS + "list_groups",
        note="Each broker tells of the groups that clients are sent to it for.",
        breakable=True,
    ),
    Api(
        key=18,
        name="ApiVersions",
        advertised=(0, 4),
        served=(0, 4),
        flexible=3,
        access=(),
        before_login=True,
        family=Family.ADMIN,
        module=_APIS + "api_versions",
        note="No features are listed: none is optional.",
    ),
    Api(
        key=19,
        name="CreateTopics",
        advertised=(2, 7),
        served=(2, 7),
        flexible=5,
        access=((Operation.CREATE, Resource.TOPIC),),
        family=Family.ADMIN,
        module=_APIS + "create_topics",
        note="The replication factor and manual assignments are accepted without effect.",
    ),
    Api(
        key=20,
        name="DeleteTopics",
        advertised=(1, 6),
        served=(1, 6),
        flexible=4,
        access=((Operation.DELETE, Resource.TOPIC),),
        family=Family.ADMIN,
        module=_APIS + "delete_topics",
        note="Whole.",
    ),
    Api(
        key=21,
        name="DeleteRecords",
        advertised=(0, 2),
        served=(0, 2),
        flexible=2,
        access=((Operation.DELETE, Resource.TOPIC),),
        family=Family.ADMIN,
        module=_APIS + "delete_records",
        note="Whole.",
    ),
    Api(
        key=22,
        name="InitProducerId",
        advertised=(0, 5),
        served=(0, 5),
        flexible=2,
        access=((Operation.IDEMPOTENT_WRITE, Resource.CLUSTER),),
        family=Family.DATA,
        module=_APIS + "init_producer_id",
        note="Idempotent producers only: a transactional id is refused with 42.",
        breakable=True,
    ),
    Api(
        key=23,
        name="OffsetForLeaderEpoch",
        advertised=(2, 4),
        served=(2, 4),
        flexible=4,
        access=((Operation.DESCRIBE, Resource.TOPIC),),
        family=Family.DATA,
        module=_APIS + "offset_for_leader_epoch",
        note="An epoch ends when a recovery begins a new log; no followers.",
        breakable=True,
    ),
    Api(
        key=32,
        name="DescribeConfigs",
        advertised=(1, 4),
        served=(1, 4),
        flexible=4,
        access=(
            (Operation.DESCRIBE_CONFIGS, Resource.TOPIC),
            (Operation.DESCRIBE_CONFIGS, Resource.GROUP),
            (Operation.DESCRIBE_CONFIGS, Resource.CLUSTER),
        ),
        family=Family.ADMIN,
        module=_APIS + "describe_configs",
        note="Topics, groups and brokers; no client metrics, and an empty list of loggers.",
        breakable=True,
    ),
    Api(
        key=33,
        name="AlterConfigs",
        advertised=(0, 2),
        served=(0, 2),
        flexible=2,
        access=(
            (Operation.ALTER_CONFIGS, Resource.TOPIC),
            (Operation.ALTER_CONFIGS, Resource.GROUP),
            (Operation.ALTER_CONFIGS, Resource.CLUSTER),
        ),
        family=Family.ADMIN,
        module=_APIS + "alter_configs",
        note="Topics and groups. Brokers are set up by their files: 42.",
    ),
    Api(
        key=35,
        name="DescribeLogDirs",
        advertised=(1, 4),
        served=(1, 4),
        flexible=2,
        access=((Operation.DESCRIBE, Resource.CLUSTER),),
        family=Family.ADMIN,
        module=_APIS + "describe_log_dirs",
        note="One place; each broker tells of the partitions that clients are sent to it for.",
        breakable=True,
    ),
    Api(
        key=37,
        name="CreatePartitions",
        advertised=(0, 3),
        served=(0, 3),
        flexible=2,
        access=((Operation.ALTER, Resource.TOPIC),),
        family=Family.ADMIN,
        module=_APIS + "create_partitions",
        note="Assignments are accepted without effect.",
    ),
    Api(
        key=42,
        name="DeleteGroups",
        advertised=(0, 2),
        served=(0, 2),
        flexible=2,
        access=((Operation.DELETE, Resource.GROUP),),
        family=Family.GROUP,
        module=_APIS + "delete_groups",
        note="Whole.",
    ),
    Api(
        key=44,
        name="IncrementalAlterConfigs",
        advertised=(0, 1),
        served=(0, 1),
        flexible=1,
        access=(
            (Operation.ALTER_CONFIGS, Resource.TOPIC),
            (Operation.ALTER_CONFIGS, Resource.GROUP),
            (Operation.ALTER_CONFIGS, Resource.CLUSTER),
        ),
        family=Family.ADMIN,
        module=_APIS + "incremental_alter_configs",
        note="Topics and groups. Brokers are set up by their files: 42.",
    ),
    Api(
        key=47,
        name="OffsetDelete",
        advertised=(0, 0),
        served=(0, 0),
        flexible=None,
        access=(
            (Operation.DELETE, Resource.GROUP),
            (Operation.READ, Resource.TOPIC),
        ),
        family=Family.GROUP,
        module=_APIS + "offset_delete",
        note="Whole.",
    ),
    Api(
        key=60,
        name="DescribeCluster",
        advertised=(0, 2),
        served=(0, 2),
        flexible=0,
        access=((Operation.DESCRIBE, Resource.CLUSTER),),
        family=Family.ADMIN,
        module=_APIS + "describe_cluster",
        note="No authorized operations, no controllers (114). Zones as in Metadata.",
        breakable=True,
    ),
    Api(
        key=61,
        name="DescribeProducers",
        advertised=(0, 0),
        served=(0, 0),
        flexible=0,
        access=((Operation.READ, Resource.TOPIC),),
        family=Family.DATA,
        module=_APIS + "describe_producers",
        note="The last use of a producer is kept in minutes.",
        breakable=True,
    ),
    Api(
        key=68,
        name="ConsumerGroupHeartbeat",
        advertised=(0, 1),
        served=(0, 1),
        flexible=0,
        access=((Operation.READ, Resource.GROUP), (Operation.DESCRIBE, Resource.TOPIC)),
        family=Family.GROUP,
        module=_APIS + "consumer_group_heartbeat",
        note="A classic group that has members is not converted (69).",
    ),
    Api(
        key=69,
        name="ConsumerGroupDescribe",
        advertised=(0, 1),
        served=(0, 1),
        flexible=0,
        access=((Operation.DESCRIBE, Resource.GROUP), (Operation.DESCRIBE, Resource.TOPIC)),
        family=Family.GROUP,
        module=_APIS + "consumer_group_describe",
        note="No authorized operations.",
        breakable=True,
    ),
    Api(
        key=75,
        name="DescribeTopicPartitions",
        advertised=(0, 0),
        served=(0, 0),
        flexible=0,
        access=((Operation.DESCRIBE, Resource.TOPIC),),
        family=Family.ADMIN,
        module=_APIS + "describe_topic_partitions",
        note="No authorized operations.",
        breakable=True,
    ),
)


class Matrix:
    """The rows, checked and by key."""

    def __init__(self, apis: Sequence[Api] = APIS) -> None:
        self.apis: Final = tuple(sorted(apis, key=lambda api: api.key))
        self.by_key: Final = {api.key: api for api in self.apis}
        if len(self.by_key) != len(self.apis):
            raise Invalid("an api key has two rows")
        for api in self.apis:
            _check(api)

    def get(self, key: int) -> Api | None:
        return self.by_key.get(key)


def _check(api: Api) -> None:
    if api.key not in MODULES:
        raise Invalid("an advertised api has no messages", key=api.key)
    low, high = api.served
    if api.advertised[1] != high or not api.advertised[0] <= low <= high:
        raise Invalid("what is advertised is not served", key=api.key)  # KP5
    if bool(api.access) == api.before_login:
        raise Invalid("an api needs an access rule, or must be marked as answered before login", key=api.key)  # KP6
