"""uvicorn in a process that has other things to do: it takes no signals and no loop of its own.

Invariants
    HT1  A client of the HTTP port keeps no process: when the server stops,
         what is not answered within `STOP_S` is cut.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import uvicorn
from starlette.applications import Starlette

STOP_S: Final = 2
BACKLOG: Final = 128


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the node."""
        yield

    def cut(self) -> None:
        """Close what is still open, whatever it waits for."""
        for connection in list(self.server_state.connections):
            transport = getattr(connection, "transport", None)
            if isinstance(transport, asyncio.Transport):
                transport.abort()


@asynccontextmanager
async def serve_http(app: Starlette, sockets: Sequence[socket.socket]) -> AsyncIterator[None]:
    """Serve on bound sockets while the block runs.

    Raises:
        OSError: somebody else began to listen there.
    """
    for bound in sockets:
        bound.listen(BACKLOG)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        loop="none",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=STOP_S,  # HT1
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=list(sockets)))
    try:
        while not server.started and not serving.done():  # noqa: ASYNC110  uvicorn tells only by this flag
            await asyncio.sleep(0.001)
        yield
    finally:
        server.should_exit = True
        await serving
        server.cut()  # HT1
