"""The newest state that a store of checkpoints gives."""

from dray.errors import Corrupt, DrayError, NotFound
from dray.machine.machine import Machine
from dray.replica import telemetry
from dray.replica.checkpoints.port import CheckpointStore
from dray.telemetry import logger


async def newest_machine(store: CheckpointStore, upto: int | None = None, *, set_aside: bool = True) -> Machine:
    """The machine of the newest confirmed checkpoint that can be read, or an empty one if there is none (CK3)."""
    for position in reversed(await store.confirmed()):
        if upto is not None and position > upto:
            continue
        try:
            return await store.load(position)
        except NotFound:
            continue  # it went between two calls
        except Corrupt as error:
            await report_damaged(store, position, error, set_aside=set_aside)
    return Machine()


async def report_damaged(store: CheckpointStore, position: int, error: DrayError, *, set_aside: bool = True) -> None:
    """Say so, and keep the file where nobody loads it."""
    logger().error(telemetry.CHECKPOINT_DAMAGED, position=position, error=str(error))
    if not set_aside:
        return
    try:
        await store.set_aside(position)
    except DrayError as second:  # a disk that takes no writes: it is passed over again the next time
        logger().warning(telemetry.CHECKPOINT_FAILED, position=position, error=str(second))
