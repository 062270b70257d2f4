"""Model members of consumer groups (KIP-848): each comes to its assignment by its own dice.

A member lets go of what it must first, which may take it a while, then says
so, and uses what is new. Whoever has missed an answer says all it knows with
its next heartbeat, as Kafka's clients do; it may be told by another broker.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from dray.groups.consumer import GOES_AWAY, JOINS, LEAVES, Answer, Heartbeat, Told
from dray.groups.errors import GroupSaysNo
from dray.groups.offsets import Asker
from dray.machine.groups.codes import GroupCode
from dray.machine.groups.masks import Masks, partitions_of
from dray.machine.groups.names import MemberId
from dray.machine.names import TopicId
from dray.sim.brokers import TOPIC, Cluster
from dray.sim.ledger import Ledger
from dray.sim.members import BEAT_S, GROUP, Habits, ModelMember

PATTERN: Final = "^s[im]+$"
LATE_S: Final = 20.0
"""So long a call may count after its client has given it up: it waits for its entry, and that for its verdict."""


class ConsumerMember(ModelMember):
    """A member of a consumer group; it makes its id itself and keeps it for its life."""

    def __init__(self, cluster: Cluster, ledger: Ledger, habits: Habits) -> None:
        super().__init__(cluster, ledger, habits)
        self._lives = 0
        self._epoch = JOINS
        self._topic: TopicId | None = None
        self._told: frozenset[int] = frozenset()
        """What it was told last that it owns."""
        self._ready_at = 0.0
        """When it has let go of what it must."""
        self._says_all = True
        self._interval_s = BEAT_S
        self._said: frozenset[int] = frozenset()
        """What it said last that it owns."""
        self._unread: set[int] = set()
        """What it owns, and does not know yet how far the group has come in it."""
        self._missed_at = -LATE_S

    # -- a life --------------------------------------------------------------

    async def step(self) -> None:
        if not self.id:
            self._lives += 1
            self.id = MemberId(f"{self.habits.name}/{self._lives}")
        if self._epoch == JOINS:
            await self._beat()
            return
        await asyncio.sleep(self._interval_s * (0.8 + 0.4 * self.dice.random()))
        if self.dice.random() < self._interval_s / BEAT_S:  # who beats more often misbehaves no more often
            await self.misbehave()
            if not self.id or self.dead:
                return
            if not self.calm and self.dice.random() < 0.02:
                await self._leave()
                return
        self._reconcile()
        await self._find_out()
        if not self.calm and self.dice.random() < 0.3:
            await self._commit()
        await self._beat()

    def die(self) -> None:
        self._let_go()
        super().die()
        self._begin_anew()

    def missed_answer(self) -> None:
        self._says_all = True
        self._missed_at = self.world.loop.time()

    @property
    def _is_certain(self) -> bool:
        """Whether the group knows the same of it: it is a member, and no call without an answer can still count."""
        return self.ledger.has(self.id) and self.world.loop.time() - self._missed_at > LATE_S

    def refused(self, code: GroupCode) -> None:
        match code:
            case GroupCode.MOVED:
                self.missed_answer()
            case GroupCode.UNKNOWN_MEMBER | GroupCode.FENCED_EPOCH if not self._is_certain:
                self._let_go()
                self._begin_anew()
            case GroupCode.UNRELEASED_INSTANCE if self.habits.instance is not None:
                self._begin_anew()
            case GroupCode.UNKNOWN_GROUP if not self.ledger.exists:
                self._let_go()
                self._begin_anew()
            case _:
                raise self.world.violate("a member was told what cannot be", member=self.id, code=code.name)

    def _begin_anew(self) -> None:
        self._epoch, self._says_all = JOINS, True
        self._told, self._ready_at = frozenset(), 0.0

    # -- heartbeats ----------------------------------------------------------

    async def _beat(self) -> None:
        if self._epoch == JOINS:
            self._let_go()
        owned = frozenset(self.held)
        call = self._heartbeat(owned)
        answer = await self.ask(
            lambda broker: broker.services.groups.consumers.beat(call), hangs_up=False, proves_life=_is_told
        )  # fmt: skip
        if isinstance(answer, GroupCode):
            self.refused(answer)
            await asyncio.sleep(1 + self.dice.random())
            return
        self._said, self._says_all = owned, False
        self._epoch, self._interval_s = answer.epoch, answer.interval_ms / 1_000
        self.ledger.beliefs.told_epoch(self.id, answer.epoch)
        self.ledger.answered_in(answer.epoch)
        if answer.assigned is not None:
            self._hear(answer.assigned)
        self._reconcile()

    def _heartbeat(self, owned: frozenset[int]) -> Heartbeat:
        """All that it could say, or what changed: that it has come to what it was told."""
        says_all, has_pattern = self._says_all, self.habits.has_pattern
        topics = {self._topic: sorted(owned)} if self._topic is not None and owned else {}
        return Heartbeat(
            group=GROUP, member=self.id, epoch=self._epoch, instance=self.habits.instance,
            client_id=self.habits.name, client_host="/sim",
            rebalance_ms=self.habits.rebalance_ms if says_all else -1,
            names=(TOPIC,) if says_all and not has_pattern else None,
            regex=PATTERN if says_all and has_pattern else None,
            owned=topics if says_all or owned != self._said else None,
        )  # fmt: skip

    async def _leave(self) -> None:
        """Let go and say so; a static one may say that it will be back."""
        self._let_go()
        goes_away = self.habits.instance is not None and self.dice.random() < 0.7
        call = Heartbeat(
            group=GROUP, member=self.id, epoch=GOES_AWAY if goes_away else LEAVES, instance=self.habits.instance
        )
        self._begin_anew()
        self._missed_at = self.world.loop.time()  # whatever becomes of it
        await self.ask(lambda broker: broker.services.groups.consumers.beat(call), hangs_up=False, proves_life=_never)
        self.ledger.gave_up(self.id)
        if self.dice.random() < 0.5:
            self.id = MemberId("")
        await asyncio.sleep(self.dice.random() * 5)

    # -- what it owns --------------------------------------------------------

    def _hear(self, assigned: Masks) -> None:
        self._told = frozenset(number for mask in assigned.values() for number in partitions_of(mask))
        self._topic = next(iter(assigned), self._topic)
        loses = bool(self.held.keys() - self._told)
        slow = loses and not self.calm and self.dice.random() < 0.3
        takes_s = self.dice.random() * self.habits.rebalance_ms / 1_000 * 1.2 if slow else 0.0
        self._ready_at = self.world.loop.time() + takes_s

    def _reconcile(self) -> None:
        """Let go of what is not its own any more, if it is done with it; then use what is new."""
        if self.world.loop.time() < self._ready_at:
            return
        gone, new = self.held.keys() - self._told, self._told - self.held.keys()
        for number in gone:
            del self.held[number]
        self._unread -= gone
        self._unread |= new
        self.held.update(dict.fromkeys(sorted(new), 0))
        self.ledger.beliefs.let_go(self.id, gone)
        self.ledger.beliefs.took(self.id, new)

    def _let_go(self) -> None:
        self.ledger.beliefs.let_go(self.id)
        self.held, self._said = {}, frozenset()
        self._unread.clear()

    # -- offsets -------------------------------------------------------------

    async def _find_out(self) -> None:
        """Ask how far the group has come in what is new."""
        wanted = sorted(self._unread)
        if wanted:
            asker = Asker(member=self.id, epoch=self._epoch)
            with self._judging():
                found = await self.find_offsets(wanted, asker)
                self.held.update(found)
                self._unread.difference_update(found)

    async def _commit(self) -> None:
        with self._judging():
            await self.commit(self._epoch, sorted(self.held.keys() - self._unread))

    @contextmanager
    def _judging(self) -> Iterator[None]:
        """An epoch may be old only if an answer was missed."""
        try:
            yield
        except GroupSaysNo as no:
            if no.code is not GroupCode.STALE_EPOCH:
                raise
            self.world.check(not self._is_certain, "a right epoch is too old", member=self.id, epoch=self._epoch)


def _is_told(answer: Answer) -> bool:
    return isinstance(answer, Told)


def _never(answer: Answer) -> bool:
    return False
