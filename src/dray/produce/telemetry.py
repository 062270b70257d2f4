"""Names of produce's metrics and log events."""

from typing import Final

from dray import telemetry

FLUSH_SECONDS: Final = telemetry.histogram(
    "dray_wal_flush_duration_seconds", "time from the start of a flush until its batches were answered",
    telemetry.SECONDS,
)  # fmt: skip
FLUSH_BYTES: Final = telemetry.histogram("dray_wal_flush_bytes", "size of written WAL objects", telemetry.BYTES)
FLUSHES: Final = telemetry.counter("dray_wal_flushes_total", "flushes by what became of them", ["outcome"])
PRODUCED_BYTES: Final = telemetry.counter("dray_produce_bytes_total", "bytes of batches that got offsets")
BATCHES: Final = telemetry.counter("dray_produce_batches_total", "batches by what became of them", ["outcome"])
BUFFER_BYTES: Final = telemetry.gauge("dray_buffer_bytes", "bytes that were taken and not yet answered")
INDEX_BYTES: Final = telemetry.gauge("dray_index_bytes", "estimate of the memory that index and producers hold")
HEDGES: Final = telemetry.counter("dray_produce_hedges_total", "slow puts tried a second time, by winner", ["winner"])
REPUTS: Final = telemetry.counter(
    "dray_wal_reputs_total", "objects written again because their session ended before the commit"
)
ORPHANS: Final = telemetry.counter(
    "dray_wal_orphans_total", "own objects that were never committed, by what became of them", ["outcome"]
)
CONDITIONAL: Final = telemetry.counter(
    "dray_produce_conditional_total", "appends under conditions, by what became of them", ["outcome"]
)

FLUSH_FAILED: Final = telemetry.event("produce.flush_failed", "a flush was not stored; its batches fail retriably")
FLUSH_UNKNOWN: Final = telemetry.event("produce.flush_unknown", "nobody knows whether a flush was committed")
SESSION_ENDED: Final = telemetry.event("produce.session_ended", "a session ended between put and commit; put again")
ORPHAN_LEFT: Final = telemetry.event("produce.orphan_left", "an own orphan could not be deleted; it is swept later")
INDEX_PRESSURE: Final = telemetry.event("produce.index_pressure", "the index budget is nearly or wholly used")
BROKEN: Final = telemetry.event("produce.broken", "a flush met an error that should not exist: report a bug")
