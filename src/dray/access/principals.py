"""Who asks: one kind of principal for every door, however it was proven."""

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final

from dray.access.authorizer import EVERYTHING, Rights
from dray.access.errors import BadKeyRequest

USER: Final = "User"
MAX_NAME: Final = 240


class Entrance(Enum):
    """The server through which somebody came."""

    HTTP = "http"
    GRPC = "grpc"
    DIRECTORY = "directory"
    """Beside the data directory: who owns the files may do everything."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody, by the name that ACLs and the audit file have."""

    name: str

    def __str__(self) -> str:
        return f"{USER}:{self.name}"


ANONYMOUS: Final = Principal("ANONYMOUS")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCaller:
    """Who makes a call, how it is known, and what they may do."""

    principal: Principal
    rights: Rights
    door: Entrance
    address: str
    request: str
    """A name for this one call, in the log of commands and in the audit file."""
    key_id: str = ""
    """What proved it; empty where nothing was asked."""


def nobody(door: Entrance, address: str, request: str) -> KnownCaller:
    """A caller where no key is needed."""
    return KnownCaller(principal=ANONYMOUS, rights=EVERYTHING, door=door, address=address, request=request)


@lru_cache(maxsize=10_000)
def parse_principal(text: str) -> Principal:
    """`User:name`, or the name alone."""
    name = text.removeprefix(f"{USER}:")
    if not 0 < len(name) <= MAX_NAME or ":" in name or not name.isprintable():
        raise BadKeyRequest("a principal is User:NAME", most=MAX_NAME)
    return Principal(name)
