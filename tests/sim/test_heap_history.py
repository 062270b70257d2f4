"""The history of a heap over a run with faults, and mistakes that it must find."""

import pytest

from dray.machine.heaps.history import HeapHistories, Tell
from dray.machine.heaps.messages import Messages
from dray.sim.runner import simulate

APPLY = HeapHistories.apply
WAKE = Messages.wake


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_history_is_what_happened_whoever_dies_while_it_is_told(seed):
    """HI1, L7, D-043, T15"""
    outcome = simulate("heap-history", seed)
    assert outcome.violation is None, outcome.violation


@pytest.mark.slow
def test_an_event_that_is_told_twice_is_found(monkeypatch):
    """The run above would see it."""

    def forgets_one(self, step, command):
        history = self.all.get(command.shard) if isinstance(command, Tell) else None
        first = history.events[0] if history is not None and history.events else None
        told = 0 if history is None else history.first
        verdict = APPLY(self, step, command)
        if first is not None and history.first > told and told == 0:
            history.events.appendleft(first)
            history.first -= 1
        return verdict

    monkeypatch.setattr(HeapHistories, "apply", forgets_one)
    assert simulate("heap-history", 1).violation is not None


@pytest.mark.slow
def test_a_delay_that_ends_a_few_milliseconds_early_is_found(monkeypatch):
    """L7: what clocks of clients cannot see"""
    monkeypatch.setattr(Messages, "wake", lambda self, now_ms, limit: WAKE(self, now_ms + 90, limit))
    found = (simulate("heap-history", seed).violation for seed in (1, 2, 3))
    assert any("a delay ended early" in (violation or "") for violation in found)
