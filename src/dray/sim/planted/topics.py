"""Mistakes about the sagas of topics, their configs, and what of their log is let go."""

from typing import Final

import msgspec

from dray.machine.step import Step
from dray.machine.stream import Stream
from dray.machine.streams import ExpireProducers, Streams
from dray.machine.topics import AlterTopic, DeleteTopic, Topic, Topics
from dray.machine.verdict import Verdict
from dray.replica.letting_go import LettingGo
from dray.retention.floors import KEEP, RetentionRules, Rules, read_rules
from dray.topics.service import TopicService

_ALTER: Final = Topics._alter
_EXPIRE: Final = Streams._expire_producers
_STEP: Final = LettingGo.step


async def nobody_goes_on(self: TopicService) -> None:
    """A saga whose driver died is left as it is."""


async def delete_without_closing(self: TopicService, topic: Topic) -> None:
    """The deletion is answered when the name is free; streams are closed by whoever finds the saga."""
    await self._ask(DeleteTopic(topic_id=topic.id))


def alter_any_revision(self: Topics, step: Step, command: AlterTopic) -> Verdict:
    """The newest alteration wins, whatever its sender had seen."""
    return _ALTER(self, step, msgspec.structs.replace(command, expected_revision=-1))


def rules_as_they_were(self: RetentionRules, topic: Topic | None) -> Rules:
    """The configs of a topic are read once."""
    if topic is None:
        return KEEP
    return self._known.setdefault(topic.id, (topic.revision, read_rules(topic)))[1]


def forgets_that_it_forgot(self: Streams, step: Step, stream: Stream, command: ExpireProducers) -> Verdict:
    """A producer whose state is gone is taken for one that has not begun."""
    floor = stream.producer_floor
    verdict = _EXPIRE(self, step, stream, command)
    stream.producer_floor = floor
    return verdict


async def lets_go_once(self: LettingGo, now_ms: int | None = None) -> int:
    """A process trims its log once in its life."""
    return self._trimmed or await _STEP(self, now_ms)
