"""Unix sockets of a simulated machine: streams of bytes that arrive late, stall, and break with their process.

`asyncio`'s own streams run on them, so the product's servers and clients do
too. What is written has left its process: it arrives even if the writer dies.
A link that is cut keeps bytes back, as a kernel that sends again does, and
lets them pass when it is joined; only a reset loses them.

Invariants
    SK1  Bytes arrive in the order in which they were written, whole, and
         before the end of their stream; a process that is paused gets them
         when it goes on, a dead one never.
    SK2  The streams of a dead process end: its peers read what it wrote and
         then the end, and nobody listens at its paths any more.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from typing import Final, TypeAlias, cast

from dray.sim.loop import GATE, Gate, SimLoop
from dray.sim.network import Link, Network

Factory: TypeAlias = Callable[[], asyncio.BaseProtocol]
_ENDED: Final = b""


class Sockets:
    """All paths that somebody listens at, and the connections between processes."""

    def __init__(self, loop: SimLoop, network: Network, service: str) -> None:
        """Every connection goes over the link of its client to `service`."""
        self._loop = loop
        self._network = network
        self._service = service
        self._listening: dict[str, tuple[Factory, Context]] = {}
        self._ends: list[End] = []
        loop.sockets = self

    async def listen(self, factory: Factory, path: str) -> asyncio.Server:
        self._listening[path] = (factory, copy_context())
        return cast("asyncio.Server", Listener(self, path))

    def stop_listening(self, path: str) -> None:
        self._listening.pop(path, None)

    async def connect(self, factory: Factory, path: str) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        gate = GATE.get()
        link = self._network.link(gate.name if gate is not None else "world", self._service)
        await link.until_up()
        await link.travel()
        found = self._listening.get(path)
        if found is None:
            raise ConnectionRefusedError(f"nobody listens at {path}")
        serving, context = found
        client = End(self._network, link, copy_context())
        server = End(self._network, link, context)
        client.peer, server.peer = server, client
        self._ends = [end for end in self._ends if not end.over] + [client, server]
        protocol = factory()
        client.protocol = cast("asyncio.Protocol", protocol)
        protocol.connection_made(client)
        self._loop.call_soon(server.accepted, serving, context=context)
        return client, protocol

    def bury(self, gate: Gate) -> None:
        """A process is gone: its streams end, its paths are free (SK2)."""
        for path in [path for path, (_, context) in self._listening.items() if context.get(GATE) is gate]:
            del self._listening[path]
        for end in self._ends:
            if end.gate is gate:
                end.hang_up()

    def reset(self, link: Link) -> None:
        """Every connection over a link breaks; what was under way is lost."""
        for end in self._ends:
            if end.link is link:
                end.reset()


class Listener:
    """What `asyncio` calls a server."""

    def __init__(self, sockets: Sockets, path: str) -> None:
        self._sockets = sockets
        self._path = path

    def close(self) -> None:
        self._sockets.stop_listening(self._path)


class End(asyncio.Transport):
    """One end of a connection, in one process."""

    def __init__(self, network: Network, link: Link, context: Context) -> None:
        super().__init__()
        self.link = link
        self.context = context
        self.gate = context.get(GATE)
        self.peer: End
        self.protocol: asyncio.Protocol | None = None
        self.over = False
        """Nothing is written here any more."""
        self._network = network
        self._loop = network.loop
        self._under_way: deque[bytes] = deque()
        self._last_arrival = 0.0
        self._stalled = False
        self._reading = True
        self._unread: deque[bytes] = deque()
        self._lost = False

    def accepted(self, serving: Factory) -> None:
        """In the process that listens: the connection is made."""
        self.protocol = cast("asyncio.Protocol", serving())
        self.protocol.connection_made(self)

    # What a protocol uses.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.over and data:
            self._send(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def is_closing(self) -> bool:
        return self.over

    def close(self) -> None:
        if not self.over:
            self.hang_up()
            self._loop.call_soon(self._lose, None, context=self.context)

    def abort(self) -> None:
        self.close()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """What is written has left: there is no buffer."""

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        while self._unread and self._reading:
            self._give(self._unread.popleft())

    # The way between.

    def hang_up(self) -> None:
        """The end of what is written here (SK1)."""
        if not self.over:
            self.over = True
            self._send(_ENDED)

    def reset(self) -> None:
        self.over = True
        self._under_way.clear()
        self._loop.call_soon(self._lose, ConnectionResetError("the connection was reset"), context=self.context)

    def _send(self, data: bytes) -> None:
        self._under_way.append(data)
        self._last_arrival = max(self._last_arrival, self._loop.time() + self.link.delay())
        self._loop.call_at(self._last_arrival, self._arrive, context=self._network.outside)

    def _arrive(self) -> None:
        if self._stalled or not self._under_way:
            return
        if not self.link.is_up():
            self._stalled = True
            self._network.start(self._go_on())
            return
        self._loop.call_soon(self.peer.receive, self._under_way.popleft(), context=self.peer.context)

    async def _go_on(self) -> None:
        await self.link.until_up()
        self._stalled = False
        for _ in range(len(self._under_way)):
            self._arrive()

    def receive(self, data: bytes) -> None:
        """In the process of this end."""
        if self._lost:
            return
        if self._reading:
            self._give(data)
        else:
            self._unread.append(data)

    def _give(self, data: bytes) -> None:
        if self._lost or self.protocol is None:
            return
        if not data:
            self.protocol.eof_received()
            self.close()
        else:
            self.protocol.data_received(data)

    def _lose(self, error: Exception | None) -> None:
        if not self._lost and self.protocol is not None:
            self._lost = True
            self.protocol.connection_lost(error)
