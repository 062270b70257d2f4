"""Names of the topics' log events."""

from typing import Final

from dray import telemetry

SAGA_RESUMED: Final = telemetry.event("topics.saga_resumed", "a create or delete that its driver left is finished here")
SAGA_FAILED: Final = telemetry.event("topics.saga_failed", "a create or delete could not be finished yet")
