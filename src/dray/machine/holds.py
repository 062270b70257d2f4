"""Holds: objects kept for a reader that no session stands for.

A plan of Spark names objects that its tasks read hours later, from processes
that know nothing of us. Who plans holds everything that is there, for a time
that it names, and goes. The hold lasts by machine time: nobody has to live for
it, and nobody can forget to end it.

A dashboard may plan every second. So plans share holds: an older one keeps all
that a younger one would.

Invariants
    X9  A hold keeps every object that dies at or after its position, until
         machine time has passed its end; then it counts for nothing.
    X10  A hold is shared only by who asks for a time of which its age is at
         most a `SHARES`th: so none outlives its last reader by more than that,
         and holds of one length are about `SHARES`. A cluster has at most
         `MAX_HOLDS`.
"""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Final

from msgspec import Meta

from dray.machine.command import Command, Name, Packed
from dray.machine.keys import Shape
from dray.machine.names import SessionId
from dray.machine.noun import Listing, stray
from dray.machine.packing import Reader, Writer
from dray.machine.step import Step
from dray.machine.timeline import Timeline
from dray.machine.verdict import DONE, Verdict, Why, refused

HOLD_KEY: Final = Shape("pins/$")
MAX_HOLDS: Final = 1_000
SHARES: Final = 200
LONGEST_MS: Final = 7 * 86_400_000
HOLDS_VERSION: Final = 2
"""The version of the rules that knows holds."""


class Hold(Packed, frozen=True, kw_only=True):
    """Keep every object that dies from here on, for so long. The name is the caller's to choose, and new."""

    number = 105
    since = HOLDS_VERSION

    pin: Name
    length_ms: Annotated[int, Meta(ge=1, le=LONGEST_MS)]
    shared: bool = True
    """Whether a hold of somebody else will do, and this one for somebody else. One that is not may be let go early."""


class LetGo(Packed, frozen=True, kw_only=True):
    """End a hold before its time. To end one that is gone is harmless."""

    number = 106
    since = HOLDS_VERSION

    pin: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class Held(Verdict):
    """Whatever was alive at `position` stays in the store until `until_ms` of machine time, under this name."""

    pin: str
    position: int
    until_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldObjects:
    """One hold."""

    position: int
    made_ms: int
    until_ms: int
    shared: bool


class Holds:
    """The holds of a domain, by name."""

    name: ClassVar[str] = "holds"
    since: ClassVar[int] = HOLDS_VERSION
    commands: ClassVar[tuple[type[Command], ...]] = (Hold, LetGo)

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._all: dict[str, HeldObjects] = {}
        """Some of them may have passed: they go with the next command."""

    def current(self) -> dict[str, HeldObjects]:
        """Those that count now (X9)."""
        return {name: one for name, one in self._all.items() if one.until_ms > self._timeline.time_ms}

    def oldest(self) -> int | None:
        """Nothing that died at or after this position may be deleted (X9)."""
        now_ms = self._timeline.time_ms
        return min((one.position for one in self._all.values() if one.until_ms > now_ms), default=None)

    def apply(self, step: Step, command: Command) -> Verdict:
        match command:
            case Hold():
                return self._hold(step, command)
            case LetGo():
                self._all.pop(command.pin, None)
                return DONE
            case _:
                return stray(command)

    def _hold(self, step: Step, command: Hold) -> Verdict:
        self._all = self.current()
        now_ms = self._timeline.time_ms
        name = self._name_for(command, now_ms)
        found = self._all.get(name)
        if found is None:
            if len(self._all) >= MAX_HOLDS:
                return refused(Why.LIMIT, "the cluster has too many holds of objects")  # X10
            found = HeldObjects(position=step.position, made_ms=now_ms, until_ms=0, shared=command.shared)
        found = self._all[name] = replace(found, until_ms=max(found.until_ms, now_ms + command.length_ms))
        return Held(pin=name, position=found.position, until_ms=found.until_ms)

    def _name_for(self, command: Hold, now_ms: int) -> str:
        """Of the hold that will do: the youngest that is young enough (X10), else its own."""
        if not command.shared or command.pin in self._all:
            return command.pin
        age_ms = command.length_ms // SHARES
        young = [
            (one.made_ms, name) for name, one in self._all.items() if one.shared and now_ms - one.made_ms <= age_ms
        ]
        return max(young, default=(0, command.pin))[1]

    def session_ended(self, step: Step, session: SessionId) -> None:
        """Holds outlive whoever made them."""

    def dump(self, out: Writer, version: int) -> None:
        out.values([len(self._all)])
        for name, one in sorted(self._all.items()):
            out.values([name, one.position, one.made_ms, one.until_ms, int(one.shared)])

    def load(self, source: Reader, version: int) -> None:
        (count,) = source.ints(1)
        for _ in range(count):
            row = source.row()
            name = row.text()
            self._all[name] = HeldObjects(
                position=row.number(), made_ms=row.number(), until_ms=row.number(), shared=bool(row.number())
            )

    def show(self, prefix: str) -> Listing:
        for name, one in sorted((HOLD_KEY.build(name), one) for name, one in self.current().items()):
            yield name, {
                "position": one.position, "madeMs": one.made_ms, "untilMs": one.until_ms, "shared": one.shared,
            }  # fmt: skip
