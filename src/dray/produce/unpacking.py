"""Turns at the threads that decompress what clients send.

A batch may take a thousand times longer to unpack than to send. If whoever
sends most were served most, one client with many compressed batches on their
way would hold up all others; so each connection has one batch at a time on a
thread, and connections take turns.

Invariants
    KP21  At most one piece of work of an owner runs at a time, and at most
          `width` in all.
    KP22  When a thread is free, the owner that has waited longest since its
          last turn goes on; pieces of one owner run in the order in which
          they came.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from dray.offload import Offload

P = ParamSpec("P")
T = TypeVar("T")


class Unpacking:
    """Work of many owners on a few threads."""

    def __init__(self, offload: Offload, width: int) -> None:
        self._offload = offload
        self._free = width
        self._busy: set[object] = set()
        self._waiting: OrderedDict[object, deque[asyncio.Future[None]]] = OrderedDict()

    async def run(self, owner: object, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """What the function returns, run away from the loop when it is the owner's turn."""
        if self._free and not self._waiting and owner not in self._busy:
            self._begin(owner)
        else:
            await self._turn(owner)
        try:
            return await self._offload.run(function, *args, **kwargs)
        finally:
            self._end(owner)

    def _begin(self, owner: object) -> None:
        self._free -= 1
        self._busy.add(owner)  # KP21

    def _end(self, owner: object) -> None:
        self._free += 1
        self._busy.discard(owner)
        if owner in self._waiting:
            self._waiting.move_to_end(owner)  # behind all others: it waits from now on
        self._call_next()

    async def _turn(self, owner: object) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        self._call_next()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._end(owner)  # its turn had come
            raise

    def _call_next(self) -> None:
        for owner in list(self._waiting):  # KP22
            if not self._free:
                return
            if owner not in self._busy:
                self._call(owner)

    def _call(self, owner: object) -> None:
        turns = self._waiting.pop(owner)
        while turns and turns[0].done():
            turns.popleft()  # given up
        if turns:
            self._begin(owner)
            turns.popleft().set_result(None)
        if turns:
            self._waiting[owner] = turns
