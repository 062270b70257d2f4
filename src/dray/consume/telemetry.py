"""Names of the metrics and log events of consumers that settle records one by one."""

from typing import Final

from dray import telemetry

DELIVERED: Final = telemetry.counter("dray_consume_delivered_total", "records that were handed out")
REDELIVERED: Final = telemetry.counter("dray_consume_redelivered_total", "records that were handed out again")
SETTLED: Final = telemetry.counter("dray_consume_settlements_total", "acknowledgements by their answer", ["outcome"])
BURIED: Final = telemetry.counter("dray_consume_buried_total", "records that were moved to a dead-letter topic")

NOT_BURIED: Final = telemetry.event("consume.not_buried", "a record that fails was not moved; it is tried again")
