"""Names of the compactor's log events."""

from typing import Final

from dray import telemetry

NOT_TAKEN: Final = telemetry.event("compactor.not_taken", "a range was not taken in hand: another has it")
FAILED: Final = telemetry.event("compactor.failed", "a topic's records were not compacted; the next cycle tries again")
FOREIGN: Final = telemetry.event("compactor.foreign_commit", "somebody else has committed to a table; our rows go on")
STANDS: Final = telemetry.event(
    "compactor.table_stands", "somebody else has changed a table: nothing is written to it until it is mended"
)
MENDED: Final = telemetry.event("compactor.table_mended", "a table that stood still is right again, and goes on")
REBUILT: Final = telemetry.event("compactor.table_rebuilt", "a table was made to show what the log says")
CYCLE: Final = telemetry.event("compactor.cycle", "what was due is compacted")
TAKEN_OVER: Final = telemetry.event("compactor.taken_over", "tasks that were left half done are gone on with")
SPARK_STARTED: Final = telemetry.event("compactor.spark_started", "a Spark session runs")
SPARK_STOPPED: Final = telemetry.event("compactor.spark_stopped", "nothing was due for a while; Spark is stopped")
RELEASED: Final = telemetry.event("compactor.released", "files that no snapshot of a table reaches are garbage now")
DROPPED: Final = telemetry.event("compactor.table_gone", "the table of a deleted topic was dropped, or renamed")
