"""Which checkpoints of this log may be loaded or trimmed to.

A checkpoint is a pure function of the log, so two replicas that made or
checked one at the same position must agree to the byte. The makers and the
checkers say so in the log; where they differ, nobody trims.

Invariants
    K1  A checkpoint counts as confirmed only if a session other than its
        maker's, or its maker while it is the only broker or compactor alive,
        found the same bytes; and nobody found others.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from msgspec import Meta

from dray.machine.command import Command, Count, Packed
from dray.machine.keys import Shape
from dray.machine.names import SessionId
from dray.machine.noun import Listing, stray
from dray.machine.packing import Reader, Writer
from dray.machine.sessions import SessionKind, Sessions
from dray.machine.step import Step
from dray.machine.verdict import DONE, Verdict, Why, refused

KEPT: Final = 8
CHECKPOINT_KEY: Final = Shape("checkpoints/#")


class Checkpointed(Packed, frozen=True, kw_only=True):
    """A checkpoint of `position` was written, or read back and found equal."""

    number = 7

    position: Count
    hash: Annotated[bytes, Meta(min_length=32, max_length=32)]
    size: Count
    confirms: bool = False


@dataclass(slots=True, kw_only=True)
class CheckpointMark:
    """What the log says about the checkpoint of one position."""

    position: int
    hash: bytes
    size: int
    maker: SessionId
    confirmed: bool = False
    disputed: bool = False

    @property
    def usable(self) -> bool:
        return self.confirmed and not self.disputed  # K1


class Confirmations:
    """The newest checkpoints, by position."""

    name: ClassVar[str] = "confirmations"
    since: ClassVar[int] = 1
    commands: ClassVar[tuple[type[Command], ...]] = (Checkpointed,)

    def __init__(self, sessions: Sessions) -> None:
        self.marks: list[CheckpointMark] = []
        self._sessions = sessions

    def usable(self) -> list[CheckpointMark]:
        """Those that may be loaded or trimmed to, oldest first."""
        return [mark for mark in self.marks if mark.usable]

    def apply(self, step: Step, command: Command) -> Verdict:
        return self._announced(step, command) if isinstance(command, Checkpointed) else stray(command)

    def session_ended(self, step: Step, session: SessionId) -> None:
        """A checkpoint outlives its maker."""

    def _announced(self, step: Step, command: Checkpointed) -> Verdict:
        if not 0 < command.position < step.position:
            return refused(Why.MALFORMED, "a checkpoint lies before its announcement")
        mark = next((mark for mark in self.marks if mark.position == command.position), None)
        if mark is not None:
            self._compare(step, mark, command)
            return DONE
        if command.confirms:
            return refused(Why.NOT_FOUND, "no such checkpoint was announced")
        if len(self.marks) >= KEPT and command.position < self.marks[0].position:
            return refused(Why.STALE, "newer checkpoints were announced")
        self.marks.append(
            CheckpointMark(position=command.position, hash=command.hash, size=command.size, maker=step.session)
        )
        self.marks.sort(key=lambda mark: mark.position)
        self._let_go()
        return DONE

    def _compare(self, step: Step, mark: CheckpointMark, command: Checkpointed) -> None:
        if (mark.hash, mark.size) != (command.hash, command.size):
            mark.disputed = True
        elif step.session != mark.maker or (command.confirms and self._is_alone(step.session)):
            mark.confirmed = True  # K1

    def _is_alone(self, session: SessionId) -> bool:
        others = (other for other in self._sessions.live.values() if other.id != session)
        return all(other.kind is SessionKind.TOOL for other in others)

    def _let_go(self) -> None:
        """Keep the newest, and always the newest two that are usable."""
        needed = [mark.position for mark in self.usable()[-2:]]
        while len(self.marks) > KEPT:
            oldest = next(mark for mark in self.marks if mark.position not in needed)
            self.marks.remove(oldest)

    def dump(self, out: Writer, version: int) -> None:
        out.values([len(self.marks)])
        for mark in self.marks:
            out.values([
                mark.position, mark.hash, mark.size, mark.maker, int(mark.confirmed), int(mark.disputed),
            ])  # fmt: skip

    def load(self, source: Reader, version: int) -> None:
        (marks,) = source.ints(1)
        for _ in range(marks):
            row = source.row()
            self.marks.append(CheckpointMark(
                position=row.number(), hash=row.raw(), size=row.number(), maker=SessionId(row.number()),
                confirmed=bool(row.number()), disputed=bool(row.number()),
            ))  # fmt: skip

    def show(self, prefix: str) -> Listing:
        for mark in self.marks:
            yield CHECKPOINT_KEY.build(mark.position), {
                "hash": mark.hash.hex(), "size": mark.size, "maker": mark.maker,
                "confirmed": mark.confirmed, "disputed": mark.disputed,
            }  # fmt: skip
