"""An operator's step to a newer version of the rules, in every domain of a directory.

Beside a running broker it goes through `DIR/meta.sock`; with none, the
directory is locked and its logs are opened for as long as it takes. The
machine judges: where a live broker or compactor does not know the version,
nothing changes and the refusal says so (M12).
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from dray.disk import DirectoryInUse, DirectoryLock
from dray.errors import Conflict
from dray.log.client import ClientLog
from dray.log.files import FileLog
from dray.log.port import Log
from dray.machine.head import Activate
from dray.machine.machine import Machine
from dray.machine.sessions import SessionKind
from dray.machine.verdict import Refused
from dray.node.directory import DataDirectory
from dray.node.metadata import Effects
from dray.replica.checkpoints import FileCheckpoints, newest_machine
from dray.replica.replica import Replica
from dray.replica.session import Identity
from dray.replica.writer import SHORTEST_TTL_MS, Timing


async def activate(directory: DataDirectory, version: int, effects: Effects) -> dict[int, tuple[int, int]]:
    """For each domain the version before and after.

    Raises:
        Conflict: a live broker or compactor does not support it; nothing changed there.
    """
    directory.read_identity(effects.disk)
    done = {}
    async with AsyncExitStack() as stack:
        beside = _lock(stack, directory)
        for domain in directory.domains(effects.disk):
            log = await _open_log(stack, directory, domain, effects, beside=beside)
            replica = await stack.enter_async_context(_following(directory, domain, log, effects))
            before = replica.machine.version
            if version < before:
                raise Conflict("a newer version is active already", active=before, wanted=version)
            (verdict,) = await replica.propose(Activate(version=version))
            if isinstance(verdict, Refused):
                raise Conflict(
                    "not every broker and compactor knows this version: upgrade them first",
                    version=version, reason=verdict.reason,
                )  # fmt: skip
            done[domain] = before, replica.machine.version
    return done


def newest_version() -> int:
    """What this build knows."""
    return Machine.supported


def _lock(stack: AsyncExitStack, directory: DataDirectory) -> bool:
    """Whether another process owns the directory; else it is ours until the stack ends."""
    try:
        lock = DirectoryLock(directory.root)
    except DirectoryInUse:
        return True
    stack.callback(lock.release)
    return False


async def _open_log(
    stack: AsyncExitStack, directory: DataDirectory, domain: int, effects: Effects, *, beside: bool
) -> Log:
    if beside:
        log: ClientLog | FileLog = ClientLog(directory.socket, domain)
    else:
        log = await FileLog.open(
            directory.log(domain), disk=effects.disk, offload=effects.offload, clock=effects.clock
        )  # fmt: skip
    stack.push_async_callback(log.close)
    return log


@asynccontextmanager
async def _following(directory: DataDirectory, domain: int, log: Log, effects: Effects) -> AsyncIterator[Replica]:
    """A replica of a tool: it has no say in upgrades, and expires nobody (RP6)."""
    checkpoints = FileCheckpoints(directory.checkpoints(domain), effects.disk, effects.offload)
    replica = Replica(
        log=log,
        machine=await newest_machine(checkpoints),
        identity=Identity(
            name=f"operator-{effects.entropy.random_bytes(4).hex()}",
            instance=effects.entropy.random_bytes(16),
            kind=SessionKind.TOOL,
            owner=False,
        ),
        clock=effects.clock,
        entropy=effects.entropy,
        timing=Timing(keepalive_ms=SHORTEST_TTL_MS // 3),
        checkpoints=checkpoints,
    )
    async with replica.running():
        yield replica
        await replica.close_session()
