"""Messages in their order, and what is done to many rows at once: the kernel and its twin are the same."""

import random
import struct
from array import array

import pytest

from dray.machine.heaps import kernel, order, pure
from dray.machine.heaps.leases import LeaseHeld
from dray.machine.heaps.order import best, entry_of, load_order
from dray.machine.heaps.packets import ENQUEUE_ROW, MAX_SEQ, SETTLE_ROW, pack_messages, pack_settlements
from dray.machine.heaps.rows import DELAYED, FREE, LEASED, READY, ROW, SIZE, MessageRows
from dray.machine.heaps.shard import MAX_RETRIES
from dray.machine.names import SessionId

_kernel = pytest.importorskip("dray.machine.heaps._kernel", reason="built without a compiler")
SIDES = [pytest.param(_kernel, id="kernel"), pytest.param(pure, id="twin")]
SORTS = {
    "ascending": lambda dice, at: at,
    "descending": lambda dice, at: 10_000 - at,
    "few keys": lambda dice, at: dice.randrange(3),
    "any": lambda dice, at: dice.randrange(1 << 64),
}
LAST = (1 << 64) - 1
ORDER = _kernel.MessageOrder


def test_this_installation_has_the_kernel():
    assert kernel.EXTENSION_LOADED
    assert kernel.MessageOrder is _kernel.MessageOrder


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 500])
def test_whatever_was_put_in_the_least_comes_first(side, sort, count):
    """L5"""
    dice, made = random.Random(count), side.MessageOrder()
    entries = [(SORTS[sort](dice, at), at + 1, at) for at in range(count)]
    for entry in entries:
        made.push(*entry)
    assert (len(made), made.first_key()) == (count, min(entries)[0] if entries else None)
    assert best(made, 20) == [entry_of(*entry) for entry in sorted(entries)][:20]
    assert [made.take(LAST) for _ in range(count + 1)] == [*(slot for _, _, slot in sorted(entries)), -1]


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("by", [pure.BY_LEAST, pure.BY_MOST, pure.BY_DUE])
@pytest.mark.parametrize("count", [0, 1, 5, 6, 7, 300])
def test_an_order_that_is_loaded_goes_on_like_one_that_grew(monkeypatch, side, by, count):
    """L5: also where it is longer than what is put in order at once."""
    monkeypatch.setattr(order, "PIECE", 7)
    dice, rows, grown = random.Random(count), MessageRows(), side.MessageOrder()
    state = DELAYED if by == pure.BY_DUE else READY
    edges = [-(1 << 63), -1, 0, 1, (1 << 63) - 1]
    for arrival in dice.sample(range(1, 1 << 48), count):
        priority, due_ms, own = dice.choice(edges), dice.randrange(50), dice.choice((state, state, LEASED))
        slot = rows.add((own, 0, 0, 0, 0, 0, 0, 0, priority, arrival, 0, 0, due_ms, 0, 0))
        rank = (1 << 63) - 1 - priority if by == pure.BY_MOST else priority + (1 << 63)
        if own == state:
            grown.push(due_ms if by == pure.BY_DUE else rank, arrival, slot)
    loaded = side.MessageOrder()
    load_order(loaded, rows, state, by)
    for both in (grown, loaded):
        both.push(1 << 63, 0, count)
    assert len(loaded) == len(grown)
    assert best(loaded, 50) == best(grown, 50)
    assert [loaded.take(LAST) for _ in range(count + 2)] == [grown.take(LAST) for _ in range(count + 2)]


@pytest.mark.parametrize("seed", range(20))
def test_the_kernel_and_its_twin_agree_whatever_comes_and_goes(seed):
    """L13, L5: against a list that is sorted each time."""
    dice, sides, naive = random.Random(seed), [_kernel.MessageOrder(), pure.MessageOrder()], {}
    keys = dice.choice((3, 1 << 64))
    for turn in range(600):
        free = [slot for slot in range(60) if slot not in naive]
        if free and dice.random() < (0.7 if turn < 300 else 0.4):
            entry = dice.randrange(keys), dice.choice((turn, turn + (1 << 47))), dice.choice(free)
            naive[entry[2]] = entry
            for side in sides:
                side.push(*entry)
        elif naive and dice.random() < 0.5:
            entry = naive.pop(dice.choice(list(naive)))
            for side in sides:
                side.remove(*entry)
            if dice.random() < 0.3:  # it comes back as it was
                naive[entry[2]] = entry
                for side in sides:
                    side.push(*entry)
        else:
            worst = dice.choice((LAST, dice.randrange(keys)))
            least = min(naive.values(), default=None)
            taken = least[2] if least is not None and least[0] <= worst else -1
            assert [side.first(worst) for side in sides] == [taken, taken]
            assert [side.take(worst) for side in sides] == [taken, taken]
            naive.pop(taken, None)
        expected = [entry_of(*entry) for entry in sorted(naive.values())]
        for side in sides:
            assert (len(side), best(side, 100)) == (len(naive), expected)
            assert side.first_key() == min((entry[0] for entry in naive.values()), default=None)


