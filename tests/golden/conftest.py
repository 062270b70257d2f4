"""One broker for all golden tests, with one data domain and with four; every test has topics of its own."""

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest

from dray.testing import broker
from dray.testing.broker import TestBroker
from tests.golden.asking import Asker

_names = itertools.count()


@pytest.fixture(scope="package", params=[1, 4], ids=["one-domain", "four-domains"])
def dray(request: pytest.FixtureRequest) -> Iterator[TestBroker]:
    with broker(topics__auto_create="false", cluster__domains=request.param) as running:
        yield running


@pytest.fixture
async def ask(dray: TestBroker) -> AsyncIterator[Asker]:
    """A connection that speaks the bare protocol."""
    async with Asker(dray.bootstrap) as asker:
        yield asker


@pytest.fixture
def name() -> str:
    """A topic name that nobody has used."""
    return f"golden-{next(_names)}"
