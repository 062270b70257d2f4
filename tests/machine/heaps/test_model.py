"""A shard against its naive twin: seeds, and the mistakes that they must find."""

import inspect
import textwrap

import pytest

from dray.machine import checkpoint
from dray.machine.heaps import kernel, messages, operators, pure, shard
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
    """T17, D-045, D-063, D-155, D-159, D-300,
    L1, L2, L3, L4, L5, L6, L7, L9, L10, L11, L12, L13, DD1, DD2, K2,
    BA1, BA2, BA3, BA4, D-040, D-043, D-044, D-085, D-111, D-172."""
    print(f"seed={seed}")
    use_one_side(seed, monkeypatch)
    Twin(seed).run(STEPS)


def use_one_side(seed: int, monkeypatch) -> None:
    """The kernel, and with every other seed its twin (L13)."""
    side = pure if seed % 2 else kernel
    for user, names in ((messages, ("MessageOrder", "write_run")), (shard, ("plain_run", "lease_run", "ack_run"))):
        for name in names:
            monkeypatch.setattr(user, name, getattr(side, name))


@pytest.mark.parametrize("seed", range(4))
def test_a_state_is_the_same_bytes_with_the_kernel_and_with_its_twin(seed, monkeypatch):
    """L13, K2"""
    states = []
    for side in range(2):
        use_one_side(side, monkeypatch)
        twin = Twin(seed)
        twin.run(STEPS)
        states.append(checkpoint.dump(twin.tape.machine))
    assert states[0] == states[1]


@pytest.mark.long
@pytest.mark.parametrize("block", range(100))
def test_ten_thousand_short_histories_agree(block, monkeypatch):
    """T17: 10,000 x 50 steps."""
    for seed in range(1_000 + block * 100, 1_100 + block * 100):
        print(f"seed={seed}")
        use_one_side(seed, monkeypatch)
        Twin(seed).run(50)


PLANTED = {
    "an ack after the deadline": (Shard, "settle", "or is_over(held, moment)", ""),
    "anybody's token": (Leases, "find", "held.nonce == nonce", "True"),
    "attempts stand still": (Messages, "fail", "failed + 1, most", "failed, most"),
    "one retry too few": (Messages, "fail", "failed >= most", "failed + 1 >= most"),
    "what is buried stays ready": (Messages, "leave_lists", "self.ready.remove(self.rank(priority), arrival, slot)",
                                   "pass"),
    "what is buried is woken": (Messages, "leave_lists", "self.delays.remove(due_ms, arrival, slot)", "pass"),
    "a run begins anywhere": (Dedup, "follows", "seq == end and seq >= floor", "True"),
    "a run is forgotten": (Dedup, "go_on", "end + count", "end + 1"),
    "a run of acks is forgotten": (Shard, "_ack", "self.tombs.add_all(arrivals, nonce, moment.running_ms)",
                                   "pass"),
    "a run of acks ends one lease": (Leases, "ended", "- count", "- 1"),
    "a run of acks goes on over other tokens": (pure, "ack_run", "token != nonce or leases.get(slot) is not held",
                                                "slot not in leases"),
    "a run of messages is longer than there is room": (Shard, "_take_run", "config.max_messages - messages.rows.live,",
                                                       ""),
    "a run of messages takes what waits": (pure, "plain_run", "count == most or wait or", "count == most or"),
    "a delay ends early": (Messages, "wake", "delays.take(now_ms)", "delays.take(now_ms + 200)"),
    "a lease ends early": (Leases, "over", "running_ms >> BUCKET_BITS", "(running_ms >> BUCKET_BITS) + 1"),
    "a deadline on machine time": (Heaps, "_change", "time.running_ms", "time.time_ms - 1_700_000_000_000"),
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
    use_one_side(seed, monkeypatch)
    try:
        Twin(seed).run(STEPS)
    except (AssertionError, LookupError, OverflowError, ValueError):
        print(f"seed={seed}")
        return True
    return False
