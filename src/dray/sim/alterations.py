"""Configs of a topic that several admins alter at once, and whether retention follows.

Each alteration counts one up from the revision that its admin had read, and
changes what is kept. The count stands in a config that has no effect.

Checked: alterations that were acknowledged are all there, and each that is
there was sent, whole: none overwrites one that it had not seen. After heal
retention does what the newest configs say, and nothing else.
"""

import asyncio
from random import Random
from typing import Final

from dray.errors import DrayError
from dray.machine.stream import Stream
from dray.machine.topics import AlterTopic, Topic, TopicAltered
from dray.sim.brokers import TOPIC, Broker, Cluster, surely_not
from dray.sim.workload import Workload

COUNT: Final = "flush.messages"
BYTES: Final = "retention.bytes"
MILLIS: Final = "retention.ms"
FOR_EVER: Final = "-1"
FEW_BYTES: Final = 150
_CHOICES: Final = (FOR_EVER, "300", "600", "1200")
_AGES: Final = (FOR_EVER, "8000", "30000")
_SETTLE_SECONDS: Final = 15.0
"""In which what was proposed by older configs has come to its end, and each broker has looked again."""
_FOLLOW_SECONDS: Final = 60.0


class Alterations:
    """What admins asked of the configs of the topic that stays, and what became of it."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._cluster: Cluster = workload.cluster
        self._world = workload.world
        self._acked = 0
        self._unknown = 0
        self._sent: set[tuple[tuple[str, str], ...]] = set()

    async def work(self, dice: Random) -> None:
        """Alter until the work is over; others do the same."""
        while self._workload.history.working:
            await asyncio.sleep(dice.random() * 3)
            await self._alter({BYTES: dice.choice(_CHOICES), MILLIS: dice.choice(_AGES)})

    async def _alter(self, configs: dict[str, str]) -> bool:
        """One try; whether it was acknowledged."""

        async def alter(broker: Broker) -> bool:
            topic = await broker.services.topics.find(TOPIC)
            wanted = {**configs, COUNT: str(_count(topic) + 1)}
            self._sent.add(tuple(sorted(wanted.items())))
            command = AlterTopic(topic_id=topic.id, set=wanted, expected_revision=topic.revision)
            (verdict,) = await broker.replica.propose(command)
            return isinstance(verdict, TopicAltered)

        try:
            altered = await self._cluster.ask(alter)
        except DrayError as error:
            self._unknown += not surely_not(error)
            return False
        self._acked += altered
        return altered

    def check(self) -> None:
        """None is lost, and none is there in part."""
        topic = self._topic()
        count, world = _count(topic), self._world
        world.check(
            self._acked <= count <= self._acked + self._unknown, "an alteration of a topic is lost, or there twice",
            found=count, acked=self._acked, unknown=self._unknown,
        )  # fmt: skip
        found = tuple(sorted((key, topic.configs[key]) for key in (BYTES, MILLIS, COUNT) if key in topic.configs))
        world.check(not found or found in self._sent, "configs that nobody asked for together", configs=found)

    async def check_retention(self) -> None:
        """After heal and after `check`: what the newest configs keep is kept, and what they do not is not."""
        world = self._world
        await self._insist({BYTES: FOR_EVER, MILLIS: FOR_EVER})
        await asyncio.sleep(_SETTLE_SECONDS)
        before = self._starts()
        await asyncio.sleep(_SETTLE_SECONDS)
        world.check(self._starts() == before, "records go that the configs keep", before=before, after=self._starts())
        await self._insist({BYTES: str(FEW_BYTES), MILLIS: FOR_EVER})
        await world.within(_FOLLOW_SECONDS, self._few_left(), "what the configs do not keep goes")

    async def _insist(self, configs: dict[str, str]) -> None:
        while not await self._alter(configs):  # noqa: ASYNC110
            await asyncio.sleep(0.5)

    async def _few_left(self) -> None:
        while not all(self._is_cut(number) for number in range(len(self._topic().streams))):  # noqa: ASYNC110
            await asyncio.sleep(1)

    def _is_cut(self, partition: int) -> bool:
        """Whether without its oldest row a stream would be smaller than it may be."""
        index = self._stream(partition).index
        return not len(index) or index.size - index.row(0).cumulative_size < FEW_BYTES

    def _starts(self) -> list[int]:
        return [self._stream(number).start for number in range(len(self._topic().streams))]

    def _stream(self, partition: int) -> Stream:
        number = self._topic().streams[partition]
        found = self._cluster.truth_of(number).streams.find(number)
        assert found is not None, "nobody deletes this topic"
        return found

    def _topic(self) -> Topic:
        topic = self._cluster.truth.machine.topics.named(TOPIC)
        assert topic is not None, "nobody deletes this topic"
        return topic


def _count(topic: Topic) -> int:
    return int(topic.configs.get(COUNT, "0"))
