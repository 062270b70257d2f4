"""A world: machines, the services they share, and the dice of one seed.

A scenario is a coroutine that gets a world, starts machines, works, and
raises `Violation` when a promise is broken. Everything random is drawn from
`world.dice(purpose)`: one stream per purpose, so that a new draw in one place
does not change the others.
"""

import asyncio
import copy
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Protocol, TypeVar

from dray.ids import SeededEntropy
from dray.sim.log import FaultyLog, SharedLog
from dray.sim.loop import SimLoop
from dray.sim.network import Network
from dray.sim.process import Life, Process, SimClock
from dray.sim.store import SERVICE as STORE
from dray.sim.store import NetworkObjects, SharedObjects
from dray.sim.trace import Trace

T = TypeVar("T")

Boot = Callable[[Process], Coroutine[object, object, None]]
"""What a machine runs: the main coroutine of a new process."""


class Violation(AssertionError):
    """A promise was broken. Not a DrayError: product code must not take it for one of its own."""

    def __init__(self, what: str, /, **facts: object) -> None:
        super().__init__(" ".join([what, *(f"{name}={value}" for name, value in facts.items())]))


class CrashingDisk(Protocol):
    """What the world does to a disk; `dray.sim.disk.FakeDisk` is one."""

    def crash(self) -> None:
        """The power went: lose what may be lost, and come up again."""
        ...

    def restart(self) -> None:
        """Only the process died: its files are closed, the cache lives on."""
        ...


class Node:
    """A machine: it keeps its name, disk and clocks while its processes come and go."""

    def __init__(self, world: "World", name: str, boot: Boot, disk: CrashingDisk | None) -> None:
        self.name = name
        self.clock = SimClock(world.loop)
        self.process: Process | None = None
        self.incarnation = 0
        self._world = world
        self._boot = boot
        self._disk = disk
        self._entropy: SeededEntropy | None = None
        self.restart_after: float | None = None
        """Start again so many seconds after the process exits by itself, as a supervisor does."""
        self.may_exit: Callable[[BaseException | None], bool] = _without_error
        """Whether a process may end by itself with this error; else that is a violation."""

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive

    def start(self) -> Process:
        """A new process on this machine (SM7)."""
        assert not self.alive, "one process at a time"
        self.incarnation += 1
        world = self._world
        seed = f"{world.seed}/{self.name}/{self.incarnation}"
        process = Process(world.loop, world.trace, self.name, seed, self.clock)
        if self._entropy is not None:
            process.entropy, self._entropy = self._entropy, None
        if self._disk is not None and self.process is not None:
            self._disk.restart()
        self.process = process
        process.offload.on_power_loss = self._lose_power
        process.start(self._boot(process))
        world.network.start(self._supervise(process))
        return process

    async def _supervise(self, process: Process) -> None:
        await process.ended()
        if process.life is not Life.EXITED:
            return
        if not self.may_exit(process.error):
            text = "".join(traceback.format_exception(process.error)) if process.error is not None else ""
            raise self._world.violate("a process exited that should not", node=self.name, error=f"\n{text}")
        if self.restart_after is not None:
            await asyncio.sleep(self.restart_after)
            if self.process is process:
                self.start()

    def crash(self, *, power: bool = False) -> None:
        """Kill the process; with `power` the machine too, and what its disk had not synced."""
        if power:
            self._lose_power()
        elif self.process is not None:
            self.process.crash()

    def _lose_power(self) -> None:
        if self.process is not None:
            self.process.crash()
        self._world.trace.add(self.name, "power cut")
        self.clock.reboot()
        if self._disk is not None:
            self._disk.crash()

    def clone(self, name: str, boot: Boot) -> "Node":
        """A second machine, copied from this one as a hypervisor does: the same clocks and the same next dice.

        Coroutines cannot be copied: `boot` begins from the state that the original has at this moment.
        """
        assert self.process is not None, "only a running process can be copied"
        twin = self._world.node(name, boot)
        twin.clock = copy.copy(self.clock)
        twin._entropy = copy.deepcopy(self.process.entropy)
        return twin


class World:
    """Everything that one seed makes."""

    def __init__(self, seed: int, *, trace_limit: int = 2_000, max_steps: int = 2_000_000) -> None:
        self.seed = seed
        # Abstract on purpose: sockets, signals and subprocesses stay NotImplementedError.
        self.loop = SimLoop(seed, max_steps=max_steps)  # type: ignore[abstract]
        self.trace = Trace(self.loop.time, trace_limit)
        self.network = Network(self.loop, self.trace, self.dice("network"))
        self.nodes: dict[str, Node] = {}
        self.logs: dict[str, SharedLog] = {}
        self.violations: list[Violation] = []
        self._bucket: SharedObjects | None = None

    def dice(self, purpose: str) -> Random:
        """A stream of random numbers for one purpose."""
        return Random(f"{self.seed}/{purpose}")

    def node(self, name: str, boot: Boot, *, disk: CrashingDisk | None = None) -> Node:
        """A new machine; `start` it. Its processes get the disk from the scenario; here it is told of deaths."""
        assert name not in self.nodes, "names are unique"
        node = self.nodes[name] = Node(self, name, boot, disk)
        return node

    def log(self, name: str = "log") -> SharedLog:
        """The shared log of that name."""
        if name not in self.logs:
            self.logs[name] = SharedLog(self.loop, self.trace, self.dice(f"log/{name}"), name)
        return self.logs[name]

    def connect(self, process: Process, log: SharedLog) -> FaultyLog:
        """The port by which a process reaches a log."""
        return FaultyLog(log, self.network.link(process.name, log.name))

    def bucket(self) -> SharedObjects:
        """The shared object store."""
        if self._bucket is None:
            self._bucket = SharedObjects(self.loop, self.trace)
        return self._bucket

    def reach_bucket(self, process: Process) -> NetworkObjects:
        """The port by which a process reaches the store."""
        return NetworkObjects(self.bucket(), self.network.link(process.name, STORE))

    def violate(self, what: str, /, **facts: object) -> Violation:
        """Record a broken promise and return it to be raised. The run ends here, even if it is swallowed."""
        violation = Violation(what, **facts)
        self.trace.add("violation", str(violation))
        self.violations.append(violation)
        self.loop.stop()
        return violation

    def check(self, holds: bool, what: str, /, **facts: object) -> None:
        """Raise `Violation` unless the promise holds."""
        if not holds:
            raise self.violate(what, **facts)

    async def within(self, seconds: float, work: Awaitable[T], what: str) -> T:
        """Liveness: `work` ends in time, or it is a violation."""
        try:
            async with asyncio.timeout(seconds):
                return await work
        except TimeoutError:
            raise self.violate(f"no progress: {what}", seconds=seconds, waiting="\n" + self.loop.report()) from None

    def run(self, scenario: Callable[["World"], Coroutine[object, object, T]]) -> T:
        """Play a scenario in this world; raises what it raises."""
        return self.loop.run_until_complete(scenario(self))

    def fingerprint(self) -> str:
        """Equal for equal runs: events, schedule and final time."""
        return f"{self.trace.fingerprint()}-{self.loop.schedule:016x}-{self.loop.steps}"

    def close(self) -> None:
        """The end of the world; parked coroutines are thrown away."""
        self.trace.seal()
        self.loop.close()


def _without_error(error: BaseException | None) -> bool:
    return error is None
