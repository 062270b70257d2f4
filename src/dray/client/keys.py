"""Keys of a cluster, made, listed and revoked by administrators.

Invariant: a key's text is in the answer that made it and nowhere else; what holds it does not show it (AC7).
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Final

from google.protobuf.timestamp_pb2 import Timestamp

from dray.api.v1 import heaps_pb2 as pb
from dray.client.job import Span, duration_of
from dray.client.transport import CREATE_KEY, LIST_KEYS, REVOKE_KEY

if TYPE_CHECKING:
    from dray.client.client import Client

PAGE: Final = 500


class KeyRole(Enum):
    """What a key may do."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyInfo:
    """A key as the cluster has it: who uses it and whether it works, not its text."""

    id: str
    name: str
    principal: str
    role: KeyRole
    created: datetime
    last_used: datetime | None
    expires: datetime | None
    revoked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedKey:
    """A new key. `secret` is what a client gives as its `api_key`; the cluster cannot tell it again."""

    info: KeyInfo
    secret: str = field(repr=False)


class Keys:
    """The keys of a client's cluster."""

    def __init__(self, client: "Client") -> None:
        self._client = client

    async def create(
        self, name: str = "", *, role: KeyRole | None = None, principal: str = "", expires_in: Span | None = None
    ) -> CreatedKey:
        """Make a key; without a role the first one of a cluster is an administrator's, the others are operators'."""
        request = pb.CreateKeyReq(name=name, principal=principal, role="" if role is None else role.value)
        if expires_in is not None:
            request.expires_in.CopyFrom(duration_of(expires_in))
        made = await self._client.ask(CREATE_KEY, request, harmless=False)
        return CreatedKey(info=_info(made.key), secret=made.secret)

    async def list(self) -> list[KeyInfo]:
        """Every key that was ever made, revoked ones too."""
        found: list[KeyInfo] = []
        token = ""
        while True:
            request = pb.ListKeysReq(page_size=PAGE, page_token=token)
            answer = await self._client.ask(LIST_KEYS, request, harmless=True)
            found += [_info(one) for one in answer.keys]
            token = answer.next_page_token
            if not token:
                return found

    async def revoke(self, key_id: str, *, force: bool = True, confirmation: str = "") -> None:
        """Let a key work no more, on open streams too."""
        request = pb.RevokeKeyReq(id=key_id, force=force, confirmation=confirmation)
        await self._client.ask_confirmed(REVOKE_KEY, request, harmless=True)


def _info(key: pb.Key) -> KeyInfo:
    return KeyInfo(
        id=key.id,
        name=key.name,
        principal=key.principal,
        role=KeyRole(key.role),
        created=key.created.ToDatetime(UTC),
        last_used=_moment(key.last_used) if key.HasField("last_used") else None,
        expires=_moment(key.expires) if key.HasField("expires") else None,
        revoked=key.revoked,
    )


def _moment(at: Timestamp) -> datetime:
    return at.ToDatetime(UTC)