def test_an_order_is_cut_and_cleared_without_leaving_anything():
    for made in (_kernel.MessageOrder(), pure.MessageOrder()):
        for slot in range(100):
            made.push(slot % 7, slot, slot)
        made.remove(3, 3, 3)
        made.cut(40)
        assert len(made) in (59, 60)
        made.cut(1_000)
        assert (len(made), made.first_key(), made.take(LAST)) == (0, None, -1)
        made.push(1, 1, 1)
        made.clear()
        made.push(2, 2, 1)
        assert [made.take(LAST), made.take(LAST)] == [1, -1]


def messages(dice, count):
    """Rows of an Enqueue: mostly plain, some odd in one way."""
    rows = []
    seq = dice.choice((0, 5, MAX_SEQ - 3))
    key = dice.choice((0, 1))
    for at in range(count):
        row = [dice.choice((-(1 << 63), 0, 7, (1 << 63) - 1)), 0, dice.randrange(4), dice.choice((-1, 0, MAX_RETRIES)),
               dice.randrange(8), key, seq + at, dice.randrange(50), dice.randrange(40)]  # fmt: skip
        if dice.random() < 0.1:
            field, value = dice.choice((
                (1, 5), (1, -5), (2, 4), (3, -2), (3, 20_000), (5, 2), (6, 1), (6, MAX_SEQ + 1), (8, 10_000),
            ))  # fmt: skip
            row[field] = value
        rows.append(tuple(row))
    return pack_messages(rows)


@pytest.mark.parametrize("seed", range(40))
def test_a_run_of_messages_is_found_and_written_alike(seed):
    """L13"""
    dice = random.Random(seed)
    packed = messages(dice, 30)
    at, by = dice.randrange(3), dice.choice((pure.BY_LEAST, pure.BY_MOST))
    limits = (dice.choice((5, 100)), 4, 1_000, MAX_RETRIES, dice.choice((-1, 80)), dice.choice((400, 10**6)), 64)
    counts = {side.plain_run(packed, at, *limits) for side in (_kernel, pure)}
    assert len(counts) == 1
    slots = array("I", dice.sample(range(40), counts.pop()))
    written = []
    for side in (_kernel, pure):
        rows, into = bytearray(b"\xff" * 40 * SIZE), side.MessageOrder()
        side.write_run(rows, into, by, slots, packed, at, 1 << 47, 9, (1 << 32) - 1, 77, 88, 1 << 60, 3)
        written.append((bytes(rows), best(into, 40), side.lease_run(rows, into, LAST, 5), bytes(rows)))
    assert written[0] == written[1]


def test_a_run_ends_before_the_first_message_that_is_not_plain():
    plain = (0, 0, 0, -1, 0, 1, 5, 0, 10)
    for field, value in ((1, 1), (2, 4), (3, -2), (3, MAX_RETRIES + 1), (5, 0), (6, 9), (6, 6), (8, 11)):
        odd = [*plain[:6], plain[6] + 2, *plain[7:]]
        odd[field] = value
        packed = pack_messages([plain, (*plain[:6], 6, *plain[7:]), tuple(odd)])
        for side in (_kernel, pure):
            assert side.plain_run(packed, 0, 9, 4, 10, MAX_RETRIES, -1, 10**6, 64) == 2, (side, field, value)
    for side in (_kernel, pure):
        assert side.plain_run(pack_messages([plain] * 3), 0, 9, 4, 10, MAX_RETRIES, 9, 0, 64) == 0
        assert side.plain_run(pack_messages([plain] * 3), 3, 9, 4, 10, MAX_RETRIES, 10, 0, 64) == 0


