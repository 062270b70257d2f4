"""Patterns of subscriptions: RE2, so no pattern takes more than linear time.

A pattern comes from a client and is matched against the names of all topics.
Python's own `re` goes back and forth in what it has read, for hours if the
pattern asks for it; it is never given one.

Invariants
    GP1  Compiling takes at most `MEMORY_BYTES`, and matching a time that is
         linear in the name.
"""

from collections.abc import Iterable
from typing import Final

import re2

from dray.groups.errors import BadPattern

MEMORY_BYTES: Final = 1 << 20


def _options() -> re2.Options:
    options = re2.Options()
    options.log_errors = False  # it writes to stderr
    options.max_mem = MEMORY_BYTES  # GP1
    options.never_capture = True
    return options


_OPTIONS: Final = _options()


def check_pattern(pattern: str) -> None:
    """Raise unless it is a pattern.

    Raises:
        BadPattern: RE2 refuses it, or it would take too much memory (GP1).
    """
    try:
        re2.compile(pattern, _OPTIONS)
    except re2.error as refused:
        raise BadPattern("RE2 does not take this pattern", why=_reason(refused)) from refused


def matching(pattern: str, names: Iterable[str]) -> tuple[str, ...]:
    """The names that a pattern matches from beginning to end, in order; none if it is no pattern."""
    try:
        compiled = re2.compile(pattern, _OPTIONS)
    except re2.error:
        return ()  # an older RE2 took it; a group does not stop for that
    return tuple(name for name in sorted(names) if compiled.fullmatch(name) is not None)


def _reason(refused: Exception) -> str:
    text = refused.args[0] if refused.args else ""
    return text.decode(errors="replace")[:200] if isinstance(text, bytes) else str(text)[:200]
