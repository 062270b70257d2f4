"""The gate of a broker: keys, roles, confirmations and the audit file, as gRPC has them.

A key is in the metadata `authorization`, as `Bearer dray_...`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import unquote

from dray.access.authorizer import Action
from dray.access.principals import Entrance, KnownCaller
from dray.access.service import AccessService, bearer
from dray.machine.heaps.catalog import Heap
from dray.servers.grpc.gate import GrpcCaller

T = TypeVar("T")

AUTHORIZATION: Final = "authorization"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedCaller(GrpcCaller):
    """A caller who was let in."""

    who: KnownCaller


class GrpcGuard:
    """Lets in who shows a valid key, or anybody where none is needed."""

    def __init__(self, access: AccessService) -> None:
        self._access = access

    async def admit(self, metadata: Mapping[str, str], address: str) -> AdmittedCaller:
        given = metadata.get(AUTHORIZATION)
        shown = None if given is None else bearer([given])
        who = await self._access.admit(shown, door=Entrance.GRPC, address=host_of(address))
        return AdmittedCaller(
            name=who.key_id or "anonymous", address=who.address, actor=str(who.principal), request=who.request,
            keyed=str(who.principal) if who.key_id else "", who=who,
        )  # fmt: skip

    def check(self, caller: GrpcCaller, action: str, heap: str) -> None:
        self._access.allow(known(caller), Action(action), heap)

    async def confirm(
        self, caller: GrpcCaller, action: str, heap: Heap, *, force: bool, confirmation: str, options: str = ""
    ) -> None:
        await self._access.confirm(
            known(caller), Action(action), target=heap.id, revision=heap.revision, given=confirmation, force=force,
            options=options,
        )  # fmt: skip

    async def audited(self, caller: GrpcCaller, action: str, name: str, work: Callable[[], Awaitable[T]]) -> T:
        return await self._access.audited(known(caller), Action(action), name, work)

    @contextmanager
    def hold(self, caller: GrpcCaller) -> Iterator[asyncio.Event]:
        with self._access.streams.hold(known(caller)) as stream:
            yield stream.ended


def known(caller: GrpcCaller) -> KnownCaller:
    """Who was let in; nobody else gets this far."""
    assert isinstance(caller, AdmittedCaller), "a caller comes from `admit`"
    return caller.who


def host_of(peer: str) -> str:
    """The address in `ipv4:10.0.0.1:5000` and `ipv6:[::1]:5000`, in which `%5B` may stand for a bracket."""
    kind, _, place = unquote(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return peer[:64]
    return place.rpartition(":")[0].strip("[]")
