"""Who asks for something that changes a heap: it stands in the log beside what was asked."""

from dataclasses import dataclass
from typing import Final

MAX_ASKER: Final = 255
"""Letters of each that the log has room for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedBy:
    """A person or program, and the name of its request."""

    actor: str = ""
    request: str = ""

    def __post_init__(self) -> None:
        for name in ("actor", "request"):
            object.__setattr__(self, name, getattr(self, name)[:MAX_ASKER])


NOBODY: Final = AskedBy()
