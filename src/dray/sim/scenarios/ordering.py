"""The simulator's own test: a writer and a fold on each node, and nothing of the product.

Each node folds the shared log and appends numbered entries to it. An entry is
executed if its number follows the last one of its session, so a repeat or a
late copy does nothing. An append is acknowledged when it was folded here. A
read asks for the tail and waits until it is folded.

Checked: every fold is the same; what was acknowledged is there exactly once;
order in real time is order in the log; a read sees whatever was acknowledged
before it began. `Bug` plants a known mistake.
"""

import asyncio
import struct
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Final

from dray.errors import Unavailable
from dray.log.port import BEFORE_ALL, LostReply, NotAppended, Position
from dray.sim.log import FaultyLog, SharedLog
from dray.sim.nemesis import Nemesis, clock_drift, clock_jump, crash, partition, pause, rough_weather
from dray.sim.network import ROUGH
from dray.sim.planted import Scenario
from dray.sim.process import Process
from dray.sim.world import World

ENTRY: Final = struct.Struct("<QII")
NODES: Final = 3
WORK_SECONDS: Final = 40.0
REST_SECONDS: Final = 300.0


class Bug(Enum):
    """Mistakes that a simulator must find."""

    LOST_IS_SUCCESS = "lost-is-success"
    LOST_IS_FAILURE = "lost-is-failure"
    REPEATS_COUNT = "repeats-count"
    STALE_READ = "stale-read"
    ACK_BEFORE_LOG = "ack-before-log"


@dataclass(slots=True)
class History:
    """What clients saw, in real time."""

    acked: dict[int, int] = field(default_factory=dict)
    """Value -> how many values were acknowledged before it was sent."""
    next_value: int = 0
    writing: bool = True


class Fold:
    """What one process knows: the executed values in order."""

    def __init__(self, bug: Bug | None) -> None:
        self._bug = bug
        self._last: dict[int, int] = {}
        self._moved = asyncio.Condition()
        self.values: list[int] = []
        self.position = BEFORE_ALL

    async def apply(self, position: Position, entry: bytes) -> None:
        session, n, value = ENTRY.unpack(entry)
        if n == self._last.get(session, 0) + 1 or self._bug is Bug.REPEATS_COUNT:
            self._last[session] = n
            self.values.append(value)
        self.position = position
        async with self._moved:
            self._moved.notify_all()

    async def reached(self, position: Position) -> None:
        async with self._moved:
            await self._moved.wait_for(lambda: self.position >= position)


class Member:
    """One process: folds, writes and reads."""

    def __init__(self, world: World, process: Process, log: FaultyLog, history: History, bug: Bug | None) -> None:
        self._world = world
        self._process = process
        self._log = log
        self._history = history
        self._bug = bug
        self._session = int.from_bytes(process.entropy.random_bytes(8), "little")
        self._n = 0
        self.fold = Fold(bug)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(), name="follow")
            group.create_task(self._write(), name="write")
            group.create_task(self._read(), name="read")

    async def _follow(self) -> None:
        async for position, entry in self._log.follow(BEFORE_ALL):
            await self.fold.apply(position, entry)

    async def _write(self) -> None:
        history = self._history
        while history.writing:
            await self._process.clock.sleep(self._process.entropy.uniform(0.0, 2.0))
            history.next_value += 1
            value, before = history.next_value, len(history.acked)
            if await self._append(value):
                history.acked[value] = before
                self._world.trace.add(self._process.name, "acked", value=value)

    async def _append(self, value: int) -> bool:
        """Whether the value is surely in the log; it repeats the same bytes until it knows."""
        self._n += 1
        entry = ENTRY.pack(self._session, self._n, value)
        if self._bug is Bug.ACK_BEFORE_LOG:
            self._process.spawn(self._settle(entry))
            await asyncio.sleep(0.001)
            return True
        return await self._settle(entry)

    async def _settle(self, entry: bytes) -> bool:
        while True:
            try:
                position = await self._log.append(entry)
            except LostReply:
                if self._bug is Bug.LOST_IS_SUCCESS:
                    return True
                if self._bug is Bug.LOST_IS_FAILURE:
                    self._n += 1
                    entry = ENTRY.pack(self._session, self._n, ENTRY.unpack(entry)[2])
            except NotAppended:
                await self._process.clock.sleep(0.5)
            else:
                await self.fold.reached(position)
                return True

    async def _read(self) -> None:
        while self._history.writing:
            await self._process.clock.sleep(self._process.entropy.uniform(0.0, 2.0))
            expected = set(self._history.acked)
            if self._bug is not Bug.STALE_READ:
                try:
                    tail = await self._log.tail()
                except Unavailable:
                    continue
                await self.fold.reached(tail)
            missing = expected.difference(self.fold.values)
            self._world.check(not missing, "a read misses an acknowledged value", missing=sorted(missing))


async def ordering(world: World, *, bug: Bug | None = None) -> None:
    """Work under faults, heal, come to rest, compare."""
    truth, history = world.log(), History()
    members: dict[str, Member] = {}

    async def boot(process: Process) -> None:
        members[process.name] = Member(world, process, world.connect(process, truth), history, bug)
        await members[process.name].run()

    for index in range(NODES):
        world.node(f"node-{index}", boot).start()
    nemesis = Nemesis(
        world, [crash(), pause(), partition(), rough_weather(ROUGH), clock_jump(), clock_drift()], period=10.0
    )
    world.network.start(nemesis.run())
    await asyncio.sleep(WORK_SECONDS)
    nemesis.heal()
    history.writing = False
    await world.within(REST_SECONDS, _rest(members, truth), "every node folds the log after the faults end")
    _compare(world, members, history)


async def _rest(members: dict[str, Member], truth: SharedLog) -> None:
    await asyncio.sleep(ROUGH.copy_within + 30.0)  # the latest copy may still be under way
    tail = truth.tail()
    for name in sorted(members):
        await members[name].fold.reached(tail)


def _compare(world: World, members: dict[str, Member], history: History) -> None:
    folds = [members[name].fold for name in sorted(members)]
    for fold in folds[1:]:
        shorter = min(len(fold.values), len(folds[0].values))
        world.check(fold.values[:shorter] == folds[0].values[:shorter], "two folds differ")
    values = max((fold.values for fold in folds), key=len)
    place = {value: index for index, value in enumerate(values)}
    world.check(len(place) == len(values), "a value is there twice", count=len(values) - len(place))
    missing = sorted(set(history.acked).difference(place))
    world.check(not missing, "an acknowledged value is lost", missing=missing)
    highest = -1
    in_ack_order = list(history.acked)
    reach = [highest := max(highest, place[value]) for value in in_ack_order]
    for value, before in history.acked.items():
        if before:
            world.check(place[value] > reach[before - 1], "order in the log is not order in time", value=value)


SCENARIOS: Final[dict[str, Scenario]] = {"ordering": ordering}

PLANTED: Final[dict[str, Scenario]] = {f"ordering/{bug.value}": partial(ordering, bug=bug) for bug in Bug}
