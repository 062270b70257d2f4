"""Holds: objects kept by time, with nobody alive for it."""

import random

import pytest

from dray.machine import checkpoint, listing
from dray.machine.command import NotActive
from dray.machine.garbage import MarkDeleting, Marked
from dray.machine.holds import HOLD_KEY, LONGEST_MS, MAX_HOLDS, SHARES, Held, Hold, LetGo
from dray.machine.sessions import Close
from dray.machine.streams import FloorReason, RaiseFloor
from dray.machine.verdict import DONE, Refused, Why

from .scribe import HOUR, NOW
from .shop import Shop

SECOND = 1_000


@pytest.fixture
def shop():
    return Shop(version=2)


def cut(shop: Shop, stream: int, offset: int) -> None:
    shop.writer.do(RaiseFloor(stream=stream, reason=FloorReason.DELETE_RECORDS, bound=offset))


def mark(shop: Shop, *objects: int):
    return shop.writer.do(MarkDeleting(objects=objects, grace_ms=60 * SECOND))


def test_a_hold_keeps_what_dies_behind_it_until_its_time_is_over(shop):
    """X3, X9, R-111"""
    [one] = shop.topic("t", 1)
    for _ in range(3):
        shop.append((one, 1))
    cut(shop, one, 1)
    held = shop.writer.do(Hold(pin="plan", length_ms=2 * HOUR))
    assert held == Held(pin="plan", position=shop.machine.position, until_ms=NOW + 2 * HOUR)
    cut(shop, one, 2)
    shop.writer.live(2 * HOUR - 1)
    assert mark(shop, 0, 1) == Marked(objects=(0,))
    assert shop.machine.objects.due(0, 10) == []
    shop.writer.pass_time(1)
    shop.writer.send()
    assert shop.machine.objects.due(0, 10) == [1]
    assert mark(shop, 0, 1) == Marked(objects=(1,))


def test_a_hold_outlives_the_session_that_made_it_and_can_be_ended_by_another(shop):
    """X9"""
    [one] = shop.topic("t", 1)
    shop.append((one, 1))
    planner = shop.tape.open("planner")
    planner.send(Hold(pin="plan", length_ms=24 * HOUR))
    planner.send(Close())
    cut(shop, one, 1)
    shop.writer.live(HOUR)
    assert mark(shop, 0) == Marked(objects=())
    assert shop.writer.do(LetGo(pin="plan")) == DONE
    assert shop.writer.do(LetGo(pin="plan")) == DONE
    assert mark(shop, 0) == Marked(objects=(0,))


def test_plans_share_a_hold_that_is_young_for_the_time_they_ask_for(shop):
    """X10"""
    length = SHARES * SECOND
    first = shop.writer.do(Hold(pin="a", length_ms=length))
    shop.writer.pass_time(SECOND)
    second = shop.writer.do(Hold(pin="b", length_ms=length))
    assert (second.pin, second.position, second.until_ms) == ("a", first.position, NOW + SECOND + length)
    shop.writer.pass_time(1)
    assert shop.writer.do(Hold(pin="c", length_ms=length)).pin == "c"
    assert shop.writer.do(Hold(pin="d", length_ms=10 * SECOND)).pin == "c"
    shop.writer.pass_time(51)
    assert shop.writer.do(Hold(pin="e", length_ms=10 * SECOND)).pin == "e"
    assert shop.writer.do(Hold(pin="a", length_ms=2 * length)).position == first.position  # asked for by its name
    alone = shop.writer.do(Hold(pin="f", length_ms=length, shared=False))
    assert alone.pin == "f"
    assert shop.writer.do(Hold(pin="g", length_ms=length)).pin != "f"
    assert list(shop.machine.holds.current()) == ["a", "c", "e", "f"]


@pytest.mark.slow
def test_holds_of_one_length_stay_few_however_often_somebody_plans(shop):
    """X10: a plan a second, for a day."""
    for _ in range(20_000):
        shop.writer.pass_time(SECOND)
        shop.writer.send(Hold(pin=f"p{shop.machine.position}", length_ms=4 * HOUR))
    assert SHARES // 2 < len(shop.machine.holds.current()) <= SHARES + 1


def test_a_cluster_has_a_bounded_number_and_time_makes_room(shop):
    """X10"""
    for number in range(MAX_HOLDS):
        assert isinstance(shop.writer.do(Hold(pin=str(number), length_ms=HOUR, shared=False)), Held)
    refusal = shop.writer.do(Hold(pin="more", length_ms=HOUR, shared=False))
    assert isinstance(refusal, Refused)
    assert refusal.why is Why.LIMIT
    assert isinstance(shop.writer.do(Hold(pin="7", length_ms=2 * HOUR, shared=False)), Held)
    shop.writer.live(HOUR)
    assert isinstance(shop.writer.do(Hold(pin="more", length_ms=HOUR, shared=False)), Held)
    assert sorted(shop.machine.holds.current()) == ["7", "more"]


def test_nobody_holds_for_ever_nor_before_version_two(shop):
    """M10"""
    assert isinstance(shop.writer.do(Hold(pin="p", length_ms=LONGEST_MS)), Held)
    assert isinstance(shop.writer.do(Hold(pin="q", length_ms=LONGEST_MS + 1)), Refused)
    old = Shop(version=1)
    with pytest.raises(NotActive):
        old.writer.send(Hold(pin="p", length_ms=1))


def test_a_hold_is_listed_under_its_name(shop):
    shop.writer.send(Hold(pin="plan ü", length_ms=HOUR))
    key = HOLD_KEY.build("plan ü")
    assert listing.get(shop.machine, key) == {
        "position": shop.machine.position, "madeMs": NOW, "untilMs": NOW + HOUR, "shared": True,
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_random_holds_are_what_a_naive_list_says(seed):
    """X9, X10; equal again after a checkpoint."""
    print(f"seed {seed}")
    dice, shop = random.Random(seed), Shop(version=2)
    twin: list[tuple[str, int, int, int, bool]] = []
    for step in range(600):
        shop.writer.pass_time(dice.choice((0, 1, SECOND, 60 * SECOND)))
        shop.writer.send()
        now = shop.machine.time_ms
        twin = [one for one in twin if one[3] > now]
        if dice.random() < 0.8:
            command = Hold(
                pin=f"p{dice.randrange(step + 1)}", length_ms=dice.choice((SECOND, HOUR, 24 * HOUR)),
                shared=dice.random() < 0.8,
            )  # fmt: skip
            held = shop.writer.do(command)
            young = [one for one in twin if one[4] and now - one[2] <= command.length_ms // SHARES]
            own = [one for one in twin if one[0] == command.pin]
            found = own or (sorted(young, key=lambda one: (one[2], one[0]))[-1:] if command.shared else [])
            name, position, made, until, shared = (
                found[0] if found else (command.pin, shop.machine.position, now, 0, command.shared)
            )
            until = max(until, now + command.length_ms)
            twin = [one for one in twin if one[0] != name] + [(name, position, made, until, shared)]
            assert held == Held(pin=name, position=position, until_ms=until)
        else:
            gone = f"p{dice.randrange(step + 1)}"
            shop.writer.send(LetGo(pin=gone))
            twin = [one for one in twin if one[0] != gone]
        assert shop.machine.holds.oldest() == min((one[1] for one in twin), default=None)
    again = checkpoint.load(checkpoint.dump(shop.machine))
    assert checkpoint.dump(again) == checkpoint.dump(shop.machine)
    assert again.holds.current() == shop.machine.holds.current()
    assert len(again.holds.current()) == len(twin)
