"""Names of the node's metrics and log events."""

from typing import Final

from dray import telemetry

READY: Final = telemetry.event("node.ready", "the broker serves clients")
EXPOSED: Final = telemetry.event(
    "node.exposed", "a listener can be reached from other machines and asks nobody for a password"
)
FEW_DESCRIPTORS: Final = telemetry.event(
    "node.few_descriptors",
    "so few files may be open that fewer connections are taken than kafka.max_connections: raise ulimit -n",
)
NO_DATE: Final = telemetry.event(
    "node.no_store_date", "the store did not tell its time; machine time may lag after a stop"
)
STOPPING: Final = telemetry.event("node.stopping", "the broker finishes what it has taken and stops")
NOT_DRAINED: Final = telemetry.event(
    "node.not_drained", "the store did not take everything in time; what it did not take was not acknowledged"
)
STOPPED: Final = telemetry.event("node.stopped", "everything stored was answered; the session was given back")
LOOP_LAG: Final = telemetry.histogram(
    "dray_event_loop_lag_seconds", "how late a timer fires on the event loop", telemetry.SECONDS
)
BUILD: Final = telemetry.gauge("dray_build_info", "the version that runs", ["version"])
