"""Names of the metrics and log events of groups."""

from typing import Final

from dray import telemetry

OFFSETS_FULL: Final = telemetry.event(
    "groups.offsets_full", "committed offsets have used up their budget, or have room again; new ones are refused then"
)

NOT_TENDED: Final = telemetry.event(
    "groups.not_tended", "a consumer group could not be given a target or news of its topics; it is tried again"
)
REMOVED: Final = telemetry.counter(
    "dray_group_members_removed_total",
    "group members that left here or that this process had removed, by why",
    ["reason"],
)
MEMBERS: Final = telemetry.gauge(
    "dray_group_members", "members of the groups that this process keeps, by the protocol they speak", ["protocol"]
)
GROUPS: Final = telemetry.gauge(
    "dray_groups", "groups that this process keeps, by protocol and state", ["protocol", "state"]
)
REBALANCES: Final = telemetry.counter(
    "dray_group_rebalances_total",
    "generations that began in groups this process keeps, and targets that their members were given",
    ["protocol"],
)
PHASE: Final = telemetry.histogram(
    "dray_group_phase_seconds", "how long groups that this process keeps were in a phase", telemetry.SECONDS, ["phase"]
)
TARGETS: Final = telemetry.histogram(
    "dray_group_target_seconds", "how long this process computed a target for a group", telemetry.SECONDS
)
REHOMED: Final = telemetry.counter(
    "dray_group_members_rehomed_total", "group members that this process took over from another broker"
)

_PARTITION: Final = ("topic", "partition")
LAG: Final = telemetry.gauge(
    "dray_consumer_group_lag_records",
    "records that a group has yet to read, told by its keeper",
    ["group", *_PARTITION],
)
LAG_LEFT_OUT: Final = telemetry.gauge(
    "dray_consumer_group_lag_left_out", "partitions of groups whose lag is not told, because there are too many"
)
# As kafka_exporter names them: dashboards and alerts that people have go on working.
KAFKA_LAG: Final = telemetry.alias(
    "kafka_consumergroup_lag", "as dray_consumer_group_lag_records", ["consumergroup", *_PARTITION]
)
KAFKA_LAG_SUM: Final = telemetry.alias(
    "kafka_consumergroup_lag_sum", "the lag of a group over a topic", ["consumergroup", "topic"]
)
KAFKA_OFFSET: Final = telemetry.alias(
    "kafka_consumergroup_current_offset", "the committed offset of a group", ["consumergroup", *_PARTITION]
)
KAFKA_OFFSET_SUM: Final = telemetry.alias(
    "kafka_consumergroup_current_offset_sum", "committed offsets over a topic", ["consumergroup", "topic"]
)
