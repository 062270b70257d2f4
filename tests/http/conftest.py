"""One broker for all tests of a module, and a client of its API."""

from collections.abc import Iterator

import httpx
import pytest

from dray.testing.broker import TestBroker, broker


@pytest.fixture(scope="module")
def dray() -> Iterator[TestBroker]:
    with broker(access__required="off", consume__max_retries=2, consume__backoff="0s") as running:
        yield running


@pytest.fixture
def api(dray: TestBroker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{dray.http}/v1", timeout=60) as client:
        yield client
