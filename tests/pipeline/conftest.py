"""One Spark session for all tests of this directory: to start one takes ten seconds."""

import os
from unittest import mock

import pytest

from dray.pipeline.session import build_session
from tests.pipeline.job import QUICK_START
from tests.pipeline.parts import ObjectServer


@pytest.fixture(scope="session")
def store():
    with ObjectServer() as server:
        yield server


@pytest.fixture(scope="session")
def spark(store):
    # The JVM and its workers keep the environment that they were started with.
    with mock.patch.dict(os.environ, store.environ):
        session = build_session("tests", master="local[2,4]", config=QUICK_START)
    session.sparkContext.setLogLevel("FATAL")  # tasks fail here on purpose
    yield session
    session.stop()
