"""Each kind of error has its status, and an outcome that nobody knows is told as such."""

import json

import pytest

from dray.access.errors import ConfirmationNeeded, Forbidden, OverLimit, Unauthenticated
from dray.consume.errors import AckUnknown, GroupHasMembers, NoRoom, TooScattered
from dray.errors import Corrupt, DrayError, Kind
from dray.fetch.errors import AboveEnd, BelowStart
from dray.heaps.errors import (
    BatchAborted,
    BatchUndecided,
    EnqueueUnknown,
    HeapExists,
    HeapFull,
    LeaseLost,
    MessageGone,
    TornBatch,
    UnknownHeap,
)
from dray.machine.command import NotActive
from dray.produce.errors import NotStored, Overloaded, StoredUnknown, VersionMoved
from dray.servers.http.bodies import Bodies
from dray.servers.http.errors import BadRequest, TooManyAtOnce, failure


@pytest.mark.parametrize(
    ("error", "status", "retryable", "unknown"),
    [
        (TornBatch("x", index=3), 400, False, False),
        (BadRequest("x", status=415), 415, False, False),
        (Unauthenticated("x"), 401, False, False),
        (Forbidden("x"), 403, False, False),
        (UnknownHeap("x"), 404, False, False),
        (MessageGone("x"), 404, False, False),
        (HeapExists("x"), 409, False, False),
        (LeaseLost("x"), 409, False, False),
        (GroupHasMembers("x"), 409, False, False),
        (BatchAborted("x"), 409, True, False),
        (BatchUndecided("x"), 409, True, False),
        (VersionMoved(stream=1, version=7), 409, False, False),
        (BelowStart("x"), 410, False, False),
        (AboveEnd("x"), 416, False, False),
        (ConfirmationNeeded("x", "token"), 428, False, False),
        (HeapFull("x"), 429, True, False),
        (TooScattered("x"), 429, True, False),
        (NoRoom("x"), 429, True, False),
        (OverLimit("x"), 429, True, False),
        (Overloaded("x"), 429, True, False),
        (TooManyAtOnce("x"), 429, True, False),
        (NotStored("x"), 503, True, False),
        (StoredUnknown("x"), 504, True, True),
        (EnqueueUnknown("x"), 504, True, True),
        (AckUnknown("x"), 504, True, True),
        (Corrupt("x"), 500, False, False),
        (DrayError("x"), 500, False, False),
        (NotActive("x"), 501, False, False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, DrayError) else None,
)
def test_an_error_has_the_status_of_its_kind(error, status, retryable, unknown):
    """HE1, HE2, E1, W-06"""
    answer = failure(error)
    told = json.loads(answer.body)["error"]
    assert answer.status_code == status
    assert told.get("retryable", False) is retryable
    assert told.get("may_have_happened", False) is unknown
    assert (answer.headers.get("dray-outcome") == "unknown") is unknown
    assert ("retry-after" in answer.headers) is retryable
    if isinstance(error, VersionMoved):
        assert json.loads(answer.body)["version"] == "7"
    if isinstance(error, TornBatch):
        assert told["index"] == 3


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_has_a_status(kind):
    """E1: and no definite one where nobody knows."""
    told = type("Told", (DrayError,), {"kind": kind})("x")
    assert (failure(told).status_code == 504) is (kind is Kind.UNKNOWN)


class _Slow:
    """A request whose body never ends."""

    headers = {"content-type": "application/json"}  # noqa: RUF012

    def __init__(self, parts: int) -> None:
        self.parts = parts

    async def stream(self):
        for _ in range(self.parts):
            yield bytes(1_000)


async def test_bodies_that_are_on_their_way_share_a_budget():
    """HR3: whoever comes when it is used up is told, and it is given back."""
    bodies = Bodies(None, max_bytes=10_000, timeout_s=60, budget_bytes=5_000)
    with pytest.raises(TooManyAtOnce):
        await bodies._receive(_Slow(6))
    assert len(await bodies._receive(_Slow(5))) == 5_000
