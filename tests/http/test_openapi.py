"""What /v1/openapi.json says is what the API does: schemathesis asks everything that it describes."""

import json
from copy import deepcopy

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from dray.testing.broker import TestBroker

from .topics import new_topic

CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
ENDLESS = "/heaps/{topic}/messages"


@pytest.fixture(scope="module")
def names(dray: TestBroker) -> dict[str, str]:
    """A topic and a heap that exist."""
    with httpx.Client(base_url=f"http://{dray.http}/v1", timeout=60) as api:
        api.post("/heaps", json={"topic": "heap"})
    return {"topics": new_topic(dray, 2), "heaps": "heap"}


def aim(case: schemathesis.Case, names: dict[str, str]) -> None:
    """Ask mostly about what exists, and wait for nothing. What was drawn stays as it is: it may be drawn again."""
    case.body, case.query = deepcopy(case.body), deepcopy(case.query)
    case.path_parameters = deepcopy(case.path_parameters)
    kind = case.path.split("/")[1]
    if case.path_parameters and "topic" in case.path_parameters and len(str(case.path_parameters["topic"])) % 4:
        case.path_parameters["topic"] = names.get(kind, "none")
    body = case.body if isinstance(case.body, dict) else {}
    for part in [body, *(one for one in body.get("items", []) if isinstance(one, dict))] if body else []:
        if isinstance(part.get("topic"), str) and len(part["topic"]) % 4 and case.path != "/heaps":
            part["topic"] = names["heaps"]
    for held in (body, case.query or {}):
        if "wait" in held:
            held["wait"] = "0s"


def ask(case: schemathesis.Case, names: dict[str, str]) -> None:
    aim(case, names)
    answer = case.call(timeout=60, allow_redirects=False)
    case.validate_response(answer, checks=CHECKS)
    assert answer.status_code != 500, f"a bug: {answer.text}"
    if answer.status_code >= 400:
        assert "error" in answer.json(), answer.text


def ask_everything(dray: TestBroker, names: dict[str, str], examples: int, **options: object) -> int:
    """Ask each endpoint so often; how many there are."""
    described = schemathesis.openapi.from_url(f"http://{dray.http}/v1/openapi.json").exclude(path=ENDLESS)
    asked, failures = 0, list[str]()
    for found in described.get_all_operations():
        operation = found.ok()

        @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), **options)
        @given(case=operation.as_strategy())
        def one(case: schemathesis.Case) -> None:
            ask(case, names)

        try:
            one()
        except Exception as error:
            failures.append(f"{operation.method} {operation.path}: {error!r} {error}")
        asked += 1
    assert not failures, "\n".join(failures)
    return asked


@pytest.mark.slow
def test_every_answer_is_as_described(dray, names):
    """D-214, HX3, HX1: no endpoint meets a bug, whatever it is sent."""
    assert ask_everything(dray, names, 8, phases=[Phase.generate], derandomize=True) > 25


@pytest.mark.long
def test_every_answer_is_as_described_for_long(dray, names):
    """HX3, HX1: 5,000 requests in all."""
    ask_everything(dray, names, 200)


def test_every_path_is_described_and_every_name_is_used(dray):
    """HX3"""
    whole = httpx.get(f"http://{dray.http}/v1/openapi.json", timeout=60).json()
    assert whole["openapi"] == "3.1.0"
    text = json.dumps(whole)
    assert "/heaps/{topic}/dlq:replay" in whole["paths"]
    assert "/topics/{topic}/partitions/{partition}/records" in whole["paths"]
    for name in whole["components"]["schemas"]:
        assert "." not in name, "two types have one name"
    operations = [one["operationId"] for path in whole["paths"].values() for one in path.values()]
    assert len(operations) == len(set(operations))
    assert "#/components/schemas/ErrorAnswer" in text
