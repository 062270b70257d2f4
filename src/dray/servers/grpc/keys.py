"""The service `dray.v1.Keys`: keys made, listed and revoked by administrators."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from dray.access.authorizer import Action
from dray.access.errors import BadKeyRequest
from dray.access.key_service import KeyService, NewKey, page_of, role_named
from dray.access.service import AccessService
from dray.api.v1 import heaps_pb2 as pb
from dray.machine.access import ApiKey
from dray.servers.grpc import forms
from dray.servers.grpc.gate import GrpcCaller
from dray.servers.grpc.guard import known
from dray.servers.grpc.heaps import HeapsApi
from dray.servers.grpc.methods import Unary

Q = TypeVar("Q", bound=Message)

KEYS_SERVICE: Final = "dray.v1.Keys"


class KeysApi:
    """Its calls, without their transport."""

    def __init__(self, access: AccessService, keys: KeyService) -> None:
        self._access = access
        self._keys = keys

    def methods(self) -> tuple[Unary, ...]:
        return (
            _unary("CreateKey", pb.CreateKeyReq, self.create_key),
            _unary("ListKeys", pb.ListKeysReq, self.list_keys),
            _unary("RevokeKey", pb.RevokeKeyReq, self.revoke_key),
        )

    async def create_key(self, caller: GrpcCaller, asked: pb.CreateKeyReq) -> pb.CreateKeyResp:
        who = known(caller)
        self._access.allow(who, Action.CREATE_KEY)
        life_ms = forms.milliseconds(asked.expires_in, "expires_in") if asked.HasField("expires_in") else 0
        if asked.HasField("expires_in") and not life_ms:
            raise BadKeyRequest("a key lasts at least a moment")
        wanted = NewKey(name=asked.name, principal=asked.principal, role=role_named(asked.role), life_ms=life_ms)
        made, text = await self._access.audited(
            who, Action.CREATE_KEY, asked.name, lambda: self._keys.create(wanted, who)
        )
        return pb.CreateKeyResp(key=_key_to(made), secret=text.reveal())

    async def list_keys(self, caller: GrpcCaller, asked: pb.ListKeysReq) -> pb.ListKeysResp:
        self._access.allow(known(caller), Action.LIST_KEYS)
        page, more = page_of(await self._keys.all(), asked.page_token, asked.page_size)
        return pb.ListKeysResp(keys=[_key_to(one) for one in page], next_page_token=more)

    async def revoke_key(self, caller: GrpcCaller, asked: pb.RevokeKeyReq) -> Empty:
        who = known(caller)
        self._access.allow(who, Action.REVOKE_KEY)
        await self._keys.find(asked.id)
        await self._access.confirm(
            who, Action.REVOKE_KEY, target=asked.id.encode(), revision=0, given=asked.confirmation, force=asked.force
        )
        await self._access.audited(who, Action.REVOKE_KEY, asked.id, lambda: self._keys.revoke(asked.id, who))
        return Empty()


def _unary(name: str, request: type[Q], handle: Callable[[GrpcCaller, Q], Awaitable[Message]]) -> Unary:
    async def answer(api: HeapsApi, caller: GrpcCaller, packed: bytes) -> bytes:
        return (await handle(caller, request.FromString(packed))).SerializeToString()

    return Unary(name, answer)


def _key_to(key: ApiKey) -> pb.Key:
    found = pb.Key(
        id=key.id, name=key.name, principal=key.principal, revoked=bool(key.revoked_ms), role=key.role.name.lower(),
        created=forms.moment_of(key.created_ms),
    )  # fmt: skip
    if key.used_ms:
        found.last_used.CopyFrom(forms.moment_of(key.used_ms))
    if key.expires_ms:
        found.expires.CopyFrom(forms.moment_of(key.expires_ms))
    return found
