"""One broker for all client tests, as `drayd dev` runs it: topics are made when clients ask for them."""

import itertools
from collections.abc import Iterator

import pytest

from dray.testing import broker

_names = itertools.count()


@pytest.fixture(scope="package")
def bootstrap() -> Iterator[str]:
    with broker(topics__partitions=1) as running:
        yield running.bootstrap


@pytest.fixture
def name() -> str:
    return f"clients-{next(_names)}"
