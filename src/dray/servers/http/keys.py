"""Keys over HTTP: made, listed and revoked by administrators."""

from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from dray.access.authorizer import Action
from dray.access.errors import BadKeyRequest
from dray.access.key_service import MAX_LIFE_MS, MAX_PAGE, KeyService, NewKey, page_of, role_named
from dray.access.service import AccessService
from dray.machine.access import ApiKey
from dray.servers.http.endpoint import ApiEndpoint, Call, NoBody, NoQuery, Reply, endpoint
from dray.servers.http.values import Duration, In, Out, Time, millis, time_of


class CreateKeyIn(In, frozen=True, kw_only=True):
    """A key as it is wanted."""

    name: Annotated[str, Meta(max_length=100)] = ""
    principal: Annotated[str, Meta(max_length=255)] = ""
    role: Annotated[str, Meta(max_length=20, description="viewer, operator or admin")] = ""
    expires_in: Duration | None = None


class KeyOut(Out, frozen=True, kw_only=True):
    """A key, without its secret."""

    id: str
    name: str
    principal: str
    role: str
    created: Time
    last_used: Time | None = None
    expires: Time | None = None
    revoked: bool = False


class CreateKeyOut(Out, frozen=True, kw_only=True):
    """A key, and its secret, which is told this once."""

    key: KeyOut
    secret: str


class ListKeysQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which page."""

    page_size: Annotated[int, Meta(ge=0, le=MAX_PAGE)] = 0
    page_token: Annotated[str, Meta(max_length=100)] = ""


class KeysOut(Out, frozen=True, kw_only=True):
    """Keys, oldest first."""

    keys: list[KeyOut]
    next_page_token: str = ""


class RevokeQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether it is meant."""

    force: bool = False
    confirmation: Annotated[str, Meta(max_length=200)] = ""


@dataclass(frozen=True, slots=True)
class KeyRoutes:
    """What is asked about keys."""

    access: AccessService
    keys: KeyService

    def endpoints(self) -> list[ApiEndpoint]:
        return [
            endpoint(
                method="POST", path="/keys", action=Action.CREATE_KEY.value, handle=self.create, query=NoQuery,
                body=CreateKeyIn, gives=CreateKeyOut, statuses=(501,),
                summary="Make a key. Its secret is told this once.",
            ),
            endpoint(
                method="GET", path="/keys", action=Action.LIST_KEYS.value, handle=self.list, query=ListKeysQuery,
                body=NoBody, gives=KeysOut, summary="Every key, the revoked ones too, oldest first.",
            ),
            endpoint(
                method="DELETE", path="/keys/{key}", action=Action.REVOKE_KEY.value, handle=self.revoke,
                query=RevokeQuery, body=NoBody, gives=None, statuses=(404, 428, 429, 504),
                summary="Let a key work no more.",
            ),
        ]  # fmt: skip

    async def create(self, call: Call[NoQuery, CreateKeyIn]) -> Reply:
        asked, who = call.body, call.caller.who
        life_ms = 0
        if asked.expires_in is not None:
            life_ms = millis(asked.expires_in, most_s=MAX_LIFE_MS / 1_000, name="expires_in")
            if not life_ms:
                raise BadKeyRequest("a key lasts at least a moment")
        wanted = NewKey(name=asked.name, principal=asked.principal, role=role_named(asked.role), life_ms=life_ms)
        made, text = await self.access.audited(
            who, Action.CREATE_KEY, asked.name, lambda: self.keys.create(wanted, who)
        )
        return Reply(value=CreateKeyOut(key=_shown(made), secret=text.reveal()), headers={"cache-control": "no-store"})

    async def list(self, call: Call[ListKeysQuery, NoBody]) -> KeysOut:
        page, more = page_of(await self.keys.all(), call.query.page_token, call.query.page_size)
        return KeysOut(keys=[_shown(one) for one in page], next_page_token=more)

    async def revoke(self, call: Call[RevokeQuery, NoBody]) -> None:
        key_id, who, asked = call.path["key"], call.caller.who, call.query
        await self.keys.find(key_id)
        await self.access.confirm(
            who, Action.REVOKE_KEY, target=key_id.encode(), revision=0, given=asked.confirmation, force=asked.force
        )
        await self.access.audited(who, Action.REVOKE_KEY, key_id, lambda: self.keys.revoke(key_id, who))


def _shown(key: ApiKey) -> KeyOut:
    return KeyOut(
        id=key.id, name=key.name, principal=key.principal, role=key.role.name.lower(),
        created=time_of(key.created_ms), last_used=time_of(key.used_ms) if key.used_ms else None,
        expires=time_of(key.expires_ms) if key.expires_ms else None, revoked=bool(key.revoked_ms),
    )  # fmt: skip
