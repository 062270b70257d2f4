"""What drivers elsewhere are told when they get no plan: the same as by the rest of the API."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from starlette.applications import Starlette

from dray.access.errors import Forbidden, OverLimit, Unauthenticated
from dray.errors import Conflict, Corrupt, DrayError, Invalid, Lost, NotFound, Unavailable, Unknown
from dray.pipeline.errors import NoSuchTopic
from dray.pipeline.remote import _refusal
from dray.servers.http.gate import HttpGuard
from dray.servers.http.plans import PlanFailed, plan_routes
from dray.tables.plans import KINDS
from tests.access.stand import stand

ASKED = {"options": {"subscribe": "orders"}}


class NoPlans:
    """A planner that fails."""

    def __init__(self, error: DrayError) -> None:
        self.error = error

    async def plan(self, request):
        raise self.error

    async def let_go(self, pin):
        raise self.error


@asynccontextmanager
async def asking(planner: NoPlans, **access) -> AsyncIterator[httpx.AsyncClient]:
    async with stand(**access) as here:
        app = Starlette(routes=plan_routes(planner, HttpGuard(here.access)))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://broker") as api:
            yield api


@pytest.mark.parametrize(
    ("error", "status", "kind", "heard"),
    [
        (Invalid("x"), 400, "INVALID", Invalid),
        (Unauthenticated("x"), 401, "UNAUTHENTICATED", Unauthenticated),
        (Forbidden("x"), 403, "FORBIDDEN", Forbidden),
        (NotFound("x"), 404, "NOT_FOUND", NotFound),
        (Conflict("x"), 409, "CONFLICT", Conflict),
        (Lost("x"), 409, "LOST", Lost),
        (OverLimit("x"), 429, "LIMIT", Unavailable),
        (Unavailable("x"), 503, "UNAVAILABLE", Unavailable),
        (Unknown("x"), 504, "UNKNOWN", Unknown),
        (Corrupt("x"), 500, "CORRUPT", Corrupt),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, DrayError) else None,
)
@pytest.mark.parametrize("by", ["broker", "planner"])
async def test_a_plan_that_is_refused_is_told_like_everything_else(error, status, kind, heard, by):
    """HE1, HE2, E1: whether the broker fails or the process that plans for it; and the driver hears what it is."""
    failure = error if by == "broker" else PlanFailed(type_=type(error).__name__, behind=error)
    async with asking(NoPlans(failure)) as api:
        for answer in (await api.post("/v1/plans", json=ASKED), await api.delete("/v1/plans/some")):
            told = answer.json()["error"]
            assert (answer.status_code, told["kind"], told["type"]) == (status, kind, type(error).__name__)
            assert (answer.headers.get("dray-outcome") == "unknown") is (status == 504)
            assert ("retry-after" in answer.headers) is told.get("retryable", False) is (status in (429, 503, 504))
            assert told.get("may_have_happened", False) is (status == 504)
            assert type(_refusal(answer.status_code, answer.content, "http://broker")) is heard


async def test_what_the_planner_names_is_raised_by_its_name_at_the_driver():
    async with asking(NoPlans(PlanFailed(type_="NoSuchTopic", behind=NotFound("no such topic")))) as api:
        answer = await api.post("/v1/plans", json=ASKED)
        assert answer.json()["error"] == {"type": "NoSuchTopic", "kind": "NOT_FOUND", "message": "no such topic"}
        assert type(_refusal(answer.status_code, answer.content, "http://broker")) is NoSuchTopic


async def test_who_shows_no_key_where_one_is_needed_is_asked_for_it():
    """HG1"""
    async with asking(NoPlans(DrayError("nobody gets this far")), required="on") as api:
        answer = await api.post("/v1/plans", json=ASKED)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


def test_every_kind_that_a_planner_can_tell_is_known():
    """INTERNAL is what is left over."""
    assert {kind.kind.name for kind in KINDS.values()} == set(KINDS)
    assert set(DrayError.kind.__class__.__members__) - set(KINDS) == {"INTERNAL"}
