"""A noun of the machine: the state of one kind of thing, with the rules about it.

A noun owns its commands and verdicts, its part of a checkpoint and its part
of the view. Rules that span nouns belong to the one that refuses; the noun
that it asks is given to it. The machine holds all nouns in one tuple and
knows nothing else about them.
"""

from collections.abc import Iterator
from typing import ClassVar, Protocol, TypeAlias

from dray.machine.command import Command
from dray.machine.names import SessionId
from dray.machine.packing import Reader, Writer
from dray.machine.step import Step
from dray.machine.verdict import Refused, Verdict, Why, refused

Shown: TypeAlias = "int | str | bool | list[Shown] | dict[str, Shown] | None"
Fields: TypeAlias = dict[str, Shown]
Listing: TypeAlias = Iterator[tuple[str, Fields]]


class Noun(Protocol):
    """One part of the state of a domain."""

    name: ClassVar[str]
    """Of its section in a checkpoint."""
    since: ClassVar[int]
    """The first version of the rules that has it."""
    commands: ClassVar[tuple[type[Command], ...]]

    def apply(self, step: Step, command: Command) -> Verdict:
        """Judge one of its commands, and change state only if it is accepted."""
        ...

    def session_ended(self, step: Step, session: SessionId) -> None:
        """What is bound to a session ends with it."""
        ...

    def dump(self, out: Writer, version: int) -> None:
        """Its section, as the active version has it."""
        ...

    def load(self, source: Reader, version: int) -> None: ...

    def show(self, prefix: str) -> Listing:
        """Its keys and their values in key order; what cannot begin with the prefix may be left out."""
        ...


def stray(command: Command) -> Refused:
    """A command that came to a noun which does not have it."""
    return refused(Why.INTERNAL, f"{type(command).__name__} came to the wrong noun")
