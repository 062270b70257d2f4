import pytest

from dray.testing import broker

from .wire import Wire, wire


@pytest.fixture(scope="module")
def address() -> str:
    with broker(grpc__max_streams=20) as running:
        yield running.grpc


@pytest.fixture
async def dray(address: str) -> Wire:
    async with wire(address) as found:
        yield found


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:200]
