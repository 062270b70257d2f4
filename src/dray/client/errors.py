"""What can go wrong for a client, by what it does next.

`retryable`: the same call may succeed later. `may_have_happened`: nobody
knows whether it did; the SDK repeats such a call only where that is harmless.

Invariants
    CE1  An error that does not say `may_have_happened` means that nothing
         happened, and only a broker that answered says so.
"""

from collections.abc import Mapping
from typing import Final

from dray.api.v1 import heaps_pb2 as pb
from dray.errors import DrayError, Kind


class ClientError(DrayError):
    """Base of all errors of the SDK."""

    retryable: bool = False
    may_have_happened: bool = False
    request: str = ""
    """What the broker named the call in its log and its audit file, if it said so."""


class InvalidRequest(ClientError):
    """The request can never succeed as it is."""

    kind = Kind.INVALID


class NotFound(ClientError):
    """There is no such heap, message or lease."""

    kind = Kind.NOT_FOUND


class AlreadyExists(ClientError):
    """A heap or topic of this name exists."""

    kind = Kind.CONFLICT


class Conflicting(ClientError):
    """Something changed meanwhile: read again."""

    kind = Kind.CONFLICT


class NotConfirmed(ClientError):
    """It cannot be undone: ask again with this confirmation, or with `force`."""

    kind = Kind.CONFLICT
    confirmation: str = ""


class LeaseLost(ClientError):
    """The message is not held any more: what was done for it must not be committed."""

    kind = Kind.LOST


class LimitReached(ClientError):
    """A limit of the heap, the key or the broker is reached; the message says which. Nothing happened."""

    kind = Kind.UNAVAILABLE
    retryable = True


class BrokerUnavailable(ClientError):
    """A broker said that it cannot at the moment. Nothing happened."""

    kind = Kind.UNAVAILABLE
    retryable = True


class OutcomeUnknown(ClientError):
    """It may have happened."""

    kind = Kind.UNKNOWN
    retryable = True
    may_have_happened = True


class Disconnected(OutcomeUnknown):
    """No broker answers, or the connection broke before the answer."""


class Unauthenticated(ClientError):
    """No key was given, or it is not valid."""

    kind = Kind.UNAUTHENTICATED


class PermissionDenied(ClientError):
    """The key may not do that."""

    kind = Kind.FORBIDDEN


class NotServed(ClientError):
    """This broker does not have that."""

    kind = Kind.INVALID


class BrokerFault(ClientError):
    """The broker failed, or its data are damaged: report it."""

    kind = Kind.INTERNAL


class ClientClosed(ClientError):
    """The client or the consumer was closed."""

    kind = Kind.INVALID


_BY_CODE: Final[Mapping[str, type[ClientError]]] = {
    "INVALID_ARGUMENT": InvalidRequest,
    "OUT_OF_RANGE": InvalidRequest,
    "NOT_FOUND": NotFound,
    "ALREADY_EXISTS": AlreadyExists,
    "ABORTED": Conflicting,
    "FAILED_PRECONDITION": LeaseLost,
    "RESOURCE_EXHAUSTED": LimitReached,
    "UNAVAILABLE": BrokerUnavailable,
    "UNAUTHENTICATED": Unauthenticated,
    "PERMISSION_DENIED": PermissionDenied,
    "UNIMPLEMENTED": NotServed,
    "INTERNAL": BrokerFault,
    "DATA_LOSS": BrokerFault,
}
_NEVER_SENT: Final = "failed to connect to all addresses"
"""What gRPC says of a call that it sent to nobody."""
KIND_KEY: Final = "dray-kind"
CONFIRMATION_KEY: Final = "dray-confirmation"
REQUEST_KEY: Final = "x-request-id"


def error_of(code: str, message: str, trailing: Mapping[str, str]) -> ClientError:
    """The error that a status stands for."""
    error = _meant(code, message, trailing)
    error.request = trailing.get(REQUEST_KEY, "")
    return error


def _meant(code: str, message: str, trailing: Mapping[str, str]) -> ClientError:
    """Without `dray-kind` no broker has spoken, so little is known (CE1)."""
    if CONFIRMATION_KEY in trailing or (code == "FAILED_PRECONDITION" and trailing.get(KIND_KEY) == "conflict"):
        unconfirmed = NotConfirmed(message)
        unconfirmed.confirmation = trailing.get(CONFIRMATION_KEY, "")
        return unconfirmed
    if KIND_KEY not in trailing:
        if code == "UNAVAILABLE" and message.startswith(_NEVER_SENT):
            return BrokerUnavailable(message)
        if code == "UNAVAILABLE":
            return Disconnected(message or "no broker answers")
        if code == "RESOURCE_EXHAUSTED":
            return InvalidRequest(message)  # a message above the limit of the transport
    return _BY_CODE.get(code, OutcomeUnknown)(message or code.lower())


def error_among(error: pb.Error) -> ClientError:
    """One error among the results of a list."""
    if error.may_have_happened:
        return OutcomeUnknown(error.message)
    found = _BY_CODE.get(error.kind, BrokerFault)(error.message)
    found.retryable = found.retryable or error.retryable
    return found
