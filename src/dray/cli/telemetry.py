"""Names of the log events of commands."""

from typing import Final

from dray import telemetry

NO_SPARK: Final = telemetry.event("cli.no_spark", "records are due for their tables, and nothing here can make them")
COMPACTOR_ENDED: Final = telemetry.event("cli.compactor_ended", "the compactor ended; it is started again")
