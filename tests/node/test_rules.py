"""Rules that are older than the build: an operator is told, at each start and by `drayd doctor`, what to run."""

import asyncio
import shlex

import pytest
import structlog

from dray.cli.main import run
from dray.machine.head import SUPPORTED, Genesis, Head
from dray.machine.machine import Machine
from dray.node.doctor import Finding, State, _rules
from dray.node.rules import activation_command
from dray.testing import broker
from tests.node.test_doctor import examined
from tests.upgrade.recordings import unpack_directory


def machine_of(version: int, domain: int) -> Machine:
    machine = Machine()
    machine.head = Head()
    machine.head.begin(
        Genesis(cluster_id=b"c" * 16, log_id=b"l" * 8, domain=domain, domains=2, version=version, min_grace_ms=1)
    )
    return machine


def told_at_a_start(directory, **settings) -> list[dict[str, object]]:
    with structlog.testing.capture_logs() as lines, broker(directory, **settings):
        pass
    return [line for line in lines if line["event"] == "node.old_rules"]


def rules_of(directory) -> Finding:
    return asyncio.run(examined(directory))["rules"]


@pytest.mark.slow
def test_a_start_and_doctor_tell_what_to_run_until_it_was_run(tmp_path):
    """M12"""
    directory = unpack_directory(tmp_path)
    [line] = told_at_a_start(directory)
    assert (line["active"], line["newest"]) == (1, SUPPORTED)
    found = rules_of(directory)
    assert found.state is State.WARN
    assert found.saw == f"version 1 of the rules is active; this build knows version {SUPPORTED}"
    assert found.next == f"when every process is of this build, run: {line['run']}"

    assert run([*shlex.split(str(line["run"]))[1:], "--yes"]) == 0

    assert told_at_a_start(directory) == []
    found = rules_of(directory)
    assert (found.state, found.next) == (State.OK, "")
    assert found.saw == f"version {SUPPORTED} of the rules is active, the newest that this build knows"


@pytest.mark.slow
def test_a_broker_that_joined_names_the_directory_that_keeps_the_log(tmp_path):
    directory = unpack_directory(tmp_path)
    with broker(directory):
        joined = told_at_a_start(tmp_path / "b2", log__url=f"unix:{directory}/meta.sock", broker__id=2)
        found = asyncio.run(examined(tmp_path / "b2", f"log.url=unix:{directory}/meta.sock"))
    command = f"drayd admin meta activate {directory}"
    assert [line["run"] for line in joined] == [command]
    assert found["rules"].next.endswith(command)


def test_an_activation_that_was_cut_short_is_seen():
    """M12: the catalog comes first."""
    machines = [machine_of(SUPPORTED, 0), machine_of(SUPPORTED - 1, 1), machine_of(SUPPORTED, 2)]
    found = _rules(machines, None)
    assert found.state is State.WARN
    assert f"version {SUPPORTED - 1} of the rules is active in 1 of 3 domains" in found.saw
    assert found.next.endswith("drayd admin meta activate -")


def test_the_command_can_be_pasted(tmp_path):
    assert shlex.split(activation_command(tmp_path / "a b"))[-1] == str(tmp_path / "a b")


async def test_an_older_build_says_that_a_newer_one_is_needed(tmp_path, monkeypatch):
    """M5: at a start and by `drayd doctor`."""
    with broker(tmp_path):
        pass
    monkeypatch.setattr(Machine, "supported", SUPPORTED - 1)
    log = (await examined(tmp_path))["log"]
    assert log.state is State.FAIL
    assert "run a newer Dray" in log.saw or "newer active version" in log.saw
    assert "the build that its brokers run" in log.next
