"""Names of the node's metrics and log events."""

from typing import Final

from dray import telemetry

READY: Final = telemetry.event("node.ready", "the broker serves clients")
META_READY: Final = telemetry.event("node.meta_ready", "the log is served to the brokers of this machine")
NOT_KEPT: Final = telemetry.event("node.log_not_trimmed", "checkpoints could not be looked at; the log is kept")
MEMBER_ENDED: Final = telemetry.event("node.process_ended", "a process of this fleet ended; it is started again")
MEMBER_BACK: Final = telemetry.event("node.process_back", "a process that had ended serves again")
MEMBER_KILLED: Final = telemetry.event("node.process_killed", "a process did not end in time and was made to")
NOT_WITHDRAWN: Final = telemetry.event(
    "node.not_withdrawn", "the others could not be told that this broker stops; clients find out by themselves"
)
EXPOSED: Final = telemetry.event(
    "node.exposed", "a listener can be reached from other machines and asks nobody for a password"
)
ADVERTISED: Final = telemetry.event(
    "node.advertised",
    "clients cannot connect to a wildcard, so they are told an address of this machine; "
    "kafka.advertise (--advertise) names another",
)
HANGS: Final = telemetry.event(
    "node.calls_hang", "disk or store calls have not come back; the process ends without them"
)
FEW_DESCRIPTORS: Final = telemetry.event(
    "node.few_descriptors",
    "so few files may be open that fewer connections are taken than kafka.max_connections: raise ulimit -n",
)
OLD_RULES: Final = telemetry.event(
    "node.old_rules",
    "this build knows newer rules than the active ones: when every process is of it, run what is told here",
)
NO_DATE: Final = telemetry.event(
    "node.no_store_date", "the store did not tell its time; machine time may lag after a stop"
)
STOPPING: Final = telemetry.event("node.stopping", "the broker finishes what it has taken and stops")
NOT_DRAINED: Final = telemetry.event(
    "node.not_drained", "the store did not take everything in time; what it did not take was not acknowledged"
)
STOPPED: Final = telemetry.event("node.stopped", "everything stored was answered; the session was given back")
LOOP_LAG: Final = telemetry.histogram(
    "dray_event_loop_lag_seconds", "how late a timer fires on the event loop", telemetry.SECONDS
)
BUILD: Final = telemetry.gauge("dray_build_info", "the version that runs", ["version"])
DISK_FREE: Final = telemetry.gauge("dray_disk_free_bytes", "room on the disk of what is kept: log, records", ["kept"])
DISK_SIZE: Final = telemetry.gauge("dray_disk_size_bytes", "what that disk has in all", ["kept"])
LOG_BYTES: Final = telemetry.gauge("dray_log_bytes", "files of the log of commands", ["domain"])
TOPICS: Final = telemetry.gauge("dray_topics", "topics of the cluster")
TOPIC_BYTES: Final = telemetry.gauge(
    "dray_topic_bytes", "bytes of a topic's records; the thousand largest topics have a series", ["topic"]
)
TABLE_LAG_RECORDS: Final = telemetry.gauge(
    "dray_table_lag_records",
    "records of a topic that are not in its table's files yet; the thousand topics furthest behind have series",
    ["topic"],
)
TABLE_LAG_BYTES: Final = telemetry.gauge("dray_table_lag_bytes", "bytes of those records", ["topic"])
TABLE_LAG_SECONDS: Final = telemetry.gauge(
    "dray_table_lag_seconds", "how old the oldest record is that is not in its table's files", ["topic"]
)
TABLE_FILES: Final = telemetry.gauge("dray_table_files", "files that stand for records of a topic", ["topic"])
TABLE_BYTES: Final = telemetry.gauge("dray_table_bytes", "bytes of those files", ["topic"])
TABLE_PROBLEM: Final = telemetry.gauge(
    "dray_table_problem",
    "1 for a topic whose table stands still: somebody else has changed it (drayd admin table status)",
    ["topic"],
)
