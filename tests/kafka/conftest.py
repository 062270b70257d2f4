"""The server is tested on both event loops."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

from dray.telemetry import configure_logging

configure_logging()  # as a broker does; structlog's own way to show an exception takes half a second


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}
