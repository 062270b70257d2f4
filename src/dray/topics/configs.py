"""The configs of a topic: which keys there are, what values they take, what the defaults are.

Every key that Kafka's tools send is known, checked strictly and kept. Keys
that mean nothing without replicas and segments have no effect; `meaning`
reads the ones that do.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import IntEnum
from typing import Final

from dray.topics.errors import BadTopicConfig

LONG: Final = (1 << 63) - 1
INT: Final = (1 << 31) - 1
POLICY: Final = "cleanup.policy"
MAX_NAME: Final = 200
"""How much of what a client sent is told back to it."""
MAX_VALUE: Final = 8_192
"""Letters of a value that is kept."""


class ConfigType(IntEnum):
    """Types as Kafka numbers them in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """One key: its type, its default, and whether a text is a value of it."""

    name: str
    type: ConfigType
    default: str
    expects: str
    accepts: Callable[[str], bool]


_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,19}")


def _whole(name: str, default: int, low: int, high: int, kind: ConfigType) -> ConfigKey:
    def accepts(text: str) -> bool:
        return _WHOLE.fullmatch(text) is not None and low <= int(text) <= high

    expects = f"a whole number from {low} to {high}"
    return ConfigKey(name=name, type=kind, default=str(default), expects=expects, accepts=accepts)


def _int(name: str, default: int, low: int = 0, high: int = INT) -> ConfigKey:
    return _whole(name, default, low, high, ConfigType.INT)


def _long(name: str, default: int, low: int = 0, high: int = LONG) -> ConfigKey:
    return _whole(name, default, low, high, ConfigType.LONG)


def _flag(name: str, default: str = "false") -> ConfigKey:
    return ConfigKey(
        name=name, type=ConfigType.BOOLEAN, default=default, expects="true or false",
        accepts=lambda text: text.lower() in ("true", "false"),
    )  # fmt: skip


def _choice(name: str, default: str, *choices: str) -> ConfigKey:
    return ConfigKey(
        name=name, type=ConfigType.STRING, default=default, expects="one of " + ", ".join(choices),
        accepts=lambda text: text in choices,
    )  # fmt: skip


def _listing(name: str, default: str, *choices: str) -> ConfigKey:
    def accepts(text: str) -> bool:
        parts = [part.strip() for part in text.split(",")]
        return bool(text) and all(part in choices for part in parts) and len(set(parts)) == len(parts)

    return ConfigKey(
        name=name, type=ConfigType.LIST, default=default, expects="a list of " + ", ".join(choices), accepts=accepts
    )


def _ratio(name: str, default: str) -> ConfigKey:
    def accepts(text: str) -> bool:
        return re.fullmatch(r"0(\.[0-9]+)?|1(\.0+)?|\.[0-9]+", text) is not None

    return ConfigKey(name=name, type=ConfigType.DOUBLE, default=default, expects="from 0 to 1", accepts=accepts)


def _gzip_level(name: str) -> ConfigKey:
    return ConfigKey(
        name=name, type=ConfigType.INT, default="-1", expects="-1, or from 1 to 9",
        accepts=lambda text: re.fullmatch(r"-1|[1-9]", text) is not None,
    )  # fmt: skip


def _replicas(name: str) -> ConfigKey:
    return ConfigKey(
        name=name, type=ConfigType.LIST, default="", expects="* or partition:broker pairs",
        accepts=lambda text: re.fullmatch(r"|\*|[0-9]+:[0-9]+(,[0-9]+:[0-9]+)*", text) is not None,
    )  # fmt: skip


def _off(name: str) -> ConfigKey:
    return ConfigKey(
        name=name, type=ConfigType.BOOLEAN, default="false", expects="false: there is no tiered storage",
        accepts=lambda text: text.lower() == "false",
    )  # fmt: skip


KEYS: Final[Mapping[str, ConfigKey]] = {
    key.name: key
    for key in (
        _listing(POLICY, "delete", "delete", "compact"),
        _gzip_level("compression.gzip.level"),
        _int("compression.lz4.level", 9, 1, 17),
        _choice("compression.type", "producer", "producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        _int("compression.zstd.level", 3, -131_072, 22),
        _long("delete.retention.ms", 86_400_000),
        _long("file.delete.delay.ms", 60_000),
        _long("flush.messages", LONG, 1),
        _long("flush.ms", LONG),
        _replicas("follower.replication.throttled.replicas"),
        _int("index.interval.bytes", 4_096),
        _replicas("leader.replication.throttled.replicas"),
        _long("local.retention.bytes", -2, -2),
        _long("local.retention.ms", -2, -2),
        _long("max.compaction.lag.ms", LONG, 1),
        _int("max.message.bytes", 1_048_588),
        _long("message.timestamp.after.max.ms", 3_600_000),
        _long("message.timestamp.before.max.ms", LONG),
        _choice("message.timestamp.type", "CreateTime", "CreateTime", "LogAppendTime"),
        _ratio("min.cleanable.dirty.ratio", "0.5"),
        _long("min.compaction.lag.ms", 0),
        _int("min.insync.replicas", 1, 1),
        _flag("preallocate"),
        _flag("remote.log.copy.disable"),
        _flag("remote.log.delete.on.disable"),
        _off("remote.storage.enable"),
        _long("retention.bytes", -1, -1),
        _long("retention.ms", 604_800_000, -1),
        _int("segment.bytes", 1_073_741_824, 1_048_576),
        _int("segment.index.bytes", 10_485_760, 4),
        _long("segment.jitter.ms", 0),
        _long("segment.ms", 604_800_000, 1),
        _flag("unclean.leader.election.enable"),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """What the configs of a topic mean to the services."""

    retention_ms: int
    """-1: for ever."""
    retention_bytes: int
    """-1: any number."""
    max_message_bytes: int
    log_append_time: bool
    before_max_ms: int
    after_max_ms: int
    compacted: bool
    deletes: bool


def check(configs: Mapping[str, str | None]) -> dict[str, str]:
    """The configs as they are kept; a null value means the default (R-195)."""
    kept = {}
    for name, value in configs.items():
        key = find_key(name)
        if value is not None:
            kept[name] = _check_value(key, value)
    return kept


def find_key(name: str) -> ConfigKey:
    """The key of a name.

    Raises:
        BadTopicConfig: there is none.
    """
    key = KEYS.get(name)
    if key is None:
        near = get_close_matches(name[:MAX_NAME], KEYS, n=1)
        hint = {"nearest": near[0]} if near else {}
        raise BadTopicConfig("no such topic config", key=name[:MAX_NAME], **hint)
    return key


def _check_value(key: ConfigKey, value: str) -> str:
    text = value.strip()
    if len(text) > MAX_VALUE or not key.accepts(text):
        raise BadTopicConfig(
            "not a value of this topic config", key=key.name, value=value[:MAX_NAME], expected=key.expects
        )
    return text


def meaning(configs: Mapping[str, str]) -> TopicConfig:
    """The effective settings of a topic that has these configs."""

    def value(name: str) -> str:
        return configs.get(name, KEYS[name].default)

    return TopicConfig(
        retention_ms=int(value("retention.ms")),
        retention_bytes=int(value("retention.bytes")),
        max_message_bytes=int(value("max.message.bytes")),
        log_append_time=value("message.timestamp.type") == "LogAppendTime",
        before_max_ms=int(value("message.timestamp.before.max.ms")),
        after_max_ms=int(value("message.timestamp.after.max.ms")),
        compacted="compact" in _policies(value(POLICY)),
        deletes=_deletes(value(POLICY)),
    )


def _policies(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _deletes(text: str) -> bool:
    return "delete" in _policies(text)
