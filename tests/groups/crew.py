"""Brokers that serve consumer groups on one log, and members that remember what they were told."""

import asyncio
from dataclasses import dataclass, field

from dray.groups.consumer import Answer, Heartbeat, Told
from dray.machine.groups.consumer import ConsumerGroup
from dray.machine.groups.masks import Masks, partitions_of
from dray.machine.names import SessionId
from dray.machine.sessions import Expire
from tests.groups.party import GROUP, Party


@dataclass
class Member:
    """A member as its own process knows it."""

    id: str
    epoch: int = 0
    owned: Masks = field(default_factory=dict)

    @property
    def partitions(self) -> list[int]:
        return sorted(partition for mask in self.owned.values() for partition in partitions_of(mask))

    def hears(self, answer: Answer) -> Answer:
        if isinstance(answer, Told):
            self.epoch = answer.epoch
            self.owned = self.owned if answer.assigned is None else answer.assigned
        return answer


class Crew(Party):
    """One broker, with its consumer groups driven by hand."""

    @property
    def consumers(self) -> ConsumerGroup:
        found = self.broker.catalog.machine.groups.consumer(GROUP)
        assert found is not None
        return found

    async def enter(self, member: Member, *names: str, keeps: bool = True, **more) -> Answer:
        """A member joins, while the keeper of the group looks (or sleeps)."""
        call = Heartbeat(
            group=GROUP, member=member.id, epoch=0, rebalance_ms=60_000, names=names or ("orders",), owned={}, **more
        )
        joining = asyncio.create_task(self.service.consumers.beat(call))
        for _ in range(4):
            await self.settle() if keeps else await asyncio.sleep(0)
        return member.hears(await joining)

    async def says(self, member: Member, **more) -> Answer:
        """A heartbeat; it says what it owns unless it is told to keep still."""
        owned = {topic: partitions_of(mask) for topic, mask in member.owned.items()}
        call = Heartbeat(**{"group": GROUP, "member": member.id, "epoch": member.epoch, "owned": owned} | more)
        return member.hears(await self.service.consumers.beat(call))

    async def end(self, home: SessionId) -> None:
        """A broker is found dead."""
        session = self.broker.catalog.machine.sessions.live[home]
        await self.broker.catalog.propose(Expire(session=home, last_n=session.last_n))

    async def settle(self, *waiting: "asyncio.Task[object]") -> None:
        await super().settle(*waiting)
        await self.service.consumer_keepers[0].step()
        for _ in range(20):
            await asyncio.sleep(0)

    async def agree(self, *members: Member) -> None:
        """Let everybody beat until each has what it is to have."""
        for _ in range(6):
            await self.live(1_000)
            for member in members:
                await self.says(member)
