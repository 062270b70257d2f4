"""What is wrong with a configuration, told so that it can be mended at once."""

import difflib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from dray.errors import Invalid

_LONGEST_SHOWN: Final = 80
_USER_INFO: Final = re.compile(r"://\S*@")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing to mend."""

    key: str
    message: str
    origin: str

    def __str__(self) -> str:
        where = f" ({self.origin})" if self.origin else ""
        return f"{self.key}: {self.message}{where}" if self.key else f"{self.message}{where}"


class BadConfig(Invalid):
    """The process does not start with this configuration. All problems are named at once."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


def nearest(key: str, known: Collection[str]) -> str | None:
    """The known key that was most likely meant."""
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.7)
    if close:
        return close[0]
    # A setting under the wrong section, or without any.
    tail = key.rpartition(".")[2]
    tails = {name.rpartition(".")[2]: name for name in known}
    same = difflib.get_close_matches(tail, tails, n=1, cutoff=0.8)
    return tails[same[0]] if same else None


def quote(value: object) -> str:
    """A value that is not secret, for a message: short, and without the user part of a URL (CF1)."""
    text = _USER_INFO.sub("://***@", str(value))
    if len(text) > _LONGEST_SHOWN:
        text = text[:_LONGEST_SHOWN] + "..."
    return f'"{text}"' if isinstance(value, str) else text
