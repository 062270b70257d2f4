"""Configs of a topic that several admins alter at once, and whether retention follows.

Each alteration adds a mark of its own to a list that has no effect, and says
how much is kept and for how long: all of it or nothing, as with Kafka.

Checked: the marks of alterations that were acknowledged are all there, none
twice, and none that nobody sent; what is kept is what the last of them said.
After heal retention does what the newest configs say, and nothing else.
"""

import asyncio
from random import Random
from typing import Final

from dray.errors import DrayError
from dray.machine.stream import Stream
from dray.machine.topics import Topic
from dray.sim.brokers import TOPIC, Broker, Cluster, surely_not
from dray.sim.workload import Workload
from dray.topics.altering import ConfigChange, Wish

MARKS: Final = "leader.replication.throttled.replicas"
BYTES: Final = "retention.bytes"
MILLIS: Final = "retention.ms"
FOR_EVER: Final = "-1"
FEW_BYTES: Final = 150
_SIZES: Final = (FOR_EVER, "300", "600", "1200")
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
        self._sent: dict[str, dict[str, str]] = {}
        """By its mark: what an alteration said."""
        self._acked: list[str] = []
        self._refused: list[str] = []

    async def work(self, dice: Random) -> None:
        """Alter until the work is over; others do the same."""
        while self._workload.history.working:
            await asyncio.sleep(dice.random() * 3)
            await self._alter({BYTES: dice.choice(_SIZES), MILLIS: dice.choice(_AGES)})

    async def _alter(self, configs: dict[str, str]) -> bool:
        """One try; whether it was acknowledged."""
        mark = f"{len(self._sent)}:0"
        self._sent[mark] = configs
        wishes = [Wish(name=MARKS, change=ConfigChange.APPEND, value=mark)]
        wishes += [Wish(name=name, change=ConfigChange.SET, value=value) for name, value in configs.items()]

        async def alter(broker: Broker) -> None:
            await broker.services.topics.alter(await broker.services.topics.find(TOPIC), wishes)

        try:
            await self._cluster.ask(alter)
        except DrayError as error:
            if surely_not(error):
                self._refused.append(mark)
            return False
        self._acked.append(mark)
        return True

    def check(self) -> None:
        """None is lost, none is there in part, and none that was surely not taken."""
        topic, check = self._topic(), self._world.check
        marks = topic.configs.get(MARKS, "").split(",") if MARKS in topic.configs else []
        there = set(marks)
        check(there.issuperset(self._acked), "an alteration is lost", lost=sorted(set(self._acked) - there))
        check(there.isdisjoint(self._refused), "an alteration that was surely not taken is there")
        check(len(marks) == len(there) and there <= set(self._sent), "an alteration is there twice", marks=marks)
        if marks:
            found = {name: topic.configs.get(name) for name in (BYTES, MILLIS)}
            check(found == self._sent[marks[-1]], "an alteration is there in part", found=found, last=marks[-1])

    async def check_retention(self) -> None:
        """After heal and after `check`: what the newest configs keep is kept, and what they do not is not."""
        await self._insist({BYTES: FOR_EVER, MILLIS: FOR_EVER})
        await asyncio.sleep(_SETTLE_SECONDS)
        before = self._starts()
        await asyncio.sleep(_SETTLE_SECONDS)
        after = self._starts()
        self._world.check(after == before, "records go that the configs keep", before=before, after=after)
        await self._insist({BYTES: str(FEW_BYTES), MILLIS: FOR_EVER})
        await self._world.within(_FOLLOW_SECONDS, self._few_left(), "what the configs do not keep goes")

    async def _insist(self, configs: dict[str, str]) -> None:
        while not await self._alter(configs):  # noqa: ASYNC110
            await asyncio.sleep(0.5)

    async def _few_left(self) -> None:
        while not all(self._is_cut(stream) for stream in self._streams()):  # noqa: ASYNC110
            await asyncio.sleep(1)

    @staticmethod
    def _is_cut(stream: Stream) -> bool:
        """Whether without its oldest row a stream would be smaller than it may be."""
        index = stream.index
        return not len(index) or index.size - index.row(0).cumulative_size < FEW_BYTES

    def _starts(self) -> list[int]:
        return [stream.start for stream in self._streams()]

    def _streams(self) -> list[Stream]:
        found = [self._cluster.truth_of(number).streams.find(number) for number in self._topic().streams]
        return [stream for stream in found if stream is not None]

    def _topic(self) -> Topic:
        topic = self._cluster.truth.machine.topics.named(TOPIC)
        assert topic is not None, "nobody deletes this topic"
        return topic
