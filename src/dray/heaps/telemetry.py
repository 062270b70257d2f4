"""Names of the metrics and log events of heaps."""

from typing import Final

from dray import telemetry

TURN_FAILED: Final = telemetry.event("heaps.turn_failed", "an entry with messages or settlements was not taken")
UNREADABLE: Final = telemetry.event("heaps.unreadable", "the body of a message is missing or damaged; it is rejected")
UPKEEP_FAILED: Final = telemetry.event("heaps.upkeep_failed", "what is due in a heap was not done; it is tried again")
BATCH_LEFT: Final = telemetry.event(
    "heaps.batch_left", "a batch was decided and not finished everywhere; any broker goes on with it"
)
BATCH_RESOLVED: Final = telemetry.event(
    "heaps.batch_resolved", "a batch was in doubt for long; it was decided and is finished in this domain"
)
SAGA_RESUMED: Final = telemetry.event("heaps.saga_resumed", "a heap was left half made, altered or deleted; going on")

ENTRIES: Final = telemetry.counter("dray_heap_entries_total", "entries of the log that this process wrote for heaps")
ROWS: Final = telemetry.counter(
    "dray_heap_rows_total", "messages, settlements and leases that were asked for in those entries"
)
PER_ENTRY: Final = telemetry.histogram(
    "dray_heap_messages_per_entry",
    "messages, settlements and leases that shared an entry of the log",
    (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000),
)
SPILLS: Final = telemetry.counter("dray_heap_spills_total", "objects that bodies were moved to", ["why"])
UNREADABLE_BODIES: Final = telemetry.counter("dray_heap_unreadable_total", "messages whose body could not be read")
BATCHES: Final = telemetry.counter(
    "dray_heap_batches_total", "batches over several heaps that were begun here, by what became of them", ["outcome"]
)
TOLD: Final = telemetry.counter("dray_heap_history_total", "events of heaps that this process made records of topics")
CONSUMERS: Final = telemetry.gauge("dray_heap_consumers", "consumers that are connected here")
ENQUEUE_SECONDS: Final = telemetry.histogram(
    "dray_heap_enqueue_duration_seconds", "until messages were durable, by call", telemetry.SECONDS
)
POP_SECONDS: Final = telemetry.histogram(
    "dray_heap_pop_duration_seconds", "until a pop was answered, its own waiting included", telemetry.SECONDS
)
SETTLE_SECONDS: Final = telemetry.histogram(
    "dray_heap_settle_duration_seconds", "until settlements were durable, by call", telemetry.SECONDS
)

_HEAP: Final = ("heap",)
READY: Final = telemetry.gauge("dray_heap_ready", "messages that a consumer could have now", _HEAP)
DELAYED: Final = telemetry.gauge("dray_heap_delayed", "messages that wait for their time", _HEAP)
LEASED: Final = telemetry.gauge("dray_heap_leased", "messages that consumers hold", _HEAP)
DEAD: Final = telemetry.gauge("dray_heap_dlq", "dead letters", _HEAP)
OLDEST: Final = telemetry.gauge("dray_heap_oldest_ready_seconds", "age of the oldest ready message", _HEAP)
PAYLOAD_BYTES: Final = telemetry.gauge("dray_heap_payload_bytes", "bodies of all messages, headers included", _HEAP)
INLINE_BYTES: Final = telemetry.gauge("dray_heap_inline_bytes", "bodies that are held in memory", _HEAP)
UNTOLD: Final = telemetry.gauge("dray_heap_history_untold", "events that are not in the topic of their history", _HEAP)
DEDUP_ENTRIES: Final = telemetry.gauge("dray_heap_dedup_entries", "producers and dedup keys that are remembered", _HEAP)
ENQUEUED: Final = telemetry.counter("dray_heap_enqueued_total", "messages that were taken", _HEAP)
DUPLICATES: Final = telemetry.counter("dray_heap_duplicates_total", "messages that were known already", _HEAP)
GRANTED: Final = telemetry.counter("dray_heap_granted_total", "leases that were given", _HEAP)
ACKED: Final = telemetry.counter("dray_heap_acked_total", "messages that were acked", _HEAP)
RETRIES: Final = telemetry.counter("dray_heap_retries_total", "deliveries that failed", _HEAP)
DIED: Final = telemetry.counter("dray_heap_dead_total", "messages that became dead letters", _HEAP)
DROPPED: Final = telemetry.counter(
    "dray_heap_dropped_total",
    "messages that were deleted without an ack: purged, past their time, no dead letters",
    _HEAP,
)
EXPIRED: Final = telemetry.counter("dray_lease_expired_total", "leases that ended by their deadline", _HEAP)
BACKLOG: Final = telemetry.gauge(
    "dray_heap_backlog", "ready and delayed messages of a partition, of heaps that have several", ["heap", "partition"]
)
