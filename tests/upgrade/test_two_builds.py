"""An old and a new build share a log, before and after `Activate`, and never differ."""

import pytest

from dray.errors import DrayError
from dray.log import envelope
from dray.log.memory import MemoryLog
from dray.machine import checkpoint
from dray.machine.checkpoint import CheckpointTooNew
from dray.machine.command import BadCommand, Decoders, NotActive, Packed, encode
from dray.machine.garbage import Pinned
from dray.machine.head import Activate
from dray.machine.machine import Machine
from dray.machine.noun import Noun
from dray.machine.sessions import KeepAlive, SessionKind
from dray.machine.step import Outcome
from dray.machine.verdict import DONE, Done, Refused, Why
from dray.replica.errors import TooNew
from dray.replica.fold import fold_to
from dray.sim.builds import NEWER, LongPin, NewMachine, Note
from tests.machine.scribe import Tape, Writer
from tests.machine.world import World


def fold(entries: list[tuple[int, bytes]], kind: type[Machine]) -> Machine:
    machine = kind()
    for position, entry in entries:
        machine.apply(position, entry)
    return machine


def forged(writer: Writer, *packed: tuple[int, bytes]) -> bytes:
    """An entry that no writer of ours would send: its commands are above the version it says."""
    writer.n += 1
    return envelope.encode(
        packed, session=writer.session, n=writer.n, time_ms=writer.time_ms, seen_position=0, seen_digest=0,
        version=writer.tape.machine.version,
    )  # fmt: skip


@pytest.mark.parametrize("version", [1, NEWER - 1])
@pytest.mark.parametrize("seed", range(3))
def test_below_its_version_a_newer_build_does_exactly_what_an_older_one_does(seed, version):
    """D-273, M10, K2: digest, state and checkpoint, with commands and fields of the newer build in the log."""
    print(f"seed={seed}")
    world = World(seed, version=version).run(250)
    writer = world.tape.open("newer", highest_version=NEWER)
    note, pin = Note(text="x"), LongPin(pin="p", reason="whoever reads it would hold it")
    world.tape.write(forged(writer, encode(note, NEWER), encode(pin, NEWER), encode(KeepAlive(), version)))
    world.run(50)
    old, new = fold(world.tape.entries, Machine), fold(world.tape.entries, NewMachine)
    assert old.digest == new.digest
    assert checkpoint.dump(old) == checkpoint.dump(new)
    assert not new.notes.texts
    assert (writer.session, "p") not in new.objects.pins
    assert checkpoint.dump(checkpoint.load(checkpoint.dump(old), NewMachine)) == checkpoint.dump(new)


def test_the_rows_of_a_refused_newer_command_are_not_counted():
    """M7, M10: a build that does not know it cannot count them."""
    tape = Tape()
    writer = tape.open()
    applied = tape.write(forged(writer, (250, b"?"), encode(KeepAlive(), 1)))
    assert [type(verdict) for verdict in applied.verdicts] == [Refused, Done]
    newer = NewMachine()
    for position, entry in tape.entries[:-1]:
        newer.apply(position, entry)
    again = newer.apply(*tape.entries[-1], True)
    assert [type(verdict) for verdict in again.verdicts] == [Refused, Done]
    assert newer.digest == tape.machine.digest


def test_no_writer_sends_what_the_active_version_does_not_have():
    """M10"""
    with pytest.raises(NotActive):
        encode(Note(text="x"), NEWER - 1)
    with pytest.raises(NotActive):
        encode(LongPin(pin="p", reason="r"), NEWER - 1)
    number, payload = encode(LongPin(pin="p"), NEWER - 1)
    assert (number, payload) == encode(Machine().decoders.decode(number, payload, 1), 1), "an old build reads it"


class Bare(Packed, frozen=True, kw_only=True):
    """A newer command whose number says it all."""

    number = 251
    since = NEWER


def test_a_newer_command_without_fields_is_told_by_its_number():
    """M10"""
    with pytest.raises(NotActive):
        encode(Bare(), NEWER - 1)
    number, payload = encode(Bare(), NEWER)
    decoders = Decoders([Bare])
    with pytest.raises(BadCommand):
        decoders.decode(number, payload, NEWER - 1)
    assert decoders.decode(number, payload, NEWER) == Bare()


