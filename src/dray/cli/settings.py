"""Every section that `drayd` has, by name, and the settings of the process itself.

A package declares its sections in its own `settings.py`; a line here makes
them part of the configuration. `make check` finds a section without a line.
"""

from collections.abc import Mapping
from typing import Final, Literal

from dray.access.settings import AccessSettings
from dray.config import Section
from dray.consume.settings import ConsumeSettings
from dray.fetch.settings import FetchSettings
from dray.groups.settings import GroupSettings
from dray.log.settings import LogSettings
from dray.node.settings import BrokerSettings, ClusterSettings, TopicSettings
from dray.objects.settings import ObjectsSettings
from dray.produce.settings import WalSettings
from dray.replica.settings import SessionSettings
from dray.retention.settings import RetentionSettings
from dray.routing.settings import RoutingSettings
from dray.servers.grpc.settings import GrpcSettings
from dray.servers.http.settings import HttpSettings
from dray.servers.kafka.settings import KafkaSettings
from dray.tables.settings import CompactionSettings, TableSettings
from dray.telemetry import Form


class LoggingSettings(Section):
    """What the process tells about itself on stderr."""

    format: Form = "auto"
    """json: one object a line, for programs. text: a sentence a line, for people. auto: text on a terminal."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Leave out what is less important than this."""


SECTIONS: Final[Mapping[str, type[Section]]] = {
    "access": AccessSettings,
    "broker": BrokerSettings,
    "cluster": ClusterSettings,
    "compaction": CompactionSettings,
    "consume": ConsumeSettings,
    "fetch": FetchSettings,
    "groups": GroupSettings,
    "grpc": GrpcSettings,
    "http": HttpSettings,
    "kafka": KafkaSettings,
    "log": LogSettings,
    "logging": LoggingSettings,
    "objects": ObjectsSettings,
    "retention": RetentionSettings,
    "routing": RoutingSettings,
    "session": SessionSettings,
    "table": TableSettings,
    "topics": TopicSettings,
    "wal": WalSettings,
}
