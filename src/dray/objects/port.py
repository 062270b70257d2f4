"""The object store, as a port.

Objects are immutable: a name is written once and then only read or deleted.
Every adapter passes the one contract suite in `tests/objects/contract.py`.

Invariants
    O1  `put` returns only when the whole object is durable under its name.
    O2  Of concurrent puts of one name exactly one succeeds; a torn or
        unsynced object is never behind an acknowledged name.
    O3  `AlreadyExists` means that another put won; a put that meets its own
        earlier attempt (same bytes) succeeds.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from dray.buffers import Buffer
from dray.errors import Conflict, Corrupt, Invalid, NotFound, Unavailable, Unknown


class AlreadyExists(Conflict):
    """The name holds other bytes; nothing was written."""


class NoSuchObject(NotFound):
    """No object has this name."""


class PutUnknown(Unknown):
    """The put may have happened. Repeat it with the same bytes: that settles it (O3)."""


class StoreUnavailable(Unavailable):
    """The store did not answer within the retry budget, or refused for now. Nothing happened."""


class Denied(Invalid):
    """Credentials are missing, wrong or too weak: fix them, then try again."""


class ShortObject(Corrupt):
    """An object has fewer bytes than were asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """What a listing or a head tells of an object."""

    path: str
    size: int
    modified_ms: int


class Objects(Protocol):
    """Create-only blobs under slash-separated names, relative to the cluster's prefix."""

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        """Store the concatenation of `parts` under a new name (O1, O2).

        Raises:
            AlreadyExists: the name holds other bytes.
            PutUnknown: it may have happened; repeat with the same bytes.
            StoreUnavailable, Denied: nothing happened.
        """
        ...

    async def get(self, path: str, start: int = 0, end: int | None = None) -> memoryview:
        """The bytes [start, end) (to the end of the object if None).

        Raises:
            NoSuchObject: there is no such name.
            ShortObject: the object ends before `end`.
        """
        ...

    async def head(self, path: str) -> ObjectInfo:
        """Size and age; `NoSuchObject` if there is none."""
        ...

    async def delete(self, path: str) -> None:
        """Remove a name; deleting what is gone is success."""
        ...

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """All objects whose name starts with `prefix`, in order of name."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class Settles(Protocol):
    """A store that may show a name before it is durable: a directory that several processes write to."""

    async def settle(self, path: str) -> None:
        """Make a name durable that somebody else gave, and all that came into its directory before it."""
        ...
