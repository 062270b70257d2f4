"""A relay between a client and a log server that loses answers and connections, or goes silent, when told to."""

import asyncio
from contextlib import suppress
from pathlib import Path

from dray.log.sockets import Address
from dray.log.wire import HEAD, FrameKind


class Proxy:
    def __init__(self, target: Address) -> None:
        self.target = target
        self.lose_next_answer = False
        self.holds_new = False
        """Connections that are made from now on are half open: nothing passes."""
        self._held: set[asyncio.Task[None]] = set()
        self._following: set[asyncio.Task[None]] = set()
        self._let_go = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, like: Address) -> Address:
        if isinstance(like, Path):
            path = like.with_suffix(".proxy")
            self._server = await asyncio.start_unix_server(self._accept, path)
            return path
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return ("127.0.0.1", self._server.sockets[0].getsockname()[1])

    async def cut(self) -> None:
        """Break every connection that there is."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def hold_followers(self) -> int:
        """Let nothing pass on the connections that follow, though they stay open; returns how many these are."""
        held = {task for task in self._following if not task.done()}
        self._held |= held
        return len(held)

    def hold_all(self, *, new: bool = True) -> None:
        """Let nothing pass any more on the connections that there are, and on `new` ones."""
        self._held |= self._tasks
        self.holds_new = new

    def release(self) -> None:
        """Let everything pass again, what was held too."""
        self.holds_new = False
        self._held.clear()
        self._let_go.set()
        self._let_go = asyncio.Event()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self.cut()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._relay(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self.holds_new:
            self._held.add(task)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = None
        relay = asyncio.current_task()
        assert relay is not None
        try:
            if isinstance(self.target, Path):
                back, there = await asyncio.open_unix_connection(self.target)
            else:
                back, there = await asyncio.open_connection(*self.target)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(relay, reader, there, answers=False))
                group.create_task(self._pump(relay, back, writer, answers=True))
        except* (OSError, EOFError):
            pass
        finally:
            for end in (writer, there):
                if end is not None:
                    end.close()

    async def _pump(
        self,
        relay: "asyncio.Task[None]",
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        answers: bool,
    ) -> None:
        while part := await reader.read(65536):
            if not answers and len(part) >= HEAD.size and HEAD.unpack_from(part)[1] == FrameKind.FOLLOW:
                self._following.add(relay)
            while relay in self._held:
                await self._let_go.wait()
            if answers and self.lose_next_answer:
                self.lose_next_answer = False
                raise EOFError
            writer.write(part)
            with suppress(ConnectionResetError):
                await writer.drain()
        raise EOFError
