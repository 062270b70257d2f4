"""What goes wrong, when: a seeded schedule of faults.

Time is cut into periods. One in four is quiet: it begins by undoing what is
broken. In the others one to three faults strike at drawn moments, and each is
undone some time later, in its period or in a later one. `heal` ends everything
at once, and then the scenario checks that the system comes to rest.

Invariants
    SM13  After `heal` nothing is broken: nodes run, links are up and fair, no
         process is paused. Wall clocks stay where they jumped.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import Final

from dray.sim.log import SERVICE as LOG
from dray.sim.log import SharedLog
from dray.sim.network import FAIR, Weather
from dray.sim.process import YEAR_MS
from dray.sim.world import Node, World

_QUIET: Final = 0.25

Undo = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One way to break things: `strike` breaks and returns how to undo it, or None if it cannot strike now."""

    name: str
    strike: Callable[[World, Random], Undo | None]
    weight: float = 1.0
    longest: float = 30.0
    """Undone at the latest after this many seconds."""


class Nemesis:
    """Runs faults on a world until it is told to heal."""

    def __init__(
        self,
        world: World,
        faults: Sequence[Fault],
        *,
        period: float = 20.0,
        watch: Callable[[str, int, bool], None] | None = None,
    ) -> None:
        """`watch` is told the name and number of each fault when it strikes, and when it is undone."""
        self._world = world
        self._watch = watch
        self._faults = tuple(faults)
        assert self._faults, "a nemesis without faults is none"
        self._period = period
        self._dice = world.dice("nemesis")
        self._undos: list[tuple[str, Undo]] = []
        self._working = True
        self.periods = 0
        self.quiet_periods = 0
        self.struck: dict[str, int] = {}
        """How often each fault struck: a run that broke nothing proves nothing."""

    async def run(self) -> None:
        """Break things until `heal`."""
        while self._working:
            length = self._period * self._dice.uniform(0.5, 1.5)
            self.periods += 1
            if self._dice.random() < _QUIET:
                self.quiet_periods += 1
                self._world.trace.add("nemesis", "quiet")
                self._undo_all()
                await asyncio.sleep(length)
                continue
            moments = sorted(self._dice.random() * length for _ in range(self._dice.randint(1, 3)))
            for before, moment in pairwise([0.0, *moments]):
                await asyncio.sleep(moment - before)
                self._strike()
            await asyncio.sleep(length - moments[-1])

    def _strike(self) -> None:
        if not self._working:
            return
        fault = self._dice.choices(self._faults, [fault.weight for fault in self._faults])[0]
        undo = fault.strike(self._world, self._dice)
        if undo is None:
            return
        self.struck[fault.name] = self.struck.get(fault.name, 0) + 1
        undo = self._watched(fault.name, undo)
        entry = (fault.name, undo)
        self._undos.append(entry)
        # Most faults are short, some last as long as they may: squaring draws both.
        self._world.loop.call_later(self._dice.random() ** 2 * fault.longest, self._undo, entry)

    def _watched(self, name: str, undo: Undo) -> Undo:
        if self._watch is None:
            return undo
        watch, number = self._watch, sum(self.struck.values())
        watch(name, number, True)

        def undo_and_tell() -> None:
            undo()
            watch(name, number, False)

        return undo_and_tell

    def _undo(self, entry: tuple[str, Undo]) -> None:
        if entry in self._undos:
            self._undos.remove(entry)
            entry[1]()

    def _undo_all(self) -> None:
        undos, self._undos = self._undos, []
        for _, undo in undos:
            undo()

    def heal(self) -> None:
        """Stop, and undo everything (SM13)."""
        self._working = False
        self._world.trace.add("nemesis", "heal")
        self._undo_all()
        self._world.network.heal()
        for node in self._world.nodes.values():
            if node.process is not None:
                node.process.resume()
            if not node.alive:
                node.start()


def crash(*, power: float = 0.3) -> Fault:
    """Kill a process, at once or at one of its next steps; it is started again later."""

    def strike(world: World, dice: Random) -> Undo | None:
        node = _pick(world, dice)
        if node is None or node.process is None:
            return None
        if dice.random() < 0.5:
            node.process.crash_at(node.process.steps + dice.randrange(1, 200))
        else:
            node.crash(power=dice.random() < power)

        def undo() -> None:
            node.crash()
            node.start()

        return undo

    return Fault(name="crash", strike=strike)


