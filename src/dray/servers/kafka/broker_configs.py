"""The settings of a broker under the names that Kafka's tools know.

They are told and never changed: what a broker is set to is in its file. What
has no counterpart here is not told at all.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeAlias

from dray.config import Section
from dray.groups.settings import GroupSettings
from dray.machine.offsets import MAX_METADATA
from dray.retention.settings import RetentionSettings
from dray.servers.kafka.settings import KafkaSettings
from dray.topics.config_pages import SYNONYMS
from dray.topics.configs import KEYS, ConfigType

_ANY: Final = (1 << 31) - 1
_MINUTE: Final = timedelta(minutes=1)
_MILLISECOND: Final = timedelta(milliseconds=1)
Setting: TypeAlias = object
"""A setting, as Python has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """One setting, as it is told."""

    name: str
    type: ConfigType
    value: str | None
    default: str | None
    """What holds if nobody sets it; None: nothing, or nobody knows."""
    given: bool
    """Whether somebody set it."""


class BrokerConfigs:
    """The settings of one broker."""

    def __init__(
        self,
        *,
        topics: Section,
        broker: Section,
        kafka: KafkaSettings,
        groups: GroupSettings,
        retention: RetentionSettings,
        advertised: str,
        outside: str | None = None,
    ) -> None:
        """`topics` and `broker` are sections of the process, which this package does not know."""
        rows = (
            *_of(kafka, _KAFKA),
            *_of(groups, _GROUPS),
            *_of(retention, _RETENTION),
            *_of(topics, _TOPICS),
            *_of(broker, _BROKER),
            *_fixed(),
            _row("listeners", ConfigType.LIST, _listeners(kafka.listen, kafka.outside_listen), given=True),
            _row("advertised.listeners", ConfigType.LIST, _listeners(advertised, outside), given=True),
        )
        self._rows: Mapping[str, BrokerConfig] = {row.name: row for row in rows}

    def all(self, broker_id: int) -> Iterator[BrokerConfig]:
        """All of them, of a broker that has this id."""
        yield from self._rows.values()
        for name in ("broker.id", "node.id"):
            yield _row(name, ConfigType.INT, broker_id, given=True)


def _listeners(inside: str, outside: str | None) -> str:
    return f"PLAINTEXT://{inside}" + ("" if outside is None else f",OUTSIDE://{outside}")


def _millis(value: Setting) -> int:
    assert isinstance(value, timedelta)
    return value // _MILLISECOND


def _minutes(value: Setting) -> int:
    assert isinstance(value, timedelta)
    return value // _MINUTE


def _same(value: Setting) -> Setting:
    return value


def _bytes(value: Setting) -> int:
    assert isinstance(value, int)
    return int(value)


def _or_any(value: Setting) -> Setting:
    return _ANY if value is None else value


def _joined(value: Setting) -> str:
    assert isinstance(value, tuple)
    return ",".join(value)


_Row: TypeAlias = tuple[str, str, ConfigType, Callable[[Setting], Setting]]
"""Kafka's name, the setting here, its type, and how it is put there."""
_KAFKA: Final[tuple[_Row, ...]] = (
    ("connections.max.idle.ms", "idle_timeout", ConfigType.LONG, _millis),
    ("max.connections", "max_connections", ConfigType.INT, _same),
    ("max.connections.per.ip", "max_connections_per_address", ConfigType.INT, _or_any),
    ("socket.request.max.bytes", "frame_bytes", ConfigType.INT, _bytes),
)
_GROUPS: Final[tuple[_Row, ...]] = (
    ("group.consumer.assignment.interval.ms", "consumer_assignment_interval", ConfigType.INT, _millis),
    ("group.consumer.assignors", "consumer_assignors", ConfigType.LIST, _joined),
    ("group.consumer.heartbeat.interval.ms", "consumer_heartbeat", ConfigType.INT, _millis),
    ("group.consumer.max.size", "max_size", ConfigType.INT, _same),
    ("group.consumer.session.timeout.ms", "consumer_session", ConfigType.INT, _millis),
    ("group.initial.rebalance.delay.ms", "initial_delay", ConfigType.INT, _millis),
    ("group.max.session.timeout.ms", "max_session", ConfigType.INT, _millis),
    ("group.max.size", "max_size", ConfigType.INT, _same),
    ("group.min.session.timeout.ms", "min_session", ConfigType.INT, _millis),
)
_RETENTION: Final[tuple[_Row, ...]] = (
    ("log.retention.check.interval.ms", "interval", ConfigType.LONG, _millis),
    ("offsets.retention.check.interval.ms", "expiry_interval", ConfigType.LONG, _millis),
    ("offsets.retention.minutes", "offsets_retention", ConfigType.INT, _minutes),
    ("producer.id.expiration.ms", "producers_expiry", ConfigType.INT, _millis),
)
_TOPICS: Final[tuple[_Row, ...]] = (
    ("auto.create.topics.enable", "auto_create", ConfigType.BOOLEAN, _same),
    ("num.partitions", "partitions", ConfigType.INT, _same),
)
_BROKER: Final[tuple[_Row, ...]] = (("broker.rack", "rack", ConfigType.STRING, lambda value: value or None),)


def _of(section: Section, told: tuple[_Row, ...]) -> Iterator[BrokerConfig]:
    for name, setting, kind, put in told:
        default = put(type(section).model_fields[setting].default)
        given = setting in section.model_fields_set
        yield _row(name, kind, put(getattr(section, setting)), default=default, given=given)


def _fixed() -> Iterator[BrokerConfig]:
    """What every broker says, whatever it is set to."""
    for key, name in SYNONYMS.items():
        yield _row(name, KEYS[key].type, KEYS[key].default)
    yield _row("default.replication.factor", ConfigType.INT, 1)
    yield _row("delete.topic.enable", ConfigType.BOOLEAN, True)
    yield _row("group.consumer.migration.policy", ConfigType.STRING, "disabled")
    yield _row("group.coordinator.rebalance.protocols", ConfigType.LIST, "classic,consumer")
    yield _row("log.retention.ms", ConfigType.LONG, KEYS["retention.ms"].default)
    yield _row("offset.metadata.max.bytes", ConfigType.INT, MAX_METADATA)


def _row(name: str, kind: ConfigType, value: Setting, *, default: Setting = None, given: bool = False) -> BrokerConfig:
    """What nobody can set is its own default."""
    known = default if given or default is not None else value
    return BrokerConfig(name=name, type=kind, value=_text(value), default=_text(known), given=given)


def _text(value: Setting) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)