def test_after_activate_the_newer_rules_hold_and_an_older_build_stops(monkeypatch):
    """W-12, M5, M12"""
    monkeypatch.setattr("tests.machine.scribe.MACHINES", [NewMachine])
    tape = Tape(version=NEWER - 1)
    writer, older = tape.open("b1", highest_version=NEWER), tape.open("b2")
    refusal = writer.do(Activate(version=NEWER))
    assert isinstance(refusal, Refused), "an older broker is alive"
    assert refusal.why is Why.VERSION
    tape.open("b2", highest_version=NEWER)
    assert older.send(KeepAlive()).outcome is Outcome.DEAD
    assert writer.do(Activate(version=NEWER)) == DONE
    assert writer.do(Note(text="hello")) == DONE
    assert writer.do(LongPin(pin="p", reason="never")) == DONE
    assert isinstance(writer.do(LongPin(pin="q", reason="why")), Pinned)
    machine = tape.machine
    assert isinstance(machine, NewMachine)
    assert machine.notes.texts == ["hello"]
    loaded = checkpoint.load(checkpoint.dump(machine), NewMachine)
    assert isinstance(loaded, NewMachine)
    assert loaded.notes.texts == ["hello"]
    with pytest.raises(CheckpointTooNew):
        checkpoint.load(checkpoint.dump(machine))
    old = Machine()
    outcomes = [old.apply(position, entry).outcome for position, entry in tape.entries]
    assert outcomes[-1] is Outcome.HALTED
    assert old.version == NEWER > old.supported


async def test_an_old_build_makes_no_checkpoint_of_what_it_does_not_know(monkeypatch):
    """M5: who only folds stops as well; what it had would be taken for the state there."""
    monkeypatch.setattr("tests.machine.scribe.MACHINES", [NewMachine])
    tape = Tape(version=NEWER - 1)
    writer = tape.open("b1", highest_version=NEWER)
    writer.send(Activate(version=NEWER))
    writer.send(Note(text="hello"))
    log = MemoryLog()
    for _, entry in tape.entries:
        await log.append(entry)
    with pytest.raises(TooNew, match="run a newer Dray"):
        await fold_to(Machine(), log, await log.tail())
    await fold_to(NewMachine(), log, await log.tail())


def test_a_checkpoint_without_a_section_has_an_empty_noun(monkeypatch):
    """K3: the first checkpoint after `Activate` may be made from one before it."""
    monkeypatch.setattr("tests.machine.scribe.MACHINES", [NewMachine])
    tape = Tape(version=NEWER - 1)
    writer = tape.open("b1", highest_version=NEWER)
    before = checkpoint.dump(tape.machine)
    writer.do(Activate(version=NEWER))
    writer.do(Note(text="late"))
    loaded = checkpoint.load(before, NewMachine)
    for position, entry in tape.entries[loaded.position :]:
        loaded.apply(position, entry)
    assert checkpoint.dump(loaded) == checkpoint.dump(tape.machine)


class Without(Machine):
    """What it writes lacks the section of its last noun."""

    def all_nouns(self) -> tuple[Noun, ...]:
        return super().all_nouns()[:-1]


def test_a_section_that_is_missing_is_an_empty_noun():
    """K3"""
    tape = Tape(version=Machine.supported)
    tape.open()
    whole, without = checkpoint.dump(tape.machine), checkpoint.dump(fold(tape.entries, Without))
    assert without != whole
    assert checkpoint.dump(checkpoint.load(without)) == whole


def test_a_tool_of_an_older_build_hinders_no_upgrade():
    """M12"""
    tape = Tape(version=1)
    writer = tape.open("b1", highest_version=2)
    tape.open("old-tool", kind=SessionKind.TOOL)
    assert writer.do(Activate(version=2)) == DONE
    assert tape.machine.version == 2


def test_no_number_was_given_twice():
    """M11"""
    machine = NewMachine()
    kinds = [kind for noun in machine.nouns for kind in noun.commands]
    numbers = [kind.number for kind in kinds]
    assert len(numbers) == len(set(numbers))
    with pytest.raises(DrayError):
        machine.decoders.decode(0, b"", 1)