@pytest.mark.parametrize("seed", range(40))
def test_a_run_of_acks_is_taken_alike_and_ends_at_the_first_of_another_lease(seed):
    """L13"""
    dice = random.Random(seed)
    held, other = (LeaseHeld(nonce * 16, 1, 1, "c", SessionId(1), 9) for nonce in (b"a", b"b"))
    rows = bytearray()
    for slot in range(20):
        rows += ROW.pack(LEASED, *[0] * 8, 1_000 + slot, slot % 3, 0, 0, 0, 0)
    acks = []
    for slot in dice.sample(range(20), 12):
        ack = [1, slot, 1_000 + slot, b"a" * 16, 0]
        if dice.random() < 0.1:
            field, value = dice.choice(((0, 2), (1, 19), (1, 1 << 31), (2, 5), (3, b"b" * 16)))
            ack[field] = value
        acks.append(tuple(ack))
    found = []
    for side in (_kernel, pure):
        leases = {slot: other if slot == 7 else held for slot in range(20)}
        bucket, own = dict.fromkeys(range(20)), bytearray(rows)
        taken = side.ack_run(own, leases, bucket, held, b"a" * 16, pack_settlements(acks), 2)
        found.append((taken, leases, bucket, bytes(own)))
        assert [own[slot * SIZE] for slot in taken[0]] == [FREE] * len(taken[0])
    assert found[0] == found[1]


@pytest.mark.parametrize("seed", range(20))
def test_rows_are_counted_alike(seed):
    dice = random.Random(seed)
    edges = [0, 1, 255, 256, 257, -(1 << 63), (1 << 63) - 1]
    part = b"".join(
        ROW.pack(dice.randrange(6), 0, dice.choice((0, 1, 256, 4_095)), 0, 0, dice.randrange(1 << 32), 0, 0,
                 dice.choice(edges), 1, 0, dice.randrange(1, 100), 0, 0, 0)
        for _ in range(dice.choice((0, 1, 400)))
    )  # fmt: skip
    told = []
    for side in (_kernel, pure):
        partitions, priorities = side.census(part)
        sums, ready = {}, {}
        for number, *counts, oldest in partitions:
            before = sums.get(number, [0] * 6)
            known = [one for one in (before[-1], oldest) if one]
            sums[number] = [*(a + b for a, b in zip(before, counts, strict=False)), min(known, default=0)]
        for priority, count in priorities:
            ready[priority] = ready.get(priority, 0) + count
        told.append((sums, ready))
    assert told[0] == told[1]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: _kernel.MessageOrder().push(1, 1),
        lambda: _kernel.MessageOrder().push(1, 1, -1),
        lambda: _kernel.MessageOrder().push(-1, 1, 1),
        lambda: _kernel.MessageOrder().push(1, 1, 1 << 32),
        lambda: _kernel.MessageOrder().remove(1, 1, 1),
        lambda: _kernel.MessageOrder().entry(0),
        lambda: _kernel.MessageOrder().load(bytes(SIZE), 0, 2, 1, 0),
        lambda: _kernel.MessageOrder().load(bytes(SIZE), 0, 1, 1, 3),
        lambda: _kernel.write_run(bytearray(SIZE), ORDER(), 0, array("I", [1]), bytes(ENQUEUE_ROW.size), 0,
                                  1, 1, 1, 1, 1, 1, 1),
        lambda: _kernel.write_run(bytearray(SIZE), ORDER(), 0, array("I", [0]), b"", 0, 1, 1, 1, 1, 1, 1, 1),
        lambda: _kernel.write_run(bytearray(SIZE), object(), 0, array("I", [0]), b"", 0, 1, 1, 1, 1, 1, 1, 1),
        lambda: _kernel.forget(bytearray(9), 5, 10),
        lambda: _kernel.forget(bytes(9), 5, 6),
        lambda: _kernel.ack_run(bytes(SIZE), {}, {}, None, b"", bytes(SETTLE_ROW.size), 0),
    ],
)  # fmt: skip
def test_the_kernel_refuses_what_makes_no_sense(wrong):
    with pytest.raises((TypeError, ValueError, OverflowError, LookupError, struct.error, BufferError)):
        wrong()


def test_memory_is_given_back_of_nothing_but_what_was_named():
    rows = bytearray(b"x" * 100_000)
    for side in (_kernel, pure):
        side.forget(rows, 40_000, 60_000)
        assert rows[:40_000] == b"x" * 40_000
        assert rows[60_000:] == b"x" * 40_000


def test_a_slot_is_in_an_order_once():
    made = _kernel.MessageOrder()
    made.push(1, 1, 1)
    with pytest.raises(ValueError, match="already"):
        made.push(2, 2, 1)
    assert len(made) == 1
