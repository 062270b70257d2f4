"""Brokers that let people in, on one log, for tests."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from dray.access.audit import Audit, AuditFile
from dray.access.key_service import KeyService, NewKey
from dray.access.principals import Entrance, KnownCaller, nobody
from dray.access.service import AccessService
from dray.access.settings import AccessSettings
from dray.clock import ManualClock
from dray.disk import Disk
from dray.ids import SystemEntropy
from dray.log.memory import MemoryLog
from dray.log.port import Log
from dray.machine.access import ApiKey, KeyRole
from dray.offload import InlineOffload, ThreadOffload
from dray.replica.replica import Replica
from tests.heaps.stand import CALM
from tests.replica.domain import new_log, replica_on

HERE = "127.0.0.1"
TESTER = nobody(Entrance.HTTP, HERE, "request-1")
AUDIT = Path("/data/audit")


@dataclass
class Stand:
    """One broker. Its clock is for memories and limits; the log's time is the machine's."""

    access: AccessService
    keys: KeyService
    replica: Replica
    clock: ManualClock
    log: Log

    async def key(self, name: str = "a", role: KeyRole | None = None, **fields) -> tuple[ApiKey, str]:
        record, text = await self.keys.create(NewKey(name=name, role=role, **fields), TESTER)
        return record, text.reveal()

    async def admit(self, shown: str | None, address: str = HERE) -> KnownCaller:
        return await self.access.admit(shown, door=Entrance.HTTP, address=address)


@asynccontextmanager
async def stand(
    log: Log | None = None, name: str = "broker-1", *, loopback: bool = True, disk: Disk | None = None, **settings
) -> AsyncIterator[Stand]:
    async with AsyncExitStack() as stack:
        log = log or await new_log(version=2)
        replica = await stack.enter_async_context(replica_on(log, name, timing=CALM).running())
        await replica.open_session()
        threads, clock, entropy = ThreadOffload(2, "dray-keys"), ManualClock(), SystemEntropy()
        stack.callback(threads.close)
        file = None if disk is None else AuditFile(AUDIT, disk)
        access = AccessService(
            catalog=replica, clock=clock, entropy=entropy, offload=threads, loopback=loopback,
            audit=Audit(file, InlineOffload()), settings=AccessSettings(**settings),
        )  # fmt: skip
        await stack.enter_async_context(access.running())
        keys = KeyService(catalog=replica, entropy=entropy, offload=threads)
        yield Stand(access, keys, replica, clock, log)


@asynccontextmanager
async def two() -> AsyncIterator[tuple[Stand, Stand]]:
    """Two brokers of one log."""
    log = await new_log(version=2)
    async with stand(log) as first, stand(MemoryLog(log.sequence), "broker-2") as second:
        yield first, second
