"""Names of retention's metrics and log events."""

from typing import Final

from dray import telemetry

FAILED: Final = telemetry.event("retention.failed", "a pass was cut short; the next one goes on")
BAD_CONFIG: Final = telemetry.event("retention.bad_config", "a topic's configs make no sense; its records are kept")
NOT_DELETED: Final = telemetry.event("retention.not_deleted", "objects could not be deleted; the next pass tries again")
STOOD_IN: Final = telemetry.event("retention.stood_in", "a domain stood still; this process takes its turn there")
SWEPT: Final = telemetry.event("retention.swept", "the objects that ended sessions left behind are gone")
FOREIGN: Final = telemetry.event("retention.foreign_objects", "objects of other logs lie under our prefix; not touched")
LOG_IS_AHEAD: Final = telemetry.event(
    "retention.log_is_ahead",
    "the log's time is ahead of this machine's clock: no record, offset or producer goes by time. Correct the clock; "
    "if it is right, stop the broker and run: drayd admin meta recover",
)
LOG_IS_BEHIND: Final = telemetry.event(
    "retention.log_is_behind",
    "the log's time is behind this machine's clock, since it does not count when no broker ran: what was stored "
    "before is kept for longer by that. Nothing needs to be done; --set broker.accept_clock=true ends it",
)

LOG_AHEAD: Final = telemetry.gauge(
    "dray_log_time_ahead_seconds", "how far the log's time is ahead of this machine's clock", ["domain"]
)
DROPPED: Final = telemetry.counter(
    "dray_retention_records_total", "records that went by time, size or deletion", ["reason"]
)
DELETED: Final = telemetry.counter("dray_deleted_objects_total", "objects deleted from the store", ["reason"])
DELETED_BYTES: Final = telemetry.counter("dray_deleted_bytes_total", "bytes deleted from the store", ["reason"])
UNCOMPACTED: Final = telemetry.gauge(
    "dray_uncompacted_bytes",
    "bytes in topics whose cleanup.policy is compact alone: all of them are kept, since topics are not compacted yet",
    ["domain"],
)
PENDING: Final = telemetry.gauge("dray_gc_pending_objects", "dead objects not yet gone from the store", ["domain"])
ONLY_IN_TABLE: Final = telemetry.gauge(
    "dray_files_only_in_tables",
    "files that no row of the log names; a compactor takes them out of their table",
    ["domain"],
)
ORPHANS: Final = telemetry.gauge("dray_orphan_objects", "orphans that the last sweep found and left for now")
FOREIGN_OBJECTS: Final = telemetry.gauge("dray_foreign_objects", "objects of other logs that the last sweep found")
EXPIRED_PRODUCERS: Final = telemetry.counter("dray_expired_producers_total", "producer states expired by this process")
EXPIRED_OFFSETS: Final = telemetry.counter(
    "dray_expired_offsets_total", "committed offsets dropped by this process", ["reason"]
)
