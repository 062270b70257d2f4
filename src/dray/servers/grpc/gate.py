"""Who calls, and whether they may: what the gRPC server asks, and what it is told where nobody guards heaps.

Every call passes `admit` once, and `check` for each heap that it names; what
cannot be undone passes `confirm` too, what changes what people set up runs in
`audited`, and a stream is held by `hold`.

Invariants
    GT1  No handler touches a heap before `check` has let its caller through.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol, TypeVar

from dray.errors import Conflict
from dray.machine.heaps.catalog import Heap

T = TypeVar("T")


class NotForced(Conflict):
    """What cannot be undone is done when it is asked for with `force`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcCaller:
    """Who makes a call."""

    name: str
    """A key's id, or another name; consumers that have none are named after it."""
    address: str
    actor: str = ""
    """Who it is, for the log of commands."""
    request: str = ""
    """The name of this call there."""
    keyed: str = ""
    """Who it is, if a key said so; for the histories of heaps."""


class Gate(Protocol):
    """Judges calls. Actions are named `heap.make`, `heap.enqueue`, `dlq.replay` and so on."""

    async def admit(self, metadata: Mapping[str, str], address: str) -> GrpcCaller: ...

    def check(self, caller: GrpcCaller, action: str, heap: str) -> None: ...

    async def confirm(
        self, caller: GrpcCaller, action: str, heap: Heap, *, force: bool, confirmation: str, options: str = ""
    ) -> None: ...

    async def audited(self, caller: GrpcCaller, action: str, name: str, work: Callable[[], Awaitable[T]]) -> T: ...

    def hold(self, caller: GrpcCaller) -> AbstractContextManager[asyncio.Event]:
        """A stream of this caller; the event is set when it must end."""
        ...


class OpenGate:
    """Everybody may do everything."""

    async def admit(self, metadata: Mapping[str, str], address: str) -> GrpcCaller:
        return GrpcCaller(name="anonymous", address=address)

    def check(self, caller: GrpcCaller, action: str, heap: str) -> None:
        """Everybody may."""

    async def confirm(
        self, caller: GrpcCaller, action: str, heap: Heap, *, force: bool, confirmation: str, options: str = ""
    ) -> None:
        if not force:
            raise NotForced("this cannot be undone: ask for it with force", action=action, heap=heap.name)

    async def audited(self, caller: GrpcCaller, action: str, name: str, work: Callable[[], Awaitable[T]]) -> T:
        return await work()

    def hold(self, caller: GrpcCaller) -> AbstractContextManager[asyncio.Event]:
        return nullcontext(asyncio.Event())
