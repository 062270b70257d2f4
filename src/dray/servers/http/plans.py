"""Plans for drivers that do not sit on the broker's machine.

POST    /v1/plans        {"options": {...}, "parallel": n, "shared": bool}: which objects hold the records that are
                         asked for, and where in them; held before it is told
DELETE  /v1/plans/PIN    lets go of what a plan of one's own held

Options are those of `spark.read.format("dray")`, but for where. Records are not
told: who reads them needs access to the store. Errors are those of the API,
with the class of the error besides. Where keys are needed, one that may read
the topics is sent as by the API (HG1).

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

from dray.errors import DrayError, Invalid
from dray.servers.http.errors import ErrorBody, body_of, failure
from dray.servers.http.gate import HttpGuard

MOST_BODY_BYTES: Final = 1 << 20
MEDIA_TYPE: Final = "application/vnd.dray.plan"


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
    """No plan was made: who plans told an error of a class that is not known here, which `behind` stands for."""

    def __init__(self, *, type_: str, behind: DrayError) -> None:
        super().__init__(behind.message)
        self.type = type_
        self.behind = behind


class PlanErrorBody(ErrorBody, omit_defaults=True, kw_only=True):
    """What went wrong, and the class of it, which the driver raises."""

    type: str


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
    """As everything under /v1 is refused, with the class of the error besides."""
    meant, type_ = (error.behind, error.type) if isinstance(error, PlanFailed) else (error, type(error).__name__)
    return failure(meant, PlanErrorBody(type=type_, **msgspec.structs.asdict(body_of(meant))))
