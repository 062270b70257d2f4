"""What has configs: topics, groups and brokers, as three APIs name them.

    await alter_all(changes, services)    change them, and tell what became of each

Brokers are told and never changed: their settings are in their files.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from dray.errors import DrayError, Invalid
from dray.groups.errors import BadGroupConfig
from dray.machine.topics import Topic
from dray.pace import Pace
from dray.servers.kafka.asked import Asked
from dray.servers.kafka.error_codes import ErrorCode, Family, code_for
from dray.servers.kafka.handler import Services, check_count
from dray.topics.altering import ConfigChange, Wish, check_wishes
from dray.topics.configs import MAX_NAME
from dray.topics.errors import BadTopicConfig, UnknownTopic
from dray.topics.service import check_name


class ResourceType(IntEnum):
    """What a config is of; numbers are Kafka's."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a value comes from; numbers are Kafka's."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


MAX_RESOURCE: Final = 32_767
"""Bytes of a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A resource and what is to become of its configs."""

    type: int
    name: str
    configs: Sequence[tuple[str, int, str | None]]
    """Names, operations as Kafka numbers them, and values."""
    whole: bool
    """What is not named goes back to its default."""
    validate_only: bool

    def wishes(self) -> list[Wish]:
        try:
            wishes = [Wish(name=name, change=ConfigChange(how), value=value) for name, how, value in self.configs]
        except ValueError as error:
            raise Invalid("there is no such operation") from error
        check_wishes(wishes)
        return wishes


async def alter_all(changes: Sequence[Change], services: Services) -> list[tuple[ErrorCode, str | None]]:
    """What became of each: a code, and what is wrong. One that is named twice is not changed."""
    check_count(len(changes))
    asked, pace = Asked(services), Pace()
    times = Counter((one.type, one.name) for one in changes)
    answers: list[tuple[ErrorCode, str | None]] = []
    for one in changes:
        if pace.is_due(1 + len(one.configs)):
            await asyncio.sleep(0)
        try:
            if times[one.type, one.name] > 1:
                raise Invalid("the request names this resource twice")
            await alter(one, asked, services)
        except DrayError as error:
            answers.append((code_for(error, Family.ADMIN), str(error)))
        else:
            answers.append((ErrorCode.NONE, None))
    return answers


async def alter(change: Change, asked: Asked, services: Services) -> None:
    """Change the configs of one resource, all or none; durable when it returns.

    Raises:
        Invalid and its kinds: nothing was changed.
        Unavailable, Unknown: ask again.
    """
    match change.type:
        case ResourceType.TOPIC:
            await _alter_topic(change, asked, services)
        case ResourceType.GROUP:
            await _alter_group(change, services)
        case ResourceType.BROKER:
            _alter_broker(change, services)
        case ResourceType.BROKER_LOGGER if not change.whole:
            _alter_logger(change, services)
        case _:
            raise Invalid("nothing of this type has configs", type=change.type)


async def topic_of(name: str, asked: Asked) -> Topic:
    """The topic of a name; a name that none can have is told apart from one that none has."""
    try:
        return await asked.topic(name)
    except UnknownTopic:
        check_name(name)
        raise


def check_group_resource(name: str) -> None:
    """Raise unless a group can have this name and configs."""
    if not name:
        raise Invalid("a group has a name")
    if len(name.encode()) > MAX_RESOURCE:
        raise Invalid("the name of a group is too long", group=name[:MAX_NAME])


def check_broker(name: str, services: Services, *, may_be_any: bool) -> None:
    """Raise unless this is the name of this very broker, or of none where that is allowed."""
    if may_be_any and not name:
        return
    if not (name.isascii() and name.removeprefix("-").isdigit() and len(name) <= 11):
        raise Invalid("a broker is named by its number", broker=name[:MAX_NAME])
    if int(name) != services.routing.broker_id:
        raise Invalid("ask the broker itself", broker=int(name), this=services.routing.broker_id)


async def _alter_topic(change: Change, asked: Asked, services: Services) -> None:
    if not change.name:
        raise Invalid("a topic has a name")
    topic = await topic_of(change.name, asked)
    await services.topics.alter(topic, change.wishes(), whole=change.whole, validate_only=change.validate_only)


async def _alter_group(change: Change, services: Services) -> None:
    check_group_resource(change.name)
    wishes, configs, given = change.wishes(), services.group_configs, {}
    for wish in wishes:
        if wish.change in (ConfigChange.APPEND, ConfigChange.SUBTRACT):
            raise BadGroupConfig("only a list can be added to or taken from", key=wish.name[:MAX_NAME])
        if wish.change is ConfigChange.SET:
            given[wish.name] = wish.value or ""
    named = {wish.name for wish in wishes}
    remove = tuple(key for key in configs.keys if key not in given and (change.whole or key in named))
    configs.check(change.name, given)
    if not change.validate_only and (given or remove):
        await configs.alter(change.name, given, remove)


def _alter_broker(change: Change, services: Services) -> None:
    check_broker(change.name, services, may_be_any=True)
    wishes = change.wishes()
    if wishes:
        raise Invalid("a broker is set up by its file, and started anew to change", key=wishes[0].name[:MAX_NAME])


def _alter_logger(change: Change, services: Services) -> None:
    check_broker(change.name, services, may_be_any=False)
    wishes = change.wishes()
    if wishes:
        raise BadTopicConfig("the level of a logger is in the broker's file", key=wishes[0].name[:MAX_NAME])
