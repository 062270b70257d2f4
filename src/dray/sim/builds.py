"""Builds of other versions than this one, to share a log with it.

`NewMachine` is one version ahead: one more noun, one more command, and one
command with one more field. `FirstMachine` is what was released first: of the
rules it knows version 1.
"""

from collections.abc import Mapping
from typing import ClassVar, Final

from dray.machine.command import Command, Name, Packed
from dray.machine.garbage import Gone, MarkDeleting, Objects, Pin, Unpin
from dray.machine.head import SUPPORTED
from dray.machine.machine import Machine
from dray.machine.names import SessionId
from dray.machine.noun import Listing, Noun
from dray.machine.packing import Reader, Writer
from dray.machine.step import Step
from dray.machine.verdict import DONE, Verdict

NEWER: Final = SUPPORTED + 1
FIRST: Final = 1


class Note(Packed, frozen=True, kw_only=True):
    """The new command: remember a text."""

    number = 250
    since = NEWER

    text: Name


class LongPin(Pin, frozen=True, kw_only=True):
    """The old command with a new field at its end."""

    fields_since: ClassVar[Mapping[str, int]] = {"reason": NEWER}

    reason: str = ""


class Notes:
    """The new noun."""

    name: ClassVar[str] = "notes"
    since: ClassVar[int] = NEWER
    commands: ClassVar[tuple[type[Command], ...]] = (Note,)

    def __init__(self) -> None:
        self.texts: list[str] = []

    def apply(self, step: Step, command: Command) -> Verdict:
        assert isinstance(command, Note)
        self.texts.append(command.text)
        return DONE

    def session_ended(self, step: Step, session: SessionId) -> None:
        pass

    def dump(self, out: Writer, version: int) -> None:
        out.values([self.texts])

    def load(self, source: Reader, version: int) -> None:
        self.texts = source.row().texts()

    def show(self, prefix: str) -> Listing:
        return iter(())


class NewObjects(Objects):
    """Knows the longer pin, and what it is for."""

    commands: ClassVar[tuple[type[Command], ...]] = (LongPin, Unpin, MarkDeleting, Gone)

    def apply(self, step: Step, command: Command) -> Verdict:
        if isinstance(command, LongPin) and command.reason == "never":
            return DONE
        return super().apply(step, command)


class NewMachine(Machine):
    """The machine of the newer build."""

    supported: ClassVar[int] = NEWER

    def all_nouns(self) -> tuple[Noun, ...]:
        self.notes = Notes()
        self.objects = NewObjects(self.head, self.timeline, self.holds)
        self.streams._objects = self.objects
        nouns = super().all_nouns()
        return (*nouns, self.notes)


class FirstMachine(Machine):
    """The machine of the first release."""

    supported: ClassVar[int] = FIRST
