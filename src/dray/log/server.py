"""The log server: the logs of one data directory, for the other processes of the machine.

Its owner holds the lock of the directory. Every connection is a task group of
its own; whatever it sends, the others do not notice.

Invariants
    LG15  Memory per connection is bounded: calls in flight by bytes, a follow
          stream by its socket's buffer; a connection that does not read is
          not read from.
"""

import asyncio
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from dray.errors import DrayError, Invalid, Unavailable
from dray.log.limits import MAX_ENTRY_BYTES
from dray.log.port import Log, Position
from dray.log.sockets import bind_unix, loopback
from dray.log.telemetry import CONNECTION_DROPPED, SERVER_STARTED
from dray.log.wire import (
    VERSION,
    BadFrame,
    Frame,
    FrameKind,
    Welcome,
    answer_hello,
    decode_domain,
    encode_error,
    encode_frame,
    encode_position,
    encode_welcome,
    entry_of_append,
    position_of_request,
    read_frame,
)
from dray.telemetry import logger

IN_FLIGHT_BYTES: Final = 4 << 20
WRITE_BUFFER_BYTES: Final = 256 << 10
HELLO_SECONDS: Final = 10.0
CALLS: Final = frozenset({FrameKind.APPEND, FrameKind.TAIL, FrameKind.TRIM})


class LogServer:
    """Serves logs by the number of their domain, on any number of sockets."""

    def __init__(
        self, logs: Mapping[int, Log], *, cluster_id: uuid.UUID, max_entry_bytes: int = MAX_ENTRY_BYTES
    ) -> None:
        self._logs = dict(logs)
        self._max_entry_bytes = max_entry_bytes
        self._welcome = Welcome(
            version=VERSION,
            cluster_id=cluster_id,
            max_entry_bytes=max_entry_bytes,
            domains=tuple(sorted(self._logs)),
        )
        self._servers: list[asyncio.Server] = []
        self._paths: list[Path] = []
        self._connections: set[asyncio.Task[None]] = set()

    async def listen_unix(self, path: Path) -> None:
        """Serve on a unix socket of mode 0600."""
        server = await asyncio.start_unix_server(self._accept, sock=bind_unix(path))
        self._servers.append(server)
        self._paths.append(path)
        logger().info(SERVER_STARTED, address=str(path))

    async def listen_tcp(self, host: str, port: int) -> int:
        """Serve on a loopback address; returns the port, which is chosen if 0 was given."""
        server = await asyncio.start_server(self._accept, loopback(host), port)
        self._servers.append(server)
        chosen: int = server.sockets[0].getsockname()[1]
        logger().info(SERVER_STARTED, address=f"{host}:{chosen}")
        return chosen

    async def close(self) -> None:
        """Stop listening and drop every connection; what was in flight there is unknown to its client."""
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        self._servers.clear()
        while self._paths:
            self._paths.pop().unlink(missing_ok=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        try:
            await _Connection(self._logs, self._welcome, self._max_entry_bytes, reader, writer).run()
        except* (OSError, asyncio.IncompleteReadError, TimeoutError):
            pass  # the client is gone, or never spoke
        except* BadFrame as group:
            logger().warning(CONNECTION_DROPPED, reason=str(group.exceptions[0]))
        finally:
            writer.close()


class _Connection:
    """One client."""

    def __init__(
        self,
        logs: Mapping[int, Log],
        welcome: Welcome,
        max_entry_bytes: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._logs = logs
        self._welcome = welcome
        self._max_entry_bytes = max_entry_bytes
        self._reader = reader
        self._writer = writer
        self._in_flight_bytes = 0
        self._fewer_in_flight = asyncio.Event()

    async def run(self) -> None:
        """Serve until the client goes or breaks the rules."""
        async with asyncio.timeout(HELLO_SECONDS):
            frame = await read_frame(self._reader, 0)
        try:
            version = answer_hello(frame)
        except BadFrame as error:
            with suppress(OSError):
                await self._send(FrameKind.ERROR, frame.id, encode_error(error))
            raise
        await self._send(FrameKind.WELCOME, frame.id, encode_welcome(replace(self._welcome, version=version)))
        async with asyncio.TaskGroup() as calls:
            while True:
                frame = await read_frame(self._reader, self._max_entry_bytes)
                if frame.kind == FrameKind.FOLLOW:
                    calls.create_task(self._stream(frame))
                    await self._nothing_more()
                if frame.kind not in CALLS:
                    raise BadFrame("a request of an unknown kind", kind=frame.kind)
                self._in_flight_bytes += len(frame.payload)
                calls.create_task(self._answer(frame))
                while self._in_flight_bytes > IN_FLIGHT_BYTES:  # LG15
                    self._fewer_in_flight.clear()
                    await self._fewer_in_flight.wait()

    async def _nothing_more(self) -> None:
        """Wait for the end of a connection that has become a stream."""
        if await self._reader.read(1):
            raise BadFrame("a connection that follows may send nothing more")
        raise ConnectionResetError("the follower is gone")

    async def _answer(self, frame: Frame) -> None:
        try:
            position = await self._call(frame)
        except BadFrame:
            raise
        except DrayError as error:
            await self._send(FrameKind.ERROR, frame.id, encode_error(error))
        else:
            await self._send(FrameKind.POSITION, frame.id, encode_position(position))
        finally:
            self._in_flight_bytes -= len(frame.payload)
            self._fewer_in_flight.set()

    async def _call(self, frame: Frame) -> Position:
        log = self._log(frame)
        match frame.kind:
            case FrameKind.APPEND:
                return await log.append(entry_of_append(frame.payload))
            case FrameKind.TAIL:
                return await log.tail()
            case _:
                upto = Position(position_of_request(frame.payload))
                await log.trim(upto)
                return upto

    async def _stream(self, frame: Frame) -> None:
        try:
            after = Position(position_of_request(frame.payload))
            async for position, entry in self._log(frame).follow(after):
                await self._send(FrameKind.ENTRY, frame.id, encode_position(position), entry)
            error: DrayError = Unavailable("the log was closed")
        except BadFrame:
            raise
        except DrayError as raised:
            error = raised
        await self._send(FrameKind.ERROR, frame.id, encode_error(error))
        raise ConnectionAbortedError("the stream has ended")

    def _log(self, frame: Frame) -> Log:
        domain = decode_domain(frame.payload)
        if domain not in self._logs:
            raise Invalid("this log server has no such domain", domain=domain)
        return self._logs[domain]

    async def _send(self, kind: FrameKind, request: int, *parts: bytes) -> None:
        self._writer.writelines(encode_frame(kind, request, *parts))
        await self._writer.drain()
