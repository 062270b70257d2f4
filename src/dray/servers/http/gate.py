"""Where a request is let in: the one place in which an endpoint learns who asks, and whether they may.

    caller = await gate.admit(request)            who it is
    gate.allow(caller, "topic.produce", "orders") whether they may do that to what has this name
    await gate.confirm(...)                       whether they have asked for it twice
    await gate.audited(...)                       what changes things is written down
    with gate.hold(caller) as ended               a stream ends with its key

Invariants
    HG1  No endpoint of the API does anything before `admit` and `allow` have
         returned.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from starlette.requests import Request

from dray.access.authorizer import Action
from dray.access.principals import Entrance, KnownCaller
from dray.access.service import AccessService, bearer

T = TypeVar("T")

AUTHORIZATION: Final = "authorization"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpCaller:
    """Who makes a request."""

    name: str
    """A key's id, or `anonymous`."""
    actor: str
    """Who it is, for the log of commands."""
    request: str
    """The name of this request there."""
    who: KnownCaller

    @property
    def keyed(self) -> str:
        """Who it is, if a key said so; for the histories of heaps."""
        return self.actor if self.who.key_id else ""


class HttpGuard:
    """Lets in who shows a valid key, or anybody where none is needed."""

    def __init__(self, access: AccessService) -> None:
        self._access = access

    async def admit(self, request: Request) -> HttpCaller:
        shown = bearer(request.headers.getlist(AUTHORIZATION))
        address = "" if request.client is None else request.client.host
        who = await self._access.admit(shown, door=Entrance.HTTP, address=address)
        return HttpCaller(name=who.key_id or "anonymous", actor=str(who.principal), request=who.request, who=who)

    def allow(self, caller: HttpCaller, action: str, name: str) -> None:
        self._access.allow(caller.who, Action(action), name)

    async def confirm(
        self,
        caller: HttpCaller,
        action: str,
        *,
        target: bytes,
        revision: int,
        given: str,
        force: bool,
        options: str = "",
    ) -> None:
        await self._access.confirm(
            caller.who, Action(action), target=target, revision=revision, given=given, force=force, options=options
        )

    async def audited(self, caller: HttpCaller, action: str, name: str, work: Callable[[], Awaitable[T]]) -> T:
        return await self._access.audited(caller.who, Action(action), name, work)

    @contextmanager
    def hold(self, caller: HttpCaller) -> Iterator[asyncio.Event]:
        """A stream of this caller; the event is set when its key works no more."""
        with self._access.streams.hold(caller.who) as stream:
            yield stream.ended
