"""The Kafka server: listeners, the connections they accepted, and a quiet end.

    async with KafkaServer(services=..., limits=..., clock=...) as server:
        await server.listen(Listening(name="client", host="127.0.0.1", port=9092))

Leaving the block stops accepting, answers what was taken, and closes.
"""

import asyncio
import socket
import ssl
from collections import Counter
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from dray.clock import Clock
from dray.errors import Unavailable
from dray.fetch.line import Line
from dray.servers.kafka import telemetry
from dray.servers.kafka.admission.budget import Budget
from dray.servers.kafka.admission.door import Door
from dray.servers.kafka.admission.patience import Times, shed
from dray.servers.kafka.admission.relief import Pressure, Relief
from dray.servers.kafka.connection import Connection
from dray.servers.kafka.dispatch import Routes
from dray.servers.kafka.handler import Services
from dray.servers.kafka.orders import Orders
from dray.servers.kafka.settings import Limits
from dray.servers.kafka.support import Matrix
from dray.tasks.watch import Watch
from dray.telemetry import logger

SWEEP_S: Final = 1.0
BACKLOG: Final = 1024


class CannotListen(Unavailable):
    """A listener could not be opened; nothing is accepted there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """Where to accept connections; port 0 takes a free one."""

    name: str
    host: str
    port: int
    tls: ssl.SSLContext | None = None
    sockets: tuple[socket.socket, ...] = ()
    """Bound already, if not empty."""
    backlog: int = BACKLOG
    """Connections that wait to be accepted, and so the most that are accepted at once."""


class Core:
    """What the connections of one server share."""

    def __init__(
        self,
        *,
        services: Services,
        matrix: Matrix,
        limits: Limits,
        clock: Clock,
        tasks: asyncio.TaskGroup,
        pressure: Pressure | None = None,
    ) -> None:
        self.services: Final = services
        self.matrix: Final = matrix
        self.limits: Final = limits
        self.stranger: Final = limits.stranger
        self.known: Final = limits.known
        self.clock: Final = clock
        self.tasks: Final = tasks
        self.orders: Final = Orders()
        self.routes: Final = Routes(matrix)
        self.budget: Final = Budget(limits.process_inflight_bytes)
        self.relief: Final = Relief(pressure, tasks)
        self.line: Final = Line(limits.unsent_bytes)
        self.times: Final = Times(limits)
        self.connections: Final[dict[Connection, None]] = {}
        self.empty: Final = asyncio.Event()
        self.empty.set()
        self.received_bytes = 0
        self.sent_bytes = 0
        self.stopping = False
        self._told: Counter[str] = Counter()
        self._door = Door(limits)

    def enter(self, connection: Connection) -> str | None:
        """Count a connection in; a reason if it may not stay."""
        self.connections[connection] = None
        self.empty.clear()
        refusal = self._door.enter(connection.address, connection.listener)
        return "stopping" if self.stopping else refusal

    def leave(self, connection: Connection) -> None:
        del self.connections[connection]
        self._door.leave(connection.address, connection.listener)
        if not self.connections:
            self.empty.set()

    def first_time(self, reason: str) -> bool:
        """Whether this is the first such end since the last sweep: a flood of them is two lines a second."""
        self._told[reason] += 1
        return self._told[reason] == 1

    def sweep(self, now_ns: int) -> None:
        """End what hangs, and report."""
        for reason, count in self._told.items():
            if count > 1:
                logger().info(telemetry.MORE_ENDED, reason=reason, count=count - 1)
        self._told.clear()
        for connection in list(self.connections):
            connection.sweep(now_ns)
        shed(self.connections, self.budget)
        self.report()

    def report(self) -> None:
        """Bring the metrics that are counted by hand up to date."""
        telemetry.RECEIVED.inc(self.received_bytes)
        telemetry.SENT.inc(self.sent_bytes)
        self.received_bytes = self.sent_bytes = 0
        telemetry.HELD.set(self.budget.held_bytes)
        telemetry.UNSENT.set(self.line.unsent_bytes)
        telemetry.LINE.set(self.line.waiting)
        telemetry.WAITING.set(self.budget.waiting)
        telemetry.PAUSED.set(self.relief.waiting)


class KafkaServer:
    """All listeners of one process."""

    def __init__(
        self,
        *,
        services: Services,
        clock: Clock,
        limits: Limits | None = None,
        matrix: Matrix | None = None,
        pressure: Pressure | None = None,
        watch: Watch | None = None,
    ) -> None:
        """`pressure` tells when producers must wait; None: never."""
        self._watch = watch or Watch(clock)
        self._services = services
        self._clock = clock
        self._pressure = pressure
        self._limits = limits or Limits()
        self._matrix = matrix or Matrix()
        self._tasks = asyncio.TaskGroup()
        self._servers: list[asyncio.Server] = []
        self._core: Core | None = None
        self._sweeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._core = Core(
            services=self._services,
            matrix=self._matrix,
            limits=self._limits,
            clock=self._clock,
            tasks=self._tasks,
            pressure=self._pressure,
        )
        core = self._core
        self._sweeper = self._tasks.create_task(self._watch.keep("kafka-sweep", lambda: self._sweep(core)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.stop()
        finally:
            try:
                await self._tasks.__aexit__(kind, error, traceback)
            except BaseExceptionGroup as group:
                if error is None or group.exceptions != (error,):
                    raise  # else what the block raised goes on as itself

    @property
    def core(self) -> Core:
        assert self._core is not None, "the server is entered first"
        return self._core

    async def listen(self, listener: Listening) -> tuple[str, int]:
        """Accept connections; returns the address and port taken.

        Raises:
            CannotListen: the address is taken or is not this machine's.
        """
        try:
            servers = await self._open(listener)
        except OSError as error:
            raise CannotListen(
                "cannot accept connections there: stop what uses the port, or choose another address",
                listener=listener.name,
                host=listener.host,
                port=listener.port,
                reason=error.strerror,
            ) from error
        self._servers += servers
        host, port = servers[0].sockets[0].getsockname()[:2]
        logger().info(telemetry.LISTENING, listener=listener.name, host=host, port=port)
        return str(host), int(port)

    async def _open(self, listener: Listening) -> list[asyncio.Server]:
        core, loop = self.core, asyncio.get_running_loop()

        def connect() -> Connection:
            return Connection(core, listener.name)

        if listener.sockets:
            return [
                await loop.create_server(connect, sock=bound, ssl=listener.tls, backlog=listener.backlog)
                for bound in listener.sockets
            ]
        return [
            await loop.create_server(connect, listener.host, listener.port, ssl=listener.tls, backlog=listener.backlog)
        ]

    async def stop(self) -> None:
        """Accept no more, answer what was taken, close; cut what is not done by the deadline."""
        core = self.core
        if core.stopping:
            return
        core.stopping = True
        for server in self._servers:
            server.close()
        for connection in list(core.connections):
            connection.drain()
        await self._wait_until_empty(core)
        cut = list(core.connections)
        for connection in cut:
            connection.abort("stop deadline")
        await core.empty.wait()
        core.relief.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        core.report()
        logger().info(telemetry.STOPPED, cut=len(cut))

    async def _wait_until_empty(self, core: Core) -> None:
        empty = self._tasks.create_task(core.empty.wait())
        deadline = self._tasks.create_task(self._clock.sleep(self._limits.stop_timeout.total_seconds()))
        try:
            await asyncio.wait((empty, deadline), return_when=asyncio.FIRST_COMPLETED)
        finally:
            empty.cancel()
            deadline.cancel()

    async def _sweep(self, core: Core) -> None:
        while True:
            await self._clock.sleep(SWEEP_S)
            core.sweep(self._clock.boot_ns())
