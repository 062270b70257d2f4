"""Names of the replica's metrics and log events."""

from typing import Final

from dray import telemetry

OPENED: Final = telemetry.event("replica.session_opened", "a session of this process was opened in a domain")
ABANDONED: Final = telemetry.event("replica.session_abandoned", "an outcome stayed unknown; the session is given up")
EXPIRED_OTHER: Final = telemetry.event("replica.session_expired", "a silent session of another process was expired")
JUMPED: Final = telemetry.event("replica.jumped", "history was trimmed; a newer checkpoint was loaded")
FAILED: Final = telemetry.event("replica.failed", "the replica stopped for good; the process must end")
STALLED: Final = telemetry.event("replica.follow_stalled", "the log has entries that are not shown; following anew")
CHECKPOINTED: Final = telemetry.event("replica.checkpointed", "a checkpoint was written, read back and confirmed")
CHECKPOINT_DAMAGED: Final = telemetry.event(
    "replica.checkpoint_damaged", "a checkpoint cannot be read; an older one or the log takes its place"
)
CHECKPOINT_DISPUTED: Final = telemetry.event(
    "replica.checkpoint_disputed", "the store has two checkpoints of one position; neither is used"
)
CHECKPOINT_FAILED: Final = telemetry.event("replica.checkpoint_failed", "a checkpoint was not made; the log is kept")

COMMITS: Final = telemetry.counter("dray_metadata_commits_total", "entries of this replica by outcome", ["outcome"])
RETRIES: Final = telemetry.counter("dray_commit_retries_total", "appends repeated after a lost reply", ["reason"])
COMMIT_SECONDS: Final = telemetry.histogram(
    "dray_metadata_request_duration_seconds", "time from append to applied here", telemetry.SECONDS, ["op"]
)
FOLLOWS_CUT: Final = telemetry.counter("dray_metadata_follows_cut_total", "followers that stood still and were cut")
APPLIED: Final = telemetry.counter("dray_metadata_applied_entries_total", "entries folded by this process")

DOMAIN_LOADED: Final = telemetry.event("replica.domain_loaded", "a domain was loaded, because it is led or used here")
DOMAIN_DROPPED: Final = telemetry.event("replica.domain_dropped", "a domain that nobody used here was dropped")
DOMAIN_NOT_LOADED: Final = telemetry.event("replica.domain_not_loaded", "a domain could not be loaded; tried again")
LOADED_DOMAINS: Final = telemetry.gauge("dray_domains_loaded", "domains that this broker has loaded, the catalog too")
LOADS: Final = telemetry.counter("dray_domain_loads_total", "domains that were loaded after the start")
DROPS: Final = telemetry.counter("dray_domain_drops_total", "domains that were dropped because nobody used them here")
