"""Why Dray answers otherwise than Kafka. The first reason that fits a difference is its reason."""

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

from tests.golden.comparison.comparing import Difference

_INDEX = re.compile(r"\[\d+\]")
_MADE = ("*.topic_id", "*.error_code", "*.error_message", "*.num_partitions", "*.replication_factor", "*.configs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """A sentence, and where it holds: patterns of shapes and of fields without their indexes."""

    why: str
    shapes: tuple[str, ...] = ("*",)
    fields: tuple[str, ...] = ("*",)
    kafka: tuple[str, ...] = ("*",)
    """What Kafka says."""

    def fits(self, one: Difference) -> bool:
        return _any(one.shape, self.shapes) and _any(bare(one.field), self.fields) and _any(one.kafka, self.kafka)


def bare(field: str) -> str:
    """A field without the places in its lists."""
    return _INDEX.sub("", field)


def reason_of(one: Difference) -> Reason | None:
    return next((reason for reason in REASONS if reason.fits(one)), None)


def _any(text: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)


REASONS: tuple[Reason, ...] = (
    Reason(
        why="The newest versions and other APIs are not served yet; what is advertised is served.",
        shapes=("api versions: *",),
        fields=("api_keys.*",),
    ),
    Reason(
        why="Features switch brokers of a Kafka cluster; none of Dray's is optional, and `transaction.version` would "
        "make Java clients use transactions.",
        shapes=("api versions: *",),
        fields=("supported_features", "finalized_features", "finalized_features_epoch"),
    ),
    Reason(
        why="There are no transactions. They are refused at once, with codes that no client tries again.",
        shapes=(
            "produce in a transaction: a*",
            "produce in a transaction: the transactional bit",
            "producer ids: a transactional id",
            "coordinators: a transaction",
        ),
    ),
    Reason(
        why="A refusal says what is wrong; Kafka says it only of some.",
        shapes=(
            "produce *",
            "batches *",
            "idempotent *",
            "configs of topics: a topic and no topic",
            "partitions added: *",
            "producers of partitions: what is not there",
        ),
        fields=("*.error_message",),
    ),
    Reason(
        why="A table holds times from 1970 to 9999; a time outside would stop every reader of the table.",
        shapes=("produce times: time -2", "produce times: beyond the year 9999"),
    ),
    Reason(
        why="A table holds header keys as text.",
        shapes=("batches with odd records: a header key that is no text",),
    ),
    Reason(
        why="Kafka rewrites such a batch. Dray stores batches byte for byte and refuses what would have to be "
        "rewritten; no client sends it.",
        shapes=(
            "produce append times: the bit on *",
            "batches with odd records: offset deltas 0, 0",
            "batches with odd records: attributes of a record",
        ),
    ),
    Reason(
        why="Batches are stored byte for byte. Lookups by time go by the records, not by this field (B5).",
        shapes=("batches with a lying newest time: what is stored",),
    ),
    Reason(
        why="87 ends the attempt. After -1 nobody knows what happened, and 2 is tried again for ever: it says that the "
        "bytes were damaged on their way, but their checksum is right.",
        shapes=(
            "batches that do not decompress: *",
            "batches in every compression: *",
            "batches of odd lz4: *",
            "batches of several frames: *",
            "batches that are none: magic *",
        ),
        fields=("*.error_code",),
        kafka=("-1", "2"),
    ),
    Reason(
        why="The codec is one that nobody has: 76 says so.",
        shapes=("batches with odd headers: codec *",),
        fields=("*.error_code",),
    ),
    Reason(
        why="Only what every client reads is stored. librdkafka stops for ever at LZ4 with bytes behind its frame or a "
        "wrong size or checksum, and at a second snappy header; of several gzip members it loses all but the first "
        "without a word, and if that is empty the process is aborted.",
        shapes=("batches that do not decompress: LZ4*", "batches of odd lz4: *", "batches of several frames: *"),
        fields=("*.error_code", "*.base_offset"),
    ),
    Reason(
        why="Bytes behind the records are not kept in silence.",
        shapes=("batches that do not decompress: GZIP: * behind it",),
        fields=("*.error_code", "*.base_offset"),
    ),
    Reason(
        why="Bytes that are no batch are not cut off in silence.",
        shapes=("batches that are none: bytes behind it",),
    ),
    Reason(
        why="The log start is told with the offsets of a stored batch; a refused one has none.",
        shapes=("produce *", "batches *", "idempotent *"),
        fields=("*.log_start_offset",),
    ),
    Reason(
        why="Kafka tells a duplicate's own newest time although the topic has no append time. Dray tells -1 as it does "
        "for the first.",
        shapes=("idempotent *",),
        fields=("*.log_append_time_ms",),
    ),
    Reason(
        why="A producer that a partition does not know begins at 0, unless its state may have expired: a gap at the "
        "beginning is a lost batch, and Kafka takes it.",
        shapes=("idempotent strangers: begins at 7",),
    ),
    Reason(
        why="A producer id without an epoch means nothing.",
        shapes=("idempotent strangers: an id without an epoch",),
    ),
    Reason(
        why="Kafka keeps one of them and answers once; Dray stores each batch and answers each.",
        shapes=("produce to many places: one * twice",),
        fields=("responses", "*.partition_responses"),
    ),
    Reason(
        why="A topic without partitions stands in the answer as it did in the request.",
        shapes=("produce to many places: no partitions", "offsets committed: no partitions", "delete offsets: no *"),
        fields=("responses", "topics"),
    ),
    Reason(
        why="Fetch sessions are declined: every answer is whole.",
        shapes=("fetch sessions: *",),
        fields=("session_id",),
    ),
    Reason(
        why="There are no replicas, so nobody is a follower.",
        shapes=("fetch as a follower: *",),
    ),
    Reason(
        why="Numbers that make no sense are taken as the least that does; Kafka fails with -1.",
        shapes=("fetch offsets: isolation level 7", "fetch sizes: less than *"),
    ),
    Reason(
        why="Nobody reads it beside an error.",
        shapes=("fetch *", "records deleted: fetched below"),
        fields=("*.aborted_transactions",),
    ),
    Reason(
        why="Kafka names a topic again for its partitions that do not exist; Dray once.",
        shapes=("fetch places: good and bad by id",),
        fields=("responses",),
    ),
    Reason(
        why="An error is told at once; Kafka lets the client wait for a partition that does not exist.",
        shapes=("fetch places: a bad one among others",),
        fields=("answered",),
    ),
    Reason(
        why="The default comes from Dray; of the broker in this comparison it was set by its file.",
        shapes=("create topics *", "configs of topics: *", "configs of others: a *"),
        fields=("*.configs.*",),
    ),
    Reason(
        why="A name that no topic can have is told so; Kafka fails with -1.",
        shapes=("partitions of topics: a name that cannot be",),
    ),
    Reason(
        why="Nobody knows how much an object store can hold.",
        shapes=("log dirs: *",),
        fields=("*.total_bytes", "*.usable_bytes"),
    ),
    Reason(
        why="An epoch below none means nothing.",
        shapes=("ends of epochs: epoch -2",),
    ),
    Reason(
        why="Nobody collects metrics of clients.",
        shapes=("configs of others: metrics*",),
    ),
    Reason(
        why="A number that is no operation is a mistake of the client: 42 says so, -1 that it is the server's.",
        shapes=("changed configs of topics: operation 4",),
    ),
    Reason(
        why="Copies come from the object store. A replication factor is kept and told, an assignment is counted.",
        shapes=(
            "create topics of many sizes: 1 partitions, 2 replicas",
            "create topics with assignments: to a broker that is not there",
            "partitions added with assignments: a broker that is not there",
        ),
        fields=_MADE,
    ),
    Reason(
        why="Kafka refuses names that would collide in its metrics; Dray's do not.",
        shapes=("create topics by name: that differs in an underscore",),
        fields=_MADE,
    ),
    Reason(
        why="A topic that was not made has no id.",
        shapes=("create topics only checked: *",),
        fields=("*.topic_id",),
    ),
    Reason(
        why="Values are checked more strictly: each of these is a slip.",
        shapes=("create topics with configs: *='*'",),
    ),
    Reason(
        why="A null value means the default, as it does when a config is altered.",
        shapes=("create topics with configs: a null value",),
        fields=_MADE,
    ),
    Reason(
        why="Kafka answers a request that is malformed in one topic without its brokers. Dray refuses the topic alone.",
        shapes=("metadata by id: neither", "metadata by id: with*"),
    ),
    Reason(
        why="Each way to name a topic is answered.",
        shapes=("metadata by id: one by name, one by id",),
        fields=("topics",),
    ),
    Reason(
        why="There are no access rules yet, so nobody can be told what is allowed.",
        shapes=(
            "metadata with authorized operations: *",
            "describe groups: with authorized operations",
            "consumer *",
            "the cluster: with authorized operations",
            "partitions of topics: *",
        ),
        fields=("*authorized_operations",),
    ),
    Reason(
        why="An offset below -1 means nothing; Kafka keeps it.",
        shapes=("offsets committed: *offset -5",),
    ),
    Reason(
        why="What is asked twice is answered once.",
        shapes=("offsets committed: a partition asked twice",),
        fields=("*.partitions",),
    ),
    Reason(
        why="A message beside an answer without an error says nothing.",
        shapes=("coordinators: version *", "coordinators: several groups"),
        fields=("*error_message",),
    ),
    Reason(
        why="There are no share groups: the message says so.",
        shapes=("coordinators: a share group",),
        fields=("*.error_message",),
    ),
    Reason(
        why="While a member waits for partitions of others, or others for its own, it is told to come back sooner: a "
        "rebalance takes two of its heartbeats.",
        shapes=("consumer members that share: *",),
        fields=("heartbeat_interval_ms",),
    ),
    Reason(
        why="A static member whose answer was lost asks again with the same id; Kafka's 111 ends such a client.",
        shapes=("consumer members with instances: the same joins again",),
    ),
    Reason(
        why="A target is computed beside the join that needs it, so the member goes there in two steps, and the one "
        "before its epoch is the step between. What it says that it owns is its own, so nobody is misled.",
        shapes=("consumer heartbeats refused: an older epoch that owns all in version *",),
    ),
    Reason(
        why="Generations and epochs go on when an empty group changes its protocol; Kafka begins anew, and what an old "
        "member says could fit again.",
        shapes=("groups of the other protocol: *",),
        fields=("*epoch",),
    ),
    Reason(
        why="A group that has only offsets is gone with the last of them; Kafka finds it until it has been cleaned up.",
        shapes=("delete offsets: offsets only, again", "delete offsets: the last has gone"),
    ),
)
