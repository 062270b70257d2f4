"""Names of fetch's metrics and log events."""

from typing import Final

from dray import telemetry

DAMAGED: Final = telemetry.event("fetch.object_damaged", "an object that the index names is missing, short or changed")

BYTES: Final = telemetry.counter("dray_fetch_bytes_total", "bytes of batches given to consumers")
WAITING: Final = telemetry.gauge("dray_fetch_waiting", "fetches that wait for records")
HITS: Final = telemetry.counter("dray_fetch_cache_hits_total", "runs of batches found in memory")
MISSES: Final = telemetry.counter("dray_fetch_cache_misses_total", "runs of batches read from the store")
CACHED: Final = telemetry.gauge("dray_fetch_cache_bytes", "bytes that the object cache holds")
GETS: Final = telemetry.counter("dray_fetch_gets_total", "reads of the store by kind", ["kind"])
GET_BYTES: Final = telemetry.counter("dray_fetch_store_bytes_total", "bytes read from the store by kind", ["kind"])
ERRORS: Final = telemetry.counter("dray_fetch_errors_total", "partitions answered with an error", ["error"])
