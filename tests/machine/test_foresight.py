"""What is foreseen for an entry is what it gets."""

import random

import pytest

from dray.machine import checkpoint, foresight
from dray.machine.append import Append, Appended
from dray.machine.append_if import AppendIf
from dray.machine.foresight import foresee
from dray.machine.machine import Machine
from dray.machine.sessions import Close, KeepAlive
from dray.machine.step import Applied, Outcome
from dray.machine.streams import CloseStream, ExpireProducers, FloorReason, RaiseFloor
from tests.machine import scribe
from tests.machine.scribe import Writer
from tests.machine.world import World

SEEDS = range(6)


class Foresighted(Machine):
    """Foresees every entry before it applies it."""

    gave = 0
    checked_whole = 0

    def apply(self, position: int, entry: bytes, want_verdicts: bool = False) -> Applied:
        whole = position % 40 == 0 and self.version > 0
        before = checkpoint.dump(self) if whole else b""
        foreseen = [base for _, _, base in foresee(self, entry)]
        if whole:
            Foresighted.checked_whole += 1
            assert checkpoint.dump(self) == before, "to foresee is not to do"
        applied = super().apply(position, entry, want_verdicts=True)
        given = [] if applied.outcome is not Outcome.EXECUTED else applied.verdicts or []
        got = [base for verdict in given if isinstance(verdict, Appended) for base in verdict.given if base >= 0]
        assert foreseen == got, (position, applied.outcome)
        Foresighted.gave += len(got)
        return applied


def mixing(dice: random.Random):
    """Entries in which an append is one of several commands, as writers put them together."""
    plain = Writer.entry

    def entry(self: Writer, *commands, **fields) -> bytes:
        appends = [command for command in commands if isinstance(command, Append)]
        if not appends or dice.random() < 0.3:
            return plain(self, *commands, **fields)
        rows = list(appends[0].rows())
        stream = dice.choice(rows).stream
        others = [
            KeepAlive(), RaiseFloor(stream=stream, reason=FloorReason.SIZE, bound=100),
            ExpireProducers(stream=stream, idle_ms=0), CloseStream(stream=stream, limit=3), AppendIf(append=appends[0]),
            appends[0], Close(),
        ]  # fmt: skip
        before = dice.choices(others, [8, 4, 2, 1, 2, 3, 1], k=dice.randrange(3))
        after = dice.choices(others[:4], k=dice.randrange(2))
        if self.tape.machine.version < 2:
            before = [one for one in before if not isinstance(one, AppendIf)]
        return plain(self, *before, *commands, *after, **fields)

    return entry


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_foreseen_is_what_apply_gives_whatever_else_is_in_the_entry(
    seed: int, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M20: at every entry of a history, late copies, ended sessions and nonsense among them."""
    print("seed", seed)
    monkeypatch.setattr(scribe, "MACHINES", [Foresighted])
    monkeypatch.setattr(Writer, "entry", mixing(random.Random(seed)))
    monkeypatch.setattr(Foresighted, "gave", 0)
    monkeypatch.setattr(Foresighted, "checked_whole", 0)
    World(seed, version=version).run(250)
    assert Foresighted.gave > 30
    assert Foresighted.checked_whole > 3


def test_the_test_finds_a_foresight_that_forgets_what_stands_in_front(monkeypatch: pytest.MonkeyPatch) -> None:
    """M20."""
    monkeypatch.setattr(scribe, "MACHINES", [Foresighted])
    monkeypatch.setattr(foresight, "_is_unsettled", lambda commands: False)
    monkeypatch.setattr(Writer, "entry", mixing(random.Random(0)))
    with pytest.raises(AssertionError):
        World(0, version=2).run(2_000)


def test_no_entry_of_nobody_and_no_bytes_at_all_are_foreseen_to_do_anything() -> None:
    """M20, M3."""
    world = World(3).run(40)
    for raw in (b"", b"x" * 43, b"\0" * 44, b"\xff" * 200):
        assert foresee(world.machine, raw) == []
