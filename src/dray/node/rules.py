"""Which version of the rules is active, which one this build knows, and what an operator does about the difference.

A new build changes nothing by itself: what is new about it waits until every
process has it and an operator says so (`dray.node.activation`).
"""

import shlex
from collections.abc import Iterable
from pathlib import Path

from dray.machine.machine import Machine
from dray.node import telemetry
from dray.replica.domains import Domains
from dray.telemetry import logger


def newest_version() -> int:
    """What this build knows."""
    return Machine.supported


def active_version(machines: Iterable[Machine]) -> int:
    """What holds in every domain: a step that was cut short leaves some behind."""
    return min(machine.version for machine in machines)


def activation_command(directory: Path | None) -> str:
    """What an operator runs for the log of a directory; None: of an engine, which their settings name."""
    return f"drayd admin meta activate {'-' if directory is None else shlex.quote(str(directory))}"


def tell_old_rules(domains: Domains, directory: Path | None) -> None:
    """Say once, at a start, that this build could do more."""
    active = active_version(replica.machine for _, replica in domains)
    if active < newest_version():
        command = activation_command(directory)
        logger().warning(telemetry.OLD_RULES, active=active, newest=newest_version(), run=command)
