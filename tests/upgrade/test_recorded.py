"""What version 1 wrote opens for ever, with the same state."""

import pytest

from dray.machine import checkpoint
from dray.machine.machine import Machine

from .recordings import LOGS, entries, last_checkpoint, marks


@pytest.mark.parametrize("name", LOGS)
def test_a_recorded_log_folds_to_the_same_digests_and_states(name):
    """M4, K2"""
    machine, expected, seen = Machine(), marks(name), 0
    for position, entry in entries(name):
        machine.apply(position, entry)
        if position in expected:
            assert (f"{machine.digest:016x}", checkpoint.fingerprint(machine)) == expected[position], position
            seen += 1
    assert seen == len(expected) > 4


@pytest.mark.parametrize("name", LOGS)
def test_a_recorded_checkpoint_loads_and_is_written_again_byte_for_byte(name):
    """K2, K3"""
    recorded = last_checkpoint(name)
    machine = checkpoint.load(recorded)
    assert checkpoint.dump(machine) == recorded
    folded = Machine()
    for position, entry in entries(name):
        folded.apply(position, entry)
    assert checkpoint.dump(folded) == recorded
