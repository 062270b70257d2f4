"""The names of what the log engines count and report."""

from typing import Final

from dray.telemetry import SECONDS, counter, event, histogram

TORN_TAIL_CUT: Final = event("log.torn_tail_cut", "an unfinished write at the end of a local log was cut at open")
SEGMENT_DROPPED: Final = event("log.segment_dropped", "a segment whose creation was cut short was removed at open")
OPENED: Final = event("log.opened", "a local log was scanned and is served")
FAILED: Final = event("log.failed", "the disk failed under a local log; the process must end")
TRIMMED: Final = event("log.trimmed", "segments below a confirmed checkpoint were deleted")
SERVER_STARTED: Final = event("log.server_started", "the log server listens")
CONNECTION_DROPPED: Final = event("log.connection_dropped", "a connection of the log server sent a malformed frame")
RECONNECTING: Final = event("log.reconnecting", "a follower lost its log server and tries again")
ENGINE_FULL: Final = event("log.engine_full", "the engine that keeps the log is out of space: appends are refused")
ENGINE_HEALED: Final = event("log.engine_healed", "the engine that keeps the log has space again")
EVENT_LOST: Final = event("log.event_lost", "a follower was not told of an entry; it reads again")
NOT_COMPACTED: Final = event("log.not_compacted", "what a trim gave back was not freed; the next trim tries again")

APPEND_SECONDS: Final = histogram(
    "dray_log_append_duration_seconds", "Time from append to its durable acknowledgement.", SECONDS
)
SYNC_SECONDS: Final = histogram("dray_log_sync_duration_seconds", "Time of one write and sync of a local log.", SECONDS)
ENTRIES: Final = counter("dray_log_entries_total", "Entries made durable by a local log.")
DELTA_COMMITS: Final = counter("dray_log_delta_commits_total", "Versions of delta logs that this process has put.")
DELTA_CONFLICTS: Final = counter(
    "dray_log_delta_conflicts_total", "Versions of delta logs that another process put first; each is tried again."
)
DELTA_LOOKS: Final = counter(
    "dray_log_delta_looks_total", "Requests for the next version of a delta log; an idle log costs nothing else."
)
