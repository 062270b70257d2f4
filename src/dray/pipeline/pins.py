"""Holding the objects of a plan, and the state that the plan is cut from.

Spark plans in a process that ends with the planning, and reads hours later in
others. So the objects are held by the machine for a time (`machine.holds`):
the planner proposes a hold, waits until its own fold shows it, cuts the plan
from that very fold, and goes. Nothing is left behind but the hold, which ends
by itself. Who is done early, and shares its hold with nobody, lets it go.

Where no broker runs nobody deletes anything, and nothing is written: such a
directory is read as it lies. In a cluster of several machines nobody knows
that none runs, so there everything is held. If a broker starts on it meanwhile, the grace time
of garbage is what a read has. The same goes for a cluster whose operator has
not activated the version of the rules that knows holds.

Invariants
    SP6  A plan is cut from a state in which its hold is applied, in every
         domain; where none can be had, nothing is planned.
    SP7  Planning leaves no process and no session behind.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from dray.errors import Unavailable, Unknown
from dray.ids import SystemEntropy
from dray.machine.holds import HOLDS_VERSION, Held, Hold, LetGo
from dray.machine.machine import Machine
from dray.node.reaching import DirectoryOrCluster, Reached, reach
from dray.pipeline.errors import NotPinned
from dray.pipeline.opening import effects
from dray.replica.replica import Replica

ATTEMPTS: Final = 5
PAUSE_S: Final = 1.0
"""Between two of them: a broker that restarts is back after a few."""
LIMIT_S: Final = 60
NAME: Final = "plan"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldState:
    """The machines of a cluster as of now: everything that was acknowledged before is in them."""

    machines: dict[int, Machine]
    pin: str | None
    """Of the hold; None: nothing is held, because no broker runs, or its rules know no holds."""
    cluster_id: str


async def held_state(place: DirectoryOrCluster, *, seconds: int, shared: bool = True) -> HeldState:
    """Hold everything that is there, then tell what there is (SP6).

    Raises:
        NotPinned: the broker takes no hold; nothing was planned.
    """
    pin, cause = f"{NAME}-{SystemEntropy().random_bytes(8).hex()}", ""
    for attempt in range(ATTEMPTS):
        if attempt:
            await asyncio.sleep(PAUSE_S)
        try:
            async with asyncio.timeout(LIMIT_S), reach(place, effects()) as reached:
                return await _held(reached, Hold(pin=pin, length_ms=seconds * 1_000, shared=shared))
        except NotPinned:
            raise
        except (Unavailable, Unknown, TimeoutError) as error:
            cause = str(error) or "the broker did not answer in time"
    raise NotPinned("the objects could not be held: is the broker well?", reason=cause)


async def let_go(place: DirectoryOrCluster, pin: str) -> None:
    """End a hold before its time; for who shares it with nobody."""
    async with reach(place, effects()) as reached, _followed(reached) as replicas:
        for replica in replicas.values():
            await replica.propose(LetGo(pin=pin))


async def _held(reached: Reached, hold: Hold) -> HeldState:
    if not reached.live:
        domains = reached.domains(effects())
        machines = {domain: await reached.machine(domain, effects()) for domain in domains}
        return HeldState(machines=machines, pin=None, cluster_id=reached.cluster_id)
    async with _followed(reached) as replicas:
        pins = [await _hold(replica, hold) for replica in replicas.values()]
    # Followed no more: from here on they stand.
    machines = {domain: replica.machine for domain, replica in replicas.items()}
    return HeldState(machines=machines, pin=pins[0], cluster_id=reached.cluster_id)


async def _hold(replica: Replica, hold: Hold) -> str | None:
    await replica.sync()
    if replica.machine.version < HOLDS_VERSION:
        return None
    (verdict,) = await replica.propose(hold)  # SP6: answered by the fold
    if not isinstance(verdict, Held):
        raise NotPinned("the broker took no hold: look at `drayd admin pins ls`", verdict=verdict)
    return verdict.pin


@asynccontextmanager
async def _followed(reached: Reached) -> AsyncIterator[dict[int, Replica]]:
    """Every domain; the sessions are given back (SP7)."""
    async with AsyncExitStack() as stack:
        replicas = {}
        for domain in reached.domains(effects()):
            replica = await stack.enter_async_context(reached.following(domain, NAME, effects()))
            stack.push_async_callback(replica.close_session)
            replicas[domain] = replica
        yield replicas
