"""What a wish to alter the configs of a topic comes to: which are set, which go back to their defaults.

A change of one part of a list needs the list as it is; whether it still is
when the command is applied, the topic's revision says. Everything else holds
whatever others do at the same time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from dray.errors import Invalid
from dray.topics.configs import KEYS, MAX_NAME, ConfigType, check, find_key
from dray.topics.errors import BadTopicConfig


class ConfigChange(IntEnum):
    """What is done to a config; numbers are Kafka's."""

    SET = 0
    DELETE = 1
    """Back to the default."""
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One config as somebody wants it."""

    name: str
    change: ConfigChange
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """What a command is to say."""

    set: dict[str, str]
    remove: tuple[str, ...]
    depends: bool
    """Whether it holds only for the configs that it was made from."""


def check_wishes(wishes: Sequence[Wish]) -> None:
    """Raise `Invalid` unless a list of wishes means something, whatever it is about."""
    if len({wish.name for wish in wishes}) < len(wishes):
        raise Invalid("a config is named twice")
    for wish in wishes:
        if wish.value is None and wish.change is not ConfigChange.DELETE:
            raise Invalid("a config cannot be set to nothing: delete it", key=wish.name[:MAX_NAME])


def altered(configs: Mapping[str, str], wishes: Sequence[Wish]) -> Alteration:
    """What some wishes come to for a topic that has these configs.

    Raises:
        BadTopicConfig: an unknown key, or a value it cannot have.
    """
    wanted: dict[str, str] = {}
    for wish in wishes:
        if wish.change is not ConfigChange.DELETE:
            wanted[wish.name] = _value(configs, wish)
    removed = (wish.name for wish in wishes if wish.change is ConfigChange.DELETE)
    return Alteration(
        set=check(wanted),
        remove=tuple(name for name in removed if name in KEYS or name in configs),
        depends=any(wish.change in (ConfigChange.APPEND, ConfigChange.SUBTRACT) for wish in wishes),
    )


def replaced(configs: Mapping[str, str], wishes: Sequence[Wish]) -> Alteration:
    """Every config that is not named goes back to its default, also one that is set meanwhile."""
    kept = check({wish.name: wish.value for wish in wishes})
    return Alteration(
        set=kept, remove=tuple(name for name in sorted({*KEYS, *configs}) if name not in kept), depends=False
    )


def _value(configs: Mapping[str, str], wish: Wish) -> str:
    key, value = find_key(wish.name), wish.value or ""
    if wish.change is ConfigChange.SET:
        return value
    if key.type is not ConfigType.LIST:
        raise BadTopicConfig("only a list can be added to or taken from", key=wish.name)
    parts = _parts(configs.get(wish.name, key.default))
    if wish.change is ConfigChange.APPEND:
        parts += [part for part in dict.fromkeys(_parts(value)) if part not in parts]
    else:
        gone = set(_parts(value))
        parts = [part for part in parts if part not in gone]
    return ",".join(parts)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
