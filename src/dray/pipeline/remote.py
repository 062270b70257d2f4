"""Planning where the log can be read: here, or by a broker that is asked over HTTP.

    POST   URL/v1/plans         {"options": {...}, "parallel": n, "shared": bool} -> a plan, packed
    DELETE URL/v1/plans/PIN     lets go of what it held

A driver on another machine then needs the broker's HTTP port while it plans,
and its executors need the store. Where brokers ask for a key it is taken from
the environment, as `dray` does it.
"""

import asyncio
import http.client
import os
import ssl
from contextlib import closing, suppress
from dataclasses import replace
from typing import Final
from urllib.parse import quote, urlsplit

import msgspec

from dray.errors import DrayError, Invalid, Unavailable
from dray.pipeline.errors import BadOption, DataLoss, NoSuchTopic, NotPinned
from dray.pipeline.opening import place_of
from dray.pipeline.options import ReadOptions
from dray.pipeline.packed import MEDIA_TYPE, unpack_plan
from dray.pipeline.parallelism import cores
from dray.pipeline.pins import let_go
from dray.pipeline.plan import Plan
from dray.pipeline.planning import plan_read
from dray.tables.plans import KINDS
from dray.telemetry import be_quiet

ANSWER_S: Final = 180
MOST_PLAN_BYTES: Final = 1 << 30
KEY_VARIABLE: Final = "DRAY_API_KEY"
_TOLD: Final[dict[str, type[DrayError]]] = {
    kind.__name__: kind for kind in (BadOption, NoSuchTopic, DataLoss, NotPinned)
}


class PlanRefused(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker says instead of a plan."""

    type: str
    kind: str
    message: str


class _Refusal(msgspec.Struct, frozen=True):
    error: PlanRefused


def plan_for(options: ReadOptions, *, shared: bool = True) -> Plan:
    """The plan of a read. Blocks; where a broker is asked, its own words are raised."""
    be_quiet()
    if options.url is None:
        return asyncio.run(plan_read(options, shared=shared))
    parallel = cores(os.environ)  # noqa: TID251
    body = msgspec.json.encode({"options": dict(options.asked), "parallel": parallel, "shared": shared})
    found = unpack_plan(_ask(options.url, "POST", "/v1/plans", body))
    return found if options.objects is None else replace(found, address=options.objects)


def end_plan(options: ReadOptions, plan: Plan) -> None:
    """Let go of what a plan of one's own held. What cannot be let go ends by time."""
    if plan.pin is None:
        return
    with suppress(DrayError, OSError):
        if options.url is None:
            asyncio.run(let_go(place_of(options)[0], plan.pin))
        else:
            _ask(options.url, "DELETE", f"/v1/plans/{quote(plan.pin, safe='')}", b"")


def _ask(url: str, method: str, path: str, body: bytes) -> bytes:
    """The body of an answer that is well."""
    at = urlsplit(url)
    try:
        with closing(_connected(url)) as connection:
            headers = {"Content-Type": "application/json", "Accept": MEDIA_TYPE} | _key()
            connection.request(method, at.path.rstrip("/") + path, body, headers)
            answer = connection.getresponse()
            content = answer.read(MOST_PLAN_BYTES + 1)
    except (OSError, http.client.HTTPException, ssl.SSLError) as error:
        raise Unavailable("the broker does not answer: is it there?", url=url, reason=error) from error
    if len(content) > MOST_PLAN_BYTES:
        raise Invalid("the plan is too large: read fewer topics, or a part of them", url=url)
    if answer.status >= 300:
        raise _refusal(answer.status, content, url)
    return content


def _key() -> dict[str, str]:
    """Not by an option: Spark shows those."""
    key = os.environ.get(KEY_VARIABLE)  # noqa: TID251
    return {} if not key else {"Authorization": f"Bearer {key}"}


def _connected(url: str) -> http.client.HTTPConnection:
    at = urlsplit(url)
    if at.hostname is None:
        raise BadOption("it is an address such as http://127.0.0.1:7433", option="url", given=url[:200])
    if at.scheme == "https":
        return http.client.HTTPSConnection(at.hostname, at.port, timeout=ANSWER_S)
    return http.client.HTTPConnection(at.hostname, at.port, timeout=ANSWER_S)


def _refusal(status: int, content: bytes, url: str) -> DrayError:
    try:
        error = msgspec.json.decode(content, type=_Refusal).error
    except msgspec.DecodeError:
        return Unavailable(
            "this is no broker that plans: is it the HTTP port, and of this build?", url=url, status=status
        )
    return _TOLD.get(error.type, KINDS.get(error.kind, Unavailable))(error.message)
