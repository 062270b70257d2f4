"""Model members of groups: each asks its broker as a Kafka client does, by its own dice.

A member clings to one broker, goes to another when that one does not answer
or when it pleases, and repeats what it has no answer to. It is slow now and
then, or deaf: it asks and hears nothing. It dies without a word and comes
back, a static one under its old instance id. What it was told goes to a
`Ledger`, which knows whether that can be true.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Final, TypeVar

from dray.errors import DrayError
from dray.groups.classic import Caller, Join, Sync
from dray.groups.errors import GroupSaysNo
from dray.groups.offsets import ANYONE, Asker, CommitCode, Committer, OffsetToCommit, Partition
from dray.machine.groups.codes import GroupCode, Joined, PendingJoin
from dray.machine.groups.names import InstanceId, MemberId
from dray.sim.brokers import TOPIC, Broker, Cluster, NoAnswer, Unreachable
from dray.sim.ledger import Ledger
from dray.sim.process import Process

T = TypeVar("T")

GROUP: Final = "readers"
BEAT_S: Final = 2.0
PATIENCE_S: Final = 6.0
"""How long a member waits for most answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """What kind of client a member is."""

    name: str
    instance: str | None = None
    session_ms: int = 10_000
    rebalance_ms: int = 12_000
    knows_ids: bool = True
    """It is given its id before it joins, as since version 4 of JoinGroup."""
    has_pattern: bool = False
    """It subscribes by a pattern instead of a name."""


class ModelMember:
    """What members of both kinds of groups have in common."""

    def __init__(self, cluster: Cluster, ledger: Ledger, habits: Habits) -> None:
        self.cluster = cluster
        self.ledger = ledger
        self.habits = habits
        self.world = cluster.world
        self.dice: Random = self.world.dice(f"member/{habits.name}")
        self.calm = False
        """It does nothing any more but beat."""
        self.dead = False
        self.id = MemberId("")
        self.held: dict[int, int] = {}
        """The partitions that it reads, and how far it has come."""
        self._node = self.dice.choice(sorted(self.world.nodes))
        self._deaf_until = 0.0
        self._told_by: Process | None = None

    async def run(self) -> None:
        """Be a member for ever."""
        await asyncio.sleep(self.dice.random() * 4)
        while not self.dead:
            try:
                await self.step()
            except GroupSaysNo as no:
                self.refused(no.code)
            except DrayError:
                self.missed_answer()
                await asyncio.sleep(self.dice.random())
                if self.dice.random() < 0.6:
                    self.move()

    async def step(self) -> None:
        raise NotImplementedError

    def refused(self, code: GroupCode) -> None:
        raise NotImplementedError

    def missed_answer(self) -> None:
        """It does not know what became of its last call."""

    def move(self) -> None:
        """Ask another broker from now on."""
        self._node = self.dice.choice([name for name in sorted(self.world.nodes) if name != self._node])

    def die(self) -> None:
        """Stop without a word; the next one begins anew."""
        self.world.trace.add(self.habits.name, "dies", member=self.id)
        self.ledger.died(self.habits.name, self.id)
        self.id = MemberId("")
        self.held = {}

    async def misbehave(self) -> None:
        """Now and then something else than the next beat."""
        if self.calm:
            return
        roll = self.dice.random()
        if roll < 0.02:
            self.die()
            await asyncio.sleep(self.dice.random() * 20)
        elif roll < 0.05:
            await self._be_slow()
        elif roll < 0.08:
            self._deaf_until = self.world.loop.time() + self.dice.random() * 12
        elif roll < 0.16:
            self.move()

    async def _be_slow(self) -> None:
        """Say nothing for a while: often for about as long as it may, and then to a broker that does not know it."""
        times = self.dice.uniform(0.95, 1.1) if self.dice.random() < 0.5 else self.dice.uniform(0.0, 1.6)
        await asyncio.sleep(times * self.habits.session_ms / 1_000)
        if self.dice.random() < 0.5:
            self.move()

    async def ask(
        self, work: Callable[[Broker], Awaitable[T]], *, patience: float = PATIENCE_S, hangs_up: bool = True,
        proves_life: Callable[[T], bool] = lambda answer: True,
    ) -> T:  # fmt: skip
        """Ask the broker that it clings to; the answer may be lost. Most calls end when their client hangs up."""
        broker = self.cluster.brokers.get(self._node)
        if broker is None:
            raise Unreachable("no such broker is up")
        answer = await self.cluster.ask(work, broker=broker, hangs_up=hangs_up, patience=patience)
        if proves_life(answer):
            self._told_by = broker.process
            self.world.trace.add(self.habits.name, "is answered", by=self._node, answer=str(answer)[:100])
            self.ledger.answered(self.id, self.habits.session_ms, broker.process)
        lost = not self.calm and (self.world.loop.time() < self._deaf_until or self.dice.random() < 0.03)
        if lost:
            raise NoAnswer("the answer was lost")
        return answer

    # -- offsets -----------------------------------------------------------

    async def find_offsets(self, partitions: list[int], asker: Asker = ANYONE) -> dict[int, int]:
        """Where the group has come to in these partitions."""
        wanted = [Partition(topic=TOPIC, number=number) for number in partitions]
        found = await self.ask(
            lambda broker: broker.services.offsets.fetch(GROUP, wanted, asker=asker), proves_life=lambda answer: False
        )  # fmt: skip
        offsets = {partition.number: max(0, answer.offset) for partition, answer in found.items()}
        self.ledger.acked(offsets)
        return offsets

    async def commit(self, generation: int, partitions: Iterable[int]) -> None:
        """Go on a little in what it reads, and say so."""
        for number in partitions:
            self.held[number] += self.dice.randint(1, 3)
        sent = {number: self.held[number] for number in partitions}
        if not sent:
            return
        committer = Committer(
            group=GROUP, generation=generation, member=self.id, instance=self.habits.instance, knows_epochs=True
        )
        offsets = {Partition(topic=TOPIC, number=n): OffsetToCommit(offset=offset) for n, offset in sent.items()}
        codes = await self.ask(
            lambda broker: broker.services.offsets.commit(committer, offsets), proves_life=lambda answer: False
        )  # fmt: skip
        for partition, code in codes.items():
            if code is CommitCode.COMMITTED:
                self.ledger.acked({partition.number: sent[partition.number]})
            elif isinstance(code, GroupCode):
                raise GroupSaysNo(code, GROUP)


