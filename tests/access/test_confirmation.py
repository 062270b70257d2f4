"""What cannot be undone is asked for twice."""

import itertools
from dataclasses import replace

import pytest

from dray.access.authorizer import Action
from dray.access.confirmation import LIFE_MS, TOKEN_CHARS, Confirmable, is_valid, sign
from dray.access.errors import ConfirmationNeeded
from dray.access.principals import Entrance, nobody

from .stand import stand, two

SECRET = b"s" * 32
WANTED = Confirmable(operation="heap.delete", target=b"h" * 16, revision=3, principal="User:a k", options="all")
NOW = 1_700_000_000_000


def test_a_confirmation_is_good_for_a_minute_and_for_nothing_else():
    """CN1, D-212, A-33"""
    token = sign(SECRET, WANTED, NOW + LIFE_MS)
    assert is_valid(SECRET, WANTED, token, NOW)
    assert is_valid(SECRET, WANTED, token, NOW + LIFE_MS - 1)
    assert not is_valid(SECRET, WANTED, token, NOW + LIFE_MS)
    assert not is_valid(SECRET, WANTED, token, NOW - 1), "nobody hands out longer ones"
    assert not is_valid(b"t" * 32, WANTED, token, NOW)
    for other in (
        {"operation": "heap.purge"}, {"target": b"i" * 16}, {"revision": 4}, {"principal": "User:b k"}, {"options": ""},
    ):  # fmt: skip
        assert not is_valid(SECRET, replace(WANTED, **other), token, NOW), other


def test_what_is_asked_for_cannot_be_moved_between_fields():
    """CN1"""
    parts = ("a", "ab", "b", "")
    made = {
        replace(WANTED, operation=one, principal=two, options=three).packed()
        for one, two, three in itertools.product(parts, repeat=3)
    }
    assert len(made) == len(parts) ** 3


@pytest.mark.parametrize(
    "given", ["", "x", "=" * 43, "A" * TOKEN_CHARS, "A" * (1 << 20), "ü" * 43, "\0" * 43, "A" * 42 + "="]
)
def test_nonsense_confirms_nothing(given):
    assert not is_valid(SECRET, WANTED, given, NOW)


def test_every_changed_letter_is_found():
    token = sign(SECRET, WANTED, NOW + LIFE_MS)
    for at in range(len(token) - 1):
        changed = token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :]
        assert not is_valid(SECRET, WANTED, changed, NOW)


async def test_the_second_call_goes_through_on_another_broker_and_needs_force():
    """CN1, D-212: nothing is remembered, the secret is the cluster's"""
    caller = nobody(Entrance.HTTP, "127.0.0.1", "r")
    asked = {"target": b"h" * 16, "revision": 1}
    async with two() as (first, second):
        with pytest.raises(ConfirmationNeeded) as refusal:
            await first.access.confirm(caller, Action.DELETE_HEAP, given="", force=True, **asked)
        token = refusal.value.confirmation
        assert token not in str(refusal.value)
        with pytest.raises(ConfirmationNeeded):
            await second.access.confirm(caller, Action.DELETE_HEAP, given=token, force=False, **asked)
        with pytest.raises(ConfirmationNeeded):
            await second.access.confirm(caller, Action.PURGE_HEAP, given=token, force=True, **asked)
        await second.access.confirm(caller, Action.DELETE_HEAP, given=token, force=True, **asked)
        assert first.replica.machine.access.secret == second.replica.machine.access.secret != b""


async def test_of_two_brokers_that_need_a_secret_one_gives_it():
    async with stand() as broker:
        wanted = {"target": b"h", "revision": 0, "given": "", "force": False}
        for _ in range(3):
            with pytest.raises(ConfirmationNeeded):
                await broker.access.confirm(nobody(Entrance.GRPC, "", "r"), Action.PURGE_HEAP, **wanted)
        assert broker.replica.machine.access.revision == 1
