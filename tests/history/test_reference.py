"""Clean histories are clean; one change to them is found."""

import random
from collections import Counter

import pytest

from dray.testing.history import (
    Limits,
    Verdict,
    as_text,
    check,
    decode_events,
    encode_events,
    fold_history,
    judge,
    make_report,
)
from dray.testing.history.events import At, Fail, Latest, Ok, Polled, Sent
from tests.history.reference import Reference


def judged(events, **limits):
    return check(fold_history(events), Limits(**limits))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_a_right_log_gives_clean_histories_whatever_the_interleaving(block):
    """R-221, R-226, HC3."""
    for seed in range(block * 30, block * 30 + 30):
        judgement = judged(Reference(seed).events)
        assert not judgement.findings.counts, f"seed={seed}\n{as_text(make_report(judgement))}"


def test_the_reference_exercises_what_it_claims():
    kinds = Counter()
    for seed in range(20):
        judgement = judged(Reference(seed).events)
        kinds["retried"] += judgement.findings.retried_duplicates
        for kind, counter in judgement.counts.ops.items():
            kinds.update({f"{kind} {status}": n for status, n in counter.items()})
        kinds["lives"] += sum(len(lives) - 1 for lives in judgement.history.lives.values())
        kinds["faults"] += len(judgement.history.faults)
        kinds["records"] += judgement.counts.records_read
    wanted = (
        "retried",
        "lives",
        "faults",
        "send ok",
        "send info",
        "send fail",
        "commit ok",
        "commit fail",
        "committed ok",
    )
    assert all(kinds[name] >= 10 for name in wanted), kinds
    assert kinds["records"] > 1_000


def test_a_history_survives_its_file():
    events = Reference(1).events
    assert decode_events(encode_events(events)) == (events, False)


# One change to a clean history. Each returns the changed events, or none where the history offers no place.
# The histories have no churn: every log survives whole, so that there is no excuse.


def completions(events, kind):
    return [n for n, event in enumerate(events) if isinstance(event, Ok) and isinstance(event.result, kind)]


def calls(events):
    return {event.op: event.call for event in events if hasattr(event, "call")}


def with_result(events, index, result):
    changed = list(events)
    changed[index] = Ok(op=events[index].op, t_ns=events[index].t_ns, result=result)
    return changed


def full_polls(events):
    return [n for n in completions(events, Polled) if any(events[n].result.records.values())]


def change_record(events, dice, change, *, drain_only=False):
    drain = {event.op for event in events if getattr(event, "process", "") == "drain"}
    places = [n for n in full_polls(events) if not drain_only or events[n].op in drain]
    index = dice.choice(places)
    result = events[index].result
    tp = dice.choice(sorted(result.records))
    records = list(result.records[tp])
    at = dice.randrange(len(records))
    records[at : at + 1] = change(*records[at])
    return with_result(events, index, Polled(records={**result.records, tp: records}, ends=result.ends))


def damage_a_payload(events, dice):
    return change_record(events, dice, lambda at, value, crc: [(at, value, crc ^ 1)])


def make_a_payload_unreadable(events, dice):
    return change_record(events, dice, lambda at, value, crc: [(at, "", crc)])


def invent_a_value(events, dice):
    return change_record(events, dice, lambda at, value, crc: [(at, "ghost:1", crc)])


def repeat_a_record(events, dice):
    return change_record(events, dice, lambda at, value, crc: [(at, value, crc)] * 2)


def route_a_record_elsewhere(events, dice):
    index = dice.choice(full_polls(events))
    result = events[index].result
    tp = dice.choice(sorted(result.records))
    other = dice.choice([name for name in ("t0/0", "t0/1", "t1/0", "t1/1") if name != tp])
    records = {**result.records, other: [*result.records.get(other, []), result.records[tp][0]]}
    return with_result(events, index, Polled(records=records, ends=result.ends))


def leave_a_record_out_of_the_drain(events, dice):
    return change_record(events, dice, lambda *_: [], drain_only=True)


def lose_a_value_everywhere(events, dice):
    called = calls(events)
    index = dice.choice(completions(events, Sent))
    value = called[events[index].op].value
    changed = list(events)
    for n in full_polls(events):
        kept = {tp: [r for r in records if r[1] != value] for tp, records in events[n].result.records.items()}
        changed = with_result(changed, n, Polled(records=kept, ends=events[n].result.ends))
    return changed


def refuse_what_was_taken(events, dice):
    read = {r[1] for n in full_polls(events) for records in events[n].result.records.values() for r in records}
    called = calls(events)
    index = dice.choice([n for n in completions(events, Sent) if called[events[n].op].value in read])
    changed = list(events)
    changed[index] = Fail(op=events[index].op, t_ns=events[index].t_ns, error="refused")
    return changed


def forget_the_offset_of_an_ack(events, dice):
    return with_result(events, dice.choice(completions(events, Sent)), Sent(offset=-1))


def move_an_ack(events, dice):
    index = dice.choice(completions(events, Sent))
    return with_result(events, index, Sent(offset=events[index].result.offset + dice.choice((1, 2, 1 << 40))))


def acknowledge_at_zero(events, dice):
    index = dice.choice([n for n in completions(events, Sent) if events[n].result.offset > 0])
    return with_result(events, index, Sent(offset=0))


def _last_answer(events, kind):
    called = calls(events)
    return max(n for n, event in enumerate(events) if isinstance(event, Ok) and isinstance(called[event.op], kind))


def _with_last_latest(events, choose):
    index = _last_answer(events, Latest)
    tp = calls(events)[events[index].op].tp
    acked = [events[n].result.offset for n in completions(events, Sent) if calls(events)[events[n].op].tp == tp]
    return with_result(events, index, At(offset=choose(events[index].result.offset, max(acked))))


def put_the_last_latest_at_an_ack(events, dice):
    return _with_last_latest(events, lambda offset, acked: acked)


def raise_the_last_latest(events, dice):
    return _with_last_latest(events, lambda offset, acked: offset + 1)


def cut_the_drain_short(events, dice):
    drain = [
        n for n in full_polls(events) if events[n].op in {e.op for e in events if getattr(e, "process", "") == "drain"}
    ]
    index = drain[-1]
    result = events[index].result
    tp = dice.choice(sorted(result.records))
    return with_result(events, index, Polled(records={**result.records, tp: result.records[tp][:-1]}))


MUTATIONS = [
    damage_a_payload,
    make_a_payload_unreadable,
    invent_a_value,
    repeat_a_record,
    route_a_record_elsewhere,
    leave_a_record_out_of_the_drain,
    lose_a_value_everywhere,
    refuse_what_was_taken,
    forget_the_offset_of_an_ack,
    move_an_ack,
    acknowledge_at_zero,
    put_the_last_latest_at_an_ack,
    raise_the_last_latest,
    cut_the_drain_short,
]


@pytest.mark.slow
@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_one_change_to_a_clean_history_is_found(mutate):
    for seed in range(25):
        events = Reference(seed, steps=400, churn=False).events
        assert not judged(events, retention=False).findings.counts, f"seed={seed}"
        judgement = judged(mutate(events, random.Random(seed)), retention=False)
        assert judge(judgement)[0] is Verdict.INVALID, f"seed={seed}"
