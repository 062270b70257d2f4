"""What people are told about the configs of a topic: where a default comes from, and what a key means here.

Kafka has most defaults of topics among the settings of its brokers, under
other names. Dray's are fixed, but tools show and expect these names.
"""

from collections.abc import Mapping
from typing import Final

SYNONYMS: Final[Mapping[str, str]] = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
"""What a broker calls the default of a key; the others are known by no other name."""

_KEPT: Final = "Kept for tools, without effect: "
MEANINGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "What becomes of old records. 'delete': they go by time and size. 'compact,delete': records need "
    "a key, and go by time and size. 'compact': records need a key, and every one is kept, since nothing compacts yet.",
    "compression.gzip.level": _KEPT + "batches are stored as they were sent.",
    "compression.lz4.level": _KEPT + "batches are stored as they were sent.",
    "compression.type": _KEPT + "batches are stored as they were sent.",
    "compression.zstd.level": _KEPT + "batches are stored as they were sent.",
    "delete.retention.ms": _KEPT + "nothing compacts yet.",
    "file.delete.delay.ms": _KEPT + "objects are deleted after the broker's retention.grace.",
    "flush.messages": _KEPT + "every acknowledged record is durable.",
    "flush.ms": _KEPT + "every acknowledged record is durable.",
    "follower.replication.throttled.replicas": _KEPT + "copies come from the object store.",
    "index.interval.bytes": _KEPT + "every batch is in the index.",
    "leader.replication.throttled.replicas": _KEPT + "copies come from the object store.",
    "local.retention.bytes": _KEPT + "there is no tiered storage.",
    "local.retention.ms": _KEPT + "there is no tiered storage.",
    "max.compaction.lag.ms": _KEPT + "nothing compacts yet.",
    "max.message.bytes": "The largest batch that is taken, in bytes, as it was compressed.",
    "message.timestamp.after.max.ms": "How far a record's time may be ahead of the broker's; beyond it, it is refused.",
    "message.timestamp.before.max.ms": "How far a record's time may be behind the broker's; beyond it, it is refused.",
    "message.timestamp.type": "CreateTime: a record has the time its producer gave it. LogAppendTime: the time at "
    "which the broker took it.",
    "min.cleanable.dirty.ratio": _KEPT + "nothing compacts yet.",
    "min.compaction.lag.ms": _KEPT + "nothing compacts yet.",
    "min.insync.replicas": _KEPT + "copies come from the object store.",
    "preallocate": _KEPT + "there are no segment files.",
    "remote.log.copy.disable": _KEPT + "there is no tiered storage.",
    "remote.log.delete.on.disable": _KEPT + "there is no tiered storage.",
    "remote.storage.enable": "Only false: there is no tiered storage, because all records are in the object store.",
    "retention.bytes": "Keep at most about this many bytes of each partition; the oldest records go. -1: no limit.",
    "retention.ms": "Keep a record at least this long, by its time; then it may go. -1: for ever.",
    "segment.bytes": _KEPT + "there are no segment files.",
    "segment.index.bytes": _KEPT + "there are no segment files.",
    "segment.jitter.ms": _KEPT + "there are no segment files.",
    "segment.ms": _KEPT + "there are no segment files.",
    "unclean.leader.election.enable": _KEPT + "no broker holds records that others lack.",
}
"""What a key means; one for each."""
