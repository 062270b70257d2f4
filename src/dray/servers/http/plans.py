"""Plans for drivers that do not sit on the broker's machine.

POST    /v1/plans        {"options": {...}, "parallel": n, "shared": bool}: which objects hold the records that are
                         asked for, and where in them; held before it is told
DELETE  /v1/plans/PIN    lets go of what a plan of one's own held

Options are those of `spark.read.format("dray")`, but for where. Records are not
told: who reads them needs access to the store. Errors are JSON, with the kind
that tells what to do next. Where keys are needed, one that may read the topics
is sent as by the API (HG1).

Invariants
    HT4  A body is bounded, and so is the number of plans that are made at a
         time and that wait: who comes beyond that is told to come again.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Final, Protocol

import msgspec
from msgspec import Meta
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from dray.errors import DrayError, Invalid, Kind
from dray.servers.http.gate import HttpGuard

MOST_BODY_BYTES: Final = 1 << 20
MEDIA_TYPE: Final = "application/vnd.dray.plan"
RETRY_S: Final = 2
_STATUS: Final = {
    "INVALID": 400, "UNAUTHENTICATED": 401, "FORBIDDEN": 403, "NOT_FOUND": 404, "CONFLICT": 409, "LOST": 409,
    "UNAVAILABLE": 503, "UNKNOWN": 503,
}  # fmt: skip


class PlanRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a driver asks for."""

    options: dict[str, str]
    parallel: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    """How many tasks run at a time."""
    shared: bool = True
    """Whether a hold of somebody else will do. One that is not shared may be let go early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStream:
    """A plan on its way."""

    size: int
    pin: str | None
    content: AsyncIterator[bytes]


class PlanFailed(DrayError):
    """No plan was made; `type` and `told_kind` are those of the error behind it."""

    def __init__(self, message: str, *, type_: str, told_kind: str) -> None:
        super().__init__(message)
        self.type = type_
        self.told_kind = told_kind


class PlanMaker(Protocol):
    """Who makes plans."""

    async def plan(self, request: PlanRequest) -> PlanStream: ...

    async def let_go(self, pin: str) -> None: ...


def plan_routes(planner: PlanMaker, gate: HttpGuard) -> list[Route]:
    """What is served of a planner."""

    async def make(request: Request) -> Response:
        try:
            asker = await gate.admit(request)  # HG1
            asked = msgspec.json.decode(await _body(request), type=PlanRequest)
            for topic in topics_in(asked.options):
                gate.allow(asker, "topic.fetch", topic)
            found = await planner.plan(asked)
        except msgspec.DecodeError as error:
            return _refused(Invalid("the body is not what is asked for here", reason=str(error)[:200]))
        except DrayError as error:
            return _refused(error)
        headers = {"Content-Length": str(found.size)} | ({} if found.pin is None else {"Dray-Pin": found.pin})
        return StreamingResponse(found.content, media_type=MEDIA_TYPE, headers=headers)

    async def end(request: Request) -> Response:
        try:
            gate.allow(await gate.admit(request), "topic.fetch", "")
            await planner.let_go(request.path_params["pin"])
        except DrayError as error:
            return _refused(error)
        return Response(status_code=204)

    return [
        Route("/v1/plans", make, methods=["POST"]),
        Route("/v1/plans/{pin}", end, methods=["DELETE"]),
    ]


def topics_in(options: Mapping[str, str]) -> list[str]:
    """What is asked about, by name; a pattern stands for itself."""
    named = {name.lower(): text for name, text in options.items()}
    found = [name.strip() for name in named.get("subscribe", "").split(",")]
    with suppress(msgspec.DecodeError):  # what is no JSON is refused by who plans
        found += msgspec.json.decode(named.get("assign", "{}"), type=dict[str, object])
    return [name for name in (*found, named.get("subscribepattern", "")) if name] or [""]


async def _body(request: Request) -> bytes:
    """All of it, if it is not too large (HT4)."""
    content = bytearray()
    try:
        async for part in request.stream():
            content += part
            if len(content) > MOST_BODY_BYTES:
                raise Invalid("the body is too large", limit_bytes=MOST_BODY_BYTES)
    except ClientDisconnect as error:
        raise Invalid("the body was cut off") from error
    return bytes(content)


def _refused(error: DrayError) -> Response:
    kind, type_ = error.kind.name, type(error).__name__
    if isinstance(error, PlanFailed):
        kind, type_ = error.told_kind, error.type
    status = _STATUS.get(kind, 500)
    told = {"error": {"type": type_, "kind": kind, "message": str(error)}}
    headers = {"Retry-After": str(RETRY_S)} if kind == Kind.UNAVAILABLE.name else {}
    return Response(msgspec.json.encode(told), status, headers=headers, media_type="application/json")