class ClassicMember(ModelMember):
    """A member of a classic group that gives up all it has in each rebalance (eager)."""

    protocol: ClassVar[str] = "range"

    def __init__(self, cluster: Cluster, ledger: Ledger, habits: Habits) -> None:
        super().__init__(cluster, ledger, habits)
        self.generation = -1

    @property
    def caller(self) -> Caller:
        instance = self.habits.instance
        return Caller(group=GROUP, member=self.id, instance=None if instance is None else InstanceId(instance))

    @property
    def must_join(self) -> bool:
        return self.generation < 0

    @property
    def wish(self) -> bytes:
        """What the leader shall know of it."""
        return b""

    async def step(self) -> None:
        if self.must_join:
            await self._join()
            return
        await asyncio.sleep(BEAT_S * (0.8 + 0.4 * self.dice.random()))
        await self.misbehave()
        if self.generation < 0 or self.dead:
            return
        if not self.calm:
            if self.dice.random() < 0.03:
                await self._leave()
                return
            if self.dice.random() < 0.3:
                await self.commit(self.generation, list(self.held))
        caller, generation = self.caller, self.generation
        code = await self.ask(
            lambda broker: broker.services.groups.classic.beat(caller, generation),
            proves_life=lambda code: code in (GroupCode.ACCEPTED, GroupCode.REBALANCING),
        )
        if code is not GroupCode.ACCEPTED:
            self.refused(code)

    def die(self) -> None:
        super().die()
        self.generation = -1

    def refused(self, code: GroupCode) -> None:
        self.held, self.generation = {}, -1
        match code:
            case GroupCode.REBALANCING | GroupCode.OTHER_GENERATION:
                return
            case GroupCode.UNKNOWN_MEMBER | GroupCode.FENCED_INSTANCE:
                self.ledger.gave_up(self.id)
                self.id = MemberId("")
            case GroupCode.UNKNOWN_GROUP if not self.ledger.exists:
                self.id = MemberId("")
            case _:
                raise self.world.violate("a member was told what cannot be", member=self.id, code=code.name)

    async def _join(self) -> None:
        wish = self.wish
        call = Join(
            caller=self.caller, client_id=self.habits.name, client_host="/sim", session_ms=self.habits.session_ms,
            rebalance_ms=self.habits.rebalance_ms, protocol_type="consumer", protocols=((self.protocol, wish),),
            topics=(TOPIC,), must_know=self.habits.knows_ids, tells_leader=self.dice.random() < 0.5,
        )  # fmt: skip
        patience = self.habits.rebalance_ms / 1_000 + PATIENCE_S
        joined = await self.ask(lambda broker: broker.services.groups.classic.join(call), patience=patience)
        self.id = joined.member
        if isinstance(joined, PendingJoin):
            return
        if self._told_by is not None:
            self.ledger.answered(self.id, self.habits.session_ms, self._told_by)
        self.ledger.answered_in(joined.generation)
        self.ledger.joined(joined, wish)
        if self.dice.random() < 0.05 and not self.calm:
            await asyncio.sleep(self.dice.random() * self.habits.rebalance_ms / 1_000 * 1.5)  # slow
        await self._sync(joined)

    async def _sync(self, joined: Joined) -> None:
        leads = joined.members and not joined.skip_assignment
        rows = [(member, bytes(parts)) for member, parts in self.share(joined).items()] if leads else []
        call = Sync(
            caller=self.caller, generation=joined.generation, protocol_type=joined.protocol_type,
            protocol=joined.protocol, assignments=tuple(rows),
        )  # fmt: skip
        patience = self.habits.rebalance_ms / 1_000 + PATIENCE_S
        assignment, _, _ = await self.ask(lambda broker: broker.services.groups.classic.sync(call), patience=patience)
        mine = list(assignment)
        self.ledger.assigned(joined.generation, self.habits.name, mine)
        await self.take(joined.generation, mine)

    async def take(self, generation: int, mine: list[int]) -> None:
        """Read these from now on."""
        self.held = await self.find_offsets(mine)
        self.generation = generation

    def share(self, joined: Joined) -> dict[MemberId, list[int]]:
        """As a leader: every partition to one member, in turn."""
        members = [one.member for one in joined.members]
        shares: dict[MemberId, list[int]] = {member: [] for member in members}
        for number in range(self.ledger.partitions):
            shares[members[(number + joined.generation) % len(members)]].append(number)
        return shares

    async def _leave(self) -> None:
        caller = self.caller
        self.held, self.generation = {}, -1
        await self.ask(lambda broker: broker.services.groups.classic.leave(GROUP, [caller]), hangs_up=False)
        self.ledger.gave_up(self.id)
        self.id = MemberId("")
        await asyncio.sleep(self.dice.random() * 5)
