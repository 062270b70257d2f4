"""The supported matrix and everything that is made from it."""

import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

import dray.servers.kafka.apis
from dray.errors import Invalid
from dray.servers.kafka.handler import Endpoint
from dray.servers.kafka.messages.index import MODULES
from dray.servers.kafka.support import APIS, Api, Matrix, Operation, Resource
from tests.kafka.oracle import schema

ROOT = Path(__file__).parents[2]
NEVER_ADVERTISED = {4, 5, 6, 7, 24, 25, 26, 27, 28, 65, 66, 71, 72}


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_a_row_agrees_with_its_messages_and_its_handler(api: Api) -> None:
    """R-078, KP5: key, name, flexible version and versions are those of the codec; the module has an endpoint."""
    messages = schema(MODULES[api.key])
    assert (messages.key, messages.name, messages.flexible) == (api.key, api.name, api.flexible)
    assert messages.first <= api.served[0] <= api.served[1] <= messages.last
    assert isinstance(import_module(api.module).ENDPOINT, Endpoint)


def test_every_handler_has_a_row_and_every_row_a_handler() -> None:
    """R-078: a key in one place and not in another fails."""
    files = {path.stem for path in Path(dray.servers.kafka.apis.__file__).parent.glob("*.py")} - {"__init__"}
    assert {api.module.rpartition(".")[2] for api in APIS} == files


def test_what_kafka_clients_must_not_see_is_not_advertised() -> None:
    """R-081."""
    keys = {api.key for api in APIS}
    assert not keys & NEVER_ADVERTISED
    assert max(keys) < 76


def test_every_api_has_a_rule_or_is_for_everyone() -> None:
    """KP6, R-078: a forgotten rule is an error at start, not an open door."""
    row = next(api for api in APIS if api.key == 18)
    Matrix([row])
    for wrong in (
        replace(row, before_login=False),
        replace(row, access=((Operation.READ, Resource.TOPIC),)),
        replace(row, key=99),
        replace(row, advertised=(0, 3)),
        replace(row, served=(0, 3)),
        replace(row, advertised=(2, 4), served=(1, 4)),
    ):
        with pytest.raises(Invalid):
            Matrix([wrong])
    with pytest.raises(Invalid):
        Matrix([row, row])


def test_the_support_page_is_current() -> None:
    """R-078: docs/kafka-support.md is made from the table."""
    tool = [sys.executable, "-m", "tools.generate_kafka_support", "--check"]
    run = subprocess.run(tool, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.slow
def test_a_server_starts_without_the_messages_it_does_not_need_yet() -> None:
    code = (
        "import sys, dray.servers.kafka.server;"
        "print(sorted(m.rpartition('.')[2] for m in sys.modules if m.startswith('dray.servers.kafka.messages.')))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "['api_versions', 'index', 'request_header', 'response_header']"
