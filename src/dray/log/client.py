"""A log that another process serves.

Calls share one connection, a follower has its own. A connection that broke
is made again by the next call, and by a follower at once: it goes on behind
the last entry that it delivered.

Invariants
    LG16  Once the first byte of an append may have left, a broken connection
          or a passed deadline is `LostReply`; before that it is `Unreachable`.
    LG17  A follower delivers each position once and in order through any
          number of reconnects.
    LG18  A connection on which an answer did not come in time is used no
          more: the next call makes another.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

from dray.errors import Corrupt, Invalid, Unavailable
from dray.log.limits import MAX_ENTRY_BYTES, check_entry
from dray.log.port import LostReply, NotAppended, Position
from dray.log.sockets import Address, reachable_path
from dray.log.telemetry import RECONNECTING
from dray.log.wire import (
    OLDEST,
    VERSION,
    BadFrame,
    Frame,
    FrameKind,
    Welcome,
    decode_error,
    decode_position,
    decode_welcome,
    encode_domain,
    encode_domain_position,
    encode_frame,
    entry_of_answer,
    hello,
    read_frame,
)
from dray.telemetry import logger

CONNECT_SECONDS: Final = 5.0
CALL_SECONDS: Final = 5.0
"""Longer than a healthy server needs for anything, and short enough for a second try within a session's life."""
RETRY_SECONDS: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Pauses between attempts to reach the server; a follower keeps to the last one."""


class Unreachable(NotAppended):
    """No log server answers; nothing was sent. Is it running?"""


class WrongServer(NotAppended):
    """A log server answers, but not the one that was meant: check the configuration."""


class ClientLog:
    """The log of one domain, over a socket."""

    def __init__(
        self,
        address: Address,
        domain: int,
        *,
        cluster_id: uuid.UUID | None = None,
        max_entry_bytes: int = MAX_ENTRY_BYTES,
        call_seconds: float = CALL_SECONDS,
    ) -> None:
        self._address = address
        self._domain = domain
        self._cluster_id = cluster_id
        self._max_entry_bytes = max_entry_bytes
        self._call_seconds = call_seconds
        self._calls: _Calls | None = None
        # Shared by all who wait for it, so it must outlive each of them; close awaits it.
        self._connecting: asyncio.Task[_Calls] | None = None
        self._streams: set[asyncio.StreamWriter] = set()
        self._closing = asyncio.Event()

    async def append(self, entry: bytes) -> Position:
        check_entry(entry, self._max_entry_bytes)
        calls = await self._connected()
        check_entry(entry, calls.max_entry_bytes)
        try:
            async with asyncio.timeout(self._call_seconds):
                answer = await calls.call(FrameKind.APPEND, encode_domain(self._domain), entry)
            return Position(decode_position(answer.payload))
        except (_Gone, TimeoutError, BadFrame, Corrupt) as error:
            if isinstance(error, TimeoutError):
                calls.drop()  # LG18
            raise LostReply("the log server did not answer; the entry may be in the log") from error  # LG16
        except (Invalid, Unavailable) as error:
            raise NotAppended(str(error)) from error

    async def tail(self) -> Position:
        return await self._repeat(FrameKind.TAIL, encode_domain(self._domain))

    async def trim(self, upto: Position) -> None:
        await self._repeat(FrameKind.TRIM, encode_domain_position(self._domain, upto))

    async def follow(self, after: Position) -> AsyncIterator[tuple[Position, bytes]]:
        failures = 0
        while not self._closing.is_set():
            try:
                reader, writer, welcome = await self._open()
            except Unreachable as error:
                await self._pause(failures, error)
                failures += 1
                continue
            self._streams.add(writer)
            try:
                request = encode_domain_position(self._domain, after)
                writer.writelines(encode_frame(FrameKind.FOLLOW, 1, request))
                while True:
                    frame = await read_frame(reader, welcome.max_entry_bytes)
                    position = _position_of_entry(frame, after)
                    failures = 0
                    after = position  # LG17: moved before the entry is given away
                    yield position, entry_of_answer(frame.payload)
            except (OSError, asyncio.IncompleteReadError, NotAppended, Unavailable) as error:
                if not self._closing.is_set():
                    await self._pause(failures, error)
                    failures += 1
            finally:
                self._streams.discard(writer)
                writer.close()

    async def close(self) -> None:
        self._closing.set()
        for writer in list(self._streams):
            writer.close()
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        if self._calls is not None:
            await self._calls.close()

    async def _repeat(self, kind: FrameKind, payload: bytes) -> Position:
        """A call that may be sent any number of times."""
        cause: Exception | None = None
        calls: _Calls | None = None
        try:
            async with asyncio.timeout(self._call_seconds):
                for pause in RETRY_SECONDS:
                    try:
                        calls = await self._connected()
                        return Position(decode_position((await calls.call(kind, payload)).payload))
                    except (Unreachable, _Gone) as error:
                        cause = error
                    if self._closing.is_set():
                        break
                    await asyncio.sleep(pause)
        except TimeoutError as error:
            cause = cause or error
            if calls is not None:
                calls.drop()  # LG18
        raise Unavailable("the log server does not answer", address=self._address) from cause

    async def _pause(self, failures: int, error: Exception) -> None:
        """Wait a little, or until the log is closed."""
        pause = RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)]
        logger(domain=self._domain).info(RECONNECTING, address=str(self._address), pause_s=pause, reason=str(error))
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._closing.wait()

    async def _connected(self) -> "_Calls":
        """The connection for calls, made if there is none; concurrent callers share the attempt."""
        if self._calls is not None and not self._calls.gone:
            return self._calls
        if self._closing.is_set():
            raise Unreachable("the log is closed")
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect_calls())
            self._connecting.add_done_callback(_heed_not)  # whoever waited may be gone
        return await asyncio.shield(self._connecting)

    async def _connect_calls(self) -> "_Calls":
        try:
            self._calls = _Calls(*await self._open())
            return self._calls
        finally:
            self._connecting = None

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Welcome]:
        """A connection after its greeting."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                reader, writer = await connect(self._address)
                try:
                    welcome = await self._greet(reader, writer)
                except BaseException:
                    writer.close()
                    raise
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            raise Unreachable("no log server answers: is its process running?", address=self._address) from error
        except BadFrame as error:
            raise WrongServer("the other side is not a log server", address=self._address) from error
        return reader, writer, welcome

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Welcome:
        writer.writelines(encode_frame(FrameKind.HELLO, 0, hello()))
        frame = await read_frame(reader, 0)
        if frame.kind == FrameKind.ERROR:
            raise WrongServer(str(decode_error(frame.payload)), address=self._address)
        if frame.kind != FrameKind.WELCOME:
            raise BadFrame("the other side is not a log server", address=self._address)
        welcome = decode_welcome(frame.payload)
        if not OLDEST <= welcome.version <= VERSION:  # LG19
            raise WrongServer(
                "client and log server have no version in common: upgrade the older one",
                server=welcome.version, oldest=OLDEST, newest=VERSION,
            )  # fmt: skip
        if self._cluster_id is not None and welcome.cluster_id != self._cluster_id:
            raise WrongServer("this is the log of another cluster", found=welcome.cluster_id, meant=self._cluster_id)
        if self._domain not in welcome.domains:
            raise WrongServer("the log server has no such domain", domain=self._domain, served=welcome.domains)
        return welcome


