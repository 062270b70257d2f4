"""Who may ask: API keys and the secret of the cluster, kept with the catalog.

A key is known by its id. What only its holder knows is here as an Argon2id
hash; the secret of the cluster signs what brokers hand out and take back
(confirmations), so all of them must have it. A key that was revoked is kept,
so that people can see it and nobody is given its id again; when there are too
many, those that work no more make room.

Once a key was made the cluster is *closed*, and stays so: to revoke the last
key does not open the doors.

Invariants
    AK1  Of a key's secret nothing is stored but an Argon2id hash; neither
         that nor the cluster's secret is shown.
    AK2  A revoked key does nothing once its revocation is applied here, and
         is never valid again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, ClassVar, Final, TypeAlias

from msgspec import Meta

from dray.machine.command import MAX_ROWS, MAX_TIME_MS, Command, Count, Millis, Packed, Part, Text
from dray.machine.head import Head
from dray.machine.keys import Shape
from dray.machine.names import SessionId
from dray.machine.noun import Fields, Listing, stray
from dray.machine.packing import Reader, Writer
from dray.machine.step import Step
from dray.machine.timeline import Timeline
from dray.machine.verdict import DONE, Refused, Verdict, Why, refused

MAX_KEYS: Final = 10_000
KEY_ID_CHARS: Final = 8
SECRET_BYTES: Final = 32
HASH_PREFIX: Final = "$argon2id$"
HIDDEN: Final = "***"
MINUTE_MS: Final = 60_000
API_KEY_KEY: Final = Shape("keys/$")
SECRET_KEY: Final = Shape("cluster-secret")

KeyId: TypeAlias = Annotated[str, Meta(min_length=KEY_ID_CHARS, max_length=KEY_ID_CHARS, pattern=r"^[0-9A-Za-z]+\Z")]


class KeyRole(IntEnum):
    """A ready-made set of rights; what each may do is said in `dray.access.authorizer`."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3


class CreateKey(Packed, frozen=True, kw_only=True):
    """A key that works from now on. With the same id and hash again: the same answer."""

    number = 96
    since = 2

    id: KeyId
    name: Text
    principal: Annotated[str, Meta(min_length=1, max_length=255)]
    role: KeyRole
    hash: Annotated[str, Meta(min_length=1, max_length=255)]
    life_ms: Millis = 0
    """Of machine time, from now on; 0: for ever."""
    actor: Text = ""
    request: Text = ""

    def shown(self) -> Fields:
        """For people: no hash is shown (AK1)."""
        return {
            "id": self.id, "name": self.name, "principal": self.principal, "role": self.role.name, "hash": HIDDEN,
            "lifeMs": self.life_ms, "actor": self.actor, "request": self.request,
        }  # fmt: skip


class RevokeKey(Packed, frozen=True, kw_only=True):
    """The key works no more (AK2)."""

    number = 97
    since = 2

    id: KeyId
    actor: Text = ""
    request: Text = ""


class Touch(Part, frozen=True, kw_only=True):
    """When a key was last used, as somebody saw it."""

    id: KeyId
    used_ms: Millis


class TouchKeys(Packed, frozen=True, kw_only=True):
    """Keys were used; to the minute, and never later than now."""

    number = 98
    since = 2

    rows: Annotated[tuple[Touch, ...], Meta(min_length=1, max_length=MAX_ROWS)]

    def needs(self) -> int:
        return len(self.rows)


class SetSecret(Packed, frozen=True, kw_only=True):
    """Give the cluster its secret, or another one; what the old one signed is void."""

    number = 99
    since = 2

    secret: Annotated[bytes, Meta(min_length=SECRET_BYTES, max_length=SECRET_BYTES)]
    expected_revision: Count = 0
    """Refuse if it was set since; 0: there is none."""

    def shown(self) -> Fields:
        """For people: the secret is not shown (AK1)."""
        return {"secret": HIDDEN, "expectedRevision": self.expected_revision}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCreated(Verdict):
    """The key is there."""

    created_ms: int


@dataclass(slots=True, kw_only=True)
class ApiKey:
    """One key. Services read it and change nothing."""

    id: str
    name: str
    principal: str
    role: KeyRole
    hash: str
    created_ms: int
    expires_ms: int
    """A moment of machine time; 0: never."""
    used_ms: int = 0
    """To the minute; 0: never."""
    revoked_ms: int = 0
    """0: it was not."""

    def __repr__(self) -> str:
        """Without its hash (AK1)."""
        return f"ApiKey({self.id})"

    def works(self, time_ms: int) -> bool:
        """Is it good at this moment of machine time (AK2)?"""
        return not self.revoked_ms and not 0 < self.expires_ms <= time_ms


