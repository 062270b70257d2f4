"""uvicorn in a process that has other things to do: it takes no signals and no loop of its own."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.applications import Starlette

from dray.errors import Unavailable


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the node."""
        yield


@asynccontextmanager
async def serve_http(app: Starlette, host: str, port: int) -> AsyncIterator[tuple[str, int]]:
    """Serve while the block runs; gives the address and port taken (port 0 takes a free one)."""
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise Unavailable(
            "the http address is taken or not ours", host=host, port=port, reason=error.strerror
        ) from error
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", loop="none", ws="none")
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started and not serving.done():  # noqa: ASYNC110  uvicorn tells only by this flag
            await asyncio.sleep(0.001)
        taken = listener.getsockname()
        yield str(taken[0]), int(taken[1])
    finally:
        server.should_exit = True
        await serving
