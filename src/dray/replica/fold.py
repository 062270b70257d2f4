"""Making a checkpoint: a pure function of the checkpoint before it and the log since."""

from typing import Final, Protocol

from dray.errors import Unavailable
from dray.log.port import Log, Position, Trimmed
from dray.machine import checkpoint
from dray.machine.machine import Machine
from dray.machine.step import Outcome
from dray.replica.checkpoints import CheckpointStore, newest_machine
from dray.replica.errors import TooNew

JUMPS: Final = 5


class Folder(Protocol):
    """Leaves a made checkpoint of `upto` in the store."""

    async def fold(self, upto: int) -> None: ...


async def fold_to(machine: Machine, log: Log, upto: int) -> None:
    """Apply the log to a machine, up to and with a position.

    Raises:
        TooNew: from here on it is folded by rules that this build does not know.
    """
    if machine.position >= upto:
        return
    async for position, entry in log.follow(Position(machine.position)):
        if machine.apply(position, entry).outcome is Outcome.HALTED:
            raise TooNew("the active version is above this build: run a newer Dray", version=machine.version)
        if position >= upto:
            return


async def state_at(upto: int, log: Log, checkpoints: CheckpointStore) -> Machine:
    """The state at a position, for who only looks: the newest checkpoint and the log behind it. Nothing is written."""
    for _ in range(JUMPS):
        machine = await newest_machine(checkpoints, set_aside=False)
        try:
            await fold_to(machine, log, upto)
        except Trimmed:
            continue  # a newer checkpoint was confirmed while this one was read
        return machine
    raise Unavailable("the log is trimmed faster than it can be read", upto=upto)


class InlineFolder:
    """Folds in this very process: for tests and the simulator."""

    def __init__(self, log: Log, store: CheckpointStore) -> None:
        self._log = log
        self._store = store

    async def fold(self, upto: int) -> None:
        # Whoever owns the store keeps a damaged one aside; here the one before it will do (CK3).
        machine = await newest_machine(self._store, upto, set_aside=False)
        await fold_to(machine, self._log, upto)
        await self._store.write(machine.position, *checkpoint.dump_runs(machine))
