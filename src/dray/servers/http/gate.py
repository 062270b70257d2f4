"""Where a request is let in: the one place in which an endpoint learns who asks, and whether they may.

    caller = await gate.admit(request)            who it is
    gate.allow(caller, "topic.produce", "orders") whether they may do that to what has this name
    await gate.confirm(...)                       whether they have asked for it twice
    await gate.audited(...)                       what changes things is written down

Invariants
    HG1  No endpoint of the API does anything before `admit` and `allow` have
         returned.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from starlette.requests import Request

from dray.errors import Conflict

T = TypeVar("T")


class NeedsForce(Conflict):
    """What cannot be undone is done only if that is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """Who makes a request."""

    name: str = "ANONYMOUS"
    key_id: str = ""


class Gate(Protocol):
    """Who may ask."""

    async def admit(self, request: Request) -> Asker: ...

    def allow(self, asker: Asker, action: str, name: str) -> None: ...

    async def confirm(
        self, asker: Asker, action: str, *, target: bytes, revision: int, given: str, force: bool, options: str
    ) -> None: ...

    async def audited(self, asker: Asker, action: str, name: str, work: Callable[[], Awaitable[T]]) -> T: ...


class OpenGate:
    """Lets everybody do everything."""

    async def admit(self, request: Request) -> Asker:
        return Asker()

    def allow(self, asker: Asker, action: str, name: str) -> None:
        """Everybody may."""

    async def confirm(
        self, asker: Asker, action: str, *, target: bytes, revision: int, given: str, force: bool, options: str
    ) -> None:
        if not force:
            raise NeedsForce("this cannot be undone: ask again with force", operation=action)

    async def audited(self, asker: Asker, action: str, name: str, work: Callable[[], Awaitable[T]]) -> T:
        return await work()
