"""Names of the metrics and log events of access. No key, principal or address is a label."""

from typing import Final

from dray import telemetry

ATTEMPTS: Final = telemetry.counter(
    "dray_auth_attempts_total", "calls that showed a key, or should have", ["door", "result"]
)
DURATION: Final = telemetry.histogram(
    "dray_auth_duration_seconds", "what it took to check a key that was not remembered", telemetry.SECONDS
)
QUEUE: Final = telemetry.gauge("dray_auth_queue", "keys that wait to be checked")
DENIED: Final = telemetry.counter("dray_authorization_denied_total", "calls of those who may not", ["action"])
OPEN: Final = telemetry.gauge("dray_access_open", "1 while nobody needs a key here")
KEYS: Final = telemetry.gauge("dray_api_keys", "keys that were made and are not revoked")
STREAMS: Final = telemetry.gauge("dray_auth_streams", "open streams that end when their key does")
STREAMS_ENDED: Final = telemetry.counter(
    "dray_auth_streams_ended_total", "streams that ended because their key was revoked or has expired"
)
AUDIT_LINES: Final = telemetry.counter("dray_audit_lines_total", "lines of the audit file that are on disk")
AUDIT_FAILED: Final = telemetry.gauge("dray_audit_failed", "1 while the audit file cannot be written")

OPENED: Final = telemetry.event(
    "access.open", "anyone who can connect to the HTTP and gRPC ports may do everything: no key is needed"
)
KEY_MADE: Final = telemetry.event("access.key_made", "a key was made")
KEY_REVOKED: Final = telemetry.event("access.key_revoked", "a key was revoked")
GUESSING: Final = telemetry.event("access.guessing", "an address shows wrong keys, and is not listened to for a while")
AUDIT_DOWN: Final = telemetry.event(
    "access.audit_unwritten",
    "the audit file cannot be written: nothing that administrators ask is done until it can, "
    "and what was done is kept in memory for it",
)
AUDIT_BACK: Final = telemetry.event("access.audit_written", "the audit file is written again, with what was missing")
AUDIT_TORN: Final = telemetry.event(
    "access.audit_torn", "a crash cut the last line of the audit file; nobody was told of what it was about"
)
TOUCH_FAILED: Final = telemetry.event("access.touch_failed", "when keys were last used could not be written down yet")
