"""What clients are told of an error: a status, its kind, and whether it may have happened.

Trailing metadata carry what a status code cannot: `dray-kind`, and
`dray-outcome: unknown` where nobody knows (E1).
"""

from dataclasses import dataclass
from typing import Final

import grpc

from dray.access.errors import OverLimit
from dray.api.v1 import heaps_pb2 as pb
from dray.errors import DrayError, Invalid, Kind, Unavailable
from dray.heaps.errors import BatchConflict, HeapExists, HeapFull
from dray.servers.grpc.gate import NotForced

Code = grpc.StatusCode
KIND_KEY: Final = "dray-kind"
OUTCOME_KEY: Final = "dray-outcome"
CONFIRMATION_KEY: Final = "dray-confirmation"
REQUEST_KEY: Final = "x-request-id"
"""What a call is named in the log and in the audit file."""
_BY_KIND: Final = {
    "INVALID": Code.INVALID_ARGUMENT,
    "NOT_FOUND": Code.NOT_FOUND,
    "CONFLICT": Code.ABORTED,
    "LOST": Code.FAILED_PRECONDITION,
    "UNAUTHENTICATED": Code.UNAUTHENTICATED,
    "FORBIDDEN": Code.PERMISSION_DENIED,
    "UNAVAILABLE": Code.UNAVAILABLE,
    "UNKNOWN": Code.UNKNOWN,
    "CORRUPT": Code.INTERNAL,
    "INTERNAL": Code.INTERNAL,
}
"""By the name of a kind: kinds are added where they are needed."""


class LimitReached(Unavailable):
    """One client, or all together, have as much as they may have; the message says of what. Nothing happened."""


class NotOffered(Invalid):
    """It is described, and not served."""


_CLASSES: Final[tuple[tuple[type[DrayError], grpc.StatusCode], ...]] = (
    (HeapExists, Code.ALREADY_EXISTS),
    (HeapFull, Code.RESOURCE_EXHAUSTED),
    (LimitReached, Code.RESOURCE_EXHAUSTED),
    (OverLimit, Code.RESOURCE_EXHAUSTED),
    (NotForced, Code.FAILED_PRECONDITION),
    (NotOffered, Code.UNIMPLEMENTED),
)
"""Errors whose class says more than their kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How a call ends that did not succeed."""

    code: grpc.StatusCode
    message: str
    trailing: tuple[tuple[str, str], ...]


def code_of(error: DrayError) -> grpc.StatusCode:
    """The status of an error. The name of its class decides where this package may not know the class."""
    for known, code in _CLASSES:
        if isinstance(error, known):
            return code
    if hasattr(error, "confirmation"):
        return Code.FAILED_PRECONDITION
    return _BY_KIND[error.kind.name]


def status_of(error: DrayError) -> Status:
    """What a call ends with."""
    trailing = [(KIND_KEY, error.kind.name.lower())]
    if error.kind is Kind.UNKNOWN:
        trailing.append((OUTCOME_KEY, "unknown"))
    confirmation = getattr(error, "confirmation", "")
    if isinstance(confirmation, str) and confirmation:
        trailing.append((CONFIRMATION_KEY, confirmation))
    return Status(code=code_of(error), message=str(error), trailing=tuple(trailing))


def told(error: DrayError) -> pb.Error:
    """One error among the results of a list."""
    return pb.Error(
        kind=code_of(error).name,
        message=str(error),
        retryable=is_retryable(error),
        may_have_happened=error.kind is Kind.UNKNOWN,
    )


def is_retryable(error: DrayError) -> bool:
    """May the same call succeed later?"""
    return error.kind in (Kind.UNAVAILABLE, Kind.UNKNOWN) or isinstance(error, BatchConflict)
