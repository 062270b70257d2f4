"""Names of the metrics and log events of heaps."""

from typing import Final

from dray import telemetry

TURN_FAILED: Final = telemetry.event("heaps.turn_failed", "an entry with messages or settlements was not taken")
UNREADABLE: Final = telemetry.event("heaps.unreadable", "the body of a message is missing or damaged; it is rejected")
UPKEEP_FAILED: Final = telemetry.event("heaps.upkeep_failed", "what is due in a heap was not done; it is tried again")
SAGA_RESUMED: Final = telemetry.event("heaps.saga_resumed", "a heap was left half made, altered or deleted; going on")

ENTRIES: Final = telemetry.counter("dray_heap_entries_total", "entries of the log that this process wrote for heaps")
ROWS: Final = telemetry.counter(
    "dray_heap_rows_total", "messages, settlements and leases that were asked for in those entries"
)
SPILLS: Final = telemetry.counter("dray_heap_spills_total", "objects that bodies were moved to", ["why"])
UNREADABLE_BODIES: Final = telemetry.counter("dray_heap_unreadable_total", "messages whose body could not be read")
CONSUMERS: Final = telemetry.gauge("dray_heap_consumers", "consumers that are connected here")
