"""Who calls, and whether they may: what the gRPC server asks, and what it is told where nobody guards heaps.

Every call passes `admit` once, and `check` for each heap that it names; what
cannot be undone passes `confirm` too.

Invariants
    GT1  No handler touches a heap before `check` has let its caller through.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from dray.errors import Conflict
from dray.machine.heaps.catalog import Heap


class NotForced(Conflict):
    """What cannot be undone is done when it is asked for with `force`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcCaller:
    """Who makes a call."""

    name: str
    """A key's id, or another name; consumers that have none are named after it."""
    address: str


class Gate(Protocol):
    """Judges calls. Actions are named `heap.make`, `heap.enqueue`, `dlq.replay` and so on."""

    async def admit(self, metadata: Mapping[str, str], address: str) -> GrpcCaller: ...

    def check(self, caller: GrpcCaller, action: str, heap: str) -> None: ...

    def confirm(self, caller: GrpcCaller, action: str, heap: Heap, *, force: bool, confirmation: str) -> None: ...


class OpenGate:
    """Everybody may do everything."""

    async def admit(self, metadata: Mapping[str, str], address: str) -> GrpcCaller:
        return GrpcCaller(name="anonymous", address=address)

    def check(self, caller: GrpcCaller, action: str, heap: str) -> None:
        """Everybody may."""

    def confirm(self, caller: GrpcCaller, action: str, heap: Heap, *, force: bool, confirmation: str) -> None:
        if not force:
            raise NotForced("this cannot be undone: ask for it with force", action=action, heap=heap.name)
