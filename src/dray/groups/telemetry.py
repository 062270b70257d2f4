"""Names of the log events of groups."""

from typing import Final

from dray import telemetry

OFFSETS_FULL: Final = telemetry.event(
    "groups.offsets_full", "committed offsets have used up their budget, or have room again; new ones are refused then"
)