def pause(*, longest: float = 60.0) -> Fault:
    """Stop a process and let it go on later, with its memory as it was."""

    def strike(world: World, dice: Random) -> Undo | None:
        node = _pick(world, dice)
        if node is None or node.process is None:
            return None
        node.process.pause()
        return node.process.resume

    return Fault(name="pause", strike=strike, longest=longest)


def partition(*, longest: float = 30.0) -> Fault:
    """Cut one node, or all, from one service, or from all."""

    def strike(world: World, dice: Random) -> Undo | None:
        process = None if dice.random() < 0.25 else dice.choice(sorted(world.nodes))
        services = sorted({link.service for link in world.network.links()})
        service = None if dice.random() < 0.25 or not services else dice.choice(services)
        return _on_links(world, process, service, cut=True)

    return Fault(name="partition", strike=strike, longest=longest)


def half_open() -> Fault:
    """A follower's connection stays open and shows nothing more, while calls are answered: nobody is told."""

    def strike(world: World, dice: Random) -> Undo | None:
        links = [link for link in world.network.links(service=LOG) if link.is_up()]
        if not links:
            return None
        dice.choice(links).half_open()
        return _nothing

    return Fault(name="half open", strike=strike)


def rough_weather(weather: Weather, *, name: str = "weather", longest: float = 30.0) -> Fault:
    """Lost replies, late copies and delays between one node, or all, and the services."""

    def strike(world: World, dice: Random) -> Undo | None:
        process = None if dice.random() < 0.5 else dice.choice(sorted(world.nodes))
        drawn = replace(
            weather,
            request_lost=weather.request_lost * dice.random(),
            reply_lost=weather.reply_lost * dice.random(),
            late_copy=weather.late_copy * dice.random(),
            refused=weather.refused * dice.random(),
        )
        return _on_links(world, process, None, weather=drawn)

    return Fault(name=name, strike=strike, weight=2.0, longest=longest)


_JUMPS: Final = (-10 * YEAR_MS, -3_600_000, -1_000, 500, 60_000, 86_400_000, 10 * YEAR_MS)


def clock_jump() -> Fault:
    """Move a wall clock, by up to ten years; it stays there."""

    def strike(world: World, dice: Random) -> Undo | None:
        node = world.nodes[dice.choice(sorted(world.nodes))]
        jump = dice.choice(_JUMPS)
        world.trace.add(node.name, "wall clock jumps", ms=jump)
        node.clock.jump_wall(jump)
        return _nothing

    return Fault(name="clock jump", strike=strike)


def clock_drift(*, most: float = 0.1) -> Fault:
    """Let a machine's clocks run too fast or too slow."""

    def strike(world: World, dice: Random) -> Undo | None:
        node = world.nodes[dice.choice(sorted(world.nodes))]
        rate = 1.0 + dice.uniform(-most, most)
        world.trace.add(node.name, "clocks drift", rate=rate)
        node.clock.drift(rate)
        return lambda: node.clock.drift(1.0)

    return Fault(name="clock drift", strike=strike)


def rollback(log: SharedLog, *, most: int = 20) -> Fault:
    """Restore an old copy of the log, once in a run at most."""

    def strike(world: World, dice: Random) -> Undo | None:
        return _nothing if not log.lost and log.rollback(dice.randint(1, most)) else None

    return Fault(name="rollback", strike=strike, weight=0.3)


def _pick(world: World, dice: Random) -> Node | None:
    alive = [node for node in world.nodes.values() if node.alive]
    return dice.choice(alive) if alive else None


def _on_links(
    world: World, process: str | None, service: str | None, *, cut: bool = False, weather: Weather = FAIR
) -> Undo:
    what = "cut" if cut else "rough weather"
    world.trace.add("nemesis", what, process=process or "all", service=service or "all")
    for link in world.network.links(process, service):
        if cut:
            link.cut()
        else:
            link.weather = weather

    def undo() -> None:
        world.trace.add("nemesis", f"{what} ends", process=process or "all", service=service or "all")
        for link in world.network.links(process, service):
            if cut:
                link.join()
            else:
                link.weather = FAIR

    return undo


def _nothing() -> None:
    return None
