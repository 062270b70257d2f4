"""A plugin of pytest: what aiokafka's tests get from a container, they get from a broker that runs already.

`kafka_server` is where it is. What is made of certificates, access rules and
Kerberos in the container is not there; tests that use it fail and say so.
"""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest
from _pytest.fixtures import SubRequest

_NOBODY: Final = 1
"""A port at which nobody listens: of TLS and SASL."""


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object], request: SubRequest) -> object | None:
    """Answer for the fixtures that would start a container; None leaves the others to pytest."""
    host, _, port = os.environ["DRAY_SUITE_BOOTSTRAP"].rpartition(":")
    given: dict[str, object] = {
        "docker": SimpleNamespace(),
        "kafka_server": SimpleNamespace(
            host=host,
            port=int(port),
            ssl_port=_NOBODY,
            sasl_plain_port=_NOBODY,
            sasl_ssl_port=_NOBODY,
            hosts=[f"{host}:{port}"],
            container=SimpleNamespace(),
        ),
        "ssl_folder": Path("no-certificates"),
        "acl_manager": SimpleNamespace(),
        "kafka_config": SimpleNamespace(),
        "kerberos_utils": SimpleNamespace(),
    }
    value = given.get(fixturedef.argname)
    if value is not None:
        fixturedef.cached_result = (value, fixturedef.cache_key(request), None)
    return value
