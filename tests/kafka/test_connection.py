"""A connection on a transport of memory: moments that a socket does not give reliably."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from dray.clock import SystemClock
from dray.groups.offsets import CommitCode, Partition
from dray.replica.domains import Domains
from dray.routing.sending import Sending
from dray.servers.kafka.connection import Connection
from dray.servers.kafka.handler import Context, Services
from dray.servers.kafka.messages.heartbeat import HeartbeatResponse
from dray.servers.kafka.messages.offset_commit import SCHEMA as OFFSET_COMMIT
from dray.servers.kafka.messages.offset_commit import OffsetCommitRequest
from dray.servers.kafka.server import Core
from dray.servers.kafka.settings import Limits
from dray.servers.kafka.support import APIS, Api, Matrix
from tests.kafka.wire import (
    API_VERSIONS_ROW,
    HEARTBEAT,
    NO_SERVICES,
    PRODUCE,
    heartbeat,
    heartbeat_api,
    produce,
    produce_api,
    request_bytes,
)


class MemoryTransport(asyncio.Transport):
    """Keeps what was written and whether it is read from."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.sent.append(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close


def connect(
    tasks: asyncio.TaskGroup, *rows: Api, services: Services = NO_SERVICES
) -> tuple[Core, Connection, MemoryTransport]:
    matrix = Matrix([API_VERSIONS_ROW, *rows])
    core = Core(services=services, matrix=matrix, limits=Limits(), clock=SystemClock(), tasks=tasks)
    connection, transport = Connection(core, "client"), MemoryTransport()
    connection.connection_made(transport)
    return core, connection, transport


def receive(connection: Connection, raw: bytes) -> None:
    tail = connection.get_buffer(-1)
    tail[: len(raw)] = raw
    tail.release()
    connection.buffer_updated(len(raw))


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize("abandoned", [True, False])
async def test_a_client_lost_before_its_handler_began_leaves_nothing_behind(abandoned: bool) -> None:
    """KP15: a task that is cancelled before its first step runs none of its code."""
    ended: list[str] = []

    async def handle(request: object, context: Context) -> HeartbeatResponse:
        ended.append("handled")
        return HeartbeatResponse()

    async with asyncio.TaskGroup() as tasks:
        core, connection, transport = connect(tasks, heartbeat_api(handle, abandoned=abandoned))
        for n in range(3):
            receive(connection, request_bytes(HEARTBEAT, 4, heartbeat(), n))
        connection.connection_lost(None)
        await settle()
    assert (core.budget.requests, core.budget.held_bytes, len(core.connections)) == (0, 0, 0)
    assert transport.sent == []
    assert ended == ([] if abandoned else ["handled"])  # what was not started is dropped


async def test_what_may_break_off_is_cancelled_on_a_lost_connection_and_answered_on_a_half_closed_one() -> None:
    """Only a lost connection proves that nobody waits: a client that sends no more may still read."""
    gate, ended = asyncio.Event(), []

    async def handle(request: object, context: Context) -> HeartbeatResponse:
        try:
            await gate.wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        ended.append("finished")
        return HeartbeatResponse()

    async with asyncio.TaskGroup() as tasks:
        core, lost, _ = connect(tasks, heartbeat_api(handle, breakable=True))
        receive(lost, request_bytes(HEARTBEAT, 4, heartbeat(), 1))
        await settle()
        lost.connection_lost(ConnectionResetError())
        await settle()
        assert (ended, len(core.connections)) == (["cancelled"], 0)
        _, half, transport = connect(tasks, heartbeat_api(handle, breakable=True))
        receive(half, request_bytes(HEARTBEAT, 4, heartbeat(), 2))
        await settle()
        half.eof_received()
        await settle()
        assert ended == ["cancelled"]
        gate.set()
        await settle()
        assert ended == ["cancelled", "finished"]
        assert transport.sent
        half.connection_lost(None)


async def test_a_commit_is_awaited_until_its_client_closes_its_side() -> None:
    """RT23: it is answered all the same."""
    gate, awaited = asyncio.Event(), []

    class Offsets:
        async def commit(
            self, *_: object, is_awaited: Callable[[], bool], **more: object
        ) -> dict[Partition, CommitCode]:
            awaited.append(is_awaited())
            await gate.wait()
            awaited.append(is_awaited())
            return {}

    services = cast(Services, SimpleNamespace(domains=Domains({}), sending=Sending(enforced=False), offsets=Offsets()))
    row = next(api for api in APIS if api.name == "OffsetCommit")
    async with asyncio.TaskGroup() as tasks:
        _, connection, transport = connect(tasks, row, services=services)
        receive(connection, request_bytes(OFFSET_COMMIT, 8, OffsetCommitRequest(group_id="g"), 1))
        await settle()
        connection.eof_received()
        gate.set()
        await settle()
        connection.connection_lost(None)
    assert awaited == [True, False]
    assert transport.sent


async def test_a_mistake_in_ending_a_request_costs_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """WT3: the tasks of all connections share a group; none of them may break it."""

    async def handle(request: object, context: Context) -> HeartbeatResponse:
        return HeartbeatResponse()

    async with asyncio.TaskGroup() as tasks:
        _, broken, transport = connect(tasks, heartbeat_api(handle))
        monkeypatch.setattr(broken, "_flush", lambda: 1 / 0)
        receive(broken, request_bytes(HEARTBEAT, 4, heartbeat(), 1))
        await settle()
        assert transport.closed
        _, fine, other = connect(tasks, heartbeat_api(handle))
        receive(fine, request_bytes(HEARTBEAT, 4, heartbeat(), 1))
        await settle()
        assert other.sent


@pytest.mark.parametrize("abandoned", [True, False])
async def test_a_client_lost_while_its_handler_waits(abandoned: bool) -> None:
    """Work for nobody is cancelled; a produce goes on, and the connection counts until it has ended."""
    gate, ended = asyncio.Event(), []

    async def handle(request: object, context: Context) -> None:
        try:
            await gate.wait()
            ended.append("finished")
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async with asyncio.TaskGroup() as tasks:
        core, connection, _ = connect(tasks, produce_api(handle, abandoned=abandoned))
        receive(connection, request_bytes(PRODUCE, 12, produce(bytes(1000), acks=0), 1))
        await settle()
        connection.connection_lost(ConnectionResetError())
        await settle()
        assert len(core.connections) == (0 if abandoned else 1)
        gate.set()
        await settle()
    assert ended == ["cancelled" if abandoned else "finished"]
    assert (core.budget.requests, core.budget.held_bytes, len(core.connections)) == (0, 0, 0)


async def test_a_mistake_in_taking_a_request_costs_one_connection() -> None:
    row = heartbeat_api(lambda request, context: None, module="dray.no_such_module")
    async with asyncio.TaskGroup() as tasks:
        core, connection, transport = connect(tasks, row)
        receive(connection, request_bytes(HEARTBEAT, 4, heartbeat(), 1))
        assert transport.closed
        connection.connection_lost(None)
    assert core.budget.held_bytes == 0
