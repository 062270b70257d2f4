"""A domain for tests: a log with a genesis, replicas on it, and a log that misbehaves on demand.

Replicas alone, without the services that stand on them: who tests those takes `tests.plane` and `run_services`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dray.clock import Clock, SystemClock
from dray.ids import SeededEntropy
from dray.log.memory import MemoryLog
from dray.log.port import Log, LostReply, NotAppended, Position
from dray.machine.head import Genesis, founding
from dray.machine.machine import Machine
from dray.machine.sessions import SessionKind
from dray.replica.replica import Replica
from dray.replica.session import COUNTERS, Identity
from dray.replica.writer import Timing

CLUSTER = b"cluster-of-tests"
LOG_ID = b"log-id-1"
FAST = Timing(ttl_ms=600, keepalive_ms=200, settle_ms=300)


def genesis(log_id: bytes = LOG_ID, version: int = 1) -> bytes:
    command = Genesis(cluster_id=CLUSTER, log_id=log_id, domain=0, domains=1, version=version)
    return founding(command, 1_700_000_000_000)


async def new_log(version: int = 1) -> MemoryLog:
    log = MemoryLog()
    await log.append(genesis(version=version))
    return log


def identity(
    name: str, *, instance: bytes | None = None, owner: bool = False, kind: SessionKind = SessionKind.BROKER
) -> Identity:
    return Identity(name=name, instance=instance or name.encode().ljust(16, b"-"), kind=kind, owner=owner)


def replica_on(
    log: Log,
    name: str = "broker-1",
    *,
    clock: Clock | None = None,
    timing: Timing = FAST,
    counters: int = COUNTERS,
    **who,
) -> Replica:
    return Replica(
        log=log,
        machine=Machine(),
        identity=identity(name, **who),
        clock=clock or SystemClock(),
        entropy=SeededEntropy(f"{name} {who}"),
        timing=timing,
        counters=counters,
    )


@asynccontextmanager
async def running(*replicas: Replica) -> AsyncIterator[None]:
    if not replicas:
        yield
        return
    async with replicas[0].running(), running(*replicas[1:]):
        yield


class MoodyLog:
    """A handle that loses replies, swallows requests, refuses or rolls back when told to."""

    def __init__(self, inner: MemoryLog) -> None:
        self.inner = inner
        self.lose_replies = 0
        self.swallow = 0
        self.refuse = 0
        self.sent: list[bytes] = []

    async def append(self, entry: bytes) -> Position:
        self.sent.append(entry)
        if self.refuse:
            self.refuse -= 1
            raise NotAppended("not now")
        if self.swallow:
            self.swallow -= 1
            raise LostReply("swallowed")
        position = await self.inner.append(entry)
        if self.lose_replies:
            self.lose_replies -= 1
            raise LostReply("reply lost")
        return position

    def follow(self, after: Position) -> AsyncIterator[tuple[Position, bytes]]:
        return self.inner.follow(after)

    async def tail(self) -> Position:
        return await self.inner.tail()

    async def trim(self, upto: Position) -> None:
        await self.inner.trim(upto)

    async def close(self) -> None:
        await self.inner.close()
