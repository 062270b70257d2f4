"""A shard against its naive twin: seeds, and the mistakes that they must find."""

import inspect
import textwrap

import pytest

from dray.machine.heaps import operators, order
from dray.machine.heaps.batches import BatchDecisions
from dray.machine.heaps.dedup import Dedup
from dray.machine.heaps.leases import Leases
from dray.machine.heaps.messages import Messages
from dray.machine.heaps.shard import Shard
from dray.machine.heaps.shards import Heaps

from .twin import Twin

STEPS = 250


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_a_shard_and_its_twin_agree_on_every_verdict_and_every_state(seed, monkeypatch):
    """T17, D-045, D-063, D-114, D-115, D-155, D-159, D-300,
    L1, L2, L3, L4, L5, L6, L7, L9, L10, L11, L12, DD1, DD2, K2,
    BA1, BA2, BA3, BA4, D-040, D-043, D-044, D-085, D-111, D-172."""
    print(f"seed={seed}")
    let_stale_entries_stay(seed, monkeypatch)
    Twin(seed).run(STEPS)


def let_stale_entries_stay(seed: int, monkeypatch) -> None:
    """With every other seed: in lists as short as these they would be swept at once."""
    monkeypatch.setattr(order, "SWEEP", 4 * (seed % 2))


@pytest.mark.long
@pytest.mark.parametrize("block", range(100))
def test_ten_thousand_short_histories_agree(block, monkeypatch):
    """T17: 10,000 x 50 steps."""
    for seed in range(1_000 + block * 100, 1_100 + block * 100):
        print(f"seed={seed}")
        let_stale_entries_stay(seed, monkeypatch)
        Twin(seed).run(50)


PLANTED = {
    "an ack after the deadline": (Shard, "settle", "held is not sure and is_over(held, moment)", "False"),
    "anybody's token": (Leases, "find", "held.nonce == nonce", "True"),
    "attempts stand still": (Messages, "fail", "failed + 1, most", "failed, most"),
    "one retry too few": (Messages, "fail", "failed >= most", "failed + 1 >= most"),
    "a stale entry is granted": (Shard, "_best", "arrival << ARRIVAL_SHIFT | slot == entry",
                                 "0 == entry >> KEY_SHIFT << KEY_SHIFT"),
    "a stale rank counts": (Messages, "is_ready", "entry_of(self.rank(priority), arrival, slot) == entry",
                            "arrival == arrival_of(entry)"),
    "a stale delay wakes early": (Messages, "is_delayed", "due_ms == entry >> KEY_SHIFT", "True"),
    "a delay ends early": (Messages, "wake", "(now_ms + 1) << KEY_SHIFT", "(now_ms + 200) << KEY_SHIFT"),
    "a lease ends early": (Leases, "over", "running_ms >> BUCKET_BITS", "(running_ms >> BUCKET_BITS) + 1"),
    "a deadline on machine time": (Heaps, "_change", "time.running_ms", "time.time_ms - 1_700_000_000_000"),
    "a sift that goes one step": (order, "_sift", "if entries[child] >= entry:", "if True:"),
    "a purge of what came later": (operators, "purge", "row.arrival >= command.upto", "False"),
    "any repeat of an ack is right": (Shard, "_settled_before", "ALREADY if knows else LOST", "ALREADY"),
    "settlements are not remembered": (Shard, "_end", "messages.settled[slot] = (nonce, kind)", "pass"),
    "settlements are remembered beyond the next lease": (Shard, "lease", "self.messages.settled.pop(slot, None)",
                                                         "pass"),
    "extensions without end": (Shard, "_prolong", "min(wanted_ms, latest_ms)", "wanted_ms"),
    "one order for both modes": (Messages, "rank", "BIAS - 1 - priority if self.mode is Mode.MAX else", ""),
    "a prepared message is granted": (Shard, "_take", "PREPARED if prepared else", ""),
    "a prepared message is a duplicate": (Shard, "_judge", "in self.batches.named:", "in ():"),
    "an aborted message is remembered": (Shard, "finish", "() if command.commit else prepared.names", "()"),
    "an abort leaves its rows": (Shard, "finish", "self.messages.remove(slot)", "pass"),
    "a delay is lost by a commit": (Shard, "finish", "self.messages.rows.due_ms(slot)", "0"),
    "the last decision counts": (BatchDecisions, "_decide", "return Decided(commit=known)",
                                 "return Decided(commit=bool(command.word))"),
    "finished as it was not decided": (Heaps, "_finish", "command.commit != committed", "False"),
    "a purge of what is prepared": (operators, "purge", "or row.state == PREPARED", ""),
    "older generations are not asked": (Dedup, "find", "if seq >= floor:", "if True:"),
    "a window that is a quarter too short": (Dedup, "find", "running_ms - window_ms - window_ms // PARTS",
                                             "running_ms - window_ms"),
}  # fmt: skip


def rewritten(holder, name, old, new):
    """The function with a mistake in it."""
    function = getattr(holder, name)
    source = textwrap.dedent(inspect.getsource(function))
    assert old in source, f"{name} does not say {old!r} any more"
    made: dict[str, object] = {}
    code = compile(source.replace(old, new), f"<{name} with a mistake>", "exec")
    exec(code, function.__globals__, made)
    return made[name]


@pytest.mark.slow
@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_is_found(mistake, monkeypatch):
    """The twin would see it: each mistake fails some seed."""
    holder, name, old, new = PLANTED[mistake]
    monkeypatch.setattr(holder, name, rewritten(holder, name, old, new))
    assert any(fails(seed, monkeypatch) for seed in range(200)), "no seed has found it"


def fails(seed: int, monkeypatch) -> bool:
    let_stale_entries_stay(seed, monkeypatch)
    try:
        Twin(seed).run(STEPS)
    except (AssertionError, LookupError, OverflowError):
        print(f"seed={seed}")
        return True
    return False
