"""Errors, by what the caller does next.

A kind is an instruction, not a place: code that catches an error reads its
kind, and only servers turn a kind into a wire code. `Unknown` is apart from
`Unavailable` on purpose: after `Unavailable` nothing happened, after
`Unknown` it may have.

Invariants
    E1  An outcome nobody knows is reported as `Unknown`: never as success,
        never as a definite failure.
"""

from collections.abc import Mapping
from enum import Enum
from typing import ClassVar, TypeVar

T = TypeVar("T")
D = TypeVar("D")


class Kind(Enum):
    """What the caller should do next. A new member needs an ADR."""

    INVALID = "fix the request"
    NOT_FOUND = "create it, or look elsewhere"
    CONFLICT = "read again and retry"
    LOST = "stop; another owner has it"
    UNAUTHENTICATED = "show who you are"
    FORBIDDEN = "ask for the right to"
    UNAVAILABLE = "retry later; nothing happened"
    UNKNOWN = "it may have happened; repeat with the same identity"
    CORRUPT = "stop; an operator must look"
    INTERNAL = "report a bug"


class DrayError(Exception):
    """Base of all Dray errors. The message is lowercase; facts follow as key=value."""

    kind: ClassVar[Kind] = Kind.INTERNAL
    advice: str = ""
    """What a person does next, where a class or whoever raises knows it better than the kind tells."""

    def __init__(self, message: str, /, **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts

    def __str__(self) -> str:
        facts = " ".join(f"{name}={value}" for name, value in self.facts.items())
        return f"{self.message} {facts}" if facts else self.message


class Invalid(DrayError):
    """The request can never succeed as it is."""

    kind = Kind.INVALID


class NotFound(DrayError):
    """What was named does not exist."""

    kind = Kind.NOT_FOUND


class Conflict(DrayError):
    """Another writer was first."""

    kind = Kind.CONFLICT


class PassingConflict(Conflict):
    """Another writer was first and is not done: nothing happened, and the same call may succeed later."""


class Lost(DrayError):
    """The caller no longer owns what it acts for."""

    kind = Kind.LOST


class Unavailable(DrayError):
    """Nothing happened; the same call may succeed later."""

    kind = Kind.UNAVAILABLE


class Unknown(DrayError):
    """It may have happened (E1)."""

    kind = Kind.UNKNOWN


class Corrupt(DrayError):
    """Stored bytes are not what was written."""

    kind = Kind.CORRUPT


def is_retryable(error: DrayError) -> bool:
    """May the same call succeed later?"""
    return error.kind in (Kind.UNAVAILABLE, Kind.UNKNOWN) or isinstance(error, PassingConflict)


def nearest(error: Exception, table: Mapping[type[DrayError], T], otherwise: D) -> T | D:
    """What a table says of the class of an error, or of the nearest of its bases that it knows."""
    for base in type(error).__mro__:
        if base in table:
            return table[base]
    return otherwise
