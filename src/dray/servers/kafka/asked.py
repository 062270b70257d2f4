"""What a request names, found: topics and partitions that a client asks for go through here.

    asked = Asked(services)              one for each request
    await asked.topic(name)              the topic, or UnknownTopic
    await asked.topic_of_id(topic_id)    the topic, or UnknownTopicId
    await asked.stream(topic, number)    the stream of a partition, or UnknownPartition
    await asked.everything()             what a client is told that names none
    asked.new(wanted)                    a topic that is to be made
    await asked.catalog()                from here on, what is told was so when the request came

"No" is never said from memory, for others make topics and partitions too. All
that one request asks shares one sync.

Names come by two more ways, and whether a client may is asked there: a member
of a group names what it wants to read, some of which may be made later
(`apis.consumer_group_heartbeat`; `dray.groups.topics` finds it), and is told
the topics of all offsets of its group (`apis.offset_fetch`).

Invariants
    KP23  No handler finds or makes a topic in another way: whether a client
          may ask for one is a question for `named`, `topic_of_id`,
          `name_of`, `everything` and `new` alone.
"""

from dray.machine.names import StreamId, TopicId
from dray.machine.topics import Topic
from dray.replica.freshness import Freshness
from dray.servers.kafka.handler import Services
from dray.topics.errors import TopicExists
from dray.topics.service import NewTopic


def named(name: str, services: Services) -> Topic | None:
    """The topic of a name that a client sent, from memory: None means nothing (TS1)."""
    return services.topics.peek(name)


class Asked:
    """What one request asks for."""

    __slots__ = ("_services", "fresh")

    def __init__(self, services: Services) -> None:
        self._services = services
        self.fresh = Freshness()
        """What was synced for this request; services that answer a part of it share it."""

    async def topic(self, name: str) -> Topic:
        """The topic of a name; `UnknownTopic` only after a sync (TS1)."""
        return named(name, self._services) or await self._services.topics.find(name, self.fresh)

    async def topic_of_id(self, topic_id: bytes) -> Topic:
        """The topic of an id; `UnknownTopicId` only after a sync (TS1)."""
        return await self._services.topics.find_id(TopicId(topic_id), self.fresh)

    def name_of(self, topic_id: TopicId) -> str | None:
        """The name of a topic of which a client is told though it did not ask for it; None: it is told nothing."""
        topic = self._services.topics.peek_id(topic_id)
        return None if topic is None else topic.name

    async def stream(self, topic: Topic, number: int) -> StreamId:
        """The stream of a partition; `UnknownPartition` only after a sync (TS1)."""
        if not 0 <= number < topic.visible:
            topic = await self._services.topics.find_partition(topic, number, self.fresh)
        return topic.streams[number]

    async def catalog(self) -> None:
        """Return once all that this replica knows of topics and configs is as new as the request."""
        await self.fresh.of(self._services.domains.catalog)

    async def everything(self) -> list[Topic]:
        """All topics, after a sync."""
        await self.catalog()
        return self._services.topics.visible()

    def new(self, wanted: NewTopic) -> dict[str, str]:
        """The configs with which a topic would be made; raises what can be said without asking the machine."""
        return self._services.topics.check(wanted)

    async def check_free(self, name: str) -> None:
        """Raise `TopicExists` if a topic has the name, after a sync."""
        catalog = self._services.domains.catalog
        await self.fresh.of(catalog)
        if catalog.machine.topics.named(name) is not None:
            raise TopicExists("a topic of this name exists", topic=name)
