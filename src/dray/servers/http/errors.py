"""What a client is told when something is wrong: a status, and always a JSON object.

    {"error": {"kind": "CONFLICT", "message": "...", "retryable": false, "may_have_happened": false}, "version": "7"}

Invariants
    HE1  An outcome that nobody knows has status 504 and the header
         `dray-outcome: unknown`, and nothing else has.
    HE2  What may be tried again says when (`retry-after`).
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from starlette.responses import Response

from dray.access.errors import ConfirmationNeeded, OverLimit
from dray.consume.errors import NoRoom, TooScattered
from dray.errors import DrayError, Kind, is_retryable, nearest
from dray.fetch.errors import AboveEnd, BelowStart
from dray.heaps.errors import HeapFull
from dray.machine.command import NotActive
from dray.produce.errors import Overloaded, VersionMoved

JSON: Final = "application/json"
OUTCOME: Final = "dray-outcome"
_BY_KIND: Final[Mapping[Kind, int]] = {
    Kind.INVALID: 400,
    Kind.NOT_FOUND: 404,
    Kind.CONFLICT: 409,
    Kind.LOST: 409,
    Kind.UNAUTHENTICATED: 401,
    Kind.FORBIDDEN: 403,
    Kind.UNAVAILABLE: 503,
    Kind.UNKNOWN: 504,
    Kind.CORRUPT: 500,
    Kind.INTERNAL: 500,
}
_TOLD: Final = ("version", "log_start", "index", "confirmation")
"""Facts that programs need, told beside the error as well."""
RETRY_S: Final = 1
MAX_MESSAGE: Final = 1_000


class BadRequest(DrayError):
    """The request cannot be understood; the status says in what way."""

    kind = Kind.INVALID

    def __init__(self, message: str, /, status: int = 400, **facts: object) -> None:
        super().__init__(message, **facts)
        self.status = status


class TooManyAtOnce(DrayError):
    """As many wait as may wait."""

    kind = Kind.UNAVAILABLE


_MEANING: Final[Mapping[type[DrayError], int]] = {
    BelowStart: 410,
    AboveEnd: 416,
    ConfirmationNeeded: 428,
    HeapFull: 429,
    TooScattered: 429,
    NoRoom: 429,
    Overloaded: 429,
    OverLimit: 429,
    TooManyAtOnce: 429,
    NotActive: 501,
}
"""Errors whose class says more than their kind; one that is not here is told as the nearest of its bases."""


class ErrorBody(msgspec.Struct, omit_defaults=True):
    """What went wrong."""

    kind: str
    message: str
    retryable: bool = False
    may_have_happened: bool = False
    index: int | None = None


def status_of(error: DrayError) -> int:
    """The status of an error: by its class, else by its kind."""
    if isinstance(error, BadRequest):
        return error.status
    return nearest(error, _MEANING, _BY_KIND[error.kind])


def body_of(error: DrayError) -> ErrorBody:
    """The error as an object; no fact of it is a secret or a payload (style: facts)."""
    index = error.facts.get("index")
    status = status_of(error)
    return ErrorBody(
        kind="LIMIT" if status == 429 else error.kind.name,
        message=str(error)[:MAX_MESSAGE],
        retryable=is_retryable(error),
        may_have_happened=error.kind is Kind.UNKNOWN,
        index=index if isinstance(index, int) else None,
    )


def failure(error: DrayError, body: ErrorBody | None = None) -> Response:
    """The response of a request that failed; `body`: what is said of the error, where that is more than `body_of`."""
    status = status_of(error)
    told: dict[str, object] = {"error": body or body_of(error)}
    for name in _TOLD:
        fact = error.facts.get(name, getattr(error, name, None))
        if fact is not None and name != "index":
            told[name] = str(fact)
    headers = {}
    if is_retryable(error):
        headers["retry-after"] = str(RETRY_S)  # HE2
    if error.kind is Kind.UNKNOWN:
        headers[OUTCOME] = "unknown"  # HE1
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    if isinstance(error, VersionMoved):
        headers["etag"] = f'"{error.version}"'
    return Response(msgspec.json.encode(told), status, headers, JSON)
