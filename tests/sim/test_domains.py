"""Brokers that have few domains loaded, over runs with faults; mistakes that these must find are in `PLANTED`."""

import pytest

from dray.sim.runner import simulate


@pytest.mark.slow
@pytest.mark.parametrize("seed", [4, 6])
def test_everything_holds_and_is_done_while_domains_come_and_go(seed: int) -> None:
    """DL1, DL2, DL3, DL4"""
    outcome = simulate("domains", seed)
    assert outcome.violation is None, outcome.violation
