"""Whatever brokers, readers, clocks and crashes do: what is needed stays, and what is not goes."""

import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from dray.machine.garbage import Objects, Pin, Unpin
from dray.machine.holds import Held, Hold
from dray.machine.streams import FloorReason, RaiseFloor
from dray.objects.paths import FILES_PREFIX, WAL_PREFIX
from dray.sim.planted import replaced

from .shop import HOUR, MINUTE, TTL_MS, Cluster, pass_time
from .stores import WatchedObjects


def needed(machine) -> set[str]:
    """The objects that rows name, counted from the rows alone."""
    found = set()
    for stream in machine.streams.all():
        for row in stream.index.rows(stream.start):
            found.add(machine.objects.find(row.object).path())
    return found


class Story:
    """Two brokers by a seed, each of which may die at any time and come back."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.pins: dict[str, tuple[int, set[str]]] = {}
        """Pin to (its session, what its holder may still read)."""
        self.holds: list[tuple[int, set[str]]] = []
        """Until when, by machine time, what may be read of it."""
        self.uncommitted: dict[str, int] = {}
        """Objects that were put and not committed, by session."""
        self.deletions = 0
        self.wrong: list[str] = []
        """Deletions that should not have been. Retention takes an error of the store for one that passes: they are told
        by `check`, not raised where they are seen."""

    async def run(self, steps: int) -> None:
        self.cluster = await Cluster().begin()
        self.store = WatchedObjects(self.cluster.store, self.judge)
        self.lives = [AsyncExitStack(), AsyncExitStack()]
        self.brokers = [await self.start(number) for number in range(2)]
        actions = self.actions()
        try:
            for _ in range(steps):
                await self.dice.choice(actions)()
                await self.check()
            await self.finish()
        finally:
            for life in self.lives:
                await life.aclose()

    def actions(self) -> list[Callable[[], Awaitable[None]]]:
        return [self.produce, self.produce, self.leave, self.floor, self.delete, self.pin, self.unpin, self.unpin,
                self.hold, self.hold, self.time, self.time, self.look, self.look, self.die]  # fmt: skip

    async def start(self, number: int):
        broker = await self.lives[number].enter_async_context(self.cluster.broker(f"broker-{number}"))
        await broker.catalog.open_session()
        broker.service = broker.retention(self.store, orphan_ttl="1h")
        return broker

    @property
    def machine(self):
        """Of the broker that has applied the most."""
        return max((broker.machine for broker in self.brokers), key=lambda machine: machine.position)

    def needed(self) -> set[str]:
        """What must be in the store now."""
        return needed(self.machine)

    def judge(self, path: str) -> None:
        """Just before an object is deleted."""
        machine = self.machine
        reasons = {
            "needed": path in self.needed(),
            "pinned": any(session in machine.sessions.live and path in kept for session, kept in self.pins.values()),
            "held": any(until_ms > machine.time_ms and path in kept for until_ms, kept in self.holds),
            "perhaps committed": self.uncommitted.get(path) in machine.sessions.live,
        }
        self.wrong += [f"{path} is {why}" for why, true in reasons.items() if true]
        self.deletions += 1

    async def check(self) -> None:
        assert not self.wrong
        for broker in self.brokers:
            await broker.catalog.sync()
        there = await self.there()
        assert self.needed() <= there
        for session, kept in self.pins.values():
            assert session not in self.machine.sessions.live or kept <= there
        for until_ms, kept in self.holds:
            assert until_ms <= self.machine.time_ms or kept <= there
        for path, session in self.uncommitted.items():
            assert session not in self.machine.sessions.live or path in there

    async def there(self) -> set[str]:
        return {info.path for prefix in (WAL_PREFIX, FILES_PREFIX) async for info in self.cluster.store.list(prefix)}

    def broker(self):
        return self.dice.choice(self.brokers)

    async def streams(self) -> list[int]:
        broker = self.broker()
        await broker.catalog.sync()
        if len(broker.topics.visible()) < 3:
            hours = self.dice.choice([1, 3, 1000])
            await broker.topic(f"t{self.dice.random()}", partitions=2, retention_ms=str(hours * HOUR))
        return [stream for topic in broker.topics.visible() for stream in topic.streams]

    async def produce(self) -> None:
        streams, broker = await self.streams(), self.broker()
        await broker.catalog.sync()
        chosen = self.dice.choices(streams, k=self.dice.randrange(1, 6))
        await broker.produce(*[(stream, self.dice.randrange(1, 4)) for stream in chosen])

    async def leave(self) -> None:
        broker = self.broker()
        path, _, _ = await broker.put()
        self.uncommitted[path] = broker.catalog.session.id

    async def floor(self) -> None:
        stream, broker = self.dice.choice(await self.streams()), self.broker()
        await broker.catalog.sync()
        end = broker.stream(stream).end
        bound = self.dice.randrange(end + 1)
        await broker.catalog.propose(RaiseFloor(stream=stream, reason=FloorReason.DELETE_RECORDS, bound=bound, limit=3))

    async def delete(self) -> None:
        broker = self.broker()
        await broker.catalog.sync()
        if broker.topics.visible() and self.dice.random() < 0.3:
            await broker.topics.delete(self.dice.choice(broker.topics.visible()))

    async def pin(self) -> None:
        broker = self.broker()
        name = f"p{self.dice.random()}"
        await broker.catalog.propose(Pin(pin=name))
        self.pins[name] = broker.catalog.session.id, needed(broker.machine)

    async def hold(self) -> None:
        """Who made it may die at once: nobody lives for it."""
        broker = self.broker()
        command = Hold(pin=f"h{self.dice.random()}", length_ms=self.dice.choice([MINUTE, HOUR, 3 * HOUR]))
        (held,) = await broker.catalog.propose(command)
        assert isinstance(held, Held)
        self.holds.append((held.until_ms, needed(broker.machine)))

    async def unpin(self) -> None:
        if self.pins:
            name = self.dice.choice(sorted(self.pins))
            session, _ = self.pins.pop(name)
            for broker in self.brokers:
                if broker.catalog.session.id == session:
                    await broker.catalog.propose(Unpin(pin=name))

    async def time(self) -> None:
        await pass_time(self.dice.choice([MINUTE, 10 * MINUTE, HOUR, 2 * HOUR]), *self.brokers)

    async def look(self) -> None:
        service = self.broker().service
        await self.dice.choice([service.retain, service.retain, service.expire, service.sweep])()

    async def die(self) -> None:
        if self.dice.random() < 0.4:
            number = self.dice.randrange(2)
            await self.lives[number].aclose()
            self.lives[number] = AsyncExitStack()
            self.brokers[number] = await self.start(number)

    async def let_go(self) -> None:
        """Of what somebody else than a broker holds, and nobody needs."""

    async def finish(self) -> None:
        """Nothing is left but what is needed, once every reader has gone."""
        while self.pins:
            await self.unpin()
        for number in range(2):
            await self.lives[number].aclose()
            self.lives[number] = AsyncExitStack()
            self.brokers[number] = await self.start(number)
        for waited in (TTL_MS, *[HOUR] * 8):  # for what was left behind; then for the grace of what died meanwhile
            await pass_time(waited, *self.brokers)
            for broker in self.brokers:
                await broker.catalog.sync()
                await broker.service.retain()
                await broker.service.sweep()
            await self.let_go()
            if waited == HOUR and await self.there() == self.needed():
                break
        await self.check()
        assert await self.there() == self.needed()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
async def test_nothing_that_is_needed_is_ever_deleted_and_all_else_goes(seed):
    """R-113, R-107, R-108, RT7, X9: 150 random steps of two brokers against the rows themselves."""
    story = Story(seed)
    print("seed", seed)
    await story.run(150)
    assert story.deletions > 10


MISTAKES = {
    "pins are ignored": ("pinned", lambda objects: objects._holds.oldest()),
    "holds are ignored": ("held", lambda objects: min(objects.pins.values(), default=None)),
}


@pytest.mark.parametrize("mistake", MISTAKES)
async def test_a_deletion_of_what_a_reader_may_still_read_is_found(mistake):
    """X3, X9: planted one by one, within the steps that every run makes."""
    reason, planted = MISTAKES[mistake]

    async def runs() -> None:
        for seed in range(8):
            print("seed", seed)
            await Story(seed).run(150)

    with replaced(Objects, "oldest_pin", planted), pytest.raises(AssertionError, match=f"is {reason}"):
        await runs()
