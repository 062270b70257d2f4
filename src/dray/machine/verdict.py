"""What the machine answers: one verdict for each command of an entry.

A verdict is a value and says what happened; a service turns it into what its
caller does next. Those of a noun stand beside its commands; here are the two
that any command may get. `Refused` always means that the command changed
nothing.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Why(Enum):
    """Why a command was refused."""

    MALFORMED = "the bytes are not a command, or a field makes no sense"
    NOT_FOUND = "what it names does not exist"
    EXISTS = "what it would make exists"
    STATE = "what it names is in another state"
    STALE = "what it names has moved on since it was looked at"
    LIVE = "a live session holds the name"
    NEWER = "a newer session of that name was opened"
    VERSION = "the version does not fit"
    FOREIGN = "it belongs to another session, log or domain"
    PAUSED = "time jumped less than an hour ago"
    LIMIT = "it is more than the machine takes"
    INTERNAL = "a rule of the machine failed"


class Verdict:
    """The answer to one command."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(Verdict):
    """Nothing was changed."""

    why: Why
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Done(Verdict):
    """It is so now, or it was so already."""


DONE: Final = Done()


def refused(why: Why, reason: str) -> Refused:
    return Refused(why=why, reason=reason)
