"""Keys made, listed and revoked: the same for servers and for who owns the data directory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dray.access import telemetry
from dray.access.errors import BadKeyRequest, NoSuchKey, OverLimit
from dray.access.keys import KeyText, new_key
from dray.access.passwords import SALT_BYTES, hash_of
from dray.access.principals import KnownCaller, Principal, parse_principal
from dray.errors import Unavailable
from dray.ids import Entropy
from dray.machine.access import ApiKey, CreateKey, KeyCreated, KeyRole, RevokeKey
from dray.machine.verdict import Done, Refused, Why
from dray.offload import Offload
from dray.replica.replica import Replica
from dray.telemetry import logger

MAX_NAME: Final = 100
MAX_PAGE: Final = 1_000
MAX_LIFE_MS: Final = 100 * 366 * 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """A key as somebody wants it."""

    name: str
    principal: str = ""
    """Empty: one of its own, `User:key-<id>`."""
    role: KeyRole | None = None
    """None: an administrator for the first key of a cluster, which closes it; else an operator."""
    life_ms: int = 0
    """0: for ever."""


def role_named(text: str) -> KeyRole | None:
    """A role by its name; None if nothing was said."""
    try:
        return KeyRole[text.upper()] if text else None
    except KeyError as unknown:
        raise BadKeyRequest("a role is viewer, operator or admin") from unknown


def page_of(keys: Sequence[ApiKey], after: str, size: int) -> tuple[list[ApiKey], str]:
    """The keys behind the one of this id, and the id to go on from; empty at the end."""
    if not 0 <= size <= MAX_PAGE:
        raise BadKeyRequest("a page is not that long", most=MAX_PAGE)
    start = next((place + 1 for place, key in enumerate(keys) if key.id == after), len(keys)) if after else 0
    page = list(keys[start : start + (size or MAX_PAGE)])
    return page, page[-1].id if start + len(page) < len(keys) and page else ""


class KeyService:
    """The keys of a cluster."""

    def __init__(self, *, catalog: Replica, entropy: Entropy, offload: Offload) -> None:
        self._catalog = catalog
        self._entropy = entropy
        self._offload = offload

    async def create(self, wanted: NewKey, by: KnownCaller) -> tuple[ApiKey, KeyText]:
        """A key that works when this returns. Its text is told here and never again (AK1).

        Raises:
            BadKeyRequest: it cannot be as it is wanted.
            Unavailable: nothing happened. Unknown: it may have; a key that nobody was told of can be revoked.
        """
        if len(wanted.name) > MAX_NAME or (wanted.name and not wanted.name.isprintable()):
            raise BadKeyRequest("a name is at most a line", most=MAX_NAME)
        if not 0 <= wanted.life_ms <= MAX_LIFE_MS:
            raise BadKeyRequest("a key lasts at least a moment, and at most a hundred years")
        given = parse_principal(wanted.principal) if wanted.principal else None
        await self._catalog.sync()
        text = new_key(self._entropy)
        salt = self._entropy.random_bytes(SALT_BYTES)
        command = CreateKey(
            id=text.id, name=wanted.name, principal=str(given or Principal(f"key-{text.id}")),
            role=wanted.role or (KeyRole.OPERATOR if self._catalog.machine.access.closed else KeyRole.ADMIN),
            hash=await self._offload.run(hash_of, text.reveal(), salt),
            life_ms=wanted.life_ms, actor=str(by.principal), request=by.request,
        )  # fmt: skip
        (verdict,) = await self._catalog.propose(command)
        match verdict:
            case KeyCreated():
                logger().info(telemetry.KEY_MADE, id=text.id, role=command.role.name.lower(), actor=command.actor)
                return self._catalog.machine.access.keys[text.id], text
            case Refused(why=Why.LIMIT):
                raise OverLimit("there are as many keys as there may be: revoke some")
            case Refused(reason=reason):
                raise Unavailable("the key was not made: try again", reason=reason)
            case _:
                raise Unavailable("the machine gave no answer about the key")

    async def find(self, key_id: str) -> ApiKey:
        """The record of a key, revoked or not; `NoSuchKey` only after a sync."""
        await self._catalog.sync()
        key = self._catalog.machine.access.keys.get(key_id)
        if key is None:
            raise NoSuchKey("no such key", id=key_id[:16])
        return key

    async def all(self) -> list[ApiKey]:
        """Every key, the revoked ones too, oldest first, as of now."""
        await self._catalog.sync()
        return list(self._catalog.machine.access.by_age())

    async def revoke(self, key_id: str, by: KnownCaller) -> None:
        """The key works nowhere where this is applied, which it is here when this returns (AK2)."""
        await self.find(key_id)
        (verdict,) = await self._catalog.propose(RevokeKey(id=key_id, actor=str(by.principal), request=by.request))
        if not isinstance(verdict, Done):
            raise NoSuchKey("no such key", id=key_id[:16])
        logger().info(telemetry.KEY_REVOKED, id=key_id, actor=str(by.principal))
