"""Each kind of error has its code, and a class that says more has its own."""

import grpc
import pytest

from dray.access.errors import ConfirmationNeeded, Forbidden, OverLimit, Unauthenticated
from dray.errors import Conflict, Corrupt, DrayError, Invalid, Kind, Lost, NotFound, Unavailable, Unknown
from dray.heaps.errors import BatchAborted, BatchUndecided, EnqueueUnknown, HeapExists, HeapFull, LeaseLost, TornBatch
from dray.machine.command import NotActive
from dray.servers.grpc.errors import LimitReached, NotOffered, code_of, status_of, told
from dray.servers.grpc.gate import NotForced

Code = grpc.StatusCode


class FullOfSomething(HeapFull):
    """A class that no table knows."""


@pytest.mark.parametrize(
    ("error", "code", "retryable", "unknown"),
    [
        (Invalid("x"), Code.INVALID_ARGUMENT, False, False),
        (TornBatch("x"), Code.INVALID_ARGUMENT, False, False),
        (NotOffered("x"), Code.UNIMPLEMENTED, False, False),
        (NotActive("x"), Code.UNIMPLEMENTED, False, False),
        (NotFound("x"), Code.NOT_FOUND, False, False),
        (Conflict("x"), Code.ABORTED, False, False),
        (BatchAborted("x"), Code.ABORTED, True, False),
        (BatchUndecided("x"), Code.ABORTED, True, False),
        (HeapExists("x"), Code.ALREADY_EXISTS, False, False),
        (NotForced("x"), Code.FAILED_PRECONDITION, False, False),
        (ConfirmationNeeded("x", "token"), Code.FAILED_PRECONDITION, False, False),
        (Lost("x"), Code.FAILED_PRECONDITION, False, False),
        (LeaseLost("x"), Code.FAILED_PRECONDITION, False, False),
        (Unauthenticated("x"), Code.UNAUTHENTICATED, False, False),
        (Forbidden("x"), Code.PERMISSION_DENIED, False, False),
        (HeapFull("x"), Code.RESOURCE_EXHAUSTED, True, False),
        (FullOfSomething("x"), Code.RESOURCE_EXHAUSTED, True, False),
        (LimitReached("x"), Code.RESOURCE_EXHAUSTED, True, False),
        (OverLimit("x"), Code.RESOURCE_EXHAUSTED, True, False),
        (Unavailable("x"), Code.UNAVAILABLE, True, False),
        (Unknown("x"), Code.UNKNOWN, True, True),
        (EnqueueUnknown("x"), Code.UNKNOWN, True, True),
        (Corrupt("x"), Code.INTERNAL, False, False),
        (DrayError("x"), Code.INTERNAL, False, False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, DrayError) else None,
)
def test_an_error_has_the_code_of_its_class_or_its_kind(error, code, retryable, unknown):
    """E1"""
    assert code_of(error) is code
    one = told(error)
    assert (one.kind, one.retryable, one.may_have_happened) == (code.name, retryable, unknown)
    trailing = dict(status_of(error).trailing)
    assert trailing["dray-kind"] == error.kind.name.lower()
    assert (trailing.get("dray-outcome") == "unknown") is unknown


def test_a_confirmation_is_told_to_whoever_has_to_send_it_and_nothing_else_is_taken_for_one():
    """CN1: the class decides, whatever else an error carries."""
    assert dict(status_of(ConfirmationNeeded("x", "token")).trailing)["dray-confirmation"] == "token"
    other = Conflict("x")
    other.confirmation = "of something else"
    assert code_of(other) is Code.ABORTED
    assert "dray-confirmation" not in dict(status_of(other).trailing)


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_has_a_code(kind):
    """E1: and no definite one where nobody knows."""
    error = type("Told", (DrayError,), {"kind": kind})("x")
    assert (code_of(error) is Code.UNKNOWN) is (kind is Kind.UNKNOWN)
