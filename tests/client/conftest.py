"""Clients over both transports: what the SDK promises does not depend on how it reaches a broker."""

from collections.abc import AsyncIterator

import pytest

from dray.client import Client
from dray.testing import broker
from dray.testing.heaps import heaps


@pytest.fixture(scope="session")
def served() -> str:
    """HOST:PORT of a broker."""
    with broker() as running:
        yield running.grpc


@pytest.fixture(params=["in-process", "grpc"])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    if request.param == "in-process":
        async with heaps() as dray:
            yield dray.client
    else:
        async with Client(request.getfixturevalue("served")) as found:
            yield found


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A heap of this test's own."""
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:200]
