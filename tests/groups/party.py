"""Brokers that serve groups on one log, under a clock that tests move."""

import asyncio
from dataclasses import dataclass
from typing import Self

from dray.groups.classic import Caller, Join, Sync
from dray.groups.service import GroupService
from dray.groups.settings import GroupSettings
from dray.ids import SeededEntropy
from dray.machine.groups.classic import ClassicGroup
from dray.machine.groups.codes import GroupCode, Joined, PendingJoin
from dray.machine.groups.names import InstanceId, MemberId
from dray.machine.sessions import Expire, KeepAlive
from dray.offload import InlineOffload
from tests.retention.shop import Broker

GROUP = "g"
SESSION_MS = 10_000


@dataclass
class FixedOrder:
    """A broker that knows its rank."""

    place: int = 0

    def rank(self, group: str) -> int:
        return self.place


class Party:
    """One broker, with its group service driven by hand."""

    def __init__(self, broker: Broker, rank: int = 0, **settings) -> None:
        self.broker = broker
        self.clock = broker.cluster.clock
        self.order = FixedOrder(rank)
        self.service = GroupService(
            domains=broker.domains, topics=broker.topics, routing=self.order, clock=self.clock,
            entropy=SeededEntropy(f"{broker.name} groups"), settings=GroupSettings(initial_delay="0s", **settings),
            offload=InlineOffload(),
        )  # fmt: skip
        self.keeper = self.service.keepers[0]

    @classmethod
    async def at(cls, broker: Broker, rank: int = 0, **settings) -> Self:
        """A broker has a session before it serves anybody."""
        await broker.catalog.propose(KeepAlive())
        return cls(broker, rank, **settings)

    @property
    def group(self) -> ClassicGroup:
        found = self.broker.catalog.machine.groups.classic(GROUP)
        assert found is not None
        return found

    async def join(
        self, member: str = "", *, instance: str | None = None, must_know: bool = False, session_ms: int = SESSION_MS,
        metadata: bytes = b"",
    ) -> Joined | PendingJoin:  # fmt: skip
        return await self.service.classic.join(
            Join(
                caller=caller(member, instance), client_id="c", client_host="/1.2.3.4", session_ms=session_ms,
                rebalance_ms=60_000, protocol_type="consumer", protocols=(("range", metadata),), topics=("orders",),
                must_know=must_know, tells_leader=True,
            )
        )  # fmt: skip

    async def sync(self, joined: Joined, given: dict[str, bytes] | None = None) -> bytes:
        assignment, _, _ = await self.service.classic.sync(
            Sync(
                caller=caller(joined.member), generation=joined.generation, protocol_type="consumer",
                protocol="range", assignments=tuple((MemberId(name), data) for name, data in (given or {}).items()),
            )
        )  # fmt: skip
        return assignment

    async def beat(self, member: str, generation: int) -> GroupCode:
        return await self.service.classic.beat(caller(member), generation)

    async def expire(self, member: str) -> None:
        """The broker that hears a member is found dead."""
        await self.broker.catalog.sync()
        home = self.group.home_of(MemberId(member))
        assert home is not None
        session = self.broker.catalog.machine.sessions.live[home]
        await self.broker.catalog.propose(Expire(session=home, last_n=session.last_n))
        assert home not in self.broker.catalog.machine.sessions.live

    async def settle(self, *waiting: "asyncio.Task[object]") -> None:
        """Let what was begun go on until it waits, and the keeper look."""
        for _ in range(20):
            await asyncio.sleep(0)
        await self.keeper.step()
        for _ in range(20):
            await asyncio.sleep(0)
        if waiting:
            await asyncio.wait(waiting, timeout=0.01)

    async def alone(self) -> Joined:
        """A group of one member, with its assignment."""
        joining = asyncio.create_task(self.join())
        await self.settle()
        joined = await joining
        assert isinstance(joined, Joined)
        assert await self.sync(joined, {joined.member: b"all"}) == b"all"
        return joined

    async def live(self, ms: int, *others: "Party") -> None:
        """Let time pass while the loops of these brokers run."""
        parties = (self, *others)
        while ms > 0:
            planned = min(int(party.keeper.plan() * 1_000) for party in parties)
            step = min(ms, max(1, planned))
            self.clock.advance(step)
            ms -= step
            for party in parties:
                await party.settle()


def caller(member: str, instance: str | None = None) -> Caller:
    return Caller(
        group=GROUP, member=MemberId(member), instance=None if instance is None else InstanceId(instance)
    )  # fmt: skip
