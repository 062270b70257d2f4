"""What the object store tells: requests by outcome, and how long they take."""

from typing import Final

from dray.telemetry import SECONDS, counter, event, histogram

REQUESTS: Final = counter(
    "dray_objectstore_requests_total",
    "Requests to the object store, each attempt counted; ambiguous: it may have happened.",
    ("op", "outcome"),
)
DURATION: Final = histogram("dray_objectstore_request_duration_seconds", "How long one attempt took.", SECONDS, ("op",))

RETRIED: Final = event("objects.retried", "A request failed and is tried again.")
GAVE_UP: Final = event("objects.gave_up", "A request failed for good: retries, time or budget are used up.")
SETTLED: Final = event("objects.settled", "A put whose reply was lost was found to have happened.")
