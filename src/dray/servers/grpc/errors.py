"""What clients are told of an error: a status, its kind, and whether it may have happened.

Trailing metadata carry what a status code cannot: `dray-kind`, and
`dray-outcome: unknown` where nobody knows (E1).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import grpc

from dray.access.errors import ConfirmationNeeded, OverLimit
from dray.api.v1 import heaps_pb2 as pb
from dray.errors import DrayError, Invalid, Kind, Unavailable, is_retryable, nearest
from dray.heaps.errors import HeapExists, HeapFull
from dray.machine.command import NotActive
from dray.servers.grpc.gate import NotForced

Code = grpc.StatusCode
KIND_KEY: Final = "dray-kind"
OUTCOME_KEY: Final = "dray-outcome"
CONFIRMATION_KEY: Final = "dray-confirmation"
REQUEST_KEY: Final = "x-request-id"
"""What a call is named in the log and in the audit file."""
_BY_KIND: Final[Mapping[Kind, grpc.StatusCode]] = {
    Kind.INVALID: Code.INVALID_ARGUMENT,
    Kind.NOT_FOUND: Code.NOT_FOUND,
    Kind.CONFLICT: Code.ABORTED,
    Kind.LOST: Code.FAILED_PRECONDITION,
    Kind.UNAUTHENTICATED: Code.UNAUTHENTICATED,
    Kind.FORBIDDEN: Code.PERMISSION_DENIED,
    Kind.UNAVAILABLE: Code.UNAVAILABLE,
    Kind.UNKNOWN: Code.UNKNOWN,
    Kind.CORRUPT: Code.INTERNAL,
    Kind.INTERNAL: Code.INTERNAL,
}


class LimitReached(Unavailable):
    """One client, or all together, have as much as they may have; the message says of what. Nothing happened."""


class NotOffered(Invalid):
    """It is described, and not served."""


_MEANING: Final[Mapping[type[DrayError], grpc.StatusCode]] = {
    HeapExists: Code.ALREADY_EXISTS,
    HeapFull: Code.RESOURCE_EXHAUSTED,
    LimitReached: Code.RESOURCE_EXHAUSTED,
    OverLimit: Code.RESOURCE_EXHAUSTED,
    ConfirmationNeeded: Code.FAILED_PRECONDITION,
    NotForced: Code.FAILED_PRECONDITION,
    NotOffered: Code.UNIMPLEMENTED,
    NotActive: Code.UNIMPLEMENTED,
}
"""Errors whose class says more than their kind; one that is not here is told as the nearest of its bases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How a call ends that did not succeed."""

    code: grpc.StatusCode
    message: str
    trailing: tuple[tuple[str, str], ...]


def code_of(error: DrayError) -> grpc.StatusCode:
    """The status of an error: by its class, else by its kind."""
    return nearest(error, _MEANING, _BY_KIND[error.kind])


def status_of(error: DrayError) -> Status:
    """What a call ends with."""
    trailing = [(KIND_KEY, error.kind.name.lower())]
    if error.kind is Kind.UNKNOWN:
        trailing.append((OUTCOME_KEY, "unknown"))
    if isinstance(error, ConfirmationNeeded):
        trailing.append((CONFIRMATION_KEY, error.confirmation))
    return Status(code=code_of(error), message=str(error), trailing=tuple(trailing))


def told(error: DrayError) -> pb.Error:
    """One error among the results of a list."""
    return pb.Error(
        kind=code_of(error).name,
        message=str(error),
        retryable=is_retryable(error),
        may_have_happened=error.kind is Kind.UNKNOWN,
    )