class AccessKeys:
    """The keys of a cluster and its secret, kept in domain 0."""

    name: ClassVar[str] = "access"
    since: ClassVar[int] = 2
    commands: ClassVar[tuple[type[Command], ...]] = (CreateKey, RevokeKey, TouchKeys, SetSecret)

    def __init__(self, head: Head, timeline: Timeline) -> None:
        self._head = head
        self._timeline = timeline
        self.keys: dict[str, ApiKey] = {}
        self.closed = False
        """A key was made once."""
        self.secret = b""
        self.revision = 0
        """Counts the secrets."""

    def find(self, key_id: str) -> ApiKey | None:
        """A key that works now (AK2)."""
        key = self.keys.get(key_id)
        return key if key is not None and key.works(self._timeline.time_ms) else None

    def by_age(self) -> Iterator[ApiKey]:
        """All keys, those that work no more among them, oldest first."""
        yield from sorted(self.keys.values(), key=lambda key: (key.created_ms, key.id))

    def apply(self, step: Step, command: Command) -> Verdict:
        if not self._head.is_catalog:
            return refused(Why.FOREIGN, "the catalog is domain 0")
        match command:
            case CreateKey():
                verdict = self._create(command)
            case RevokeKey():
                verdict = self._revoke(command)
            case TouchKeys():
                return self._touch(command)  # who watches keys need not look again
            case SetSecret():
                verdict = self._set_secret(command)
            case _:
                return stray(command)
        if not isinstance(verdict, Refused):
            step.catalog_changed = True
        return verdict

    def session_ended(self, step: Step, session: SessionId) -> None:
        """Keys belong to no session."""

    def _create(self, command: CreateKey) -> Verdict:
        known = self.keys.get(command.id)
        if known is not None:
            if known.hash == command.hash and not known.revoked_ms:
                return KeyCreated(created_ms=known.created_ms)
            return refused(Why.EXISTS, "a key has or had that id")  # AK2
        if not command.hash.startswith(HASH_PREFIX):
            return refused(Why.MALFORMED, "a key is stored as an Argon2id hash")  # AK1
        now_ms = self._timeline.time_ms
        if len(self.keys) >= MAX_KEYS and not self._make_room(now_ms):
            return refused(Why.LIMIT, "there are as many keys as there may be")
        self.keys[command.id] = ApiKey(
            id=command.id, name=command.name, principal=command.principal, role=command.role, hash=command.hash,
            created_ms=now_ms, expires_ms=min(now_ms + command.life_ms, MAX_TIME_MS) if command.life_ms else 0,
        )  # fmt: skip
        self.closed = True
        return KeyCreated(created_ms=now_ms)

    def _make_room(self, now_ms: int) -> bool:
        """Forget the oldest key that works no more."""
        oldest = next((key for key in self.by_age() if not key.works(now_ms)), None)
        if oldest is not None:
            del self.keys[oldest.id]
        return oldest is not None

    def _revoke(self, command: RevokeKey) -> Verdict:
        key = self.keys.get(command.id)
        if key is None:
            return refused(Why.NOT_FOUND, "no such key")
        if not key.revoked_ms:
            key.revoked_ms = max(1, self._timeline.time_ms)  # AK2
        return DONE

    def _touch(self, command: TouchKeys) -> Verdict:
        for row in command.rows:
            key = self.keys.get(row.id)
            if key is not None:
                used_ms = min(row.used_ms, self._timeline.time_ms)
                key.used_ms = max(key.used_ms, used_ms - used_ms % MINUTE_MS)
        return DONE

    def _set_secret(self, command: SetSecret) -> Verdict:
        if command.secret == self.secret:
            return DONE
        if command.expected_revision != self.revision:
            return refused(Why.STALE, "the cluster was given a secret meanwhile")
        self.secret = command.secret
        self.revision += 1
        return DONE

    def cap_times(self, latest_ms: int) -> None:
        """Let nothing have happened after a time: for a log that begins anew. When a key expires is a moment."""
        for key in self.keys.values():
            key.created_ms = min(key.created_ms, latest_ms)
            key.used_ms = min(key.used_ms, latest_ms)
            key.revoked_ms = min(key.revoked_ms, max(1, latest_ms))

    def dump(self, out: Writer, version: int) -> None:
        out.values([len(self.keys), int(self.closed), self.secret, self.revision])
        for _, key in sorted(self.keys.items()):
            out.values([
                key.id, key.name, key.principal, int(key.role), key.hash, key.created_ms, key.expires_ms, key.used_ms,
                key.revoked_ms,
            ])  # fmt: skip

    def load(self, source: Reader, version: int) -> None:
        head = source.row()
        count, self.closed, self.secret, self.revision = head.number(), bool(head.number()), head.raw(), head.number()
        for _ in range(count):
            row = source.row()
            key = ApiKey(
                id=row.text(), name=row.text(), principal=row.text(), role=KeyRole(row.number()), hash=row.text(),
                created_ms=row.number(), expires_ms=row.number(), used_ms=row.number(), revoked_ms=row.number(),
            )  # fmt: skip
            self.keys[key.id] = key

    def show(self, prefix: str) -> Listing:
        """Neither hashes nor the secret (AK1)."""
        if self.revision:
            yield SECRET_KEY.build(), {"secret": HIDDEN, "revision": self.revision}
        for _, key in sorted((API_KEY_KEY.build(key.id), key) for key in self.keys.values()):
            yield API_KEY_KEY.build(key.id), {
                "name": key.name, "principal": key.principal, "role": key.role.name, "hash": HIDDEN,
                "createdMs": key.created_ms, "expiresMs": key.expires_ms, "usedMs": key.used_ms,
                "revokedMs": key.revoked_ms,
            }  # fmt: skip
