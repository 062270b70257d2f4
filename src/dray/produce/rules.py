"""What a topic's configs ask of its batches, kept until the topic is altered."""

from dataclasses import dataclass
from typing import Final

from dray.machine.names import TopicId
from dray.machine.topics import Topic
from dray.records import BatchRules
from dray.topics.configs import meaning

_KEPT: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRules:
    """The rules of one revision of a topic."""

    revision: int
    batch: BatchRules


class RuleBook:
    """Rules by topic; made from the configs once for each revision."""

    def __init__(self) -> None:
        self._rules: dict[TopicId, TopicRules] = {}

    def of(self, topic: Topic) -> TopicRules:
        rules = self._rules.get(topic.id)
        if rules is None or rules.revision != topic.revision:
            if len(self._rules) >= _KEPT:
                self._rules.clear()
            rules = self._rules[topic.id] = TopicRules(revision=topic.revision, batch=_batch_rules(topic))
        return rules


def _batch_rules(topic: Topic) -> BatchRules:
    config = meaning(topic.configs)
    return BatchRules(
        max_bytes=config.max_message_bytes,
        append_time=config.log_append_time,
        needs_keys=config.compacted,
        before_max_ms=config.before_max_ms,
        after_max_ms=config.after_max_ms,
    )