class _Gone(Exception):
    """The connection ended before the answer came."""


class _Calls:
    """One connection with pipelined calls."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, welcome: Welcome) -> None:
        self._reader = reader
        self._writer = writer
        self._answers: dict[int, asyncio.Future[Frame]] = {}
        self._last_id = 0
        self.max_entry_bytes = welcome.max_entry_bytes
        self._gone = False
        self._reading = asyncio.get_running_loop().create_task(self._read())

    @property
    def gone(self) -> bool:
        """Whether this connection is known to be of no more use."""
        return self._gone or self._writer.is_closing()

    async def call(self, kind: FrameKind, *parts: bytes) -> Frame:
        """The answer, or what the server raised; `_Gone` if neither came."""
        if self.gone:
            raise _Gone
        self._last_id = request = self._last_id + 1
        answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._answers[request] = answer
        try:
            self._writer.writelines(encode_frame(kind, request, *parts))
            await self._writer.drain()
            frame = await answer
        except OSError as error:
            self._gone = True
            raise _Gone from error
        finally:
            self._answers.pop(request, None)
        if frame.kind == FrameKind.ERROR:
            raise decode_error(frame.payload)
        return frame

    def drop(self) -> None:
        """Nothing comes back on this connection: whoever waits on it learns so now."""
        self._gone = True
        self._reading.cancel()

    async def _read(self) -> None:
        try:
            while True:
                frame = await read_frame(self._reader, 0)
                answer = self._answers.get(frame.id)
                if answer is not None and not answer.done():
                    answer.set_result(frame)
        except (OSError, asyncio.IncompleteReadError, BadFrame):
            pass  # said to the callers below
        finally:
            self._gone = True
            self._writer.close()
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(_Gone())

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)


def _heed_not(attempt: "asyncio.Task[_Calls]") -> None:
    """Whoever still waits learns what it ended with; nobody has to."""
    if not attempt.cancelled():
        attempt.exception()


async def connect(address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to whoever listens there."""
    if isinstance(address, tuple):
        return await asyncio.open_connection(*address)
    with reachable_path(address) as name:
        return await asyncio.open_unix_connection(name)


def _position_of_entry(frame: Frame, after: Position) -> Position:
    """The position in a frame of a follow stream, or the error that ended the stream."""
    if frame.kind == FrameKind.ERROR:
        raise decode_error(frame.payload)
    position = Position(decode_position(frame.payload))
    if frame.kind != FrameKind.ENTRY or position <= after:
        raise BadFrame("the log server sent something that is not the next entry", kind=frame.kind)
    return position
