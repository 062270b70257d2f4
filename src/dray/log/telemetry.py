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

APPEND_SECONDS: Final = histogram(
    "dray_log_append_duration_seconds", "Time from append to its durable acknowledgement.", SECONDS
)
SYNC_SECONDS: Final = histogram("dray_log_sync_duration_seconds", "Time of one write and sync of a local log.", SECONDS)
ENTRIES: Final = counter("dray_log_entries_total", "Entries made durable by a local log.")
