"""Mistakes about the sagas of topics."""

from dray.machine.topics import DeleteTopic, Topic
from dray.topics.service import TopicService


async def nobody_goes_on(self: TopicService) -> None:
    """A saga whose driver died is left as it is."""


async def delete_without_closing(self: TopicService, topic: Topic) -> None:
    """The deletion is answered when the name is free; streams are closed by whoever finds the saga."""
    await self._ask(DeleteTopic(topic_id=topic.id))
