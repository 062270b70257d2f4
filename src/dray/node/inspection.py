"""Looking at the metadata of a cluster, beside running brokers or with none.

Beside a broker the log of a directory is read through `DIR/meta.sock`; with
none, the directory is locked for as long as the look takes and its files are
read as they lie. The log of an engine is read where it is, and its checkpoints
in the store. Nothing is written either way.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from dray.clock import SystemClock
from dray.disk import Disk
from dray.errors import Corrupt, Unavailable
from dray.ids import SystemEntropy
from dray.log.closed import ClosedLog
from dray.log.port import Log, Position, Trimmed
from dray.log.reader import Damage, Torn
from dray.machine import checkpoint
from dray.machine.machine import Machine
from dray.node.metadata import Effects
from dray.node.reaching import ANSWER_LIMIT_S, DirectoryOrCluster, reach, told
from dray.offload import InlineOffload
from dray.replica.checkpoints import ReadableCheckpoints
from dray.replica.fold import fold_to, state_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """One domain, opened for looking."""

    log: Log
    live: bool
    checkpoints: ReadableCheckpoints
    torn: Torn | None = None
    damage: Damage | None = None


@asynccontextmanager
async def inspect(place: DirectoryOrCluster, domain: int, disk: Disk) -> AsyncIterator[Inspected]:
    """Open a domain's log for looking; `NotFound` if there is no cluster of Dray's."""
    effects = Effects(clock=SystemClock(), entropy=SystemEntropy(), disk=disk, offload=InlineOffload())
    async with reach(place, effects) as reached, reached.reading(domain, effects) as log:
        if isinstance(log, ClosedLog):
            torn, damage = log.survey.torn, log.survey.damage
            checkpoints = await reached.checkpoints(log, domain, effects)
            yield Inspected(log=log, live=False, checkpoints=checkpoints, torn=torn, damage=damage)
            return
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                await log.tail()
        except TimeoutError as late:
            raise Unavailable("whoever keeps the log does not answer", place=told(place)) from late
        yield Inspected(log=log, live=True, checkpoints=await reached.checkpoints(log, domain, effects))


async def current_machine(inspected: Inspected) -> Machine:
    """The state as of now: newest checkpoint plus the log behind it."""
    return await state_at(await inspected.log.tail(), inspected.log, inspected.checkpoints)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What `verify` found."""

    first: int
    last: int
    digest: int
    checkpoints: tuple[int, ...]
    """Positions whose checkpoint equals a fold of the log, byte for byte."""
    skipped: tuple[int, ...]
    """Positions whose log is trimmed: only their own hash could be checked."""


async def verify(inspected: Inspected) -> Verified:
    """Fold the log from its beginning, or from the oldest checkpoint, and compare every checkpoint on the way.

    Raises:
        Corrupt: the log is damaged, or a checkpoint is not what the log says.
    """
    if inspected.damage is not None:
        raise Corrupt("the log is damaged", reason=inspected.damage.reason, position=inspected.damage.position)
    tail = await inspected.log.tail()
    positions = await inspected.checkpoints.confirmed()
    for position in positions:
        try:
            await inspected.checkpoints.check(position)
        except Corrupt as error:
            raise Corrupt(
                "a checkpoint cannot be read: a start passes it over and loads the one before it", position=position
            ) from error
    machine, skipped = await _oldest(inspected, positions)
    first = machine.position + 1
    equal = []
    for position in positions:
        data = await inspected.checkpoints.read(position)
        if position < machine.position or position in skipped:
            continue
        await fold_to(machine, inspected.log, position)
        if checkpoint.dump(machine) != data:
            raise Corrupt("a checkpoint differs from the fold of the log", position=position)
        equal.append(position)
    await fold_to(machine, inspected.log, tail)
    return Verified(
        first=first, last=tail, digest=machine.digest, checkpoints=tuple(equal), skipped=tuple(sorted(skipped))
    )


async def _oldest(inspected: Inspected, positions: list[int]) -> tuple[Machine, set[int]]:
    """Where folding can begin: at nothing, or at the oldest checkpoint that the log still follows."""
    machine, skipped = Machine(), set[int]()
    for position in [0, *positions]:
        if position:
            machine = checkpoint.load(await inspected.checkpoints.read(position))
            skipped.add(position)
        try:
            await fold_to(machine, inspected.log, min(position + 1, await inspected.log.tail()))
        except Trimmed:
            continue
        machine = checkpoint.load(await inspected.checkpoints.read(position)) if position else Machine()
        return machine, skipped
    raise Corrupt("the log begins behind its newest checkpoint", newest=Position(positions[-1] if positions else 0))
